//! Operations on a machine's state: taking pages, freeing pages, and the delay of their return.
//!
//! Pure code: it works on the header and the page records in any memory, and asks through [`Facts`]
//! which processes are alive. Pages whose bytes must be erased are collected in `erase`; the holder
//! of the lock erases them before it releases the lock.

use std::ops::Range;

use super::device::{Kind, PageRun};
use super::layout::{FREE, HELD, Header, LATE, Page, SHARED, SLOTS, Slot, UNKNOWN, Use};
use crate::spec::{MAX_DEVICES, PAGE};

/// The longest delay, in operations, before a freed page is free.
const MOST_LATE: u64 = 8;
/// The interval, in operations, of the check for dead processes.
const REAP_EVERY: u64 = 16;

/// Which processes are alive. File locks that die with their holders give the answer.
pub(crate) trait Facts {
    /// Whether a process holds the slot.
    fn process_lives(&self, slot: usize) -> bool;
    /// Whether a process holds the share. If not, the share is forgotten.
    fn share_lives(&self, share: u64) -> bool;
}

/// The locked state.
pub(crate) struct View<'a> {
    pub(crate) header: &'a mut Header,
    /// The pages of all devices, device by device.
    pub(crate) pages: &'a mut [Page],
    pub(crate) per_device: usize,
    pub(crate) seed: u64,
    /// Number of additional operations for which the memory of dead processes stays taken.
    pub(crate) linger: u64,
    /// Whether managed pages are evicted for other memory.
    pub(crate) evicts: bool,
    /// Pages to be erased: device and run.
    pub(crate) erase: Vec<(usize, PageRun)>,
}

impl View<'_> {
    /// Counts one operation: due pages become free, and at intervals dead processes are found.
    pub(crate) fn tick(&mut self, facts: &dyn Facts) {
        self.header.tick += 1;
        if self.header.tick.is_multiple_of(REAP_EVERY) {
            self.reap(facts);
        }
        for device in 0..self.devices() {
            if self.header.devices[device].late > 0
                && self.header.tick >= self.header.devices[device].next_due
            {
                self.collect(device, self.header.tick);
            }
        }
        self.free_dead_slots();
    }

    /// Free pages of the device.
    pub(crate) fn free(&self, device: usize) -> u64 {
        self.per_device as u64 - self.header.devices[device].taken
    }

    /// Takes pages for the process in `slot`, and evicts managed pages for them, which it counts.
    /// `None` if too few are free even after all freed pages have returned and managed pages left.
    pub(crate) fn take(
        &mut self,
        facts: &dyn Facts,
        slot: usize,
        device: usize,
        kind: Kind,
        count: u64,
    ) -> Option<(Vec<PageRun>, u64)> {
        self.tick(facts);
        if self.free(device) < count {
            self.reap(facts);
            self.collect(device, u64::MAX);
            self.free_dead_slots();
        }
        let evicted = self.evict(device, count);
        if self.free(device) < count {
            return None;
        }
        let number = self.header.slots[slot].number;
        let mut runs: Vec<PageRun> = Vec::new();
        let mut dirty: Vec<PageRun> = Vec::new();
        let mut left = count;
        let mut at = usize::try_from(self.header.devices[device].cursor).unwrap_or(0)
            % self.per_device.max(1);
        while left > 0 {
            let page = &mut self.pages[device * self.per_device + at];
            if page.state == FREE {
                if page.number != 0 && page.number != number {
                    extend(&mut dirty, at);
                }
                let slot = u16::try_from(slot).expect("slots are few");
                *page = Page {
                    due: 0,
                    number,
                    slot,
                    kind: kind as u8,
                    state: HELD,
                };
                extend(&mut runs, at);
                left -= 1;
            }
            at = (at + 1) % self.per_device;
        }
        self.erase
            .extend(dirty.into_iter().map(|run| (device, run)));
        let state = &mut self.header.devices[device];
        state.cursor = at as u64;
        state.taken += count;
        state.taken_peak = state.taken_peak.max(state.taken);
        self.header.slots[slot].uses[device].pages[kind as usize] += count;
        Some((runs, evicted))
    }

    /// Frees pages that the process in `slot` holds; other pages in `runs` are left unchanged.
    pub(crate) fn give(&mut self, slot: usize, device: usize, runs: &[PageRun]) {
        let number = self.header.slots[slot].number;
        let due = self.due(runs.first().map_or(0, |run| run.first.into()));
        for at in runs.iter().flat_map(|run| run.first..run.first + run.pages) {
            let Some(page) = self.page(device, at as usize) else {
                continue;
            };
            if page.state == HELD && page.number == number {
                self.make_late(device, at as usize, due);
            }
        }
    }

    /// Moves pages that the process in `slot` holds into a new share; returns the share's number.
    pub(crate) fn share(&mut self, slot: usize, device: usize, runs: &[PageRun]) -> u64 {
        self.header.next_share += 1;
        self.header.shares += 1;
        let share = self.header.next_share;
        let number = self.header.slots[slot].number;
        for at in runs.iter().flat_map(|run| run.first..run.first + run.pages) {
            if let Some(page) = self
                .page(device, at as usize)
                .filter(|page| page.state == HELD && page.number == number)
            {
                (page.state, page.due) = (SHARED, share);
            }
        }
        share
    }

    /// Adds `delta` to the bytes that the process in `slot` requested.
    pub(crate) fn note(&mut self, slot: usize, device: usize, kind: Kind, delta: i64) {
        if kind.is_overhead() {
            return;
        }
        let requested = &mut self.header.slots[slot].uses[device].requested[kind as usize];
        *requested = requested.saturating_add_signed(delta);
        let state = &mut self.header.devices[device];
        state.requested_now = state.requested_now.saturating_add_signed(delta);
        state.requested_peak = state.requested_peak.max(state.requested_now);
    }

    /// Enters a process; returns its slot, or `None` if all slots are taken.
    pub(crate) fn enter(
        &mut self,
        pid: i32,
        observer: bool,
        claim: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let slot = (0..SLOTS).find(|slot| self.header.slots[*slot].number == 0 && claim(*slot))?;
        self.header.next_number += 1;
        let uses = [Use::default(); MAX_DEVICES as usize];
        let number = self.header.next_number;
        self.header.slots[slot] = Slot {
            number,
            pid,
            dead: 0,
            observer: observer.into(),
            namespace: crate::pids::namespace(),
            uses,
        };
        Some(slot)
    }

    /// Frees the late pages of the device that are due at `tick`.
    pub(crate) fn collect(&mut self, device: usize, tick: u64) {
        let mut freed = 0;
        let mut next_due = u64::MAX;
        let mut dirty: Vec<PageRun> = Vec::new();
        let (mut from, mut to) = (u64::MAX, 0);
        for at in self.late_range(device) {
            let page = &mut self.pages[device * self.per_device + at];
            if page.state != LATE {
                continue;
            }
            if page.due > tick {
                next_due = next_due.min(page.due);
                (from, to) = (from.min(at as u64), at as u64 + 1);
                continue;
            }
            let slot = &mut self.header.slots[usize::from(page.slot) % SLOTS];
            let pages = &mut slot.uses[device].pages[usize::from(page.kind) % Kind::ALL.len()];
            *pages = pages.saturating_sub(1);
            page.state = FREE;
            if slot.dead != 0 {
                // The page's process is dead, so it cannot reuse the bytes: erase them, which
                // returns the memory to the host. The page keeps its number until then.
                extend(&mut dirty, at);
            }
            freed += 1;
        }
        self.erase
            .extend(dirty.into_iter().map(|run| (device, run)));
        let state = &mut self.header.devices[device];
        state.taken -= freed;
        state.late -= freed;
        state.next_due = next_due;
        (state.late_from, state.late_to) = (from, to);
    }

    /// Records that the bytes of these pages are erased, or could not be.
    pub(crate) fn erased(&mut self, device: usize, run: PageRun, done: bool) {
        for at in run.first..run.first + run.pages {
            match self.page(device, at as usize) {
                Some(page) if !done => page.number = UNKNOWN,
                // The next process takes it without erasing it again.
                Some(page) if page.state == FREE => page.number = 0,
                _ => {}
            }
        }
    }

    /// The range that contains all late pages.
    fn late_range(&self, device: usize) -> Range<usize> {
        let state = &self.header.devices[device];
        let end = usize::try_from(state.late_to)
            .unwrap_or(usize::MAX)
            .min(self.per_device);
        usize::try_from(state.late_from)
            .unwrap_or(usize::MAX)
            .min(end)..end
    }

    pub(super) fn make_late(&mut self, device: usize, at: usize, due: u64) {
        let page = &mut self.pages[device * self.per_device + at];
        if page.is_kept() {
            let slot = &mut self.header.slots[usize::from(page.slot) % SLOTS];
            slot.uses[device].kept = slot.uses[device].kept.saturating_sub(1);
        }
        (page.state, page.due) = (LATE, due);
        let state = &mut self.header.devices[device];
        state.next_due = if state.late == 0 {
            due
        } else {
            state.next_due.min(due)
        };
        if state.late == 0 {
            (state.late_from, state.late_to) = (u64::MAX, 0);
        }
        state.late_from = state.late_from.min(at as u64);
        state.late_to = state.late_to.max(at as u64 + 1);
        state.late += 1;
    }

    /// The operation at which memory freed now becomes free: 1 to [`MOST_LATE`] operations from
    /// now, chosen by the seed.
    pub(super) fn due(&self, what: u64) -> u64 {
        self.header.tick + 1 + mix(self.seed ^ mix(self.header.tick ^ mix(what))) % MOST_LATE
    }

    fn page(&mut self, device: usize, at: usize) -> Option<&mut Page> {
        let at = (at < self.per_device).then_some(device * self.per_device + at)?;
        self.pages.get_mut(at)
    }

    pub(super) fn devices(&self) -> usize {
        self.pages.len() / self.per_device.max(1)
    }
}

/// Extends the last run if page `at` follows it; else adds a new run.
fn extend(runs: &mut Vec<PageRun>, at: usize) {
    let at = u32::try_from(at).expect("a device has fewer than 2^32 pages");
    match runs.last_mut() {
        Some(run) if run.first + run.pages == at => run.pages += 1,
        _ => runs.push(PageRun {
            first: at,
            pages: 1,
        }),
    }
}

/// One step of SplitMix64: mixes the bits of a value.
pub(crate) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The size of a number of pages, in bytes.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages * PAGE
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
