//! Small movable allocations: parts of slabs, which move as a whole. The books alone; no driver
//! call.
//!
//! A slab belongs to one context and is charged as a whole, because that is what the device lacks.
//! The last slab of a context that is empty is kept for a while: a program that allocates and
//! frees one small piece again and again would make and drop a slab each time.

use std::collections::BTreeMap;

use super::room::{GRAIN, Room};
use crate::account::Units;
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

/// Bytes of a slab, where the device's granularity is no larger.
pub(super) const SLAB: u64 = 2 << 20;

/// How long an empty slab is kept (ns).
const KEPT: u64 = 2_000_000_000;

/// Numbers of small allocations begin here: a driver counts from 1.
const FIRST: u64 = 1 << 62;
/// How many numbers each has: another one after each move, since the memory is another then.
const NUMBERS: u64 = 1 << 12;

/// A small allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    /// As the program asked for it.
    pub(super) bytes: u64,
    /// The slab that it is a part of.
    pub(super) slab: u64,
    pub(super) serial: u64,
    /// `SYNC_MEMOPS` is set.
    pub(super) sync_memops: bool,
}

/// The number of an allocation among the process's, after so many moves.
pub(super) fn number(serial: u64, moves: u64) -> u64 {
    FIRST + serial * NUMBERS + moves % NUMBERS
}

#[derive(Debug)]
struct Slab {
    owner: ContextId,
    device: DeviceKey,
    bytes: u64,
    live: u32,
    charge: Units,
    /// Since when nothing is in it (ns).
    emptied: u64,
}

/// A slab that nothing is in any more, out of the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Empty {
    pub(super) base: u64,
    pub(super) device: DeviceKey,
    pub(super) charge: Units,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Smalls {
    /// Free parts of the slabs, by context.
    rooms: BTreeMap<u16, Room>,
    slabs: BTreeMap<u64, Slab>,
    live: BTreeMap<u64, Small>,
    made: u64,
}

/// The bytes that an allocation takes.
pub(super) fn size_of(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRAIN)
}

impl Smalls {
    /// Takes a part for `bytes` of a context's slabs, if one has room.
    pub(super) fn take(&mut self, owner: ContextId, bytes: u64) -> Option<u64> {
        let at = self.rooms.get_mut(&owner.0)?.take(size_of(bytes))?;
        let serial = self.next_serial();
        let (&slab, entry) = self.slabs.range_mut(..=at).next_back()?;
        entry.live += 1;
        let small = Small {
            bytes,
            slab,
            serial,
            sync_memops: false,
        };
        self.live.insert(at, small);
        Some(at)
    }

    /// The next allocation's, of any kind that is a part of something.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A slab that was made.
    pub(super) fn add(&mut self, owner: ContextId, device: DeviceKey, base: u64, bytes: u64) {
        let slab = Slab {
            owner,
            device,
            bytes,
            live: 0,
            charge: Units(0),
            emptied: 0,
        };
        self.slabs.insert(base, slab);
        let room = self.rooms.entry(owner.0).or_default();
        room.give(base, bytes, base..base + bytes);
    }

    /// Notes the charge of a slab. `false`: the slab has gone already.
    pub(super) fn charged(&mut self, base: u64, charge: Units) -> bool {
        self.slabs.get_mut(&base).is_some_and(|slab| {
            slab.charge = charge;
            true
        })
    }

    /// Frees the allocation that begins here, and returns what was known of it.
    pub(super) fn give(&mut self, at: u64, now: u64) -> Option<Small> {
        let small = self.live.remove(&at)?;
        let slab = self.slabs.get_mut(&small.slab)?;
        slab.live -= 1;
        if slab.live == 0 {
            slab.emptied = now;
        }
        let room = self.rooms.entry(slab.owner.0).or_default();
        let whole = small.slab..small.slab + slab.bytes;
        room.give(at, size_of(small.bytes), whole);
        Some(small)
    }

    /// Takes the slabs out that are empty and that `wanted` chooses, by their context, their
    /// device, and since when they are.
    fn take_empty(
        &mut self,
        mut wanted: impl FnMut(ContextId, DeviceKey, u64) -> bool,
    ) -> Vec<Empty> {
        let mut taken = Vec::new();
        let rooms = &mut self.rooms;
        self.slabs.retain(|base, slab| {
            let goes = slab.live == 0 && wanted(slab.owner, slab.device, slab.emptied);
            if goes {
                let room = rooms.get_mut(&slab.owner.0);
                let was_free = room.is_some_and(|room| room.take_at(*base, slab.bytes));
                debug_assert!(was_free, "nothing is in it");
                taken.push(Empty {
                    base: *base,
                    device: slab.device,
                    charge: slab.charge,
                });
            }
            !goes
        });
        taken
    }

    /// Takes out the empty slabs of a context beyond the first.
    pub(super) fn too_many(&mut self, owner: ContextId) -> Vec<Empty> {
        let mut seen = false;
        self.take_empty(|of, _, _| of == owner && core::mem::replace(&mut seen, true))
    }

    /// Takes out those that are empty for long.
    pub(super) fn idle(&mut self, now: u64) -> Vec<Empty> {
        self.take_empty(|_, _, emptied| now >= emptied.saturating_add(KEPT))
    }

    /// Takes out all empty ones of a device.
    pub(super) fn spare(&mut self, device: DeviceKey) -> Vec<Empty> {
        self.take_empty(|_, of, _| of == device)
    }

    /// A context has gone: its slabs, whatever is in them.
    pub(super) fn context_gone(&mut self, owner: ContextId) -> Vec<Empty> {
        self.rooms.remove(&owner.0);
        let gone = self.slabs.extract_if(.., |_, slab| slab.owner == owner);
        let gone: Vec<Empty> = gone
            .map(|(base, slab)| Empty {
                base,
                device: slab.device,
                charge: slab.charge,
            })
            .collect();
        let slabs = &self.slabs;
        self.live.retain(|_, small| slabs.contains_key(&small.slab));
        gone
    }

    /// Whose slab this is. `None`: it is none.
    pub(super) fn owner(&self, slab: u64) -> Option<ContextId> {
        self.slabs.get(&slab).map(|slab| slab.owner)
    }

    /// Whose slab this is, if nothing is in it any more.
    pub(super) fn owner_if_empty(&self, slab: u64) -> Option<ContextId> {
        let slab = self.slabs.get(&slab).filter(|slab| slab.live == 0)?;
        Some(slab.owner)
    }

    /// The allocation that begins here.
    pub(super) fn get(&self, at: u64) -> Option<&Small> {
        self.live.get(&at)
    }

    /// The allocation that holds an address.
    pub(super) fn find(&self, address: u64) -> Option<(u64, &Small)> {
        let (at, small) = self.live.range(..=address).next_back()?;
        (address - at < small.bytes).then_some((*at, small))
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, address: u64) -> Option<&mut Small> {
        let (at, small) = self.live.range_mut(..=address).next_back()?;
        (address - at < small.bytes).then_some(small)
    }

    /// The allocations of a slab.
    fn within(&self, slab: u64) -> impl DoubleEndedIterator<Item = (&u64, &Small)> {
        let bytes = self.slabs.get(&slab).map_or(0, |slab| slab.bytes);
        self.live.range(slab..slab + bytes)
    }

    /// How far a slab is in use.
    pub(super) fn used(&self, slab: u64) -> u64 {
        let last = self.within(slab).next_back();
        last.map_or(0, |(at, small)| at + small.bytes - slab)
    }

    /// Whether `SYNC_MEMOPS` is set for any allocation in a slab.
    pub(super) fn sync_memops(&self, slab: u64) -> bool {
        self.within(slab).any(|(_, small)| small.sync_memops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ContextId = ContextId(1);
    const TWO: ContextId = ContextId(2);

    fn smalls() -> Smalls {
        let mut smalls = Smalls::default();
        smalls.add(ONE, DeviceKey::default(), SLAB, SLAB);
        smalls
    }

    fn bases(list: &[Empty]) -> Vec<u64> {
        list.iter().map(|empty| empty.base).collect()
    }

    #[test]
    fn an_address_belongs_to_one_allocation_or_none() {
        let mut smalls = smalls();
        let first = smalls.take(ONE, 1000).unwrap();
        let second = smalls.take(ONE, 1).unwrap();
        assert_eq!((first, second), (SLAB, SLAB + 1024));
        assert_eq!(smalls.find(first + 999).map(|(at, _)| at), Some(first));
        assert!(smalls.find(first + 1000).is_none(), "behind its end");
        assert!(smalls.find(second + 1).is_none());
        assert_eq!(smalls.used(SLAB), 1025);
        assert!(smalls.give(first + 512, 0).is_none(), "not where it begins");
        assert_eq!(smalls.give(first, 0).map(|small| small.slab), Some(SLAB));
        assert!(smalls.give(first, 0).is_none(), "it is free already");
        assert!(smalls.find(first).is_none());
        assert_eq!(smalls.used(SLAB), 1025);
    }

    #[test]
    fn contexts_share_no_slab() {
        let mut smalls = smalls();
        assert_eq!(smalls.take(TWO, 512), None);
        smalls.add(TWO, DeviceKey::default(), 8 * SLAB, SLAB);
        let of_two = smalls.take(TWO, 512).unwrap();
        let of_one = smalls.take(ONE, 512).unwrap();
        let gone = smalls.context_gone(TWO);
        assert_eq!(bases(&gone), [8 * SLAB]);
        assert!(smalls.get(of_two).is_none() && smalls.get(of_one).is_some());
        assert_eq!(smalls.take(TWO, 512), None);
    }

    #[test]
    fn one_empty_slab_is_kept_for_a_while() {
        let mut smalls = smalls();
        smalls.add(ONE, DeviceKey::default(), 8 * SLAB, SLAB);
        let list = [0; 3].map(|_| smalls.take(ONE, SLAB / 2).unwrap());
        assert!(smalls.charged(SLAB, Units(7)));
        assert!(!smalls.charged(2 * SLAB, Units(9)), "there is none");
        for at in list {
            smalls.give(at, 100);
        }
        assert_eq!(bases(&smalls.too_many(ONE)), [8 * SLAB]);
        assert_eq!(smalls.too_many(ONE), []);
        assert_eq!(smalls.idle(100 + KEPT - 1), []);
        let idle = smalls.idle(100 + KEPT);
        assert_eq!((bases(&idle), idle[0].charge), (vec![SLAB], Units(7)));
        assert_eq!(smalls.take(ONE, 512), None, "it is not there any more");
    }

    #[test]
    fn a_slab_in_use_is_not_given_back() {
        let mut smalls = smalls();
        let at = smalls.take(ONE, 512).unwrap();
        assert_eq!(smalls.spare(DeviceKey::default()), []);
        smalls.give(at, 0);
        assert_eq!(bases(&smalls.spare(DeviceKey::default())), [SLAB]);
    }

    #[test]
    fn an_allocation_has_a_number_of_its_own_and_another_after_a_move() {
        let mut smalls = smalls();
        let first = smalls.take(ONE, 512).unwrap();
        let its = number(smalls.get(first).unwrap().serial, 0);
        assert_ne!(number(smalls.get(first).unwrap().serial, 1), its);
        smalls.give(first, 0);
        assert_eq!(smalls.take(ONE, 512), Some(first));
        assert_ne!(number(smalls.get(first).unwrap().serial, 0), its);
    }
}
