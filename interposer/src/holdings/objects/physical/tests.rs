//! The books of physical memory, hold by hold.

mod multicast;

use super::*;

pub(super) const HANDLE: u64 = 0x5000;

pub(super) fn made() -> (Physical, Credit) {
    let mut physical = Physical::default();
    let (device, units) = (DeviceKey::default(), Units(4096));
    physical.created(HANDLE, device, units);
    (physical, (device, units))
}

fn by_handle(physical: &mut Physical, handle: u64, place: Binding, length: u64) -> Vec<Credit> {
    let holding = physical.holding(handle).unwrap();
    physical.held(holding, place, length)
}

fn by_address(physical: &mut Physical, address: u64, place: Binding, length: u64) -> Vec<Credit> {
    let holding = physical.holding_at(address).unwrap();
    physical.held(holding, place, length)
}

pub(super) fn release(physical: &mut Physical, handle: u64) -> Vec<Credit> {
    let reference = physical.releasing(handle).unwrap();
    physical.released(reference)
}

pub(super) fn unmap(physical: &mut Physical, address: u64, length: u64) -> Vec<Credit> {
    let holds = physical.undoing(
        Binding::Address(address),
        Binding::Address(address + length),
    );
    physical.undone(holds)
}

#[test]
fn a_handle_that_was_never_mapped_is_credited_at_its_release() {
    let (mut physical, credit) = made();
    assert_eq!(release(&mut physical, HANDLE), [credit]);
    assert_eq!(physical.releasing(HANDLE), None);
}

#[test]
fn mapped_memory_outlives_its_handle() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(8 << 21), 1 << 21);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    assert_eq!(unmap(&mut physical, 8 << 21, 1 << 21), [credit]);
}

#[test]
fn memory_released_while_it_is_mapped_stays_charged_until_the_unmap() {
    let (mut physical, credit) = made();
    let holding = physical.holding(HANDLE).unwrap();
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(
        physical.held(holding, Binding::Address(1 << 21), 1 << 21),
        []
    );
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), [credit]);
}

#[test]
fn memory_mapped_while_it_is_released_stays_charged_until_the_unmap() {
    let (mut physical, credit) = made();
    let reference = physical.releasing(HANDLE).unwrap();
    let holding = physical.holding(HANDLE).unwrap();
    assert_eq!(physical.released(reference), []);
    let _ = physical.held(holding, Binding::Address(1 << 21), 1 << 21);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), [credit]);
    assert_eq!(physical.holding(HANDLE), None, "the handle is gone");
}

#[test]
fn memory_that_is_not_mapped_is_credited_if_it_was_released_meanwhile() {
    let (mut physical, credit) = made();
    let holding = physical.holding(HANDLE).unwrap();
    assert_eq!(physical.not_held(holding), [], "its handle is there");
    let holding = physical.holding(HANDLE).unwrap();
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(physical.not_held(holding), [credit]);
}

#[test]
fn memory_unmapped_while_it_is_bound_by_its_address_stays_charged() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    let holding = physical.holding_at((1 << 21) + 5).unwrap();
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    let _ = physical.held(holding, Binding::Endpoint(1, 0, 0), 1 << 21);
    let bound = physical.undoing(Binding::Endpoint(1, 0, 0), Binding::Endpoint(1, 0, 1));
    assert_eq!(physical.undone(bound), [credit]);
}

#[test]
fn unmapping_first_leaves_the_handle_charged() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    assert_eq!(release(&mut physical, HANDLE), [credit]);
}

#[test]
fn a_retained_handle_is_one_more_reference() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    physical.retained(HANDLE, (1 << 21) + 77);
    physical.retained(0x6000, 1 << 21);
    physical.retained(0x7000, 5 << 21);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    assert_eq!(physical.releasing(0x7000), None, "nothing was mapped there");
    assert_eq!(release(&mut physical, 0x6000), [credit]);
}

#[test]
fn a_refused_release_or_unmap_changes_nothing() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    let reference = physical.releasing(HANDLE).unwrap();
    physical.not_released(reference);
    let holds = physical.undoing(Binding::Address(0), Binding::Address(u64::MAX));
    physical.not_undone(holds);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), [credit]);
}

#[test]
fn an_unmap_of_several_mappings_lets_go_of_each() {
    let (mut physical, first) = made();
    physical.created(0x6000, DeviceKey::default(), Units(8));
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    let _ = by_handle(&mut physical, 0x6000, Binding::Address(2 << 21), 1 << 21);
    assert_eq!(
        (
            release(&mut physical, HANDLE),
            release(&mut physical, 0x6000)
        ),
        (vec![], vec![])
    );
    assert_eq!(
        unmap(&mut physical, 1 << 21, 2 << 21),
        [first, (DeviceKey::default(), Units(8))]
    );
}

#[test]
fn bindings_hold_like_mappings() {
    let (mut physical, credit) = made();
    let _ = by_handle(&mut physical, HANDLE, Binding::Address(1 << 21), 1 << 21);
    let _ = by_address(&mut physical, 1 << 21, Binding::Endpoint(9, 0, 0), 1 << 21);
    let tiles = Region::new([0; 3], [0; 3], [1; 3]);
    for _ in 0..2 {
        let holding = physical.holding(HANDLE).unwrap();
        let _ = physical.tiles_held(holding, 3, tiles);
    }
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unmap(&mut physical, 0, u64::MAX), []);
    let bound = physical.undoing(Binding::Endpoint(9, 0, 0), Binding::Endpoint(9, 0, 1 << 21));
    assert_eq!(physical.undone(bound), []);
    assert_eq!(physical.tiles_gone(3, &tiles), [credit]);
}

#[test]
fn exported_memory_is_counted_apart() {
    let (mut physical, (device, units)) = made();
    physical.created(0x6000, device, Units(8));
    let _ = physical.exported(0x6000, None);
    let charges = physical.charges(device);
    assert_eq!(
        (charges.own, charges.shared),
        (units.bytes(), Units(8).bytes())
    );
    let _ = release(&mut physical, 0x6000);
    assert_eq!(physical.charges(device).shared, 0);
}

#[test]
fn another_processs_memory_is_not_ours_to_credit() {
    let (mut physical, credit) = made();
    let _ = physical.imported(0x9000, None);
    let _ = by_handle(&mut physical, 0x9000, Binding::Address(1 << 21), 1 << 21);
    physical.retained(0x9000, 1 << 21);
    assert_eq!(release(&mut physical, 0x9000), []);
    assert_eq!(release(&mut physical, 0x9000), []);
    assert_eq!(physical.releasing(0x9000), None);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    let charges = physical.charges(credit.0);
    assert_eq!((charges.own, charges.shared), (credit.1.bytes(), 0));
}

#[test]
fn an_import_of_our_own_handle_is_one_more_reference() {
    let (mut physical, credit) = made();
    let _ = physical.imported(HANDLE, None);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, HANDLE), [credit]);
}

#[test]
fn memory_that_another_takes_the_place_of_is_credited() {
    let (mut physical, first) = made();
    physical.created(0x6000, first.0, Units(8192));
    let tiles = Binding::Array(3, Region::new([0; 3], [0; 3], [1; 3]));
    assert_eq!(by_handle(&mut physical, HANDLE, tiles, 1), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(by_handle(&mut physical, 0x6000, tiles, 1), [first]);
}
