//! Small movable allocations: parts of slabs, which move as a whole. The books alone; no driver
//! call.
//!
//! A slab belongs to one context and is charged as a whole, because that is what the device lacks.
//! The last slab of a context that is empty is kept for a while: a program that allocates and
//! frees one small piece again and again would make and drop a slab each time.
//!
//! To take a part and to give it back costs some 170 instructions, however many there are, and
//! allocates nothing: slabs are found by their address, and those with room in lists by the
//! logarithm of their longest free stretch. No other table has these allocations.

mod facts;

use std::collections::BTreeMap;

use super::slab::{CLASSES, Gave, Hole, Slab, class_of, grains_of};
use crate::account::Units;
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

/// Bytes of a slab, where the device's granularity is no larger.
pub(super) const SLAB: u64 = 2 << 20;

/// Numbers of small allocations begin here: a driver counts from 1.
const FIRST: u64 = 1 << 62;
/// How many numbers each has: another one after each move, since the memory is another then.
const NUMBERS: u64 = 1 << 12;

/// Slabs of the lowest list that may serve which are looked at.
const LOOKS: u32 = 8;
/// Slabs that are found by their address at once.
const NEAR: usize = 64;

/// A small allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    /// As the program asked for it.
    pub(super) bytes: u64,
    pub(super) serial: u64,
}

/// What became of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// No small allocation begins there.
    Nothing,
    /// It may not be freed.
    Kept,
    /// It is free.
    Freed,
    /// It is free, and its context has an empty slab too many now.
    OneTooMany,
}

/// The number of an allocation among the process's, after so many moves.
pub(super) fn number(serial: u64, moves: u64) -> u64 {
    FIRST + serial * NUMBERS + moves % NUMBERS
}

/// A slab that nothing is in any more, out of the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Empty {
    pub(super) base: u64,
    pub(super) device: DeviceKey,
    pub(super) charge: Units,
}

/// The slabs of one context.
#[derive(Clone, Debug, Default)]
struct Shelf {
    /// The first slab of each list.
    first: [Option<u32>; CLASSES as usize],
    /// Which lists have any, a bit each.
    any: u32,
    /// Slabs that nothing is in.
    empty: u32,
}

impl Shelf {
    /// The first slab of the lowest list that has room for so many granules, as far as is known:
    /// the fullest first, so that others empty.
    #[inline]
    fn surest(&self, grains: u32) -> Option<u32> {
        // The logarithm, rounded up.
        let sure = (grains.saturating_mul(2).wrapping_sub(1) | 1).ilog2();
        let lists = u64::from(self.any) >> sure;
        if lists == 0 {
            return None;
        }
        let class = sure + lists.trailing_zeros();
        *self.first.get(class as usize)?
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Smalls {
    /// By their numbers here, which are used again.
    slabs: Vec<Option<Box<Slab>>>,
    /// The same by address.
    places: BTreeMap<u64, u32>,
    /// Those that were asked for last, by a part of their address.
    near: [u32; NEAR],
    /// By context.
    shelves: Vec<Shelf>,
    made: u64,
}

impl Default for Smalls {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            places: BTreeMap::new(),
            near: [0; NEAR],
            shelves: Vec::new(),
            made: 0,
        }
    }
}

fn near_place(address: u64) -> usize {
    usize::try_from(address / SLAB).unwrap_or(0) % NEAR
}

impl Smalls {
    fn slab(&self, index: u32) -> Option<&Slab> {
        self.slabs.get(index as usize)?.as_deref()
    }

    fn slab_mut(&mut self, index: u32) -> Option<&mut Slab> {
        self.slabs.get_mut(index as usize)?.as_deref_mut()
    }

    /// The slab in which an address lies.
    #[inline]
    fn at(&self, address: u64) -> Option<u32> {
        let near = self.near[near_place(address)];
        if self.holds(near, address) {
            return Some(near);
        }
        self.far(address)
    }

    #[cold]
    fn far(&self, address: u64) -> Option<u32> {
        let (_, &index) = self.places.range(..=address).next_back()?;
        self.holds(index, address).then_some(index)
    }

    #[inline]
    fn holds(&self, index: u32, address: u64) -> bool {
        let slab = self.slab(index);
        slab.is_some_and(|slab| slab.offset(address).is_some())
    }

    /// Puts a slab into the list where it belongs by now.
    #[cold]
    fn file(&mut self, index: u32) {
        self.unlink(index);
        self.link(index);
    }

    fn link(&mut self, index: u32) {
        let Self { slabs, shelves, .. } = self;
        let Some(Some(slab)) = slabs.get_mut(index as usize) else {
            return;
        };
        let class = class_of(slab.longest());
        let shelf = shelves.get_mut(usize::from(slab.owner.0));
        if let (Some(class), Some(shelf)) = (class, shelf) {
            let first = shelf.first[class as usize].replace(index);
            slab.links = (None, first);
            shelf.any |= 1 << class;
            if let Some(Some(first)) = first.and_then(|first| slabs.get_mut(first as usize)) {
                first.links.0 = Some(index);
            }
        }
        if let Some(Some(slab)) = self.slabs.get_mut(index as usize) {
            slab.class = class;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Some(slab) = self.slab_mut(index) else {
            return;
        };
        let owner = slab.owner;
        let (before, behind) = core::mem::take(&mut slab.links);
        let Some(class) = slab.class.take() else {
            return;
        };
        if let Some(behind) = behind.and_then(|behind| self.slab_mut(behind)) {
            behind.links.0 = before;
        }
        match before.and_then(|before| self.slab_mut(before)) {
            Some(before) => before.links.1 = behind,
            None => {
                if let Some(shelf) = self.shelves.get_mut(usize::from(owner.0)) {
                    shelf.first[class as usize] = behind;
                    if behind.is_none() {
                        shelf.any &= !(1 << class);
                    }
                }
            }
        }
    }

    fn shelf(&mut self, owner: ContextId) -> Option<&mut Shelf> {
        self.shelves.get_mut(usize::from(owner.0))
    }

    /// Takes a part for `bytes` of a context's slabs, if one has room.
    pub(super) fn take(&mut self, owner: ContextId, bytes: u32) -> Option<u64> {
        let taken = self.take_at_once(owner, bytes);
        taken.or_else(|| self.take_slowly(owner, bytes))
    }

    /// The same where no search is needed.
    #[inline(always)]
    pub(super) fn take_at_once(&mut self, owner: ContextId, bytes: u32) -> Option<u64> {
        let serial = self.next_serial();
        let shelf = self.shelves.get_mut(usize::from(owner.0))?;
        let index = shelf.surest(grains_of(bytes))?;
        let slab = self.slabs.get_mut(index as usize)?.as_deref_mut()?;
        let at = slab.take_at_once(bytes, serial)?;
        if slab.live == 1 {
            slab.emptied = 0;
            shelf.empty -= 1;
        }
        Some(at)
    }

    fn take_slowly(&mut self, owner: ContextId, bytes: u32) -> Option<u64> {
        let grains = grains_of(bytes).max(1);
        while let Some(index) = self.shelf(owner)?.surest(grains) {
            if let Some(at) = self.take_from(index, bytes) {
                return Some(at);
            }
        }
        let least = grains.ilog2();
        let mut next = self.shelf(owner)?.first.get(least as usize).copied()?;
        for _ in 0..LOOKS {
            let index = next?;
            let slab = self.slab(index)?;
            next = slab.links.1;
            if slab.longest() >= grains
                && let Some(at) = self.take_from(index, bytes)
            {
                return Some(at);
            }
        }
        None
    }

    /// The same of one slab. Where it has no room its list is another one from then on, or its
    /// longest stretch is too short.
    fn take_from(&mut self, index: u32, bytes: u32) -> Option<u64> {
        let serial = self.next_serial();
        let slab = self.slab_mut(index)?;
        let (owner, taken) = (slab.owner, slab.take(bytes, serial));
        match taken {
            // Only a search that fails says more of its longest stretch.
            None => self.file(index),
            Some(_) if slab.live == 1 => {
                slab.emptied = 0;
                if let Some(shelf) = self.shelf(owner) {
                    shelf.empty -= 1;
                }
            }
            Some(_) => {}
        }
        taken
    }

    /// The next allocation's, of any kind that is a part of something.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A slab that was made. Returns its number, which no other one has.
    pub(super) fn add(
        &mut self,
        owner: ContextId,
        device: DeviceKey,
        base: u64,
        bytes: u64,
    ) -> u64 {
        let number = self.next_serial();
        let slab = Some(Box::new(Slab::new(owner, device, (base, bytes), number)));
        let free = self.slabs.iter().position(Option::is_none);
        let index = free.unwrap_or(self.slabs.len());
        match self.slabs.get_mut(index) {
            Some(place) => *place = slab,
            None => self.slabs.push(slab),
        }
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.places.insert(base, index);
        self.near[near_place(base)] = index;
        let shelf = usize::from(owner.0);
        if self.shelves.len() <= shelf {
            self.shelves.resize_with(shelf + 1, Shelf::default);
        }
        self.shelves[shelf].empty += 1;
        self.link(index);
        number
    }

    /// Notes the charge of the slab that has this number. `false`: it has gone already.
    pub(super) fn charged(&mut self, base: u64, number: u64, charge: Units) -> bool {
        let index = self.places.get(&base).copied();
        let slab = index.and_then(|index| self.slab_mut(index));
        slab.filter(|slab| slab.number == number)
            .is_some_and(|slab| {
                slab.charge = charge;
                true
            })
    }

    /// Frees the allocation that begins here, if `may` says so of its device and its serial.
    #[inline(always)]
    pub(super) fn give(&mut self, at: u64, may: impl FnOnce(DeviceKey, u64) -> bool) -> Given {
        let near = self.near[near_place(at)];
        if let Some(Some(slab)) = self.slabs.get_mut(near as usize)
            && let Some(offset) = slab.offset(at)
        {
            return match slab.give(offset, may) {
                Gave::Plainly => Given::Freed,
                gave => self.given(near, gave),
            };
        }
        self.give_far(at, may)
    }

    /// The same where it was not asked for last.
    #[cold]
    #[inline(never)]
    fn give_far(&mut self, at: u64, may: impl FnOnce(DeviceKey, u64) -> bool) -> Given {
        let Some(index) = self.far(at) else {
            return Given::Nothing;
        };
        self.near[near_place(at)] = index;
        let Some(slab) = self.slab_mut(index) else {
            return Given::Nothing;
        };
        let Some(offset) = slab.offset(at) else {
            return Given::Nothing;
        };
        let gave = slab.give(offset, may);
        self.given(index, gave)
    }

    #[cold]
    #[inline(never)]
    fn given(&mut self, index: u32, gave: Gave) -> Given {
        match gave {
            Gave::Nothing => Given::Nothing,
            Gave::Kept => Given::Kept,
            Gave::Plainly => Given::Freed,
            Gave::Freed(hole) => self.settle(index, hole),
        }
    }

    /// What a free means for its slab.
    fn settle(&mut self, index: u32, hole: Hole) -> Given {
        let Some(slab) = self.slab_mut(index) else {
            return Given::Freed;
        };
        let (owner, is_empty) = (slab.owner, slab.live == 0);
        if slab.settle(hole) {
            self.file(index);
        }
        let too_many = is_empty && self.has_emptied(owner);
        match too_many {
            true => Given::OneTooMany,
            false => Given::Freed,
        }
    }

    /// A slab of this context is empty now. Whether that is one too many.
    fn has_emptied(&mut self, owner: ContextId) -> bool {
        self.shelf(owner).is_some_and(|shelf| {
            shelf.empty += 1;
            shelf.empty > 1
        })
    }

    /// Takes a slab out of the books.
    fn drop_slab(&mut self, index: u32) -> Option<Empty> {
        self.unlink(index);
        let slab = self.slabs.get_mut(index as usize)?.take()?;
        self.places.remove(&slab.base);
        if slab.live == 0
            && let Some(shelf) = self.shelf(slab.owner)
        {
            shelf.empty -= 1;
        }
        Some(Empty {
            base: slab.base,
            device: slab.device,
            charge: slab.charge,
        })
    }

    /// Takes the slabs out that `wanted` chooses, in the order of their addresses.
    fn take_out(&mut self, mut wanted: impl FnMut(&mut Slab) -> bool) -> Vec<Empty> {
        let all: Vec<u32> = self.places.values().copied().collect();
        let mut taken = Vec::new();
        for index in all {
            if self.slab_mut(index).is_some_and(&mut wanted) {
                taken.extend(self.drop_slab(index));
            }
        }
        taken
    }

    /// Takes out the empty slabs of a context beyond the first.
    pub(super) fn too_many(&mut self, owner: ContextId) -> Vec<Empty> {
        let mut seen = false;
        self.take_out(|slab| {
            slab.live == 0 && slab.owner == owner && core::mem::replace(&mut seen, true)
        })
    }

    /// Whether any is empty for long: since somebody has first looked.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        if self.shelves.iter().all(|shelf| shelf.empty == 0) {
            return false;
        }
        let slabs = self.slabs.iter_mut().flatten();
        slabs.fold(false, |is_due, slab| is_due | slab.is_due(now))
    }

    /// Takes out those that are.
    pub(super) fn idle(&mut self, now: u64) -> Vec<Empty> {
        self.take_out(|slab| slab.is_due(now))
    }

    /// Takes out all empty ones of a device.
    pub(super) fn spare(&mut self, device: DeviceKey) -> Vec<Empty> {
        self.take_out(|slab| slab.live == 0 && slab.device == device)
    }

    /// A context has gone: its slabs, whatever is in them.
    pub(super) fn context_gone(&mut self, owner: ContextId) -> Vec<Empty> {
        self.take_out(|slab| slab.owner == owner)
    }
}

#[cfg(test)]
mod tests;
