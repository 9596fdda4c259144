//! Where a pool has room, as far as its allocations and frees have shown it.
//!
//! The driver says how much of a pool is unused, not whether an allocation fits into it. Addresses do: what was freed is a hole
//! until an allocation is put there, and what a pool grew by beyond an allocation is one too.

use std::collections::BTreeMap;

/// The driver places allocations of a pool at multiples of this.
const GRANULE: u64 = 512;

/// Ranges of addresses, start to length.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// What is free. Neighbours in one piece are one hole.
    free: BTreeMap<u64, u64>,
    /// The pieces the pool grew by. Two that lie side by side are still two: nothing is placed across them.
    pieces: BTreeMap<u64, u64>,
}

/// A range set aside for a call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    at: u64,
    bytes: u64,
}

impl Holes {
    /// Adds the range of an allocation that was freed.
    pub(super) fn freed(&mut self, at: u64, bytes: u64) {
        let (mut at, mut end) = (at, at.saturating_add(granules(bytes)));
        if end == at {
            return;
        }
        let piece = self.piece(at);
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length >= at
            && piece.is_some()
            && self.piece(before) == piece
        {
            self.free.remove(&before);
            (at, end) = (before, end.max(before + length));
        }
        if let Some(&length) = self.free.get(&end)
            && piece.is_some()
            && self.piece(end) == piece
        {
            self.free.remove(&end);
            end += length;
        }
        self.free.insert(at, end - at);
    }

    /// The start of the piece an address is in, if that is known.
    fn piece(&self, at: u64) -> Option<u64> {
        let (start, length) = self.pieces.range(..=at).next_back()?;
        (at - start < *length).then_some(*start)
    }

    /// Adds what a new piece of `growth` bytes has left behind the allocation at its start.
    pub(super) fn grown(&mut self, at: u64, bytes: u64, growth: u64) {
        let bytes = granules(bytes);
        // Whatever was known of these addresses was of pieces that are gone.
        let end = at.saturating_add(growth);
        while let Some((&start, &length)) = self.pieces.range(..end).next_back()
            && start + length > at
        {
            self.pieces.remove(&start);
        }
        self.pieces.insert(at, growth);
        if growth > bytes {
            self.freed(at.saturating_add(bytes), growth - bytes);
        }
    }

    /// Takes out the range of an allocation.
    pub(super) fn used(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(granules(bytes));
        while let Some((&start, &length)) = self.free.range(..end).next_back()
            && start + length > at
        {
            self.free.remove(&start);
            if start + length > end {
                self.free.insert(end, start + length - end);
            }
            if start < at {
                self.free.insert(start, at - start);
            }
        }
    }

    /// Whether an address is in a hole.
    pub(super) fn contains(&self, at: u64) -> bool {
        self.free
            .range(..=at)
            .next_back()
            .is_some_and(|(start, length)| at - start < *length)
    }

    /// Sets aside room for `bytes`: in the smallest hole that has it, of a piece that is in use. A piece that is all free may be
    /// gone already: the driver takes it back whenever it synchronises.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Hole> {
        let bytes = granules(bytes);
        let stays = |at: u64, length: u64| {
            self.piece(at)
                .is_some_and(|piece| self.pieces.get(&piece) > Some(&length))
        };
        let fits = self
            .free
            .iter()
            .filter(|(at, length)| **length >= bytes && stays(**at, **length));
        let at = *fits.min_by_key(|(_, length)| **length)?.0;
        self.used(at, bytes);
        Some(Hole { at, bytes })
    }

    /// Sets aside room for `bytes` in one of these blocks, if it is free as a whole.
    pub(super) fn take_of(&mut self, bytes: u64, blocks: &[(u64, u64)]) -> Option<Hole> {
        let bytes = granules(bytes);
        let free = |(at, length): &&(u64, u64)| {
            *length >= bytes
                && self
                    .free
                    .range(..=*at)
                    .next_back()
                    .is_some_and(|(start, hole)| at + length <= start + hole)
        };
        let at = blocks
            .iter()
            .filter(free)
            .min_by_key(|(_, length)| *length)?
            .0;
        self.used(at, bytes);
        Some(Hole { at, bytes })
    }

    /// Gives back what was set aside.
    pub(super) fn put_back(&mut self, hole: Hole) {
        self.freed(hole.at, hole.bytes);
    }

    /// The pool holds no more than `unused` bytes beside its allocations: the driver has taken the rest, whole idle pieces first.
    pub(super) fn at_most(&mut self, unused: u64) {
        while self.free.values().sum::<u64>() > unused {
            let Some((&at, _)) = self.free.iter().max_by_key(|(_, length)| **length) else {
                return;
            };
            self.free.remove(&at);
        }
    }
}

fn granules(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes(ranges: &[(u64, u64)]) -> Holes {
        let mut holes = Holes::default();
        holes.grown(0x1000, 0x8000, 0x8000);
        for (at, bytes) in ranges {
            holes.freed(*at, *bytes);
        }
        holes
    }

    #[test]
    fn neighbours_become_one_hole_and_others_do_not() {
        let holes = holes(&[
            (0x1000, 0x1000),
            (0x4000, 0x1000),
            (0x2000, 0x1000),
            (0x3000, 0x800),
        ]);
        assert_eq!(
            holes.free,
            BTreeMap::from([(0x1000, 0x2800), (0x4000, 0x1000)])
        );
    }

    #[test]
    fn holes_of_two_pieces_stay_two_though_they_touch() {
        let mut holes = Holes::default();
        holes.grown(0x1000, 0x1000, 0x1000);
        holes.grown(0x2000, 0x1000, 0x1000);
        holes.freed(0x1000, 0x1000);
        holes.freed(0x2000, 0x1000);
        assert_eq!(
            holes.take(0x800),
            None,
            "both are all free, and may be gone"
        );
        holes.used(0x1000, 0x200);
        assert_eq!(holes.take(0x1200), None);
        assert!(holes.take(0xe00).is_some());
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken_and_what_is_left_stays() {
        let mut holes = holes(&[(0x1000, 0x4000), (0x8000, 0x1000)]);
        let taken = holes.take(0x800).expect("fits");
        assert_eq!(
            taken,
            Hole {
                at: 0x8000,
                bytes: 0x800
            }
        );
        assert_eq!(holes.take(0x5000), None);
        holes.put_back(taken);
        assert_eq!(
            holes.free,
            BTreeMap::from([(0x1000, 0x4000), (0x8000, 0x1000)])
        );
    }

    #[test]
    fn a_block_is_taken_only_while_it_is_free_as_a_whole() {
        let mut holes = holes(&[(0x1000, 0x1000), (0x2000, 0x1000)]);
        let blocks = [(0x1000, 0x1000), (0x2000, 0x1000)];
        assert_eq!(holes.take_of(0x1200, &blocks), None, "not across two");
        holes.used(0x1800, 0x200);
        let taken = holes.take_of(0x1000, &blocks);
        assert_eq!(
            taken,
            Some(Hole {
                at: 0x2000,
                bytes: 0x1000
            })
        );
    }

    #[test]
    fn an_allocation_in_the_middle_leaves_both_sides() {
        let mut holes = holes(&[(0x1000, 0x4000)]);
        holes.used(0x2000, 0x1000);
        assert_eq!(
            holes.free,
            BTreeMap::from([(0x1000, 0x1000), (0x3000, 0x2000)])
        );
    }

    #[test]
    fn what_the_driver_took_back_is_no_hole_any_more() {
        let mut holes = holes(&[(0x1000, 0x4000), (0x8000, 0x1000)]);
        holes.at_most(0x1000);
        assert_eq!(holes.free, BTreeMap::from([(0x8000, 0x1000)]));
        holes.at_most(0);
        assert!(holes.free.is_empty());
    }
}
