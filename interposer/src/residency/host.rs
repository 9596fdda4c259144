//! The host store: memory that the daemon gives, in which this process's memory lies while it is
//! away. Asked for and pinned in the background, never during a move.

use std::collections::BTreeMap;

/// Sizes of requests are multiples of this.
pub(super) const STEP: u64 = 64 << 20;

/// A piece of the store: where it is mapped, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its range, and its place in that.
    range: usize,
    offset: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Range {
    address: usize,
    bytes: u64,
    /// Free stretches, by their places.
    free: BTreeMap<u64, u64>,
    /// The driver has pinned it, or will not.
    settled: bool,
}

/// All ranges that the daemon has given.
#[derive(Debug, Default)]
pub(super) struct Store {
    ranges: Vec<Range>,
}

impl Store {
    /// A range that the daemon has given, mapped at `address`.
    pub(super) fn add(&mut self, address: usize, bytes: u64) {
        self.ranges.push(Range {
            address,
            bytes,
            free: BTreeMap::from([(0, bytes)]),
            settled: false,
        });
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum()
    }

    /// Bytes that nothing uses.
    pub(super) fn free(&self) -> u64 {
        let ranges = self.ranges.iter();
        ranges.flat_map(|range| range.free.values()).sum()
    }

    /// Where a piece is mapped.
    pub(super) fn address(&self, piece: Piece) -> usize {
        let base = self
            .ranges
            .get(piece.range)
            .map_or(0, |range| range.address);
        base + usize::try_from(piece.offset).unwrap_or(0)
    }

    /// Takes `bytes`, in as many pieces as needed. `None` if there are not so many.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Vec<Piece>> {
        if self.free() < bytes {
            return None;
        }
        let (mut pieces, mut left) = (Vec::new(), bytes);
        for (index, range) in self.ranges.iter_mut().enumerate() {
            while left > 0
                && let Some((offset, length)) = range.free.pop_first()
            {
                let taken = length.min(left);
                if taken < length {
                    range.free.insert(offset + taken, length - taken);
                }
                pieces.push(Piece {
                    range: index,
                    offset,
                    bytes: taken,
                });
                left -= taken;
            }
        }
        Some(pieces)
    }

    /// Gives pieces back.
    pub(super) fn give(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let Some(range) = self.ranges.get_mut(piece.range) else {
                continue;
            };
            let (mut from, mut bytes) = (piece.offset, piece.bytes);
            if let Some(behind) = range.free.remove(&(from + bytes)) {
                bytes += behind;
            }
            if let Some((&before, &length)) = range.free.range(..from).next_back()
                && before + length == from
            {
                (from, bytes) = (before, length + bytes);
            }
            range.free.insert(from, bytes);
        }
    }

    /// A range that is not pinned yet: from now on it counts as if it were, whatever the driver
    /// says.
    pub(super) fn next_to_pin(&mut self) -> Option<(usize, usize)> {
        let range = self.ranges.iter_mut().find(|range| !range.settled)?;
        range.settled = true;
        Some((range.address, usize::try_from(range.bytes).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn pieces_never_overlap_and_come_together_again() {
        let mut store = Store::default();
        store.add(0x10_0000, 8 * MIB);
        store.add(0x90_0000, 4 * MIB);
        let one = store.take(6 * MIB).unwrap();
        let two = store.take(4 * MIB).unwrap();
        assert_eq!(two.len(), 2, "over the end of a range");
        assert_eq!(store.address(two[0]), 0x10_0000 + (6 << 20));
        assert_eq!(store.address(two[1]), 0x90_0000);
        assert_eq!((store.free(), store.take(3 * MIB)), (2 * MIB, None));
        store.give(one);
        store.give(two);
        assert_eq!(store.free(), store.bytes());
        assert_eq!(store.take(12 * MIB).unwrap().len(), 2, "whole ranges again");
    }

    #[test]
    fn each_range_is_pinned_once() {
        let mut store = Store::default();
        store.add(4096, MIB);
        assert_eq!(store.next_to_pin(), Some((4096, 1 << 20)));
        assert_eq!(store.next_to_pin(), None);
        store.add(8192, MIB);
        assert_eq!(store.next_to_pin(), Some((8192, 1 << 20)));
    }
}
