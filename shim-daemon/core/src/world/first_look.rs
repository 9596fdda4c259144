//! Reservations for contexts before the device shows them, and the looks that measure them.
//!
//! The memory for a context is reserved by estimate, because the driver takes it before it can be
//! measured. Three rules correct the estimate. When a process reports its context as made, the
//! device is looked at immediately, and the measurement replaces the estimate for all unmeasured
//! processes. An ask that would be refused because of estimates is refused only after a look. A
//! reservation for a process that the device never shows is released after [`Policy::open_grace`].
//!
//! [`Policy::open_grace`]: crate::Policy::open_grace

use super::{Opened, World};
use crate::decision::{Decision, Notice};
use crate::event::ProcessSample;
use crate::ids::{ContainerId, DeviceId, ProcessId};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeSet;

/// The first and the longest pause between looks, while an ask waits for their result.
const PAUSES: (Nanos, Nanos) = (Nanos::millis(1), Nanos::millis(250));

impl World {
    /// A process reports that its context on a device is complete: its memory can be measured.
    pub(super) fn context_made(&mut self, process: ProcessId, device: DeviceId) {
        let opened = self.processes.get_mut(&process);
        if let Some(opened) = opened.and_then(|known| known.opened.get_mut(&device)) {
            // Earlier samples may have shown a half-made context.
            opened.measured = false;
            self.decide(Decision::Resample { device });
        }
    }

    /// The cost of a context may have been measured: updates earlier estimates, and serves asks
    /// that they kept waiting.
    pub(super) fn learned(&mut self, device: DeviceId, expected: Bytes) {
        if self.context_cost(device) != expected
            && let Some(class) = self.devices.get(&device).map(|books| books.spec.class)
        {
            let alike = self.devices.iter();
            let alike = alike.filter(|(_, books)| books.spec.class == class);
            for device in alike.map(|(device, _)| *device).collect::<Vec<_>>() {
                self.correct_guesses(device);
            }
            for other in self.devices.keys().copied().collect::<Vec<_>>() {
                if other != device {
                    self.freed(other);
                }
            }
        }
        self.follow_parts(device);
    }

    fn correct_guesses(&mut self, device: DeviceId) {
        let cost = self.context_cost(device);
        let Some(books) = self.devices.get_mut(&device) else {
            return;
        };
        for known in self.processes.values_mut() {
            let guess = known.opened.get_mut(&device).filter(|it| it.is_guess());
            let Some(opened) = guess.filter(|opened| opened.overhead > cost) else {
                continue;
            };
            let less = opened.overhead - cost;
            opened.overhead = cost;
            books.change(known.container, |account| account.overhead -= less);
        }
        let accounts: Vec<ContainerId> = books.accounts().map(|(container, _)| container).collect();
        for container in accounts {
            let free = books.slack().firm;
            books.change(container, |account| {
                if !account.promise.is_zero() {
                    // A dearer one is promised as far as there is room.
                    account.promise = cost.min(account.promise + free);
                }
            });
        }
    }

    /// Releases reservations for processes that the device, looked at `taken`, still does not show.
    pub(super) fn lapse_unseen(
        &mut self,
        device: DeviceId,
        taken: Nanos,
        processes: &[ProcessSample],
    ) {
        let shown = processes.iter().filter(|seen| !seen.used.is_zero());
        let shown: BTreeSet<ProcessId> = shown.map(|seen| seen.process).collect();
        let mut lapsed = Vec::new();
        for (process, known) in &mut self.processes {
            let Some(opened) = known.opened.get_mut(&device) else {
                continue;
            };
            if shown.contains(process) {
                opened.shown = true;
            } else if opened.is_guess()
                && !opened.shown
                && opened.since + self.policy.open_grace <= taken
            {
                let bytes = std::mem::take(&mut opened.overhead);
                if !bytes.is_zero() {
                    lapsed.push((*process, known.container, bytes));
                }
            }
        }
        for (process, container, bytes) in lapsed {
            if let Some(books) = self.devices.get_mut(&device) {
                books.change(container, |account| account.overhead -= bytes);
            }
            self.notice(Notice::Lapsed {
                process,
                container,
                device,
                bytes,
            });
        }
    }

    /// A process has become another program, or registered anew. An unmeasured reservation for it
    /// is released: its memory never existed, or will be seen as the new program's.
    pub(super) fn process_replaced(&mut self, process: ProcessId, charged: &[(DeviceId, Bytes)]) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        let unseen = known.opened.iter_mut().filter(|(_, it)| !it.shown);
        for (device, opened) in unseen {
            let bytes = std::mem::take(&mut opened.overhead);
            if let Some(books) = self.devices.get_mut(device) {
                books.change(known.container, |account| account.overhead -= bytes);
            }
        }
        self.process_gone(process, charged);
    }

    /// Whether an ask that arrived at `since` and may wait until `until` must not be refused yet,
    /// because a look may show room. That is so if no look was taken since, if the device still
    /// showed memory that tenants had freed, or if some reservations are estimates.
    pub(super) fn is_to_be_looked_at(
        &mut self,
        device: DeviceId,
        (since, until): (Nanos, Nanos),
    ) -> bool {
        let end = until.min(since + self.policy.guess_grace);
        let Some(books) = self.devices.get(&device) else {
            return false;
        };
        let stale = books.sampled.is_none_or(|(taken, _)| taken < since);
        let lags = books.lagged.is_some_and(|at| at >= since);
        if end <= self.now || !(stale || lags || self.guesses_on(device)) {
            return false;
        }
        self.timers.set_no_later(Timer::Settle(device), end);
        if stale && since == self.now {
            self.decide(Decision::Resample { device });
        }
        self.look_for_guesses(device);
        true
    }

    /// Whether some reservation on a device is an estimate that may be measured any moment. One
    /// that has stayed unmeasured may stay so, as where processes are not listed.
    pub(super) fn guesses_on(&self, device: DeviceId) -> bool {
        let mut opened = self
            .processes
            .values()
            .filter_map(|known| known.opened.get(&device));
        opened.any(|opened| {
            let fresh = opened.since + self.policy.guess_grace > self.now;
            fresh && opened.is_guess() && !opened.overhead.is_zero()
        })
    }

    /// Schedules looks at the device, at growing intervals, until no ask needs them.
    pub(super) fn look_for_guesses(&mut self, device: DeviceId) {
        let pause = self.pauses.get(&device).copied().unwrap_or(PAUSES.0);
        self.timers
            .set_no_later(Timer::Guess(device), self.now + pause);
        self.pauses.insert(device, pause);
    }

    /// The moment has come.
    pub(super) fn guess_due(&mut self, device: DeviceId) {
        if let Some(pause) = self.pauses.get_mut(&device) {
            *pause = (*pause + *pause).min(PAUSES.1);
            self.decide(Decision::Resample { device });
        }
    }

    /// No ask waits for a look at the device.
    pub(super) fn guess_no_more(&mut self, device: DeviceId) {
        if self.pauses.remove(&device).is_some() {
            self.timers.stop(Timer::Guess(device));
        }
    }
}

impl Opened {
    /// A context that was not measured yet.
    pub(super) fn reserved(overhead: Bytes, since: Nanos) -> Self {
        Self {
            overhead,
            measured: false,
            shown: false,
            since,
            presented: None,
        }
    }

    /// Whether its memory is not measured yet.
    fn is_guess(&self) -> bool {
        !self.measured
    }
}
