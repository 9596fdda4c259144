//! Reservations for contexts before the device shows them, and the looks that measure them.
//!
//! The memory for a context is reserved by estimate, because the driver takes it before it can be
//! measured. Four rules correct the estimate. When a process reports its context as made, the
//! device is looked at immediately, and the measurement replaces the estimate for all unmeasured
//! processes. An ask that would be refused because of estimates is refused only after a look. One
//! for a context is refused only after a look that began after it, also where its time is over. A
//! reservation for a process that the device never shows is released after [`Policy::open_grace`].
//!
//! [`Policy::open_grace`]: crate::Policy::open_grace

use super::World;
use super::pending::{Pending, Want};
use crate::decision::{Decision, Notice};
use crate::event::ProcessSample;
use crate::ids::{AskKey, DeviceId, ProcessId, TenantId};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The first and the longest pause between looks, while an ask waits for their result.
const PAUSES: (Nanos, Nanos) = (Nanos::millis(1), Nanos::millis(250));

impl World {
    /// A process reports that its context on a device is complete: its memory can be measured.
    pub(super) fn context_made(&mut self, process: ProcessId, device: DeviceId) {
        let opened = self.tenants.process_mut(process);
        if let Some(opened) = opened.and_then(|known| known.on_mut(device)) {
            opened.measure_anew();
            self.decide(Decision::Resample { device });
        }
    }

    /// The cost of a context may have been measured: updates earlier estimates, and serves asks
    /// that they kept waiting.
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
        self.asks.expect(device, cost);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        for (_, known) in self.tenants.processes_mut() {
            let tenant = known.tenant();
            let less = known.on_mut(device).map(|opened| opened.correct(cost));
            if let Some(less) = less.filter(|less| !less.is_zero()) {
                books.change(tenant, |account| account.overhead -= less);
            }
        }
        let accounts: Vec<TenantId> = books.accounts().map(|(tenant, _)| tenant).collect();
        for tenant in accounts {
            let free = books.slack().firm;
            books.change(tenant, |account| {
                if !account.promise.is_zero() {
                    // A dearer one is promised as far as there is room.
                    account.promise = cost.min(account.promise + free);
                }
            });
        }
    }

    /// Releases reservations for processes that the device, looked at `taken`, still does not show.
    /// A context for which the driver has no memory yet is not late.
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
            let tenant = known.tenant();
            let Some(opened) = known.on_mut(device) else {
                continue;
            };
            let mut waiting = self.asks.of(process).map(|(_, one)| one);
            if waiting.any(|one| one.device == device && one.want.is_refused_context()) {
                opened.is_expected(self.timers.now());
            }
            let bytes = opened.seen(shown.contains(&process), taken, grace);
            if !bytes.is_zero() {
                lapsed.push((process, tenant, bytes));
            }
        }
        for (process, tenant, bytes) in lapsed {
            self.ledger
                .change(device, tenant, |account| account.overhead -= bytes);
            self.notice(Notice::Lapsed {
                process,
                tenant,
                device,
                bytes,
            });
        }
    }

    /// A process has become another program, or registered anew. An unmeasured reservation for it
    /// is released: its memory never existed, or will be seen as the new program's.
    pub(super) fn process_replaced(&mut self, process: ProcessId, charged: &[(DeviceId, Bytes)]) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        let tenant = known.tenant();
        for (device, opened) in known.opened_mut() {
            let bytes = opened.give_up();
            self.ledger
                .change(device, tenant, |account| account.overhead -= bytes);
        }
        self.process_gone(process, charged);
    }

    /// Whether an ask must not be refused yet, because a look may show room. That is so if no look
    /// was taken since it arrived, if the device still showed memory that tenants had freed, or if
    /// some reservations are estimates. An ask for a context has that time whatever its own is.
    pub(super) fn is_to_be_looked_at(&mut self, device: DeviceId, pending: &Pending) -> bool {
        let (since, until) = (pending.since, pending.until);
        let most = since + self.policy.guess_grace;
        let end = match self.lacks_its_look(pending) {
            true => most,
            false => until.min(most),
        };
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

    /// Whether an ask is for a context, and no look was taken since it arrived. One may show that a
    /// context has ended, however short the time is that the tenant may wait.
    fn lacks_its_look(&self, pending: &Pending) -> bool {
        let books = self.ledger.get(pending.device);
        let sampled = books.and_then(|books| books.sampled());
        let stale = sampled.is_none_or(|(taken, _)| taken < pending.since);
        stale && matches!(pending.want, Want::Context { .. })
    }

    /// Whether an ask whose time is over waits for its look, and no longer than
    /// [`Policy::guess_grace`] in all.
    ///
    /// [`Policy::guess_grace`]: crate::Policy::guess_grace
    pub(super) fn is_kept_for_look(&mut self, ask: AskKey, pending: &Pending) -> bool {
        let end = pending.since + self.policy.guess_grace;
        if end <= self.timers.now() || !self.lacks_its_look(pending) {
            return false;
        }
        self.timers.set(Timer::Patience(ask), end);
        self.look_soon(pending.device);
        true
    }

    /// A look was taken then: asks for contexts end that waited for it alone.
    pub(super) fn end_overdue(&mut self, device: DeviceId, taken: Nanos) {
        let now = self.timers.now();
        let asks = self.asks.on(device).filter(|(_, pending)| {
            let is_context = matches!(pending.want, Want::Context { .. });
            is_context && pending.until <= now && pending.since <= taken
        });
        for ask in asks.map(|(ask, _)| ask).collect::<Vec<_>>() {
            self.patience_over(ask);
        }
    }

    /// Whether some reservation on a device is an estimate that may be measured any moment. One
    /// that has stayed unmeasured may stay so, as where processes are not listed.
    pub(super) fn guesses_on(&self, device: DeviceId) -> bool {
        let mut opened = self
            .tenants
            .processes()
            .filter_map(|known| known.on(device));
        let fresh = |since: Nanos| since + self.policy.guess_grace > self.timers.now();
        opened.any(|opened| opened.is_fresh_guess(fresh))
    }

    /// Schedules looks at the device, at growing intervals, until no ask needs them.
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

    /// No ask waits for a look at the device.
    pub(super) fn guess_no_more(&mut self, device: DeviceId) {
        if self.pauses.end(device) {
            self.timers.stop(Timer::Guess(device));
        }
    }
}

/// The pause before the next look at each device with a waiting ask.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<DeviceId, Nanos>);

impl Pauses {
    /// An ask waits. Returns the pause.
    fn begin(&mut self, device: DeviceId) -> Nanos {
        *self.0.entry(device).or_insert(PAUSES.0)
    }

    /// A pause is over and the next is longer. Returns whether an ask waits.
    fn grow(&mut self, device: DeviceId) -> bool {
        let pause = self.0.get_mut(&device);
        pause
            .map(|pause| *pause = (*pause + *pause).min(PAUSES.1))
            .is_some()
    }

    /// No ask waits any more. Returns whether one did.
    fn end(&mut self, device: DeviceId) -> bool {
        self.0.remove(&device).is_some()
    }
}
