//! One slab of small allocations: which of its granules are free, and what begins where. The books
//! alone. Nothing is allocated here but when a slab is made.

use super::bits::{Bits, bit_of};
use super::room::GRAIN;
use super::small::Small;
use crate::account::Units;
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

/// [`GRAIN`] as a number of an allocation's bytes.
const GRAIN_BYTES: u32 = 512;
const _: () = assert!(GRAIN_BYTES as u64 == GRAIN);
/// How long an empty slab is kept (ns), once somebody has looked.
pub(super) const KEPT: u64 = 2_000_000_000;
/// How far the free stretch around a freed part is followed, in granules. Beyond, it is taken to be
/// as long as it can be.
const FOLLOWED: u32 = 128;

/// A slab.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) base: u64,
    pub(super) owner: ContextId,
    pub(super) device: DeviceKey,
    pub(super) charge: Units,
    /// Another one for each slab of the process.
    pub(super) number: u64,
    /// Allocations in it.
    pub(super) live: u32,
    /// Since when nothing is in it, as far as somebody has looked (ns); 0: nobody has.
    pub(super) emptied: u64,
    /// Its neighbours in its list, and the class of the list; see [`Shelf`](super::small).
    pub(super) links: (Option<u32>, Option<u32>),
    pub(super) class: Option<u32>,
    grains: u32,
    free: Bits,
    starts: Bits,
    /// By the granule where an allocation begins.
    parts: Box<[Part]>,
    /// Free granules.
    left: u32,
    /// No free stretch is longer. A search that fails tells how long the longest is.
    longest: u32,
    /// Where the next search begins: where memory was freed or taken last.
    rover: u32,
}

/// What is known of an allocation.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    serial: u64,
    /// As the program asked for it.
    bytes: u32,
}

/// What became of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gave {
    /// No allocation begins there.
    Nothing,
    /// It may not be freed.
    Kept,
    /// It is free, and its slab is as it was otherwise.
    Plainly,
    /// It is free. [`Slab::settle`] says what that means for its slab.
    Freed(Hole),
}

/// The granules that an allocation had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    start: u32,
    grains: u32,
}

/// Lists of slabs by their longest free stretch: one for each power of two granules.
pub(super) const CLASSES: u32 = 20;

/// The list of a slab whose longest free stretch has so many granules; none for none.
#[inline]
pub(super) fn class_of(longest: u32) -> Option<u32> {
    longest.checked_ilog2().map(|class| class.min(CLASSES - 1))
}

/// The granules that an allocation takes.
#[inline]
pub(super) fn grains_of(bytes: u32) -> u32 {
    bytes.saturating_add(GRAIN_BYTES - 1) / GRAIN_BYTES
}

impl Slab {
    /// An empty one of so many bytes.
    pub(super) fn new(
        owner: ContextId,
        device: DeviceKey,
        (base, bytes): (u64, u64),
        number: u64,
    ) -> Self {
        // Less than 4 GiB: an offset is a number of 32 bits.
        let grains = u32::try_from(bytes).map_or(0, |bytes| bytes / GRAIN_BYTES);
        let mut free = Bits::new(grains);
        free.change(0, grains, true);
        Self {
            base,
            owner,
            device,
            charge: Units(0),
            number,
            live: 0,
            emptied: 0,
            links: (None, None),
            class: None,
            grains,
            free,
            starts: Bits::new(grains),
            parts: vec![Part::default(); grains as usize].into_boxed_slice(),
            left: grains,
            longest: grains,
            rover: 0,
        }
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        u64::from(self.grains) * GRAIN
    }

    /// Whether it is empty for long, as far as is known. A look begins to count.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        if self.live == 0 && self.emptied == 0 {
            self.emptied = now.max(1);
        }
        self.live == 0 && now >= self.emptied.saturating_add(KEPT)
    }

    /// No free stretch has more granules.
    pub(super) fn longest(&self) -> u32 {
        self.longest
    }

    fn address(&self, grain: u32) -> u64 {
        self.base + u64::from(grain) * GRAIN
    }

    fn grain(&self, at: u64) -> u32 {
        u32::try_from(at.wrapping_sub(self.base) / GRAIN).unwrap_or(u32::MAX)
    }

    /// The first stretch of `grains` that begins from `from` on, before `to`; the longest of the
    /// shorter ones otherwise.
    fn search(&self, grains: u32, from: u32, to: u32) -> Result<u32, u32> {
        let (mut at, mut longest) = (from, 0);
        loop {
            let start = self.free.next(at, to, true);
            if start >= to {
                return Err(longest);
            }
            if grains == 1 {
                return Ok(start);
            }
            let enough = start.saturating_add(grains).min(self.grains);
            at = self.free.next(start, enough, false);
            if at - start >= grains {
                return Ok(start);
            }
            longest = longest.max(at - start);
        }
    }

    /// The first stretch of so many, from where memory was freed or taken last.
    fn find_room(&self, grains: u32) -> Result<u32, u32> {
        let found = self.search(grains, self.rover, self.grains);
        found.or_else(|one| {
            let other = self.search(grains, 0, self.rover);
            other.map_err(|other| one.max(other))
        })
    }

    /// Takes a part for `bytes` where memory was freed or taken last, if there is room.
    #[inline(always)]
    pub(super) fn take_at_once(&mut self, bytes: u32, serial: u64) -> Option<u64> {
        let (start, grains) = (self.rover, grains_of(bytes));
        let taken = self.free.take_run(start, grains);
        taken.then(|| self.enter(start, bytes, serial))
    }

    /// Takes a part for `bytes`. `None`: no stretch is long enough, which is known from then on.
    pub(super) fn take(&mut self, bytes: u32, serial: u64) -> Option<u64> {
        let grains = grains_of(bytes);
        if let Some(at) = self.take_at_once(bytes, serial) {
            return Some(at);
        }
        match self.find_room(grains) {
            Ok(start) => {
                self.free.change(start, start + grains, false);
                Some(self.enter(start, bytes, serial))
            }
            Err(longest) => {
                self.longest = longest;
                None
            }
        }
    }

    /// Enters an allocation whose granules have been taken.
    #[inline]
    fn enter(&mut self, start: u32, bytes: u32, serial: u64) -> u64 {
        if let Some(word) = self.starts.word_of(start) {
            *word |= bit_of(start);
        }
        if let Some(part) = self.parts.get_mut(start as usize) {
            *part = Part { serial, bytes };
        }
        let grains = grains_of(bytes);
        self.live += 1;
        self.left -= grains;
        self.rover = start + grains;
        self.address(start)
    }

    /// How far an address lies behind the slab's begin. `None`: it does not lie in it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a slab is smaller")]
    pub(super) fn offset(&self, at: u64) -> Option<u32> {
        let offset = at.wrapping_sub(self.base);
        (offset < self.size()).then_some(offset as u32)
    }

    /// Frees the allocation that begins at this offset, if `may` says so of its device and its
    /// serial.
    #[inline(always)]
    pub(super) fn give(&mut self, offset: u32, may: impl FnOnce(DeviceKey, u64) -> bool) -> Gave {
        let start = offset / GRAIN_BYTES;
        let bit = bit_of(start);
        let Some(word) = self.starts.word_of(start) else {
            return Gave::Nothing;
        };
        let Some(part) = self.parts.get(start as usize) else {
            return Gave::Nothing;
        };
        if !offset.is_multiple_of(GRAIN_BYTES) || *word & bit == 0 {
            return Gave::Nothing;
        }
        if !may(self.device, part.serial) {
            return Gave::Kept;
        }
        *word ^= bit;
        let grains = grains_of(part.bytes);
        self.live -= 1;
        self.left += grains;
        self.rover = start;
        self.free.put_run(start, grains);
        if self.live == 0 || self.longest < self.left {
            return Gave::Freed(Hole { start, grains });
        }
        Gave::Plainly
    }

    /// Notes how long the free stretch is that a hole is a part of now, as far as it is followed.
    /// Whether another list is the slab's from then on.
    pub(super) fn settle(&mut self, hole: Hole) -> bool {
        if self.longest < self.left {
            let around = self.around(hole.start, hole.start + hole.grains);
            self.longest = self.longest.max(around);
        }
        self.class != class_of(self.longest)
    }

    /// The free stretch around granules that become free, or more.
    fn around(&self, start: u32, end: u32) -> u32 {
        let before = self.free.run_before(start, FOLLOWED);
        let behind = self.free.next(end, end.saturating_add(FOLLOWED), false) - end;
        if before >= FOLLOWED || behind >= FOLLOWED {
            return self.left;
        }
        before + (end - start) + behind
    }

    fn known(&self, start: u32) -> Option<Small> {
        let part = self.parts.get(start as usize)?;
        Some(Small {
            bytes: u64::from(part.bytes),
            serial: part.serial,
        })
    }

    /// The allocation that holds an address, and where it begins.
    pub(super) fn find(&self, address: u64) -> Option<(u64, Small)> {
        let start = self
            .starts
            .last_before(self.grain(address).saturating_add(1))?;
        let (at, small) = (self.address(start), self.known(start)?);
        (address - at < small.bytes).then_some((at, small))
    }

    /// Where its last allocation ends.
    pub(super) fn used(&self) -> u64 {
        let last = self.starts.last_before(self.grains);
        let known = last.and_then(|start| Some((start, self.known(start)?)));
        known.map_or(0, |(start, small)| u64::from(start) * GRAIN + small.bytes)
    }
}
