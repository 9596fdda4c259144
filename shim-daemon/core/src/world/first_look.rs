//! What is set aside for contexts before the device shows them, and how soon it is looked at.
//!
//! A context is set aside for by guess, because the driver takes its memory before anything can be
//! measured. Three things keep the guess from being more than that. When a process says that its
//! context is made, the device is looked at at once, and what it shows replaces the guess for all
//! who have not been measured. An ask that would be refused for the sake of guesses is refused
//! after a look. And what was set aside for a process that the device never shows is given up after
//! [`Policy::open_grace`].
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

/// The first pause between looks while somebody waits for what a look may free, and the longest.
const PAUSES: (Nanos, Nanos) = (Nanos::millis(1), Nanos::millis(250));

impl World {
    /// A process says that its context on a device is complete: what it takes can be measured.
    pub(super) fn context_made(&mut self, process: ProcessId, device: DeviceId) {
        let opened = self.processes.get_mut(&process);
        if let Some(opened) = opened.and_then(|known| known.opened.get_mut(&device)) {
            // What was seen of it before may have been half of it.
            opened.measured = false;
            self.decide(Decision::Resample { device });
        }
    }

    /// What a context costs may have been learned: guesses made before become that, and who was
    /// refused room for their sake is looked at again.
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

    /// Gives up what was set aside for processes that the device, looked at `taken`, still does not
    /// show.
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

    /// A process has become another program, or registered anew: what was set aside for it and
    /// never seen was never there, or will be seen as the new one's.
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

    /// Whether an ask that came at `since` and has time until `until` shall not be refused yet,
    /// because a look may show that there is room: none was taken since, the device still showed as
    /// used what others had freed, or some of what is set aside is a guess.
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

    /// Whether something on a device is set aside by guess and may be measured any moment: what has
    /// not been by then may never be, as where processes are not listed.
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

    /// Has the device looked at in a moment, in longer and longer ones until nobody needs it any
    /// more.
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

    /// Nobody waits for a look at the device.
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

    /// Whether what it takes is not measured yet.
    fn is_guess(&self) -> bool {
        !self.measured
    }
}
