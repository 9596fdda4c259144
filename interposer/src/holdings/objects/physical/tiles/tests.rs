//! Regions of sparse arrays, and what is cut out of them.

use super::super::tests::{HANDLE, made, release};
use super::{Credit, Physical, Region, all};

const ARRAY: u64 = 3;

/// A box in level 0, of tiles of one element.
fn region(from: [u64; 3], extent: [u64; 3]) -> Region {
    Region::new([0, 0, 0], from, extent)
}

fn map(physical: &mut Physical, handle: u64, region: Region) -> Vec<Credit> {
    let holding = physical.holding(handle).unwrap();
    physical.tiles_held(holding, ARRAY, region)
}

fn cells(region: &Region) -> Vec<[u64; 3]> {
    let along = |axis: usize| region.from[axis]..region.to[axis];
    let planes = along(2).flat_map(|z| along(1).map(move |y| (y, z)));
    planes
        .flat_map(|(y, z)| along(0).map(move |x| [x, y, z]))
        .collect()
}

#[test]
fn a_box_without_another_is_each_of_its_cells_that_is_not_in_it_once() {
    let whole = region([2, 2, 2], [3, 3, 3]);
    for from in cells(&region([0, 0, 0], [5, 5, 5])) {
        for extent in cells(&region([1, 1, 1], [5, 5, 5])) {
            let hole = region(from, extent);
            let removed = cells(&hole);
            let mut wanted = cells(&whole);
            wanted.retain(|cell| !removed.contains(cell));
            assert_eq!(whole.overlaps(&hole), wanted.len() < 27, "{hole:?}");
            if !whole.overlaps(&hole) {
                continue;
            }
            let mut left: Vec<_> = whole.without(&hole).iter().flat_map(cells).collect();
            left.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(left, wanted, "{hole:?}");
        }
    }
}

#[test]
fn other_levels_layers_and_kinds_are_other_places() {
    let here = region([0; 3], [4; 3]);
    for of in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
        assert!(!here.overlaps(&Region::new(of, [0; 3], [4; 3])), "{of:?}");
    }
    assert!(here.overlaps(&here));
}

#[test]
fn a_dimension_that_an_array_lacks_may_have_no_extent() {
    let flat = Region::new([0; 3], [0; 3], [4, 4, 0]);
    assert!(flat.overlaps(&region([3, 3, 0], [1, 1, 1])));
    assert!(!flat.overlaps(&region([4, 0, 0], [1, 1, 1])));
    let end = Region::new([0; 3], [u64::MAX; 3], [u64::MAX; 3]);
    assert!(!flat.overlaps(&end));
}

#[test]
fn memory_behind_a_region_is_credited_with_its_last_part() {
    let (mut physical, credit) = made();
    assert_eq!(map(&mut physical, HANDLE, region([0; 3], [4, 4, 1])), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    let part = region([1, 1, 0], [2, 2, 1]);
    assert_eq!(physical.tiles_gone(ARRAY, &part), []);
    assert_eq!(physical.tiles_gone(ARRAY, &part), [], "nothing is there");
    let other = region([0; 3], [4, 4, 1]);
    assert_eq!(physical.tiles_gone(ARRAY + 1, &other), []);
    assert_eq!(physical.tiles_gone(ARRAY, &other), [credit]);
}

#[test]
fn memory_that_a_part_is_mapped_over_stays_charged_until_the_rest_is() {
    let (mut physical, first) = made();
    physical.created(0x6000, first.0, crate::account::Units(8));
    let _ = map(&mut physical, HANDLE, region([0; 3], [4, 1, 1]));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(map(&mut physical, 0x6000, region([0; 3], [1, 1, 1])), []);
    assert_eq!(
        map(&mut physical, 0x6000, region([1, 0, 0], [3, 1, 1])),
        [first]
    );
}

#[test]
fn the_end_of_an_array_lets_go_of_all_its_tiles() {
    let (mut physical, credit) = made();
    for x in 0..4 {
        let _ = map(&mut physical, HANDLE, region([2 * x, 0, 0], [1, 1, 1]));
    }
    let tail = Region::new([1, 0, 0], [0; 3], [65536, 1, 1]);
    let _ = map(&mut physical, HANDLE, tail);
    assert_eq!(release(&mut physical, HANDLE), []);
    let (first, last) = all(ARRAY);
    let tiles = physical.undoing(first, last);
    physical.not_undone(tiles);
    let tiles = physical.undoing(first, last);
    assert_eq!(physical.undone(tiles), [credit]);
}
