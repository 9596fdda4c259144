//! The device's accounts while a thread has their lock. Launches made without it are entered when
//! the lock is taken. When it is released, the allowance for further such launches is computed.
//! Why: ADR 76.

use core::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use gpushare_protocol::page::control::ControlDevice;
use gpushare_protocol::page::lease::NO_DEADLINE;

use super::{DeviceGate, GateState, Inner, Op, PAUSE, StreamKey, clock, of};
use crate::driver::marking::can_mark_all;
use crate::gate::ledger::{self, Entry, Ledger, Named};

/// The books, and their lock.
#[derive(Debug)]
pub(in crate::gate) struct Books<'a> {
    pub(super) gate: &'a DeviceGate,
    /// Launches may go without the lock when it is given back.
    pub(super) grants: bool,
    pub(super) inner: MutexGuard<'a, Inner>,
}

impl Deref for Books<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Books<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Books<'_> {
    /// The thread takes the lock again soon: nothing is allowed before, which would have to be
    /// worked out each time.
    pub(super) fn withhold(&mut self) {
        self.grants = false;
    }
}

impl Drop for Books<'_> {
    fn drop(&mut self) {
        if !self.grants {
            return;
        }
        if let Some((ns, until, page)) = self.inner.allowance() {
            self.gate.open.grant(ns, until, page, self.inner.rules);
        }
    }
}

impl Inner {
    /// Enters the launches made without the lock.
    pub(super) fn gather(&mut self) {
        let (count, ns) = core::mem::take(&mut self.launching);
        if count > 0 {
            self.window.put_back(count, ns);
            self.slices.put_back(count, ns);
        }
        if self.ledgers.iter().all(|ledger| ledger.is_empty()) {
            return;
        }
        let (now, ticks) = (clock::now(), clock::ticks());
        let Self {
            window,
            slices,
            bounds,
            ledgers,
            launching,
            ..
        } = self;
        for ledger in ledgers {
            let under_way = ledger.take_out(|Entry { stream_key, op, at }| {
                let at = now.saturating_sub(clock::ns_in(ticks.saturating_sub(at)));
                slices.admitted(op.count, op.ns());
                window.came(at, *bounds, stream_key, op);
            });
            if let Some(Entry { op, .. }) = under_way {
                window.set_aside(1, op.ns());
                slices.admitted(1, op.ns());
                launching.0 += 1;
                launching.1 = launching.1.saturating_add(op.ns());
            }
        }
    }

    /// No launch is inside: admissions without a later report are dropped.
    pub(super) fn nobody_inside(&mut self) {
        self.ledgers.iter().for_each(|ledger| ledger.abandon());
        self.gather();
        self.window.nobody_inside();
        self.loading = 0;
    }

    /// How much may be launched without the lock (ns), and until when (ticks): as long as a launch
    /// would be admitted, would change nothing that is reported, and no mark is due. Only where
    /// tenants share the device.
    fn allowance(&self) -> Option<(u64, u64, &'static ControlDevice)> {
        let page = self.page?;
        let is_shared = self.bounds.deadline == NO_DEADLINE;
        let is_plain = self.follower.stand() == GateState::Open
            && !self.follower.is_idle()
            && self.report.is_pending()
            && !self.sleepers.sleeps;
        if !(is_shared && is_plain) || self.ledgers.is_empty() {
            return None;
        }
        let now = clock::now();
        clock::measure_ticks(now);
        let (mut room, mut age) = self.window.open(now, self.bounds)?;
        if let Some(slice) = self.rules.yields() {
            if self.slices.is_new() {
                // Its first launch needs the tenant's token.
                return None;
            }
            room = room.min(self.slices.room(now, slice, self.window.longest()));
        }
        if self.window.has_marks() {
            let pauses = self.looked.saturating_add(PAUSE).saturating_sub(now);
            age = age.min(self.window.left(now).max(pauses));
        }
        let until = clock::ticks().saturating_add(clock::ticks_in(age)?);
        (room > 0).then_some((room, until, page))
    }

    /// A launch was made: the next ones like it may go without the lock.
    pub(super) fn remember(
        &mut self,
        gate: &'static DeviceGate,
        named: Named,
        stream_key: StreamKey,
        op: Op,
    ) {
        let can_mark = stream_key.thread == 0 || can_mark_all();
        let Some(ledger) = ledger::mine() else { return };
        if !can_mark || op.waits || !op.expected.known || self.page.is_none() {
            return;
        }
        if ledger.bind(&gate.open) {
            self.ledgers.push(ledger);
        }
        if ledger.device() == Some(gate.index) {
            let fuel = self.window.untimed(op.key);
            ledger.remember(named, stream_key, &op, fuel);
        }
    }

    /// The ledger's thread goes to another device now.
    pub(super) fn release(&mut self, ledger: &'static Ledger) {
        if ledger.release() {
            self.ledgers.retain(|other| !core::ptr::eq(*other, ledger));
        }
    }
}

/// The calling thread launches on this device now, and on no other one without a lock.
pub(in crate::gate) fn only(this: &DeviceGate) {
    if let Some(ledger) = ledger::known()
        && let Some(other) = ledger.device().filter(|other| *other != this.index)
        && let Some(other) = of(other)
    {
        other.lock().release(ledger);
    }
}
