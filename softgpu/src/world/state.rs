//! What happens to the state of a machine: taking, giving, the delay in between, death, and repair.
//!
//! Pure: it works on the header and the page records, wherever they lie, and asks through [`Facts`]
//! which processes are alive. Pages whose bytes must be erased are collected in `erase`; the holder
//! of the lock erases them before it releases it.

use std::ops::Range;

use super::device::{Kind, PageRun};
use super::layout::{FREE, HELD, Header, LATE, Page, SHARED, SLOTS, Slot, Use};
use crate::spec::{MAX_DEVICES, PAGE};

/// The longest delay, in operations, before a page that was given back is free.
const MOST_LATE: u64 = 8;
/// How often, in operations, processes are asked whether they are alive.
const REAP_EVERY: u64 = 16;

/// Which processes are alive: answered by locks that die with their holders.
pub(crate) trait Facts {
    /// Whether a process holds the slot.
    fn process_lives(&self, slot: usize) -> bool;
    /// Whether a process holds the share; if not, the share is forgotten.
    fn share_lives(&self, share: u64) -> bool;
}

/// The locked state.
pub(crate) struct View<'a> {
    pub(crate) header: &'a mut Header,
    /// The pages of all devices, one device after the other.
    pub(crate) pages: &'a mut [Page],
    pub(crate) per_device: usize,
    pub(crate) seed: u64,
    /// How many operations more the memory of the dead stays taken.
    pub(crate) linger: u64,
    /// Pages to be erased: device and run.
    pub(crate) erase: Vec<(usize, PageRun)>,
}

impl View<'_> {
    /// One operation passes: what is due becomes free, and every now and then the dead are found.
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
        self.bury();
    }

    /// Pages of the device that can be taken now.
    pub(crate) fn free(&self, device: usize) -> u64 {
        self.per_device as u64 - self.header.devices[device].taken
    }

    /// Takes pages for the process in `slot`; `None` if they are not there even after everything
    /// returnable has returned.
    pub(crate) fn take(
        &mut self,
        facts: &dyn Facts,
        slot: usize,
        device: usize,
        kind: Kind,
        count: u64,
    ) -> Option<Vec<PageRun>> {
        self.tick(facts);
        if self.free(device) < count {
            self.reap(facts);
            self.collect(device, u64::MAX);
            self.bury();
        }
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
        Some(runs)
    }

    /// Gives back pages that the process in `slot` holds; anything else in `runs` stays as it is.
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

    /// Hands pages the process in `slot` holds over to a share; the new share's number.
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

    /// Adds to what the process in `slot` has asked for.
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

    /// Enters a process; its slot, `None` if all are taken.
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
                // No process can reuse these bytes unseen: let the host have its memory back.
                page.number = 0;
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

    /// Where late pages can be.
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

    /// When something given back now is free: 1 to [`MOST_LATE`] operations from now, as the seed
    /// has it.
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

/// Adds page `at` to the last run if it follows it, else as a new one.
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

/// One step of SplitMix64: spreads a seed.
pub(crate) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes of a number of pages.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages * PAGE
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
