//! Lookups for a library that is loaded into every program: the table of [`CUDA`](super::CUDA)
//! without a pointer in it.
//!
//! The dynamic linker adjusts each pointer in a library's tables each time the library is loaded,
//! and the rows of the plain table have five thousand pointers. These rows have offsets into one
//! string. Their values are the same, and a test compares them.

use super::{BY_BASE, NAMES, PACKED, VARIANTS};
use crate::cuda::CUdriverProcAddress_flags;

/// A row of [`CUDA`](super::CUDA).
#[derive(Debug)]
pub(super) struct Packed {
    /// Where its name begins in `NAMES`.
    pub(super) at: u32,
    /// Length of its name.
    pub(super) name: u8,
    /// Length of its base name, with which its name begins.
    pub(super) base: u8,
    /// Index of its per-thread twin, [`u16::MAX`] without one.
    pub(super) twin: u16,
    /// The lowest version it is answered for.
    pub(super) min_version: u32,
}

/// The variants of one base name.
#[derive(Debug)]
pub(super) struct Base {
    /// The first one's place in `VARIANTS`.
    pub(super) from: u16,
    /// How many there are, never 0.
    pub(super) count: u16,
}

impl Packed {
    fn text(&self, length: u8) -> &'static str {
        let at = self.at as usize;
        NAMES.get(at..at + usize::from(length)).unwrap_or("")
    }
}

impl Base {
    fn variants(&self) -> &'static [u16] {
        let from = usize::from(self.from);
        VARIANTS
            .get(from..from + usize::from(self.count))
            .unwrap_or(&[])
    }

    fn name(&self) -> &'static str {
        let first = self.variants().first();
        let row = first.and_then(|index| PACKED.get(usize::from(*index)));
        row.map_or("", |row| row.text(row.base))
    }
}

/// The exported name of a row of [`CUDA`](super::CUDA); empty beyond the table.
pub fn name(index: usize) -> &'static str {
    PACKED.get(index).map_or("", |row| row.text(row.name))
}

/// Index in [`CUDA`](super::CUDA) of what [`cuda_by_name`](super::cuda_by_name) finds.
pub fn by_name(name: &str) -> Option<usize> {
    PACKED
        .binary_search_by(|row| row.text(row.name).cmp(name))
        .ok()
}

/// Index in [`CUDA`](super::CUDA) of what [`cuda_by_version`](super::cuda_by_version) finds.
pub fn by_version(base: &str, version: u32, flags: u64) -> Option<usize> {
    let at = BY_BASE.binary_search_by(|row| row.name().cmp(base)).ok()?;
    let min_version = |index: usize| PACKED.get(index).map_or(u32::MAX, |row| row.min_version);
    let variants = BY_BASE[at].variants().iter().rev();
    let index = variants
        .map(|index| usize::from(*index))
        .find(|index| min_version(*index) <= version)?;
    let per_thread = u64::from(CUdriverProcAddress_flags::PER_THREAD_DEFAULT_STREAM.0);
    let twin = PACKED[index].twin;
    if flags & per_thread == 0 || twin == u16::MAX {
        return Some(index);
    }
    let twin = usize::from(twin);
    (min_version(twin) <= version).then_some(twin)
}

#[cfg(test)]
mod tests {
    use super::super::{CUDA, PerThread};
    use super::*;

    #[test]
    fn the_rows_without_pointers_say_what_the_table_says() {
        assert_eq!(PACKED.len(), CUDA.len());
        for (index, (packed, row)) in PACKED.iter().zip(CUDA).enumerate() {
            assert_eq!(
                (name(index), packed.text(packed.base)),
                (row.name, row.base)
            );
            assert_eq!(packed.min_version, row.min_version, "{}", row.name);
            let twin = match row.thread {
                PerThread::Twin(twin) => twin,
                PerThread::Plain | PerThread::IsTwin => "",
            };
            assert_eq!(name(usize::from(packed.twin)), twin, "{}", row.name);
            assert_eq!(by_name(row.name), Some(index));
        }
        assert_eq!((by_name("cuNothing"), by_name("")), (None, None));
    }

    #[test]
    fn every_base_name_finds_its_newest_variant_and_no_other_name_does() {
        for row in CUDA {
            let found = by_version(row.base, u32::MAX, 0).map(|index| &CUDA[index]);
            let found = found.expect("a base name of the table");
            assert_eq!(found.base, row.base);
            assert!(row.thread == PerThread::IsTwin || found.min_version >= row.min_version);
            assert_eq!(by_version(row.base, 0, 0), None, "{}", row.base);
        }
        assert_eq!(by_version("cuMemAlloc_v2", u32::MAX, 0), None);
    }
}
