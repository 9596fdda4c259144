//! Free space as extents: best fit; a freed extent merges with its neighbours.
//!
//! Used to divide larger memory: small allocations in 2 MiB blocks, stream-ordered allocations in a
//! pool's segments. All operations are logarithmic in the number of extents, so a million live
//! allocations are as fast as ten.

use std::collections::{BTreeMap, BTreeSet};

/// A set of free, disjoint, maximal extents `[start, start + len)`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Extents {
    /// start → length.
    by_start: BTreeMap<u64, u64>,
    /// (length, start), for best fit.
    by_len: BTreeSet<(u64, u64)>,
}

impl Extents {
    /// Adds an extent that overlaps no free extent. Returns the free extent that contains it after
    /// merging.
    pub(crate) fn insert(&mut self, start: u64, len: u64) -> (u64, u64) {
        debug_assert!(len > 0, "an extent must not be empty");
        let (mut start, mut len) = (start, len);
        if let Some((&left, &left_len)) = self.by_start.range(..start).next_back() {
            debug_assert!(left + left_len <= start, "freed twice");
            if left + left_len == start {
                self.drop_extent(left, left_len);
                start = left;
                len += left_len;
            }
        }
        if let Some(right_len) = self.by_start.get(&(start + len)).copied() {
            self.drop_extent(start + len, right_len);
            len += right_len;
        }
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
        (start, len)
    }

    /// Takes `len` bytes from the front of the smallest extent that is large enough.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let &(found, start) = self.by_len.range((len, 0)..).next()?;
        self.drop_extent(start, found);
        if found > len {
            self.by_start.insert(start + len, found - len);
            self.by_len.insert((found - len, start + len));
        }
        Some(start)
    }

    /// Takes exactly `[start, start + len)`. False, without a change, if part of it is not free.
    pub(crate) fn take_at(&mut self, start: u64, len: u64) -> bool {
        let Some((&left, &left_len)) = self.by_start.range(..=start).next_back() else {
            return false;
        };
        if left + left_len < start + len {
            return false;
        }
        self.drop_extent(left, left_len);
        for (piece, piece_len) in [
            (left, start - left),
            (start + len, left + left_len - (start + len)),
        ] {
            if piece_len > 0 {
                self.by_start.insert(piece, piece_len);
                self.by_len.insert((piece_len, piece));
            }
        }
        true
    }

    /// Whether all of `[start, start + len)` is free.
    pub(crate) fn holds(&self, start: u64, len: u64) -> bool {
        self.by_start
            .range(..=start)
            .next_back()
            .is_some_and(|(&left, &left_len)| left + left_len >= start + len)
    }

    /// The total of free bytes.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.by_start.values().sum()
    }

    fn drop_extent(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::Extents;

    #[test]
    fn freed_neighbours_merge() {
        let mut free = Extents::default();
        free.insert(0, 100);
        let taken: Vec<u64> = (0..10).map(|_| free.take(10).unwrap()).collect();
        assert_eq!(free.take(1), None);
        for start in [0, 20, 40, 60, 80, 10, 30, 50, 70, 90] {
            assert!(taken.contains(&start));
            free.insert(start, 10);
        }
        assert_eq!(free.take(100), Some(0));
    }

    #[test]
    fn the_smallest_extent_that_fits_is_used() {
        let mut free = Extents::default();
        free.insert(0, 50);
        free.insert(100, 20);
        assert_eq!(free.take(15), Some(100));
        assert_eq!(free.take(15), Some(0));
    }

    #[test]
    fn an_extent_is_taken_at_an_address_only_if_all_of_it_is_free() {
        let mut free = Extents::default();
        free.insert(0, 50);
        assert!(!free.take_at(40, 20));
        assert!(free.holds(40, 10));
        assert!(free.take_at(10, 20));
        assert!(!free.holds(10, 1));
        assert_eq!(free.total(), 30);
        assert_eq!(free.insert(10, 20), (0, 50));
    }
}
