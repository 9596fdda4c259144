//! Managed pages on a device. They are the one kind of memory that leaves for another allocation,
//! of any process: the page that came first leaves first, whenever it was last used. A page that
//! goes to the host by a prefetch leaves its memory taken ([`View::keep`]): such memory is the
//! first that other memory is given, and nothing is moved for that.
//!
//! The process whose page is evicted is not told. It keeps the number of the page and the operation
//! at which the page came ([`Resident`]), and asks whether that is still so.

use super::device::Kind;
use super::layout::{FREE, HELD, Page, USED};
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
    /// Returns how many it has evicted, without those whose bytes were on the host.
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
        let mut moved = 0;
        for (_, at) in &found[..enough] {
            let page = &mut self.pages[first + at];
            let kept = u64::from(page.is_kept());
            moved += 1 - kept;
            // Managed bytes were never here, but who brought the page may have died before it had
            // erased others: the number stays.
            (page.state, page.due) = (FREE, 0);
            let slot = usize::from(page.slot);
            let used = &mut self.header.slots[slot].uses[device];
            let pages = &mut used.pages[Kind::Managed as usize];
            *pages = pages.saturating_sub(1);
            used.kept = used.kept.saturating_sub(kept);
        }
        self.header.devices[device].taken -= missing;
        self.header.devices[device].evicted += moved;
        moved
    }

    /// Marks pages just taken as managed memory that may be evicted.
    pub(super) fn stamp(
        &mut self,
        device: usize,
        pages: impl Iterator<Item = u32>,
    ) -> Vec<Resident> {
        let since = self.header.tick;
        let stamped = pages.map(|at| {
            self.pages[device * self.per_device + at as usize].due = since | USED;
            Resident { at, since }
        });
        stamped.collect()
    }

    /// Whether the process in `slot` still has this page.
    pub(super) fn has(&self, slot: usize, device: usize, resident: Resident) -> bool {
        let page = &self.pages[device * self.per_device + resident.at as usize];
        self.owns(slot, page) && page.due & !USED == resident.since
    }

    /// Whether a page is managed memory of the process in `slot`.
    fn owns(&self, slot: usize, page: &Page) -> bool {
        let number = self.header.slots[slot].number;
        page.state == HELD && page.kind == Kind::Managed as u8 && page.number == number
    }

    /// The bytes of these pages, as far as the process in `slot` still has them, are on the host
    /// only. The memory stays taken until other memory needs it.
    pub(super) fn keep(&mut self, slot: usize, device: usize, pages: &[Resident]) {
        for resident in pages {
            let at = device * self.per_device + resident.at as usize;
            if self.has(slot, device, *resident) && !self.pages[at].is_kept() {
                self.pages[at].due &= !USED;
                self.header.slots[slot].uses[device].kept += 1;
            }
        }
    }

    /// The pages of the process in `slot` come back to memory that it has [kept](Self::keep), if it
    /// still has that: those that do, each as one that comes now.
    pub(super) fn use_again(
        &mut self,
        slot: usize,
        device: usize,
        pages: &[Resident],
    ) -> Vec<Option<Resident>> {
        let since = self.header.tick;
        let mut again = |resident: &Resident| {
            let at = device * self.per_device + resident.at as usize;
            let still = self.has(slot, device, *resident) && self.pages[at].is_kept();
            still.then(|| {
                self.pages[at].due = since | USED;
                let kept = &mut self.header.slots[slot].uses[device].kept;
                *kept = kept.saturating_sub(1);
                Resident {
                    at: resident.at,
                    since,
                }
            })
        };
        pages.iter().map(&mut again).collect()
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
