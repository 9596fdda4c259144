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

use super::World;
use crate::decision::{Decision, Notice};
use crate::event::ProcessSample;
use crate::ids::{ContainerId, DeviceId, ProcessId};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The first pause between looks while somebody waits for what a look may free, and the longest.
const PAUSES: (Nanos, Nanos) = (Nanos::millis(1), Nanos::millis(250));

impl World {
    /// A process says that its context on a device is complete: what it takes can be measured.
    pub(super) fn context_made(&mut self, process: ProcessId, device: DeviceId) {
        let opened = self.tenants.process_mut(process);
        if let Some(opened) = opened.and_then(|known| known.on_mut(device)) {
            opened.measure_anew();
            self.decide(Decision::Resample { device });
        }
    }

    /// What a context costs may have been learned: guesses made before become that, and who was
    /// refused room for their sake is looked at again.
    pub(super) fn learned(&mut self, device: DeviceId, expected: Bytes) {
        if self.context_cost(device) != expected
            && let Some(class) = self.ledger.get(device).map(|books| books.class())
        {
            let alike = self.ledger.all();
            let alike = alike.filter(|(_, books)| books.class() == class);
            for device in alike.map(|(device, _)| device).collect::<Vec<_>>() {
                self.correct_guesses(device);
            }
            for other in self.ledger.devices() {
                if other != device {
                    self.freed(other);
                }
            }
        }
        self.follow_parts(device);
    }

    fn correct_guesses(&mut self, device: DeviceId) {
        let cost = self.context_cost(device);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        for (_, known) in self.tenants.processes_mut() {
            let container = known.container();
            let less = known.on_mut(device).map(|opened| opened.correct(cost));
            if let Some(less) = less.filter(|less| !less.is_zero()) {
                books.change(container, |account| account.overhead -= less);
            }
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
        let grace = self.policy.open_grace;
        for (process, known) in self.tenants.processes_mut() {
            let container = known.container();
            let Some(opened) = known.on_mut(device) else {
                continue;
            };
            let bytes = opened.seen(shown.contains(&process), taken, grace);
            if !bytes.is_zero() {
                lapsed.push((process, container, bytes));
            }
        }
        for (process, container, bytes) in lapsed {
            self.ledger
                .change(device, container, |account| account.overhead -= bytes);
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
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        let container = known.container();
        for (device, opened) in known.opened_mut() {
            let bytes = opened.give_up_unseen();
            self.ledger
                .change(device, container, |account| account.overhead -= bytes);
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
        let Some(books) = self.ledger.get(device) else {
            return false;
        };
        let stale = books.sampled().is_none_or(|(taken, _)| taken < since);
        let lags = books.lagged().is_some_and(|at| at >= since);
        if end <= self.timers.now() || !(stale || lags || self.guesses_on(device)) {
            return false;
        }
        self.timers.set_no_later(Timer::Settle(device), end);
        if stale && since == self.timers.now() {
            self.decide(Decision::Resample { device });
        }
        self.look_for_guesses(device);
        true
    }

    /// Whether something on a device is set aside by guess and may be measured any moment: what has
    /// not been by then may never be, as where processes are not listed.
    pub(super) fn guesses_on(&self, device: DeviceId) -> bool {
        let mut opened = self
            .tenants
            .processes()
            .filter_map(|known| known.on(device));
        let fresh = |since: Nanos| since + self.policy.guess_grace > self.timers.now();
        opened.any(|opened| opened.is_fresh_guess(fresh))
    }

    /// Has the device looked at in a moment, in longer and longer ones until nobody needs it any
    /// more.
    pub(super) fn look_for_guesses(&mut self, device: DeviceId) {
        let at = self.timers.now() + self.pauses.begin(device);
        self.timers.set_no_later(Timer::Guess(device), at);
    }

    /// The moment has come.
    pub(super) fn guess_due(&mut self, device: DeviceId) {
        if self.pauses.grow(device) {
            self.decide(Decision::Resample { device });
        }
    }

    /// Nobody waits for a look at the device.
    pub(super) fn guess_no_more(&mut self, device: DeviceId) {
        if self.pauses.end(device) {
            self.timers.stop(Timer::Guess(device));
        }
    }
}

/// The pause before the next look at each device that somebody waits to be looked at.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<DeviceId, Nanos>);

impl Pauses {
    /// Somebody waits. Returns the pause.
    fn begin(&mut self, device: DeviceId) -> Nanos {
        *self.0.entry(device).or_insert(PAUSES.0)
    }

    /// A pause is over and the next is longer. Whether anybody waits.
    fn grow(&mut self, device: DeviceId) -> bool {
        let pause = self.0.get_mut(&device);
        pause
            .map(|pause| *pause = (*pause + *pause).min(PAUSES.1))
            .is_some()
    }

    /// Nobody waits. Whether anybody did.
    fn end(&mut self, device: DeviceId) -> bool {
        self.0.remove(&device).is_some()
    }
}
