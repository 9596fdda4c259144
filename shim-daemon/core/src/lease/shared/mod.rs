//! A device that its tenants share at the same time.
//!
//! All gates are open and the driver's own time slicing fills the gaps. Every other millisecond,
//! while several tenants are active, the daemon samples each one's service (`service`). If a
//! pending tenant is behind its share, the others first *yield*, then *hold* (`steer`). Its own
//! gate is open, so closing the tenants ahead suffices, and no handoff is needed. No tenant's gaps
//! idle the device.
//!
//! A state machine without a clock, like [`Schedule`](super::Schedule): [`Shared::handle`],
//! [`Shared::sample`] when [`Shared::next_sample`] has come, [`Shared::poll`].

mod audit;
mod bond;
mod books;
mod check;
mod contenders;
mod done;
mod doubt;
mod filler;
mod gang;
mod gate;
mod habit;
mod lag;
mod mean;
mod meter;
mod outside;
mod pages;
mod rest;
mod rules;
mod service;
mod steer;
mod tenant;
mod trial;
mod trials;
mod view;

pub(super) use bond::Wish;
pub(super) use gang::Part;

use crate::lease::input::{Input, Output, Report, closed_first};
use crate::lease::members::Members;
use crate::lease::page::{Lease, LeaseKind};
use crate::lease::roster::{Guests, Roster, Tenant as _};
use crate::lease::terms::{Compute, LeasePolicy};
use crate::lease::view::DeviceTally;
use crate::lease::work::Work;

use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use books::Books;
use done::Done;
use gate::Gate;
use meter::Flight;
use outside::Outside;
use rest::Rest;
use rules::Rules;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use steer::Steering;
use tenant::Tenant;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Shared {
    policy: LeasePolicy,
    rules: Rules,
    now: Nanos,
    roster: Roster<Tenant>,
    steering: Steering,
    books: Books,
    rest: Rest,
    outside: Outside,
    /// When the last sample was.
    sampled: Nanos,
    /// Up to when time has been passed to the tenants, with samples or without.
    passed: Nanos,
    next: Option<Nanos>,
    epochs: u64,
    tally: DeviceTally,
    outputs: VecDeque<Output>,
}

impl Shared {
    /// A device without tenants.
    pub(super) fn new(policy: LeasePolicy) -> Self {
        Self::with(Nanos::ZERO, policy, Guests::default())
    }

    /// A device whose `guests` come from another regime, with epochs above theirs.
    pub(super) fn with(now: Nanos, policy: LeasePolicy, guests: Guests) -> Self {
        let mut epochs = guests.epochs;
        let tenants = guests
            .tenants
            .into_iter()
            .map(|(id, mut members, account)| {
                epochs += 1;
                members.begin_regime(false);
                (id, Tenant::new((members, account), (epochs, now)))
            });
        let roster = Roster::new(tenants.collect(), guests.debts);
        let mut shared = Self {
            rules: Rules {
                slice: policy.slice,
                switch: policy.switch,
            },
            policy,
            now,
            roster,
            steering: Steering::default(),
            books: Books::default(),
            rest: Rest::default(),
            outside: Outside::default(),
            sampled: Nanos::ZERO,
            passed: now,
            next: None,
            epochs,
            tally: guests.tally,
            outputs: guests.outputs,
        };
        shared.settle();
        shared
    }

    /// All that another regime needs, which begins `now`.
    pub(super) fn into_guests(mut self, now: Nanos) -> Guests {
        self.pass(now);
        self.roster
            .into_guests(self.now, (self.epochs, self.tally, self.outputs))
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.roster.processes()
    }

    /// Whether a tenant has a process here.
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.roster.get(id).is_some()
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub(super) fn handle(&mut self, now: Nanos, input: Input) {
        self.pass(now);
        match input {
            Input::Joined {
                tenant: id,
                process,
                gated,
                class,
                compute,
            } => self.joined(id, (process, gated), (class, compute)),
            Input::Away { process, away } => {
                self.set_there(process, |members| members.set_away(process, away));
            }
            Input::Sealed { process, sealed } => {
                self.set_there(process, |members| members.set_sealed(process, sealed));
            }
            Input::Left { process } => {
                if self.roster.leave(self.now, process).is_some() {
                    self.reweigh();
                }
            }
            Input::Set {
                tenant: id,
                class,
                compute,
            } => {
                if let Some(tenant) = self.roster.get_mut(id) {
                    tenant.set(class, compute);
                }
                self.reweigh();
            }
            Input::Reported {
                process,
                epoch,
                report,
            } => {
                let tenant = self.roster.of(process);
                let busy = report == Report::Busy;
                if let Some(tenant) = tenant.filter(|tenant| busy || tenant.epoch() == epoch) {
                    tenant.report(process, report, self.now);
                }
            }
        }
        self.settle();
    }

    /// A process can report, and is waited for, or not.
    fn set_there(&mut self, process: ProcessId, set: impl FnOnce(&mut Members)) {
        let now = self.now;
        if let Some(tenant) = self.roster.of(process) {
            tenant.set_there(now, set);
        }
    }

    /// Lets time pass up to `now`. Where no samples were taken, those with a cap were idle, and no
    /// other was idle beside one at work: their caps collect it, and their lags fade.
    fn pass(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if !self.rests() {
            return;
        }
        let span = self.now - std::mem::replace(&mut self.passed, self.now);
        for tenant in self.roster.tenants_mut() {
            tenant.rest(span, &self.policy);
        }
    }

    /// Whether no samples are taken, and the time since the last one is not part of the next one.
    fn rests(&self) -> bool {
        self.next.is_none() && self.now - self.sampled > Nanos(Rules::TICK.0 * 4)
    }

    fn joined(&mut self, id: TenantId, (process, gated): (ProcessId, bool), terms: (u16, Compute)) {
        let (epoch, now, many) = (self.epochs + 1, self.now, self.roster.len());
        let new = |parts| Tenant::new(parts, (epoch, now));
        let Some(tenant) = self.roster.join(now, (id, process), terms, new) else {
            return;
        };
        tenant.members_mut().join(process, gated, false);
        if self.roster.len() > many {
            self.epochs = epoch;
            self.reweigh();
        }
        self.roster.tell_ungated(&mut self.outputs);
    }

    fn reweigh(&mut self) {
        for (id, weight) in self.roster.weights() {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.account_mut().set_weight(weight);
            }
        }
    }

    /// The contents of processes' pages at `now`. A process without one did no work.
    pub(super) fn sample(&mut self, now: Nanos, works: &[(ProcessId, Work)]) {
        self.now = self.now.max(now);
        let span = self.now - self.sampled;
        if span == Nanos::ZERO {
            return;
        }
        let done = self.read(works, span);
        self.note_idle(&done, span);
        (self.sampled, self.passed) = (self.now, self.now);
        let tenants = (&mut self.roster, &mut self.rest, &mut self.outside);
        let (bills, believed) = service::settle(tenants, &done, &self.rules, (self.now, span));
        self.audit(&done, &bills, span);
        // A bill is at most a second. What a longer span was used for is not known.
        let is_known = span <= Rules::MOST;
        self.note_useful(is_known.then_some(&bills), span);
        self.pay((&done, &believed), &bills, (span, is_known));
        self.next = None;
        self.settle();
    }

    /// In the last `span` processes had so much of the device, as the driver's samples say it.
    pub(super) fn ran(&mut self, now: Nanos, span: Nanos, ran: &[(Option<ProcessId>, Nanos)]) {
        self.now = self.now.max(now);
        let tenants = self.roster.tenants_mut();
        let unsteered = tenants.flat_map(|one| one.members_mut().take_unsteered());
        let unsteered: BTreeSet<ProcessId> = unsteered.collect();
        let is_outside = |process| {
            let is_here = self.roster.owner(process).is_some();
            !is_here || unsteered.contains(&process)
        };
        let outside = ran
            .iter()
            .filter(|(process, ran)| *ran > Nanos::ZERO && process.is_none_or(is_outside));
        let (many, sum) = outside.fold((0, Nanos::ZERO), |(many, sum), (_, ran)| {
            (many + 1, sum + *ran)
        });
        self.outside.read(self.now, span, (many, sum));
    }

    /// What the driver, or steering, leaves useful shows only where all bills are known and more
    /// than one tenant wants the device: one that starts counts as active, and leaves the device to
    /// another.
    fn note_useful(&mut self, bills: Option<&BTreeMap<TenantId, u64>>, span: Nanos) {
        let now = self.now;
        let mut active = self.roster.tenants().filter(|tenant| tenant.is_active());
        let known = active.all(Tenant::is_known);
        let wants = |tenant: &&Tenant| tenant.is_pending(now);
        let contended = self.roster.tenants().filter(wants).count() > 1;
        let recent = self.roster.iter().filter(|(_, one)| one.is_recent(now));
        let recent: Vec<TenantId> = recent.map(|(id, _)| id).collect();
        let useful = bills.filter(|_| known && contended).map(|bills| {
            let had = recent.iter().map(|id| bills.get(id).copied().unwrap_or(0));
            had.collect::<Vec<u64>>()
        });
        self.steering.note((now, span), useful.as_deref(), recent);
    }

    /// Counts the part of a span in which no tenant had work on the device while one waited at its
    /// closed gate.
    fn note_idle(&mut self, done: &BTreeMap<TenantId, Done>, span: Nanos) {
        let waiting = |tenant: &&Tenant| tenant.waiting().is_some();
        let mut waiting = self.roster.tenants().filter(waiting).peekable();
        if waiting.peek().is_none() {
            return;
        }
        let capped = waiting.all(Tenant::is_throttled);
        let works = |id: &TenantId| {
            let tenant = self.roster.get(*id);
            tenant.is_some_and(|tenant| tenant.waiting().is_none() || !tenant.is_drained())
        };
        let busy = done.iter().filter(|(id, _)| works(id));
        let busy = busy.fold(0, |sum: u64, (_, done)| sum + done.pending);
        let idle = Nanos(span.0 * (1000 - busy.min(1000)) / 1000);
        let tally = &mut self.tally;
        let cause = if capped {
            &mut tally.capped
        } else {
            &mut tally.held
        };
        *cause = *cause + idle;
    }

    /// The counters of the device since it was added.
    pub(super) fn tally(&self) -> &DeviceTally {
        &self.tally
    }

    /// Charges caps and guarantees: by service beside others, by time in flight when alone. A span
    /// of which that is not known charges no guarantee, and one that is not believed to ask for
    /// anything is owed nothing.
    fn pay(
        &mut self,
        (done, believed): (&BTreeMap<TenantId, Done>, &BTreeMap<TenantId, Done>),
        bills: &BTreeMap<TenantId, u64>,
        (span, is_known): (Nanos, bool),
    ) {
        let pending = |all: &BTreeMap<TenantId, Done>, id: &TenantId| {
            all.get(id).map_or(0, |done| done.pending)
        };
        let sum = |all: &BTreeMap<TenantId, Done>| all.values().map(|done| done.pending).sum();
        let (all, all_believed): (u64, u64) = (sum(done), sum(believed));
        for (id, tenant) in self.roster.iter_mut() {
            let bill = Nanos(bills.get(&id).copied().unwrap_or(0));
            let own = pending(done, &id);
            let flight = Nanos(span.0 * own / 1000);
            // A stuck tenant may have a long kernel on the device, or may be stopped. If it counted
            // as working in the latter case, a gate that is closed for a cap would never open.
            let alone = all - own < Rules::ALONE;
            let behind = all_believed - pending(believed, &id) < Rules::ALONE;
            let flight = match tenant.is_throttled() {
                false if alone => Flight::Alone(flight),
                true if behind && !tenant.is_drained() => Flight::Behind(flight),
                _ => Flight::Beside,
            };
            let done = done.get(&id).copied().unwrap_or_default();
            let ended = done.service > 0;
            tenant.pay_cap(span, (bill.0, ended), flight, &self.policy);
            if is_known {
                let asks = believed.get(&id).is_some_and(|done| done.pending > 0);
                tenant.pay_promise(span, (bill, asks), &self.policy);
            }
        }
    }

    /// When to sample pages next. `None` while no tenant needs steering.
    pub(super) fn next_sample(&self) -> Option<Nanos> {
        self.next
    }

    /// The next output, in order.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The content of a tenant's page.
    pub(super) fn lease(&self, id: TenantId) -> Option<Lease> {
        self.roster.get(id).map(Tenant::said)
    }

    /// Other settings from now on.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        (self.rules.slice, self.rules.switch) = (policy.slice, policy.switch);
        self.settle();
    }

    /// Sets the gates as they should be, and outputs the changes.
    fn settle(&mut self) {
        let mut active = self.active();
        loop {
            self.set_gates(&active);
            // A gate that moves voids what its processes said of idleness.
            let more = self.active();
            if more == active {
                break;
            }
            active = more;
        }
        self.note_mode();
        self.publish();
        self.plan(&active);
    }

    /// The steerable tenants that are not idle.
    fn active(&self) -> Vec<TenantId> {
        let active = self.roster.iter().filter(|(_, tenant)| tenant.is_active());
        active.map(|(id, _)| id).collect()
    }

    fn set_gates(&mut self, active: &[TenantId]) {
        let mut gates = self
            .steering
            .steer(&self.roster, active, &self.rules, self.now);
        self.keep_gangs(&mut gates);
        for (id, gate) in gates {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.turn(gate, self.now, &mut self.epochs);
            }
        }
    }

    /// When to sample next: never while one tenant is active alone, unless a cap requires it.
    fn plan(&mut self, active: &[TenantId]) {
        let capped = |id: &&TenantId| {
            let tenant = self.roster.get(**id);
            tenant.is_some_and(Tenant::is_capped)
        };
        // The other devices of a gang that is idle here wait until its cap allows something again.
        let throttled = self.roster.tenants().any(Tenant::is_throttled);
        let steered = throttled || active.len() > 1 || active.iter().any(|id| capped(&id));
        if !steered {
            self.next = None;
            return;
        }
        let shut = self
            .roster
            .tenants()
            .any(|tenant| tenant.is_shut() && !tenant.is_throttled());
        let tick = if shut { Rules::TICK_HELD } else { Rules::TICK };
        if self.next.is_none() {
            // Work done while no samples were taken is not part of this span.
            if self.rests() {
                self.sampled = self.now;
                for tenant in self.roster.tenants_mut() {
                    tenant.begin();
                }
            }
            self.next = Some(self.now + tick);
        }
    }

    /// Says what changed, what closes first.
    fn publish(&mut self) {
        let now = self.now;
        let running: Vec<TenantId> = self
            .roster
            .iter()
            .filter(|(_, tenant)| tenant.may_run(now))
            .map(|(id, _)| id)
            .collect();
        let mut changed = Vec::new();
        // What is submitted when a turn ends runs on beside the next one.
        let window = match self.steering.takes_turns() {
            true => self.policy.window.min(self.rules.slice),
            false => self.policy.window,
        };
        for (id, tenant) in self.roster.iter_mut() {
            let beside = running.iter().any(|other| *other != id);
            // A tenant of a higher class that pauses may be the one that is yielded to.
            let open = |slice| LeaseKind::Open {
                deadline: None,
                window,
                contended: beside || slice > Nanos::ZERO,
                slice: Some(slice),
            };
            let kind = match tenant.gate() {
                Gate::Free => LeaseKind::Free,
                Gate::Noted => open(Nanos::ZERO),
                Gate::Slice(slice) => open(slice),
                Gate::Shut => LeaseKind::Closed,
            };
            changed.extend(tenant.say(kind).map(|lease| (id, lease)));
        }
        self.outputs.extend(closed_first(changed));
    }
}
