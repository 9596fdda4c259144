//! Managed pages on a device. They are the one kind of memory that leaves for another allocation,
//! of any process: the page that came first leaves first, whenever it was last used.
//!
//! The process whose page is evicted is not told. It keeps the number of the page and the operation
//! at which the page came ([`Resident`]), and asks whether that is still so.

use super::device::Kind;
use super::layout::{FREE, HELD};
use super::state::View;

/// One managed page on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// The page, by number.
    pub(crate) at: u32,
    /// The operation at which it came.
    pub(crate) since: u64,
}

impl View<'_> {
    /// Evicts managed pages until `count` pages are free. Evicts none if that does not suffice.
    /// Returns how many it has evicted.
    pub(super) fn evict(&mut self, device: usize, count: u64) -> u64 {
        let missing = count.saturating_sub(self.free(device));
        let enough = usize::try_from(missing).unwrap_or(usize::MAX);
        if enough == 0 || !self.evicts {
            return 0;
        }
        let first = device * self.per_device;
        let pages = self.pages[first..first + self.per_device].iter();
        let mut found: Vec<(u64, usize)> = pages
            .enumerate()
            .filter(|(_, page)| page.state == HELD && page.kind == Kind::Managed as u8)
            .map(|(at, page)| (page.due, at))
            .collect();
        if found.len() < enough {
            return 0;
        }
        if found.len() > enough {
            found.select_nth_unstable(enough - 1);
        }
        for (_, at) in &found[..enough] {
            let page = &mut self.pages[first + at];
            // The bytes were never here: nothing is to be erased.
            (page.state, page.number, page.due) = (FREE, 0, 0);
            let slot = usize::from(page.slot);
            let pages = &mut self.header.slots[slot].uses[device].pages[Kind::Managed as usize];
            *pages = pages.saturating_sub(1);
        }
        self.header.devices[device].taken -= missing;
        self.header.devices[device].evicted += missing;
        missing
    }

    /// Marks pages just taken as managed memory that may be evicted.
    pub(super) fn stamp(
        &mut self,
        device: usize,
        pages: impl Iterator<Item = u32>,
    ) -> Vec<Resident> {
        let since = self.header.tick;
        let stamped = pages.map(|at| {
            self.pages[device * self.per_device + at as usize].due = since;
            Resident { at, since }
        });
        stamped.collect()
    }

    /// Whether the process in `slot` still has this page.
    pub(super) fn has(&self, slot: usize, device: usize, resident: Resident) -> bool {
        let page = &self.pages[device * self.per_device + resident.at as usize];
        page.state == HELD
            && page.kind == Kind::Managed as u8
            && page.number == self.header.slots[slot].number
            && page.due == resident.since
    }

    /// Frees the pages that the process in `slot` still has.
    pub(super) fn give_managed(&mut self, slot: usize, device: usize, pages: &[Resident]) {
        let due = self.due(pages.first().map_or(0, |page| page.at.into()));
        for page in pages {
            if self.has(slot, device, *page) {
                self.make_late(device, page.at as usize, due);
            }
        }
    }
}
