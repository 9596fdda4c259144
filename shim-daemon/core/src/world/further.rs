//! Further contexts of a process: beside its first one, or after its last one has ended.
//!
//! Each takes as much as a first one. So memory is set aside for each before its call, as far as no
//! request is in its way: a request covers one context of its tenant, and none beside another. The
//! process says when the call has returned, and the device is looked at then. That look replaces
//! the reservation, whether there is a context now or not. An ask that does not fit at once is
//! judged after a look that began after it: what the books show of the process may have ended.

use super::World;
use super::pending::Want;
use crate::decision::{Answer, Notice};
use crate::event::ProcessSample;
use crate::ids::{AskId, AskKey, DeviceId, ProcessId, TenantId};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// Most calls under way of a process and a device that a restarted daemon believes.
const MOST_PRESENTED: usize = 8;

/// What a look says of a process's further contexts.
#[derive(Debug)]
struct Changed {
    process: ProcessId,
    tenant: TenantId,
    before: Bytes,
    after: Bytes,
    lapsed: Bytes,
}

impl World {
    /// A process wants a context beside those that it has, or has had, on a device.
    pub(super) fn open_more(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        ask: AskId,
        patience: Option<Nanos>,
    ) {
        let want = Want::Context {
            cost: self.context_cost(device),
            more: true,
        };
        let key = (process, ask);
        self.ask(key, device, want, patience);
        if self.asks.get(key).is_some() {
            self.look_soon(device);
        }
    }

    /// A call is under way that a daemon let begin: this one, or the previous one. What was not
    /// counted before the recovery was over is asked for anew, and cannot wait.
    pub(super) fn open_again(&mut self, process: ProcessId, device: DeviceId, ask: AskId) {
        if !self.is_recovering() || !self.was_granted_before((process, ask), device) {
            self.open_more(process, device, ask, Some(Nanos::ZERO));
        }
    }

    /// After a restart: a call under way that the previous daemon let begin. It is a fact, as the
    /// process's other holdings are. Whether it is booked and answered.
    fn was_granted_before(&mut self, key: AskKey, device: DeviceId) -> bool {
        let Some(known) = self.tenants.process(key.0) else {
            return false;
        };
        let tenant = known.tenant();
        let many = known.on(device).map_or(0, |opened| opened.making().count());
        let Some(account) = self.ledger.account(device, tenant) else {
            return false;
        };
        let grant = account.page;
        if many >= MOST_PRESENTED || self.asks.get(key).is_some() || self.makes(key, device) {
            return false;
        }
        let cost = self.context_cost(device);
        self.ledger
            .change(device, tenant, |account| account.overhead += cost);
        self.begins_more(key, device, cost);
        self.answer(key, Answer::Granted { grant });
        self.facts_changed(device);
        true
    }

    /// Memory that is booked is set aside for a further context of a process.
    pub(super) fn begins_more(&mut self, (process, ask): AskKey, device: DeviceId, cost: Bytes) {
        let now = self.timers.now();
        if let Some(known) = self.tenants.process_mut(process) {
            let opened = known.open_bare(device, now);
            opened.is_with();
            opened.making_mut().begin(ask, cost, now);
        }
    }

    /// Whether memory is set aside for that very call.
    pub(super) fn makes(&self, (process, ask): AskKey, device: DeviceId) -> bool {
        let known = self.tenants.process(process);
        let opened = known.and_then(|known| known.on(device));
        opened.is_some_and(|opened| opened.making().has(ask))
    }

    /// The call has returned: a look will show what it took.
    pub(super) fn open_done(&mut self, process: ProcessId, device: DeviceId, ask: AskId) {
        let now = self.timers.now();
        let known = self.tenants.process_mut(process);
        let opened = known.and_then(|known| known.on_mut(device));
        if opened.is_some_and(|opened| opened.making_mut().done(ask, now)) {
            self.look_soon(device);
        }
    }

    /// A process says that it has no context on a device, and makes none: a look that does not show
    /// it gives back what its contexts took, or were expected to.
    pub(super) fn no_context(&mut self, process: ProcessId, device: DeviceId) {
        let now = self.timers.now();
        let known = self.tenants.process_mut(process);
        if let Some(opened) = known.and_then(|known| known.on_mut(device)) {
            opened.is_without(now);
            if !opened.overhead().is_zero() {
                self.look_soon(device);
            }
        }
    }

    /// Whether an ask for a further context waits for a look that began after it.
    pub(super) fn awaits_look(&self, want: Want, device: DeviceId, since: Nanos) -> bool {
        let books = self.ledger.get(device);
        let sampled = books.and_then(|books| books.sampled());
        want.is_more() && sampled.is_none_or(|(taken, _)| taken < since)
    }

    /// After a look at a device: what is set aside for further contexts and is booked otherwise
    /// now, or has lapsed, is given back, and so is the memory of processes without a context.
    /// `None`: it lists no processes.
    pub(super) fn settle_making(
        &mut self,
        device: DeviceId,
        taken: Nanos,
        processes: Option<&[ProcessSample]>,
    ) {
        let listed: BTreeMap<ProcessId, Bytes> = processes
            .into_iter()
            .flatten()
            .filter(|seen| !seen.used.is_zero())
            .map(|seen| (seen.process, seen.used))
            .collect();
        let (now, grace) = (self.timers.now(), self.policy.open_grace);
        let mut changed = Vec::new();
        for (process, known) in self.tenants.processes_mut() {
            let tenant = known.tenant();
            let Some(opened) = known.on_mut(device) else {
                continue;
            };
            let before = opened.overhead();
            let mut waiting = self.asks.of(process).map(|(_, one)| one);
            if waiting.any(|one| one.device == device && one.want.is_refused_context()) {
                opened.making_mut().is_expected(now);
            }
            let shown = listed.get(&process).copied();
            if shown.is_none() {
                // There is nothing of it, or it cannot be told from what strangers have.
                opened.making_mut().drop_shown(taken);
            }
            let lapsed = opened.lapse(shown.unwrap_or_default(), taken, grace);
            if processes.is_some() && shown.is_none() {
                opened.was_without(taken);
            }
            let after = opened.overhead();
            if before != after {
                changed.push(Changed {
                    process,
                    tenant,
                    before,
                    after,
                    lapsed,
                });
            }
        }
        for change in changed {
            self.book_change(device, &change);
        }
    }

    fn book_change(&mut self, device: DeviceId, change: &Changed) {
        let &Changed {
            process,
            tenant,
            before,
            after,
            lapsed: bytes,
        } = change;
        self.ledger.change(device, tenant, |account| {
            account.overhead = account.overhead - before + after;
        });
        if !bytes.is_zero() {
            self.notice(Notice::Lapsed {
                process,
                tenant,
                device,
                bytes,
            });
        }
    }
}
