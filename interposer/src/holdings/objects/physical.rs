//! Physical allocations (`cuMemCreate`): charged until the last handle *and* the last mapping,
//! binding or file is gone.
//!
//! An allocation is held by references to its handles (creation, retain, an import of its own
//! file), by mappings into address space, by bindings to multicast objects, logical endpoints
//! and sparse arrays, and by the files that it was exported as ([`files`]).
//!
//! A multicast object takes no memory. It is an allocation without a charge, with references and
//! mappings like any other, and holds what is bound to it. Memory or an object that
//! another process exported is entered in the same way; its exporter is charged (ADR 207). So is an
//! import of memory of our own, which holds that memory (ADR 213).
//!
//! A reference or a hold is taken out before the driver is asked to release it, and either put back
//! or settled afterwards. Another thread may get the released handle or address immediately. Memory
//! that is about to be mapped or bound is held before the driver is asked, and let go again if it
//! refuses: another thread may release the handle meanwhile.

mod files;
pub(crate) mod tiles;

use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::account::Units;
use crate::driver::device::DeviceKey;
use crate::guest::fork::ForkLocal;

use files::File;
pub(crate) use files::{credit_closed, credit_closed_if_free};
use tiles::Region;

static PHYSICAL: ForkLocal<Mutex<Physical>> = ForkLocal::new();

/// The books of physical memory. No driver call while they are held.
pub(crate) fn physical() -> MutexGuard<'static, Physical> {
    PHYSICAL
        .get_or(Default::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The same where no other thread has them.
fn free_physical() -> Option<MutexGuard<'static, Physical>> {
    match PHYSICAL.get()?.try_lock() {
        Ok(books) => Some(books),
        Err(TryLockError::Poisoned(books)) => Some(books.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The allocation of a handle that is about to be released.
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

/// Memory that is about to be mapped or bound, and is held meanwhile.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "either held from then on or not"]
pub(crate) struct Holding {
    id: u64,
}

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
    /// Bound to the multicast object of this number, on a device, at an offset. Memory of each
    /// device may be bound at the same offset.
    Multicast(u64, i32, u64),
    /// Bound to a logical endpoint, on a device, at an offset.
    Endpoint(u32, i32, u64),
    /// Tiles of a sparse array of this handle.
    Array(u64, Region),
}

/// The device of a binding that names none, as a caller knows it: it is the memory's own.
pub(crate) const UNNAMED: i32 = -1;

/// The same as it is kept.
pub(crate) fn unnamed(device: DeviceKey) -> i32 {
    let index = i32::try_from(device.index()).unwrap_or(i32::MAX);
    UNNAMED - 1 - index
}

/// The first place in an object, before all that memory can be bound at: an alias holds its memory
/// there.
fn within(id: u64) -> Binding {
    Binding::Multicast(id, i32::MIN, 0)
}

/// A place in a multicast object: its handle, the device as a caller names it, and the offset.
pub(crate) type InObject = (u64, i32, u64);

#[derive(Debug)]
struct Allocation {
    /// Its charge; none of a multicast object, or of what another process exported.
    charge: Option<Credit>,
    /// Handle references and holds.
    held: u64,
    /// Those of them that are files.
    files: u64,
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
    /// Handles of which the driver is asked to release the last reference.
    going: BTreeMap<u64, u64>,
    /// Length and allocation by place.
    holds: BTreeMap<Binding, (u64, u64)>,
    /// The widest region of an array that was ever mapped, by the kind of its subresource.
    widest: BTreeMap<u32, u64>,
    /// Exported memory by descriptor.
    files: BTreeMap<c_int, File>,
    /// Allocations that were left to their files.
    left_to_files: BTreeSet<u64>,
}

impl Physical {
    /// Enters an allocation that the driver has just made.
    pub(crate) fn created(&mut self, handle: u64, device: DeviceKey, units: Units) {
        self.enter(handle, Some((device, units)));
    }

    /// Enters a multicast object that the driver has just made.
    pub(crate) fn object_created(&mut self, handle: u64) {
        self.enter(handle, None);
    }

    fn enter(&mut self, handle: u64, charge: Option<Credit>) -> u64 {
        self.next += 1;
        self.allocations.insert(
            self.next,
            Allocation {
                charge,
                held: 1,
                files: 0,
                exported: false,
            },
        );
        self.handles.insert(handle, (self.next, 1));
        self.next
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

    /// Counts a handle that an import returned: of the memory that was held meanwhile, of one of
    /// ours, or of memory or an object of another process.
    pub(crate) fn imported(&mut self, handle: u64, own: Option<Holding>) -> Vec<Credit> {
        let known = self.handles.get(&handle).map(|(id, _)| *id);
        match (known, own) {
            (Some(id), own) => {
                self.refer(handle, id);
                own.map_or_else(Vec::new, |own| self.let_go(own.id))
            }
            (None, Some(own)) if self.charge(own.id).is_some() => self.aliased(handle, own),
            (None, Some(own)) => {
                self.refer(handle, own.id);
                self.let_go(own.id)
            }
            (None, None) => {
                self.object_created(handle);
                Vec::new()
            }
        }
    }

    /// A handle that an import answered for a file of memory of ours. The file may be another
    /// one's by now, and the handle an object's: it has places of its own, and holds the memory as
    /// an object holds what is bound to it.
    fn aliased(&mut self, handle: u64, memory: Holding) -> Vec<Credit> {
        let alias = self.enter(handle, None);
        self.held(memory, within(alias), 1)
    }

    /// The charge of an allocation, or of the memory that it is an alias of.
    fn charge(&self, id: u64) -> Option<Credit> {
        let memory = self
            .holds
            .get(&within(id))
            .map_or(id, |(_, memory)| *memory);
        self.allocations.get(&memory)?.charge
    }

    /// The charges on a device.
    pub(crate) fn charges(&self, device: DeviceKey) -> Charges {
        let mut charges = Charges::default();
        for allocation in self.allocations.values() {
            let Some((_, units)) = allocation.charge.filter(|(its, _)| *its == device) else {
                continue;
            };
            let reason = if allocation.exported {
                &mut charges.shared
            } else {
                &mut charges.own
            };
            *reason += units.bytes();
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
            self.going.insert(handle, taken.id);
        }
        Some(taken)
    }

    /// The driver refused the release.
    pub(crate) fn not_released(&mut self, reference: Reference) {
        self.is_answered(reference);
        self.handles
            .entry(reference.handle)
            .or_insert((reference.id, 0))
            .1 += 1;
    }

    /// The driver has released the handle: the credits, if no mapping holds the memory any more.
    pub(crate) fn released(&mut self, reference: Reference) -> Vec<Credit> {
        self.is_answered(reference);
        self.let_go(reference.id)
    }

    /// The handle may be another object's by now, which goes too.
    fn is_answered(&mut self, reference: Reference) {
        if self.going.get(&reference.handle) == Some(&reference.id) {
            self.going.remove(&reference.handle);
        }
    }

    /// The memory of `handle` is about to be held at a place as well. The driver may come to that
    /// before it comes to a release of the handle that it was asked for already.
    pub(crate) fn holding(&mut self, handle: u64) -> Option<Holding> {
        let known = self.handles.get(&handle).map(|(id, _)| id);
        let id = *known.or_else(|| self.going.get(&handle))?;
        self.holding_one(id)
    }

    /// The same of the memory mapped at `address`.
    pub(crate) fn holding_at(&mut self, address: u64) -> Option<Holding> {
        let below = self.holds.range(..=Binding::Address(address)).next_back();
        let (Binding::Address(start), (mapped, id)) = below? else {
            return None;
        };
        let id = (address - start < *mapped).then_some(*id)?;
        self.holding_one(id)
    }

    fn holding_one(&mut self, id: u64) -> Option<Holding> {
        self.allocations.get_mut(&id)?.held += 1;
        Some(Holding { id })
    }

    /// It is held at `place` from now on, over `length` bytes. The credits of memory that was held
    /// there, and nowhere else.
    pub(crate) fn held(&mut self, holding: Holding, place: Binding, length: u64) -> Vec<Credit> {
        match self.holds.insert(place, (length, holding.id)) {
            Some((_, stale)) => self.let_go(stale),
            None => Vec::new(),
        }
    }

    /// The driver refused that: the credits, if nothing else holds it any more.
    pub(crate) fn not_held(&mut self, holding: Holding) -> Vec<Credit> {
        self.let_go(holding.id)
    }

    /// The driver has bound it, over `length` bytes, to a multicast object, which was held
    /// meanwhile. An object that no hook saw made is entered: its release ends it.
    pub(crate) fn bound(
        &mut self,
        memory: Option<Holding>,
        object: Option<Holding>,
        (handle, device, offset): InObject,
        length: u64,
    ) -> Vec<Credit> {
        let id = match &object {
            Some(object) => object.id,
            None => self.enter(handle, None),
        };
        let mut gone = Vec::new();
        if let Some(memory) = memory {
            let device = match self.charge(memory.id) {
                Some((its, _)) if device == UNNAMED => unnamed(its),
                _ => device,
            };
            gone = match memory.id == id {
                // No object is bound to itself: this is another process's memory, received under
                // the number of the object's file.
                true => self.not_held(memory),
                false => self.held(memory, Binding::Multicast(id, device, offset), length),
            };
        }
        if let Some(object) = object {
            gone.extend(self.let_go(object.id));
        }
        gone
    }

    /// Takes out what is bound to a multicast object on a device, from an offset to another, before
    /// the driver unbinds it. Drivers leave open what unbinds a part of a binding: it stays.
    pub(crate) fn unbinding(
        &mut self,
        object: &Holding,
        device: i32,
        (from, to): (u64, u64),
    ) -> Holds {
        let at = |offset| Binding::Multicast(object.id, device, offset);
        let taken = self.undoing(at(from), at(to)).0.into_iter();
        let reaches_out = |(place, length, _): &(Binding, u64, u64)| match *place {
            Binding::Multicast(_, _, offset) => offset.saturating_add(*length) > to,
            _ => false,
        };
        let (parts, whole) = taken.partition(reaches_out);
        self.not_undone(Holds(parts));
        Holds(whole)
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
            .flat_map(|(_, _, id)| self.let_go(id))
            .collect()
    }

    /// One reference or hold less. With the last one of an object, what is bound to it is let go.
    fn let_go(&mut self, id: u64) -> Vec<Credit> {
        let Some(allocation) = self.allocations.get_mut(&id) else {
            return Vec::new();
        };
        allocation.held -= 1;
        if allocation.held > 0 {
            if allocation.held == allocation.files {
                self.is_left_to_files(id);
            }
            return Vec::new();
        }
        self.left_to_files.remove(&id);
        let gone = self.allocations.remove(&id);
        let charge = gone.and_then(|gone| gone.charge);
        let bound = self.undoing(within(id), within(id + 1));
        charge.into_iter().chain(self.undone(bound)).collect()
    }
}

#[cfg(test)]
mod tests;
