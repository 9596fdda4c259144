//! Small allocations: carved from 2 MiB blocks, as a driver does it unasked.
//!
//! This file is the bookkeeping only. The callers (`linear`, `array`) allocate the blocks.

use std::collections::BTreeSet;

use super::extents::Extents;

/// Addresses and lengths of small allocations are multiples of this many bytes (the alignment
/// recorded for cuMemAlloc).
pub(crate) const GRANULE: u64 = 512;
/// Bytes of one block: one physical page of the device.
pub(crate) const BLOCK: u64 = 2 << 20;
/// An allocation of at least this size has its own pages.
pub(crate) const LARGE: u64 = 1 << 20;
/// Empty blocks kept for the next allocation. The caller has freed their memory and the device does
/// not have it back.
pub(crate) const KEPT: usize = 1;

/// `size` rounded up to a multiple of `to`; `None` on overflow.
pub(crate) fn round_up(size: u64, to: u64) -> Option<u64> {
    size.checked_next_multiple_of(to)
}

/// The blocks of one context and the free space in them.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    free: Extents,
    bases: BTreeSet<u64>,
    empty: BTreeSet<u64>,
}

impl Blocks {
    /// Space for `len` bytes (a multiple of [`GRANULE`]). On `None` the caller adds a block with
    /// [`Blocks::add`] and tries again.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let start = self.free.take(len)?;
        let touched: Vec<u64> = self.overlapping(start, len).collect();
        for base in touched {
            self.empty.remove(&base);
        }
        Some(start)
    }

    /// Adds a new, empty block at `base`.
    pub(crate) fn add(&mut self, base: u64) {
        self.bases.insert(base);
        self.empty.insert(base);
        self.free.insert(base, BLOCK);
    }

    /// Frees space. Returns the blocks that the caller must release to the device.
    pub(crate) fn give(&mut self, start: u64, len: u64) -> Vec<u64> {
        self.free.insert(start, len);
        let emptied: Vec<u64> = self
            .overlapping(start, len)
            .filter(|&base| self.free.holds(base, BLOCK))
            .collect();
        let mut released = Vec::new();
        for base in emptied {
            if self.empty.len() < KEPT {
                self.empty.insert(base);
            } else {
                self.remove(base);
                released.push(base);
            }
        }
        released
    }

    /// Releases the empty blocks too, when the device is out of memory.
    pub(crate) fn trim(&mut self) -> Vec<u64> {
        let released: Vec<u64> = self.empty.iter().copied().collect();
        for &base in &released {
            self.remove(base);
        }
        released
    }

    fn remove(&mut self, base: u64) {
        let whole = self.free.take_at(base, BLOCK);
        debug_assert!(whole, "only an empty block is released");
        self.bases.remove(&base);
        self.empty.remove(&base);
    }

    fn overlapping(&self, start: u64, len: u64) -> impl Iterator<Item = u64> {
        let first = start / BLOCK * BLOCK;
        self.bases.range(first..start + len).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Blocks, GRANULE};

    #[test]
    fn one_block_holds_4096_allocations_of_the_smallest_size() {
        let mut blocks = Blocks::default();
        blocks.add(BLOCK);
        for n in 0..4096 {
            assert_eq!(blocks.take(GRANULE), Some(BLOCK + n * GRANULE));
        }
        assert_eq!(blocks.take(GRANULE), None);
    }

    #[test]
    fn the_first_empty_block_is_kept_and_the_next_is_released() {
        let mut blocks = Blocks::default();
        blocks.add(4 * BLOCK);
        let first = blocks.take(BLOCK).unwrap();
        blocks.add(9 * BLOCK);
        let second = blocks.take(BLOCK).unwrap();
        assert!(blocks.give(first, BLOCK).is_empty());
        assert_eq!(blocks.give(second, BLOCK), vec![9 * BLOCK]);
        assert_eq!(blocks.trim(), vec![4 * BLOCK]);
        assert_eq!(blocks.take(GRANULE), None);
    }

    #[test]
    fn a_block_with_one_live_allocation_stays() {
        let mut blocks = Blocks::default();
        blocks.add(0);
        let live = blocks.take(GRANULE).unwrap();
        let other = blocks.take(GRANULE).unwrap();
        assert!(blocks.give(other, GRANULE).is_empty());
        assert!(blocks.trim().is_empty());
        blocks.give(live, GRANULE);
        assert_eq!(blocks.trim(), vec![0]);
    }
}
