//! The pages that a registration pins: those behind the addresses when it is made.
//!
//! A driver copies to and from these pages until they are unpinned, also where the program has
//! mapped something else at the addresses meanwhile. So a second mapping of the same pages is made
//! of a range that is one shared mapping. Of private memory there is none, and copies use the
//! addresses.
//!
//! # Safety
//! `mremap` of 0 bytes of a shared mapping makes a new mapping and changes none; only that new one
//! is unmapped. `mincore` writes a vector of the size it is given.
#![allow(unsafe_code, reason = "maps pages a second time")]

use std::fs;

use super::table;

/// The page size of the host.
const PAGE: u64 = 4096;
/// Files in memory: their pages leave memory for swap space alone.
const IN_MEMORY: [&str; 3] = ["/memfd:", "/dev/shm/", "/dev/zero"];

/// A second mapping of the pages of a range.
#[derive(Debug)]
pub(super) struct Pinned {
    at: usize,
    len: usize,
    /// The first address of the range, rounded down to pages.
    of: u64,
    /// Whether a page that is not in memory is one that was taken from the file.
    tells_holes: bool,
}

impl Pinned {
    /// The pages of a range that are there now; `None` if it is not within one shared mapping.
    pub(super) fn new(address: u64, size: u64) -> Option<Self> {
        let of = address - address % PAGE;
        let end = address.checked_add(size)?.checked_next_multiple_of(PAGE)?;
        let is_in_memory = is_shared(&fs::read_to_string("/proc/self/maps").ok()?, of, end)?;
        let (first, len) = (usize::try_from(of).ok()?, usize::try_from(end - of).ok()?);
        let first = std::ptr::with_exposed_provenance_mut(first);
        // SAFETY: a shared mapping, so the kernel maps its pages at another place, too.
        let at = unsafe { libc::mremap(first, 0, len, libc::MREMAP_MAYMOVE) };
        (at != libc::MAP_FAILED).then(|| Self {
            at: at.expose_provenance(),
            len,
            of,
            tells_holes: is_in_memory && !has_swap(),
        })
    }

    /// The distance from an address of the range to its byte in the second mapping.
    pub(super) fn shift(&self) -> u64 {
        (self.at as u64).wrapping_sub(self.of)
    }

    /// Whether a page of this part of the range was taken from its file.
    pub(super) fn has_hole(&self, address: u64, len: u64) -> bool {
        let first = address - address % PAGE;
        let bytes = (address + len).next_multiple_of(PAGE) - first;
        let wide = |number: u64| usize::try_from(number).unwrap_or(0);
        let at = std::ptr::with_exposed_provenance_mut(wide(first.wrapping_add(self.shift())));
        let mut there = vec![1_u8; wide(bytes / PAGE)];
        // SAFETY: the vector has a byte for each page of the range.
        let answer = unsafe { libc::mincore(at, wide(bytes), there.as_mut_ptr()) };
        self.tells_holes && answer == 0 && there.iter().any(|page| page & 1 == 0)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Nothing copies from it or to it when it goes.
        drop(table::exclusive());
        // SAFETY: the mapping made in `new`, which nothing uses any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.at), self.len) };
    }
}

/// Whether the file behind a range is one in memory, by the list of mappings; `None` if the range
/// is not within one shared mapping.
fn is_shared(maps: &str, first: u64, end: u64) -> Option<bool> {
    let mut lines = maps.lines().map(|line| line.split_ascii_whitespace());
    lines.find_map(|mut line| {
        let (begins, ends) = line.next()?.split_once('-')?;
        let [begins, ends] = [begins, ends].map(|number| u64::from_str_radix(number, 16));
        let holds = begins.ok()? <= first && end <= ends.ok()?;
        let is_shared = line.next()?.ends_with('s');
        let path = line.nth(3).unwrap_or_default();
        let is_in_memory = IN_MEMORY.iter().any(|folder| path.starts_with(folder));
        (holds && is_shared).then_some(is_in_memory)
    })
}

fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|areas| areas.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::is_shared;

    const MAPS: &str = "\
7f0000000000-7f0000004000 rw-p 00000000 00:00 0
7f0000004000-7f0000008000 rw-s 00001000 00:01 1035                       /memfd:store (deleted)
7f0000008000-7f000000c000 rw-s 00000000 08:01 12                         /home/file
";

    #[test]
    fn a_range_within_one_shared_mapping_is_pinned_by_its_pages() {
        let at = 0x7f00_0000_4000;
        assert_eq!(is_shared(MAPS, at, at + 0x4000), Some(true));
        assert_eq!(is_shared(MAPS, at + 0x4000, at + 0x5000), Some(false));
    }

    #[test]
    fn private_memory_and_two_mappings_are_pinned_by_their_addresses() {
        let at = 0x7f00_0000_4000;
        assert_eq!(is_shared(MAPS, at - 0x4000, at), None);
        assert_eq!(is_shared(MAPS, at, at + 0x4001), None);
        assert_eq!(is_shared("", at, at + 1), None);
    }
}
