//! Regions of sparse arrays, and what is cut out of them.

use std::collections::BTreeMap;

use super::super::tests::{HANDLE, made, release};
use super::{Binding, Credit, Physical, Region, all};

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

/// Numbers below a bound, the same ones each time.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 1_u64;
    move |bound| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

/// The memory behind each cell of a level.
fn behind(physical: &Physical, level: u32) -> BTreeMap<[u64; 3], u64> {
    let mut behind = BTreeMap::new();
    for (place, (_, id)) in &physical.holds {
        let Binding::Array(_, its) = place else {
            panic!("{place:?}")
        };
        if its.of == [0, level, 0] {
            for cell in cells(its) {
                assert_eq!(behind.insert(cell, *id), None, "{cell:?} twice");
            }
        }
    }
    behind
}

#[test]
fn whatever_is_mapped_and_unmapped_each_cell_has_its_last_memory() {
    let (mut physical, _) = made();
    let mut levels = [(0, BTreeMap::new()), (1, BTreeMap::new())];
    let mut below = numbers();
    for handle in 0..2000 {
        levels.rotate_left(usize::from(below(2) > 0));
        let (level, wanted) = &mut levels[0];
        let maps = below(3) > 0;
        let from = [below(12), below(6), below(2)];
        let extent = [1 + below(6), 1 + below(4), 1 + below(2)];
        let place = Region::new([0, *level, 0], from, extent);
        if maps {
            physical.object_created(handle);
            let id = physical.handles[&handle].0;
            let _ = map(&mut physical, handle, place);
            wanted.extend(cells(&place).into_iter().map(|cell| (cell, id)));
        } else {
            let _ = physical.tiles_gone(ARRAY, &place);
            cells(&place).iter().for_each(|cell| {
                wanted.remove(cell);
            });
        }
        assert_eq!(behind(&physical, *level), *wanted);
    }
}

#[test]
fn a_tile_is_compared_with_its_column_only() {
    let (mut physical, _) = made();
    let tile = |x, y| region([64 * x, 64 * y, 0], [64, 64, 1]);
    for (x, y) in (0..32).flat_map(|y| (0..32).map(move |x| (x, y))) {
        let _ = map(&mut physical, HANDLE, tile(x, y));
        let tail = Region::new([1, 0, 0], [65536 * (32 * y + x), 0, 0], [65536, 1, 1]);
        let _ = map(&mut physical, HANDLE, tail);
    }
    assert_eq!(physical.near(ARRAY, &tile(16, 16)).count(), 32);
    assert_eq!(physical.near(ARRAY, &tile(32, 16)).count(), 0);
    // A wide region may reach into any column right of where it begins.
    let _ = map(
        &mut physical,
        HANDLE,
        region([0, 64 * 32, 0], [64 * 32, 1, 1]),
    );
    assert_eq!(physical.near(ARRAY, &tile(16, 16)).count(), 17 * 32 + 1);
}
