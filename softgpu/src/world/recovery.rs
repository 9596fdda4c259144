//! Recovery: the memory of dead processes, and the sums after a process died in the middle of a
//! change.

use super::device::Kind;
use super::layout::{DeviceState, FREE, HELD, LATE, SHARED, SLOTS, Use};
use super::state::{Facts, View};
use crate::spec::MAX_DEVICES;

impl View<'_> {
    /// Finds processes that have died and shares without a holder, and starts the return of their
    /// pages.
    pub(crate) fn reap(&mut self, facts: &dyn Facts) {
        let mut died = [false; SLOTS];
        for (index, slot) in self.header.slots.iter_mut().enumerate() {
            if slot.number != 0 && slot.dead == 0 && !facts.process_lives(index) {
                slot.dead = 1;
                self.header.dead += 1;
                died[index] = true;
            }
        }
        if died.contains(&true) {
            for index in 0..self.pages.len() {
                let page = self.pages[index];
                if page.state == HELD && died[usize::from(page.slot) % SLOTS] {
                    // All pages of a process get the same delay: its teardown is one piece of work.
                    let due = self.due(page.number.into()) + self.linger;
                    self.make_late(index / self.per_device, index % self.per_device, due);
                }
            }
        }
        self.end_shares(facts);
        self.free_dead_slots();
    }

    /// Starts the return of the pages of every share without a holder.
    pub(crate) fn end_shares(&mut self, facts: &dyn Facts) {
        if self.header.shares == 0 {
            return;
        }
        let mut asked: Vec<(u64, bool)> = Vec::new();
        for index in 0..self.pages.len() {
            let page = self.pages[index];
            if page.state != SHARED {
                continue;
            }
            let known = asked
                .iter()
                .find(|(share, _)| *share == page.due)
                .map(|(_, lives)| *lives);
            let lives = known.unwrap_or_else(|| {
                let lives = facts.share_lives(page.due);
                asked.push((page.due, lives));
                lives
            });
            if !lives {
                let due = self.due(page.due);
                self.make_late(index / self.per_device, index % self.per_device, due);
            }
        }
        self.header.shares = asked.iter().filter(|(_, lives)| *lives).count() as u64;
    }

    /// Frees the slots of dead processes without pages. Their requested bytes count until then.
    pub(crate) fn free_dead_slots(&mut self) {
        if self.header.dead == 0 {
            return;
        }
        self.header.dead = 0;
        for slot in self
            .header
            .slots
            .iter_mut()
            .filter(|slot| slot.number != 0 && slot.dead != 0)
        {
            if slot
                .uses
                .iter()
                .any(|used| used.pages.iter().any(|pages| *pages > 0))
            {
                self.header.dead += 1;
                continue;
            }
            for (used, device) in slot.uses.iter().zip(&mut self.header.devices) {
                device.requested_now = device
                    .requested_now
                    .saturating_sub(used.requested.iter().sum());
            }
            // A later repair must find nothing in the slot to count.
            slot.uses = [Use::default(); MAX_DEVICES as usize];
            slot.number = 0;
        }
    }

    /// Recomputes every sum from the page records and the slots, after a process died in the middle
    /// of a change.
    pub(crate) fn repair(&mut self) {
        for slot in &mut self.header.slots {
            slot.uses
                .iter_mut()
                .for_each(|used| (used.pages, used.kept) = Default::default());
            // The process that marked a dead process may itself have died before the pages began to
            // return. So dead processes must be found again.
            slot.dead = 0;
        }
        for device in 0..self.devices() {
            let mut sum = DeviceState {
                next_due: u64::MAX,
                ..self.header.devices[device]
            };
            (sum.taken, sum.late) = (0, 0);
            (sum.late_from, sum.late_to) = (0, self.per_device as u64);
            for page in &mut self.pages[device * self.per_device..(device + 1) * self.per_device] {
                let owner = self
                    .header
                    .slots
                    .get_mut(usize::from(page.slot))
                    .filter(|slot| slot.number != 0);
                let (Some(owner), true) = (owner, page.state != FREE) else {
                    page.state = FREE;
                    continue;
                };
                owner.uses[device].pages[usize::from(page.kind) % Kind::ALL.len()] += 1;
                owner.uses[device].kept += u64::from(page.is_kept());
                sum.taken += 1;
                if page.state == LATE {
                    sum.late += 1;
                    sum.next_due = sum.next_due.min(page.due);
                }
            }
            sum.requested_now = self
                .header
                .slots
                .iter()
                .map(|slot| slot.uses[device].requested.iter().sum::<u64>())
                .sum();
            sum.requested_peak = sum.requested_peak.max(sum.requested_now);
            self.header.devices[device] = sum;
        }
        // The real counts need a check of processes and shares; the next search computes them.
        self.header.shares = 1;
        self.header.dead = 1;
    }
}
