//! Files that memory was exported as.

use core::ffi::c_int;
use std::os::fd::AsRawFd as _;

use super::super::tests::{HANDLE, made, release, unmap};
use super::super::{Binding, UNNAMED, unnamed};
use super::{Credit, Physical};
use crate::account::Units;
use crate::driver::device::DeviceKey;
use crate::guest::{descriptor, sys};

/// The handle that an import answered.
const SECOND: u64 = 0x6000;

/// An open file under a number that no other test has, so that it stays free once it is closed.
struct File(c_int);

impl File {
    fn at(least: c_int) -> Self {
        let file = tempfile::tempfile().unwrap();
        let number = sys::duplicate(file.as_raw_fd(), least);
        assert!(number >= least);
        Self(number)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

fn export(physical: &mut Physical, handle: u64, number: c_int) -> Vec<Credit> {
    let identity = descriptor::identity(number).unwrap();
    physical.exported(handle, Some((number, identity)))
}

fn import(physical: &mut Physical, handle: u64, number: c_int) -> Vec<Credit> {
    let own = physical.holding_file(number);
    physical.imported(handle, own)
}

fn look(physical: &mut Physical) -> Vec<Credit> {
    let files = physical.alone().into_iter();
    let closed: Vec<_> = files
        .filter(|(number, file)| !file.is_open(*number))
        .collect();
    let credits = closed.into_iter();
    credits
        .flat_map(|(number, file)| physical.closed(number, &file))
        .collect()
}

#[test]
fn a_file_holds_its_memory_until_it_is_closed() {
    let (mut physical, credit) = made();
    let file = File::at(610);
    assert_eq!(export(&mut physical, HANDLE, file.0), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(look(&mut physical), []);
    drop(file);
    assert_eq!(look(&mut physical), [credit]);
    assert_eq!(look(&mut physical), []);
}

#[test]
fn an_import_of_an_own_file_is_a_handle_of_the_same_memory() {
    let (mut physical, credit) = made();
    let file = File::at(620);
    let _ = export(&mut physical, HANDLE, file.0);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(import(&mut physical, SECOND, file.0), []);
    let holding = physical.holding(SECOND).unwrap();
    let _ = physical.held(holding, Binding::Address(1 << 21), 1 << 21);
    drop(file);
    assert_eq!(look(&mut physical), []);
    assert_eq!(release(&mut physical, SECOND), []);
    assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
    assert_eq!(look(&mut physical), [credit]);
}

#[test]
fn a_refused_import_of_an_own_file_holds_nothing() {
    let (mut physical, credit) = made();
    let file = File::at(630);
    let _ = export(&mut physical, HANDLE, file.0);
    let own = physical.holding_file(file.0).unwrap();
    let _ = release(&mut physical, HANDLE);
    drop(file);
    assert_eq!(look(&mut physical), [], "the import is under way");
    assert_eq!(physical.not_held(own), []);
    assert_eq!(look(&mut physical), [credit]);
}

#[test]
fn a_file_of_no_export_is_another_processs_memory() {
    let (mut physical, credit) = made();
    let mine = File::at(640);
    let theirs = File::at(650);
    let _ = export(&mut physical, HANDLE, mine.0);
    assert_eq!(import(&mut physical, SECOND, theirs.0), []);
    assert_eq!(physical.holding_file(theirs.0), None);
    drop(mine);
    assert_eq!(look(&mut physical), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(look(&mut physical), [credit]);
    assert_eq!(release(&mut physical, SECOND), []);
}

#[test]
fn a_number_that_an_export_answers_again_holds_the_new_memory() {
    let (mut physical, first) = made();
    let file = File::at(660);
    let second = (DeviceKey::default(), Units(8));
    physical.created(SECOND, second.0, second.1);
    let _ = export(&mut physical, HANDLE, file.0);
    let _ = release(&mut physical, HANDLE);
    // The driver's files are all of one inode: only the answer tells that the first was closed.
    assert_eq!(look(&mut physical), [], "it looks open");
    assert_eq!(export(&mut physical, SECOND, file.0), [first]);
    assert_eq!(release(&mut physical, SECOND), []);
    assert_eq!(look(&mut physical), []);
}

#[test]
fn a_look_that_is_overtaken_by_an_export_closes_nothing() {
    let (mut physical, _) = made();
    let file = File::at(690);
    let _ = export(&mut physical, HANDLE, file.0);
    let looked_at = physical.files[&file.0];
    let _ = export(&mut physical, HANDLE, file.0);
    let _ = release(&mut physical, HANDLE);
    assert_eq!(physical.closed(file.0, &looked_at), []);
    let latest = physical.files[&file.0];
    assert_ne!(physical.closed(file.0, &latest), []);
}

#[test]
fn a_file_is_looked_at_only_once_nothing_else_holds_its_memory() {
    let (mut physical, credit) = made();
    let file = File::at(700);
    let _ = export(&mut physical, HANDLE, file.0);
    let _ = export(&mut physical, HANDLE, file.0);
    assert_eq!(physical.alone(), []);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(physical.alone().len(), 1);
    assert_eq!(import(&mut physical, SECOND, file.0), []);
    assert_eq!(physical.alone(), []);
    assert_eq!(release(&mut physical, SECOND), []);
    assert_eq!(physical.alone().len(), 1);
    drop(file);
    assert_eq!(look(&mut physical), [credit]);
    assert_eq!(physical.alone(), []);
}

/// Binds memory to the object of a handle, where no device is named.
fn bind(physical: &mut Physical, memory: u64, object: u64) -> Vec<Credit> {
    let memory = physical.holding(memory);
    let object_held = physical.holding(object);
    physical.bound(memory, object_held, (object, UNNAMED, 0), 4096)
}

#[test]
fn objects_received_under_an_exported_number_have_places_of_their_own() {
    let (mut physical, _) = made();
    let file = File::at(710);
    let _ = export(&mut physical, HANDLE, file.0);
    let (objects, memories) = ([0x7000, 0x7001], [0x8000, 0x8001]);
    let credit = (DeviceKey::default(), Units(8));
    for (object, memory) in objects.into_iter().zip(memories) {
        physical.created(memory, credit.0, credit.1);
        let _ = import(&mut physical, object, file.0);
        let _ = bind(&mut physical, memory, object);
    }
    assert_eq!(release(&mut physical, memories[0]), [], "it is bound");
    assert_eq!(release(&mut physical, objects[1]), []);
    assert_eq!(release(&mut physical, memories[1]), [credit], "unbound");
    assert_eq!(release(&mut physical, objects[0]), [credit]);
}

#[test]
fn memory_bound_to_an_object_received_under_its_own_number_ends() {
    let (mut physical, credit) = made();
    let file = File::at(720);
    let _ = export(&mut physical, HANDLE, file.0);
    let _ = import(&mut physical, SECOND, file.0);
    let _ = bind(&mut physical, HANDLE, SECOND);
    assert_eq!(release(&mut physical, HANDLE), []);
    assert_eq!(release(&mut physical, SECOND), []);
    drop(file);
    assert_eq!(look(&mut physical), [credit]);
}

#[test]
fn memory_bound_by_its_second_handle_is_at_its_devices_place() {
    let (mut physical, credit) = made();
    let file = File::at(730);
    let _ = export(&mut physical, HANDLE, file.0);
    let _ = import(&mut physical, SECOND, file.0);
    drop(file);
    physical.object_created(0x7000);
    let _ = bind(&mut physical, SECOND, 0x7000);
    let _ = release(&mut physical, HANDLE);
    assert_eq!(release(&mut physical, SECOND), []);
    let object = physical.holding(0x7000).unwrap();
    let holds = physical.unbinding(&object, unnamed(credit.0), (0, 4096));
    assert_eq!(physical.undone(holds), []);
    assert_eq!(look(&mut physical), [credit]);
}

#[test]
fn an_import_of_an_own_object_is_a_handle_of_the_same_object() {
    let (mut physical, credit) = made();
    let file = File::at(740);
    physical.object_created(0x7000);
    let _ = export(&mut physical, 0x7000, file.0);
    let _ = import(&mut physical, SECOND, file.0);
    drop(file);
    let _ = bind(&mut physical, HANDLE, SECOND);
    assert_eq!(release(&mut physical, SECOND), []);
    assert_eq!(release(&mut physical, HANDLE), [], "it is bound");
    assert_eq!(release(&mut physical, 0x7000), []);
    assert_eq!(look(&mut physical), [credit]);
}

#[test]
fn a_dma_buffer_holds_what_is_mapped_in_its_range_and_nothing_else() {
    let (mut physical, credit) = made();
    let file = File::at(750);
    let at = |slot: u32| u64::from(slot) << 21;
    for slot in 0..4 {
        let handle = 0x7000 + u64::from(slot);
        physical.created(handle, credit.0, Units(slot));
        let memory = physical.holding(handle).unwrap();
        let _ = physical.held(memory, Binding::Address(at(slot)), at(1));
        let _ = release(&mut physical, handle);
    }
    let identity = descriptor::identity(file.0).unwrap();
    // From within the second mapping to the end of the third.
    let range = (at(1) + 4096, at(2) - 4096);
    assert_eq!(physical.range_exported(range, (file.0, identity)), []);
    let unmapped = unmap(&mut physical, 0, at(4));
    assert_eq!(unmapped, [0, 3].map(|slot| (credit.0, Units(slot))));
    assert_eq!(look(&mut physical), []);
    drop(file);
    let closed = look(&mut physical);
    assert_eq!(closed, [1, 2].map(|slot| (credit.0, Units(slot))));
}

#[test]
fn a_dma_buffer_of_other_memory_holds_nothing() {
    let (mut physical, credit) = made();
    let file = File::at(760);
    let identity = descriptor::identity(file.0).unwrap();
    let _ = physical.range_exported((1 << 21, 4096), (file.0, identity));
    assert_eq!(physical.alone(), []);
    assert_eq!(release(&mut physical, HANDLE), [credit]);
}

#[test]
fn memory_received_under_an_own_objects_number_may_be_bound_to_it() {
    let (mut physical, credit) = made();
    let file = File::at(770);
    physical.object_created(0x7000);
    let _ = export(&mut physical, 0x7000, file.0);
    let _ = import(&mut physical, SECOND, file.0);
    let _ = bind(&mut physical, HANDLE, 0x7000);
    let _ = release(&mut physical, HANDLE);
    let _ = bind(&mut physical, SECOND, 0x7000);
    drop(file);
    let mut gone = release(&mut physical, 0x7000);
    gone.extend(release(&mut physical, SECOND));
    gone.extend(look(&mut physical));
    assert_eq!(gone, [credit]);
}
