//! The books of one pool whose memory can move: what is free, what was freed in a stream's order,
//! and what the driver's attributes say. No driver call.
//!
//! The rules are those that the driver documents. The stream in which memory was freed can use it
//! again at once; any stream can once the free is over, or with opportunistic reuse off, once the
//! host has waited for something after that.

use std::collections::{BTreeMap, BTreeSet};

use super::room::{GRAIN, Room};
use crate::driver::tracker::StreamId;

/// A free that its stream may not have reached.
#[derive(Debug)]
struct Pending {
    stream: StreamId,
    /// The parts that the stream has not taken again, by address.
    parts: Vec<(u64, u64)>,
}

/// Bytes, now and at most since the mark was set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) now: u64,
    pub(crate) high: u64,
}

impl Level {
    fn rise(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    fn fall(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }

    /// Sets the mark back.
    pub(super) fn lower(&mut self) {
        self.high = self.now;
    }
}

/// One pool's books.
#[derive(Debug)]
pub(super) struct PoolBooks {
    room: Room,
    /// Allocations that a stream has of what it had freed itself: by address, the number of that
    /// free, which may not be over.
    early: BTreeMap<u64, u64>,
    /// Free for all once the host has waited.
    parked: Vec<(u64, u64)>,
    pending: BTreeMap<u64, Pending>,
    /// Address to length.
    segments: BTreeMap<u64, u64>,
    /// The segments whose memory is nowhere any more, and what is free there: it serves none.
    lost: BTreeSet<u64>,
    lost_room: Room,
    frees: u64,
    pub(super) used: Level,
    pub(super) reserved: Level,
    /// Other streams may use memory whose free is over.
    pub(super) opportunistic: bool,
}

impl Default for PoolBooks {
    fn default() -> Self {
        Self {
            room: Room::default(),
            early: BTreeMap::new(),
            parked: Vec::new(),
            pending: BTreeMap::new(),
            segments: BTreeMap::new(),
            lost: BTreeSet::new(),
            lost_room: Room::default(),
            frees: 0,
            used: Level::default(),
            reserved: Level::default(),
            opportunistic: true,
        }
    }
}

/// The bytes that an allocation takes.
pub(super) fn size_of(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRAIN)
}

impl PoolBooks {
    /// Takes `size` bytes for a stream, if there are some. `size` is a multiple of the grain.
    pub(super) fn take(&mut self, stream: StreamId, size: u64) -> Option<u64> {
        let at = self
            .take_pending(stream, size)
            .or_else(|| self.room.take(size))?;
        self.used.rise(size);
        Some(at)
    }

    /// Of what the stream itself has freed, the smallest part that is large enough.
    fn take_pending(&mut self, stream: StreamId, size: u64) -> Option<u64> {
        // A handle may come to mean another stream; a number does not.
        let is_it = |free: &Pending| free.stream == stream && matches!(stream, StreamId::Number(_));
        let own = self.pending.iter_mut().filter(|(_, free)| is_it(free));
        let parts = own.flat_map(|(number, free)| {
            let parts = free.parts.iter_mut();
            parts.map(|part| (*number, part))
        });
        let is_lost = |at: u64| {
            let segment = self.segments.range(..=at).next_back();
            segment.is_some_and(|(base, _)| self.lost.contains(base))
        };
        let large = parts.filter(|(_, (at, length))| *length >= size && !is_lost(*at));
        let (number, part) = large.min_by_key(|(_, (at, length))| (*length, *at))?;
        let at = part.0;
        *part = (at + size, part.1 - size);
        self.early.insert(at, number);
        Some(at)
    }

    /// A segment that was made.
    pub(super) fn grow(&mut self, base: u64, bytes: u64) {
        self.segments.insert(base, bytes);
        self.reserved.rise(bytes);
        self.room.give(base, bytes, base..base + bytes);
    }

    /// Gives a stretch to all.
    fn give(&mut self, at: u64, bytes: u64) {
        let segment = self.segments.range(..=at).next_back();
        if let Some((&base, &length)) = segment
            && bytes > 0
        {
            let room = match self.lost.contains(&base) {
                true => &mut self.lost_room,
                false => &mut self.room,
            };
            room.give(at, bytes, base..base + length);
        }
    }

    /// A segment's memory is nowhere from now on. Nothing is taken from it; it is released once
    /// nothing is in it.
    pub(super) fn is_lost(&mut self, base: u64) {
        let Some(&length) = self.segments.get(&base) else {
            return;
        };
        self.lost.insert(base);
        for (at, bytes) in self.room.take_all(base..base + length) {
            self.give(at, bytes);
        }
    }

    /// Whether there are such segments.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A free was given to a stream. Returns its number.
    pub(super) fn freed_in(&mut self, stream: StreamId, at: u64, size: u64) -> u64 {
        self.used.fall(size);
        self.early.remove(&at);
        self.frees += 1;
        let parts = vec![(at, size)];
        self.pending.insert(self.frees, Pending { stream, parts });
        self.frees
    }

    /// That free is over.
    pub(super) fn over(&mut self, free: u64) {
        let Some(free) = self.pending.remove(&free) else {
            return;
        };
        for (at, bytes) in free.parts {
            if self.opportunistic {
                self.give(at, bytes);
            } else {
                self.parked.push((at, bytes));
            }
        }
    }

    /// An allocation that its program uses no more. Work before it may use the memory still, if it
    /// was freed in the same stream before.
    pub(super) fn freed_now(&mut self, at: u64, size: u64) {
        self.used.fall(size);
        let number = self.early.remove(&at);
        match number.and_then(|number| self.pending.get_mut(&number)) {
            Some(before) => before.parts.push((at, size)),
            None => self.give(at, size),
        }
    }

    /// The host has waited for something.
    pub(super) fn synchronised(&mut self) {
        for (at, bytes) in core::mem::take(&mut self.parked) {
            self.give(at, bytes);
        }
    }

    /// Takes unused segments out, the largest first, as long as `keep` bytes stay reserved; and
    /// those that are lost in any case.
    pub(super) fn release(&mut self, keep: u64) -> Vec<u64> {
        let mut all: Vec<(u64, u64)> = self.segments.iter().map(|(at, len)| (*len, *at)).collect();
        all.sort_unstable_by(|one, two| two.cmp(one));
        let mut released = Vec::new();
        for (length, base) in all {
            let (room, stays) = match self.lost.contains(&base) {
                true => (&mut self.lost_room, false),
                false => {
                    let stays = self.reserved.now.checked_sub(length) < Some(keep);
                    (&mut self.room, stays)
                }
            };
            if !stays && room.take_at(base, length) {
                self.segments.remove(&base);
                self.lost.remove(&base);
                self.reserved.fall(length);
                released.push(base);
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId::Number(1);
    const TWO: StreamId = StreamId::Number(2);
    const SEGMENT: u64 = 64 * GRAIN;

    fn pool() -> PoolBooks {
        let mut pool = PoolBooks::default();
        pool.grow(SEGMENT, SEGMENT);
        pool
    }

    #[test]
    fn a_stream_uses_what_it_freed_at_once_and_others_later() {
        let mut pool = pool();
        let all = pool.take(ONE, SEGMENT).unwrap();
        let free = pool.freed_in(ONE, all, SEGMENT);
        assert_eq!(pool.take(TWO, GRAIN), None);
        assert_eq!(pool.take(ONE, GRAIN), Some(SEGMENT));
        pool.over(free);
        assert_eq!(pool.take(TWO, SEGMENT), None, "a part is in use again");
        assert_eq!(pool.take(TWO, SEGMENT - GRAIN), Some(SEGMENT + GRAIN));
        assert!(pool.pending.is_empty());
    }

    #[test]
    fn memory_that_is_freed_again_waits_for_the_second_free() {
        let mut pool = pool();
        let all = pool.take(ONE, SEGMENT).unwrap();
        let first = pool.freed_in(ONE, all, SEGMENT);
        assert_eq!(pool.take(ONE, SEGMENT), Some(all));
        let second = pool.freed_in(ONE, all, SEGMENT);
        pool.over(first);
        assert_eq!(pool.take(TWO, GRAIN), None);
        pool.over(second);
        assert_eq!(pool.take(TWO, GRAIN), Some(all));
    }

    #[test]
    fn memory_freed_at_once_waits_for_the_free_that_it_was_taken_from() {
        let mut pool = pool();
        let all = pool.take(ONE, SEGMENT).unwrap();
        let free = pool.freed_in(ONE, all, SEGMENT);
        assert_eq!(pool.take(ONE, GRAIN), Some(all));
        pool.freed_now(all, GRAIN);
        assert_eq!(pool.take(TWO, GRAIN), None, "work before may use it");
        assert_eq!(pool.take(ONE, GRAIN), Some(all));
        pool.over(free);
        pool.freed_now(all, GRAIN);
        assert_eq!(pool.take(TWO, SEGMENT), Some(all));
        pool.freed_now(all, SEGMENT);
        assert_eq!(pool.take(ONE, SEGMENT), Some(all));
    }

    #[test]
    fn without_opportunistic_reuse_others_wait_until_the_host_has_waited() {
        let mut pool = pool();
        pool.opportunistic = false;
        let all = pool.take(ONE, SEGMENT).unwrap();
        let free = pool.freed_in(ONE, all, SEGMENT);
        pool.over(free);
        assert_eq!(pool.take(TWO, GRAIN), None);
        pool.synchronised();
        assert_eq!(pool.take(TWO, GRAIN), Some(all));
    }

    #[test]
    fn a_segment_that_is_lost_serves_none_and_goes_when_it_is_empty() {
        let mut pool = pool();
        let [one, two] = [ONE, TWO].map(|stream| pool.take(stream, GRAIN).unwrap());
        let three = pool.take(ONE, GRAIN).unwrap();
        let before = pool.freed_in(ONE, three, GRAIN);
        pool.is_lost(SEGMENT);
        assert_eq!(pool.take(ONE, GRAIN), None);
        let free = pool.freed_in(TWO, two, GRAIN);
        assert_eq!(pool.take(TWO, GRAIN), None);
        pool.over(before);
        pool.over(free);
        assert_eq!(pool.release(u64::MAX), [], "one is in it");
        pool.grow(9 * SEGMENT, SEGMENT);
        assert_eq!(pool.take(TWO, GRAIN), Some(9 * SEGMENT));
        pool.freed_now(one, GRAIN);
        assert_eq!(pool.release(u64::MAX), [SEGMENT]);
        assert!(!pool.has_lost());
        assert_eq!(pool.reserved.now, SEGMENT, "the other one stays");
    }

    #[test]
    fn only_whole_unused_segments_above_what_is_kept_are_released() {
        let mut pool = pool();
        pool.grow(9 * SEGMENT, 2 * SEGMENT);
        let one = pool.take(ONE, GRAIN).unwrap();
        assert_eq!(pool.release(3 * SEGMENT), []);
        assert_eq!(pool.release(0), [9 * SEGMENT]);
        pool.freed_now(one, GRAIN);
        assert_eq!(pool.release(1), []);
        assert_eq!(pool.release(0), [SEGMENT]);
        assert_eq!((pool.used.now, pool.reserved.now), (0, 0));
        assert_eq!((pool.used.high, pool.reserved.high), (GRAIN, 3 * SEGMENT));
    }
}
