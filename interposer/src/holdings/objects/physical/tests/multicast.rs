//! Multicast objects: allocations without a charge that hold what is bound to them.

use super::*;

const OBJECT: u64 = 0x9000;
const LENGTH: u64 = 2 << 20;
const AT: u64 = 1 << 30;

/// Memory of ours, and an object of ours.
fn both() -> (Physical, Credit) {
    let (mut physical, credit) = made();
    physical.object_created(OBJECT);
    (physical, credit)
}

fn bind(physical: &mut Physical, memory: u64, place: InObject) -> Vec<Credit> {
    let memory = physical.holding(memory);
    let object = physical.holding(place.0);
    physical.bound(memory, object, place, LENGTH)
}

fn unbind(physical: &mut Physical, (object, device, from): InObject, length: u64) -> Vec<Credit> {
    let object = physical.holding(object).unwrap();
    let holds = physical.unbinding(&object, device, (from, from + length));
    let mut gone = physical.undone(holds);
    gone.extend(physical.not_held(object));
    gone
}

/// Both, bound, and the object mapped.
fn mapped() -> (Physical, Credit) {
    let (mut physical, credit) = both();
    assert_eq!(bind(&mut physical, HANDLE, (OBJECT, 0, 0)), []);
    let _ = by_handle(&mut physical, OBJECT, Binding::Address(AT), LENGTH);
    (physical, credit)
}

#[test]
fn memory_bound_to_a_mapped_object_outlives_both_handles() {
    let (mut physical, credit) = mapped();
    assert_eq!(release(&mut physical, OBJECT), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unmap(&mut physical, AT, LENGTH), [credit]);
}

#[test]
fn an_object_that_is_not_mapped_ends_with_its_handle() {
    let (mut physical, credit) = mapped();
    assert_eq!(unmap(&mut physical, AT, LENGTH), []);
    assert_eq!(release(&mut physical, HANDLE), [], "it is bound");
    assert_eq!(release(&mut physical, OBJECT), [credit]);
    assert!(physical.allocations.is_empty() && physical.holds.is_empty());
}

#[test]
fn an_object_that_ends_lets_memory_with_a_handle_live() {
    let (mut physical, credit) = both();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    assert_eq!(release(&mut physical, OBJECT), []);
    assert_eq!(release(&mut physical, HANDLE), [credit]);
}

#[test]
fn each_reference_of_an_object_keeps_what_is_bound() {
    let (mut physical, credit) = mapped();
    physical.retained(OBJECT, AT + 5);
    let _ = physical.imported(OBJECT, None);
    assert_eq!(unmap(&mut physical, AT, LENGTH), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, OBJECT), []);
    assert_eq!(release(&mut physical, OBJECT), []);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}

#[test]
fn a_refused_release_of_an_object_ends_nothing() {
    let (mut physical, credit) = both();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    assert_eq!(release(&mut physical, HANDLE), []);
    let reference = physical.releasing(OBJECT).unwrap();
    physical.not_released(reference);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}

#[test]
fn a_number_that_comes_again_is_another_object() {
    let (mut physical, first) = both();
    let second = (first.0, Units(8));
    physical.created(0x6000, second.0, second.1);
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    let _ = release(&mut physical, HANDLE);
    let reference = physical.releasing(OBJECT).unwrap();
    physical.object_created(OBJECT);
    let _ = bind(&mut physical, 0x6000, (OBJECT, 0, 0));
    let _ = release(&mut physical, 0x6000);
    assert_eq!(physical.released(reference), [first]);
    assert_eq!(release(&mut physical, OBJECT), [second]);
}

#[test]
fn an_imported_object_holds_like_one_made_here() {
    let (mut physical, credit) = made();
    let _ = physical.imported(OBJECT, None);
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}

#[test]
fn an_object_that_no_hook_saw_made_ends_with_its_release() {
    let (mut physical, credit) = made();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}

#[test]
fn an_object_takes_no_bytes_of_the_account() {
    let (mut physical, (device, units)) = mapped();
    let _ = physical.exported(OBJECT, None);
    let charges = physical.charges(device);
    assert_eq!((charges.own, charges.shared), (units.bytes(), 0));
}

#[test]
fn unbound_memory_is_credited_with_its_handle() {
    let (mut physical, credit) = both();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, LENGTH));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unbind(&mut physical, (OBJECT, 1, 0), 8 * LENGTH), []);
    assert_eq!(unbind(&mut physical, (OBJECT, 0, 0), LENGTH), []);
    assert_eq!(unbind(&mut physical, (OBJECT, 0, 0), 2 * LENGTH), [credit]);
    assert_eq!(release(&mut physical, OBJECT), []);
}

#[test]
fn unbinding_a_part_leaves_memory_bound_until_the_object_ends() {
    let (mut physical, credit) = both();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(unbind(&mut physical, (OBJECT, 0, 0), LENGTH / 2), []);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}

#[test]
fn an_object_released_while_it_is_bound_to_ends_afterwards() {
    let (mut physical, credit) = both();
    let memory = physical.holding(HANDLE);
    let object = physical.holding(OBJECT);
    assert_eq!(release(&mut physical, OBJECT), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    let place = (OBJECT, 0, 0);
    assert_eq!(physical.bound(memory, object, place, LENGTH), [credit]);
}

#[test]
fn a_refused_unbind_of_an_object_that_is_released_keeps_nothing() {
    let (mut physical, credit) = both();
    let _ = bind(&mut physical, HANDLE, (OBJECT, 0, 0));
    let object = physical.holding(OBJECT).unwrap();
    let holds = physical.unbinding(&object, 0, (0, LENGTH));
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, OBJECT), []);
    physical.not_undone(holds);
    assert_eq!(physical.not_held(object), [credit]);
}

#[test]
fn memory_of_two_devices_is_bound_at_one_unnamed_place() {
    let (mut physical, first) = both();
    let other = DeviceKey::of_index(1).unwrap();
    let second = (other, Units(8192));
    physical.created(0x6000, second.0, second.1);
    let place = (OBJECT, UNNAMED, 0);
    assert_eq!(bind(&mut physical, HANDLE, place), []);
    assert_eq!(release(&mut physical, HANDLE), [], "it is bound");
    assert_eq!(bind(&mut physical, 0x6000, place), []);
    assert_eq!(release(&mut physical, 0x6000), []);
    let mut unbind = |device| unbind(&mut physical, (OBJECT, unnamed(device), 0), LENGTH);
    assert_eq!(unbind(other), [second]);
    assert_eq!(unbind(first.0), [first]);
}

#[test]
fn memory_that_is_bound_where_other_memory_was_takes_its_place() {
    let (mut physical, first) = both();
    physical.created(0x6000, first.0, Units(8));
    let place = (OBJECT, 0, 0);
    let _ = bind(&mut physical, HANDLE, place);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(bind(&mut physical, 0x6000, place), [first]);
}

#[test]
fn another_processs_memory_may_be_bound_and_is_not_charged() {
    let (mut physical, credit) = both();
    let _ = physical.imported(0x7000, None);
    let _ = bind(&mut physical, 0x7000, (OBJECT, UNNAMED, 0));
    let _ = bind(&mut physical, HANDLE, (OBJECT, UNNAMED, 0));
    assert_eq!(release(&mut physical, 0x7000), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, OBJECT), [credit]);
}
