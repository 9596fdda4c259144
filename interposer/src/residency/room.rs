//! Free space in memory of ours, as stretches of addresses: the smallest that is large enough
//! serves, and a stretch that is given back merges with its neighbours. The books alone.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

/// Addresses and lengths are multiples of this, as a driver's are.
pub(super) const GRAIN: u64 = 512;

/// Free stretches, none beside another.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// Address to length.
    by_place: BTreeMap<u64, u64>,
    /// The same by length, then address.
    by_length: BTreeSet<(u64, u64)>,
}

impl Room {
    fn enter(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.by_place.insert(at, bytes);
            self.by_length.insert((bytes, at));
        }
    }

    fn leave(&mut self, at: u64, bytes: u64) {
        self.by_place.remove(&at);
        self.by_length.remove(&(bytes, at));
    }

    /// Adds a stretch, none of which is free yet. It merges with those of the same whole: one
    /// allocation never lies in two of them, though they may be neighbours.
    pub(super) fn give(&mut self, at: u64, bytes: u64, whole: Range<u64>) {
        let (mut from, mut length) = (at, bytes);
        if let Some((&before, &of_it)) = self.by_place.range(whole.start..at).next_back()
            && before + of_it == at
        {
            self.leave(before, of_it);
            (from, length) = (before, of_it + length);
        }
        if at + bytes < whole.end
            && let Some(&behind) = self.by_place.get(&(at + bytes))
        {
            self.leave(at + bytes, behind);
            length += behind;
        }
        self.enter(from, length);
    }

    /// Takes `bytes` from the front of the smallest stretch that is large enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let &(length, at) = self.by_length.range((bytes, 0)..).next()?;
        self.leave(at, length);
        self.enter(at + bytes, length - bytes);
        Some(at)
    }

    /// Takes all stretches that begin in a whole.
    pub(super) fn take_all(&mut self, whole: Range<u64>) -> Vec<(u64, u64)> {
        let all = self.by_place.range(whole);
        let all: Vec<(u64, u64)> = all.map(|(at, bytes)| (*at, *bytes)).collect();
        for (at, bytes) in &all {
            self.leave(*at, *bytes);
        }
        all
    }

    /// Takes exactly this stretch. `false`, and nothing changed, if not all of it is free.
    pub(super) fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let Some((&from, &length)) = self.by_place.range(..=at).next_back() else {
            return false;
        };
        if from + length < at + bytes {
            return false;
        }
        self.leave(from, length);
        self.enter(from, at - from);
        self.enter(at + bytes, from + length - at - bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_given_back_in_any_order_become_one_again() {
        let mut room = Room::default();
        let whole = 4096..4096 + 8 * GRAIN;
        room.give(4096, 8 * GRAIN, whole.clone());
        let taken: Vec<u64> = (0..8).map(|_| room.take(GRAIN).unwrap()).collect();
        assert_eq!(room.take(GRAIN), None);
        for index in [0, 2, 4, 6, 1, 7, 3, 5] {
            room.give(taken[index], GRAIN, whole.clone());
        }
        assert_eq!(room.take(8 * GRAIN), Some(4096));
    }

    #[test]
    fn neighbours_that_are_not_one_whole_stay_apart() {
        let mut room = Room::default();
        room.give(0, 4 * GRAIN, 0..4 * GRAIN);
        room.give(4 * GRAIN, 4 * GRAIN, 4 * GRAIN..8 * GRAIN);
        assert_eq!(room.take(5 * GRAIN), None);
        assert_eq!(room.take(4 * GRAIN), Some(0));
        room.give(0, 4 * GRAIN, 0..4 * GRAIN);
        assert_eq!(room.take(5 * GRAIN), None);
    }

    #[test]
    fn the_smallest_stretch_that_is_large_enough_serves() {
        let mut room = Room::default();
        room.give(0, 8 * GRAIN, 0..8 * GRAIN);
        room.give(100 * GRAIN, 2 * GRAIN, 100 * GRAIN..102 * GRAIN);
        assert_eq!(room.take(2 * GRAIN), Some(100 * GRAIN));
        assert_eq!(room.take(2 * GRAIN), Some(0));
        assert_eq!(room.take(7 * GRAIN), None);
    }

    #[test]
    fn a_stretch_is_taken_at_its_place_only_if_all_of_it_is_free() {
        let mut room = Room::default();
        room.give(0, 8 * GRAIN, 0..8 * GRAIN);
        assert!(!room.take_at(7 * GRAIN, 2 * GRAIN));
        assert!(room.take_at(2 * GRAIN, 2 * GRAIN));
        assert!(!room.take_at(3 * GRAIN, GRAIN));
        assert_eq!(room.take(3 * GRAIN), Some(4 * GRAIN));
        assert_eq!(room.take(2 * GRAIN), Some(0));
    }
}
