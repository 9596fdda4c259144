//! Physical allocations (`cuMemCreate`): charged until the last handle *and* the last mapping or
//! binding is gone.
//!
//! An allocation is held by references to its handle (creation, retain, a second import of the same
//! handle), by mappings into address space, and by bindings to multicast objects, logical endpoints
//! and sparse arrays. Memory imported from another process is unknown here: its exporter is
//! charged.
//!
//! An object is taken out before the driver is asked to release it, and either put back or settled
//! afterwards. Another thread may get the released handle or address immediately.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::account::Units;
use crate::driver::device::DeviceKey;
use crate::guest::fork::ForkLocal;

static PHYSICAL: ForkLocal<Mutex<Physical>> = ForkLocal::new();

/// The books of physical memory. No driver call while they are held.
pub(crate) fn physical() -> MutexGuard<'static, Physical> {
    PHYSICAL
        .get_or(Default::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The object of a handle that is about to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "either put back or settled"]
pub(crate) struct Reference {
    handle: u64,
    id: u64,
}

/// Mappings or bindings that were about to be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "either put back or settled"]
pub(crate) struct Holds(Vec<(Binding, u64, u64)>);

/// A credit: where and how much.
pub(crate) type Credit = (DeviceKey, Units);

/// Bytes of physical allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charges {
    /// Of this process alone.
    pub(crate) own: u64,
    /// Those that other processes may have.
    pub(crate) shared: u64,
}

/// Where an allocation is held other than by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    /// Mapped at an address.
    Address(u64),
    /// Bound to a multicast object of this handle, on a device, at an offset. Memory of each device
    /// may be bound at the same offset.
    Multicast(u64, i32, u64),
    /// Bound to a logical endpoint, on a device, at an offset.
    Endpoint(u32, i32, u64),
    /// Tiles of a sparse array of this handle; the region's fingerprint.
    Array(u64, u64),
}

/// The device of a binding that names none, as a caller knows it: it is the memory's own.
pub(crate) const UNNAMED: i32 = -1;

/// The same as it is kept.
pub(crate) fn unnamed(device: DeviceKey) -> i32 {
    let index = i32::try_from(device.index()).unwrap_or(i32::MAX);
    UNNAMED - 1 - index
}

#[derive(Debug)]
struct Allocation {
    device: DeviceKey,
    units: Units,
    /// Handle references and holds.
    held: u64,
    /// Other processes may have it: it cannot be moved.
    exported: bool,
}

/// All physical allocations of this process.
#[derive(Debug, Default)]
pub(crate) struct Physical {
    next: u64,
    allocations: BTreeMap<u64, Allocation>,
    /// Allocation and references by handle.
    handles: BTreeMap<u64, (u64, u64)>,
    /// Length and allocation by place.
    holds: BTreeMap<Binding, (u64, u64)>,
}

impl Physical {
    /// Enters an allocation that the driver has just made.
    pub(crate) fn created(&mut self, handle: u64, device: DeviceKey, units: Units) {
        self.next += 1;
        self.allocations.insert(
            self.next,
            Allocation {
                device,
                units,
                held: 1,
                exported: false,
            },
        );
        self.handles.insert(handle, (self.next, 1));
    }

    /// Counts a handle that the driver returned for the memory mapped at `address`.
    pub(crate) fn retained(&mut self, handle: u64, address: u64) {
        let below = self.holds.range(..=Binding::Address(address)).next_back();
        let Some((Binding::Address(start), (length, id))) = below else {
            return;
        };
        if address - start < *length {
            let id = *id;
            self.refer(handle, id);
        }
    }

    /// Counts a handle that an import returned, if it is one of ours.
    pub(crate) fn imported(&mut self, handle: u64) {
        if let Some((id, _)) = self.handles.get(&handle) {
            let id = *id;
            self.refer(handle, id);
        }
    }

    /// Notes that other processes may have the memory of `handle`.
    pub(crate) fn exported(&mut self, handle: u64) {
        if let Some((id, _)) = self.handles.get(&handle)
            && let Some(allocation) = self.allocations.get_mut(id)
        {
            allocation.exported = true;
        }
    }

    /// The charges on a device.
    pub(crate) fn charges(&self, device: DeviceKey) -> Charges {
        let mut charges = Charges::default();
        for allocation in self.allocations.values() {
            if allocation.device != device {
                continue;
            }
            let reason = if allocation.exported {
                &mut charges.shared
            } else {
                &mut charges.own
            };
            *reason += allocation.units.bytes();
        }
        charges
    }

    fn refer(&mut self, handle: u64, id: u64) {
        self.handles.entry(handle).or_insert((id, 0)).1 += 1;
        self.hold(id);
    }

    fn hold(&mut self, id: u64) {
        if let Some(allocation) = self.allocations.get_mut(&id) {
            allocation.held += 1;
        }
    }

    /// Takes out one reference of a handle, before the driver releases it. `None` for a handle that
    /// is not ours.
    pub(crate) fn releasing(&mut self, handle: u64) -> Option<Reference> {
        let (id, references) = self.handles.get_mut(&handle)?;
        let taken = Reference { handle, id: *id };
        *references -= 1;
        if *references == 0 {
            self.handles.remove(&handle);
        }
        Some(taken)
    }

    /// The driver refused the release.
    pub(crate) fn not_released(&mut self, reference: Reference) {
        self.handles
            .entry(reference.handle)
            .or_insert((reference.id, 0))
            .1 += 1;
    }

    /// The driver has released the handle: the credit, if no mapping holds the memory any more.
    pub(crate) fn released(&mut self, reference: Reference) -> Option<Credit> {
        self.let_go(reference.id)
    }

    /// Notes that the memory of `handle` is held at `place`, over `length` bytes. The credit of
    /// memory that was held there, and nowhere else.
    pub(crate) fn held_by_handle(
        &mut self,
        handle: u64,
        place: Binding,
        length: u64,
    ) -> Option<Credit> {
        let (id, _) = self.handles.get(&handle)?;
        self.held_at(*id, place, length)
    }

    /// Notes that the memory mapped at `address` is held at `place` as well. As there.
    pub(crate) fn held_by_address(
        &mut self,
        address: u64,
        place: Binding,
        length: u64,
    ) -> Option<Credit> {
        let below = self.holds.range(..=Binding::Address(address)).next_back();
        let (Binding::Address(start), (mapped, id)) = below? else {
            return None;
        };
        if address - start >= *mapped {
            return None;
        }
        self.held_at(*id, place, length)
    }

    fn held_at(&mut self, id: u64, place: Binding, length: u64) -> Option<Credit> {
        let place = match (place, self.allocations.get(&id)) {
            (Binding::Multicast(mc, UNNAMED, offset), Some(allocation)) => {
                Binding::Multicast(mc, unnamed(allocation.device), offset)
            }
            _ => place,
        };
        self.hold(id);
        // The same tiles mapped over: one hold, not two.
        let (_, stale) = self.holds.insert(place, (length, id))?;
        self.let_go(stale)
    }

    /// Takes out the holds in `from..to`, before the driver undoes them.
    pub(crate) fn undoing(&mut self, from: Binding, to: Binding) -> Holds {
        let places: Vec<Binding> = self
            .holds
            .range(from..to)
            .map(|(place, _)| *place)
            .collect();
        let taken = places.into_iter().filter_map(|place| {
            let (length, id) = self.holds.remove(&place)?;
            Some((place, length, id))
        });
        Holds(taken.collect())
    }

    /// The driver refused to undo them.
    pub(crate) fn not_undone(&mut self, holds: Holds) {
        self.holds.extend(
            holds
                .0
                .into_iter()
                .map(|(place, length, id)| (place, (length, id))),
        );
    }

    /// The driver has undone them: the credits.
    pub(crate) fn undone(&mut self, holds: Holds) -> Vec<Credit> {
        holds
            .0
            .into_iter()
            .filter_map(|(_, _, id)| self.let_go(id))
            .collect()
    }

    fn let_go(&mut self, id: u64) -> Option<Credit> {
        let allocation = self.allocations.get_mut(&id)?;
        allocation.held -= 1;
        if allocation.held > 0 {
            return None;
        }
        self.allocations
            .remove(&id)
            .map(|gone| (gone.device, gone.units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: u64 = 0x5000;

    fn made() -> (Physical, Credit) {
        let mut physical = Physical::default();
        let (device, units) = (DeviceKey::default(), Units(4096));
        physical.created(HANDLE, device, units);
        (physical, (device, units))
    }

    fn release(physical: &mut Physical, handle: u64) -> Option<Credit> {
        let reference = physical.releasing(handle).unwrap();
        physical.released(reference)
    }

    fn unmap(physical: &mut Physical, address: u64, length: u64) -> Vec<Credit> {
        let holds = physical.undoing(
            Binding::Address(address),
            Binding::Address(address + length),
        );
        physical.undone(holds)
    }

    #[test]
    fn a_handle_that_was_never_mapped_is_credited_at_its_release() {
        let (mut physical, credit) = made();
        assert_eq!(release(&mut physical, HANDLE), Some(credit));
        assert_eq!(physical.releasing(HANDLE), None);
    }

    #[test]
    fn mapped_memory_outlives_its_handle() {
        let (mut physical, credit) = made();
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        let _ = physical.held_by_handle(HANDLE, Binding::Address(8 << 21), 1 << 21);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
        assert_eq!(unmap(&mut physical, 8 << 21, 1 << 21), [credit]);
    }

    #[test]
    fn unmapping_first_leaves_the_handle_charged() {
        let (mut physical, credit) = made();
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
        assert_eq!(release(&mut physical, HANDLE), Some(credit));
    }

    #[test]
    fn a_retained_handle_is_one_more_reference() {
        let (mut physical, credit) = made();
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        physical.retained(HANDLE, (1 << 21) + 77);
        physical.retained(0x6000, 1 << 21);
        physical.retained(0x7000, 5 << 21);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
        assert_eq!(physical.releasing(0x7000), None, "nothing was mapped there");
        assert_eq!(release(&mut physical, 0x6000), Some(credit));
    }

    #[test]
    fn a_refused_release_or_unmap_changes_nothing() {
        let (mut physical, credit) = made();
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        let reference = physical.releasing(HANDLE).unwrap();
        physical.not_released(reference);
        let holds = physical.undoing(Binding::Address(0), Binding::Address(u64::MAX));
        physical.not_undone(holds);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), [credit]);
    }

    #[test]
    fn an_unmap_of_several_mappings_lets_go_of_each() {
        let (mut physical, first) = made();
        physical.created(0x6000, DeviceKey::default(), Units(8));
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        let _ = physical.held_by_handle(0x6000, Binding::Address(2 << 21), 1 << 21);
        assert_eq!(
            (
                release(&mut physical, HANDLE),
                release(&mut physical, 0x6000)
            ),
            (None, None)
        );
        assert_eq!(
            unmap(&mut physical, 1 << 21, 2 << 21),
            [first, (DeviceKey::default(), Units(8))]
        );
    }

    #[test]
    fn bindings_hold_like_mappings() {
        let (mut physical, credit) = made();
        let _ = physical.held_by_handle(HANDLE, Binding::Address(1 << 21), 1 << 21);
        let _ = physical.held_by_address(1 << 21, Binding::Multicast(9, 0, 0), 1 << 21);
        let _ = physical.held_by_handle(HANDLE, Binding::Array(3, 1), 1);
        let _ = physical.held_by_handle(HANDLE, Binding::Array(3, 1), 1);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(unmap(&mut physical, 0, u64::MAX), []);
        let bound = physical.undoing(
            Binding::Multicast(9, 0, 0),
            Binding::Multicast(9, 0, 1 << 21),
        );
        assert_eq!(physical.undone(bound), []);
        let tiles = physical.undoing(Binding::Array(3, 0), Binding::Array(4, 0));
        assert_eq!(physical.undone(tiles), [credit]);
    }

    #[test]
    fn exported_memory_is_counted_apart() {
        let (mut physical, (device, units)) = made();
        physical.created(0x6000, device, Units(8));
        physical.exported(0x6000);
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
        physical.imported(0x9000);
        assert_eq!(physical.releasing(0x9000), None);
        let _ = physical.held_by_handle(0x9000, Binding::Address(1 << 21), 1 << 21);
        assert_eq!(unmap(&mut physical, 1 << 21, 1 << 21), []);
        physical.imported(HANDLE);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(release(&mut physical, HANDLE), Some(credit));
    }

    #[test]
    fn memory_of_two_devices_is_bound_at_one_unnamed_place() {
        let (mut physical, first) = made();
        let other = DeviceKey::of_index(1).unwrap();
        let second = (other, Units(8192));
        physical.created(0x6000, second.0, second.1);
        let place = Binding::Multicast(9, UNNAMED, 0);
        assert_eq!(physical.held_by_handle(HANDLE, place, 4096), None);
        assert_eq!(release(&mut physical, HANDLE), None, "it is bound");
        assert_eq!(physical.held_by_handle(0x6000, place, 4096), None);
        assert_eq!(release(&mut physical, 0x6000), None);
        let mut unbind = |device: DeviceKey| {
            let at = |offset| Binding::Multicast(9, unnamed(device), offset);
            let holds = physical.undoing(at(0), at(4096));
            physical.undone(holds)
        };
        assert_eq!(unbind(other), [second]);
        assert_eq!(unbind(first.0), [first]);
    }

    #[test]
    fn memory_that_another_takes_the_place_of_is_credited() {
        let (mut physical, first) = made();
        physical.created(0x6000, first.0, Units(8192));
        let tiles = Binding::Array(3, 1);
        assert_eq!(physical.held_by_handle(HANDLE, tiles, 1), None);
        assert_eq!(release(&mut physical, HANDLE), None);
        assert_eq!(physical.held_by_handle(0x6000, tiles, 1), Some(first));
    }
}
