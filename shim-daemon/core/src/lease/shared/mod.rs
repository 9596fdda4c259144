//! A device that its tenants share at the same time.
//!
//! All gates are open and the driver's own time slicing fills the gaps. Every other millisecond,
//! while several tenants are active, the daemon samples each one's service (`service`). If a
//! pending tenant is behind its share, the others first *yield*, then *hold* (`steer`). Its own
//! gate is open, so closing the tenants ahead suffices, and no handoff is needed. No tenant's gaps
//! idle the device.
//!
//! A state machine without a clock: after [`Shared::pass`] an input is taken in, and
//! [`Shared::settle`] sets the gates; or [`Shared::sample`] does, when [`Shared::next_sample`] has
//! come.

mod bond;
mod books;
mod case;
mod changes;
mod check;
mod contenders;
mod done;
mod doubt;
mod expected;
mod filler;
mod gang;
mod gate;
mod habit;
mod lag;
mod mean;
mod meter;
mod neighbours;
mod outside;
mod pages;
mod rest;
mod rules;
mod service;
mod steer;
mod still;
mod tenant;
mod trial;
mod trials;
mod view;

pub(super) use bond::{Joint, Neighbours, Wish};
pub(super) use gang::Part;

use crate::lease::input::Report;
use crate::lease::members::Members;
use crate::lease::page::LeaseKind;
use crate::lease::roster::Roster;
use crate::lease::seat;
use crate::lease::terms::{Compute, LeasePolicy};
use crate::lease::work::Work;

use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use books::Books;
use gate::Gate;
use meter::Flight;
use outside::Outside;
use rest::Rest;
use rules::Rules;
use std::collections::BTreeSet;
use steer::Steering;
use tenant::{State, Tenant};

/// See the module's page.
#[derive(Debug)]
pub(super) struct Shared {
    policy: LeasePolicy,
    rules: Rules,
    now: Nanos,
    pub(super) roster: Roster<State>,
    steering: Steering,
    books: Books,
    rest: Rest,
    outside: Outside,
    /// When the last sample was.
    sampled: Nanos,
    /// Up to when time has been passed to the tenants, with samples or without.
    passed: Nanos,
    next: Option<Nanos>,
    /// Where no samples are taken: when to look again at what time has changed.
    wakes: Option<Nanos>,
}

/// The longest time between two looks at a device that waits for a cap alone: what a gang does on
/// its other devices may depend on it.
const DOZE: Nanos = Nanos::millis(500);

impl Shared {
    /// A device without tenants.
    pub(super) fn new(policy: LeasePolicy) -> Self {
        Self::with(Nanos::ZERO, policy, Roster::<State>::default())
    }

    /// A device with the tenants of another regime.
    pub(super) fn with<S: seat::State>(now: Nanos, policy: LeasePolicy, roster: Roster<S>) -> Self {
        let mut shared = Self {
            rules: Rules {
                slice: policy.slice,
                switch: policy.switch,
            },
            policy,
            now,
            roster: roster.into_regime(now, || State::at(now)),
            steering: Steering::default(),
            books: Books::default(),
            rest: Rest::default(),
            outside: Outside::default(),
            sampled: Nanos::ZERO,
            passed: now,
            next: None,
            wakes: None,
        };
        shared.settle();
        shared
    }

    /// For another regime, which begins `now`.
    pub(super) fn into_roster(mut self, now: Nanos) -> Roster<State> {
        self.pass(now);
        self.roster
    }

    /// A process can report, and is waited for, or not.
    pub(super) fn set_there(&mut self, process: ProcessId, set: impl FnOnce(&mut Members)) {
        let now = self.now;
        if let Some(tenant) = self.roster.of(process) {
            tenant.set_there(now, set);
        }
    }

    /// Lets time pass up to `now`. Where no samples were taken, those with a cap were idle, and no
    /// other was idle beside one at work: their caps collect it, and their lags fade.
    pub(super) fn pass(&mut self, now: Nanos) {
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

    pub(super) fn joined(&mut self, process: (TenantId, ProcessId, bool), terms: (u16, Compute)) {
        let new = State::at(self.now);
        if self.roster.join(self.now, process, terms, new) {
            self.reweigh();
        }
    }

    pub(super) fn left(&mut self, process: ProcessId) {
        if self.roster.leave(self.now, process) {
            self.reweigh();
        }
    }

    /// A tenant's terms changed.
    pub(super) fn set(&mut self, id: TenantId, (class, compute): (u16, Compute)) {
        let Some(tenant) = self.roster.get_mut(id) else {
            self.roster.set_absent(self.now, id, compute);
            self.steering.terms_changed(id);
            return;
        };
        let (before, had, _) = tenant.account.terms();
        tenant.set(class, compute);
        if (before, had) != (class, compute) {
            self.steering.terms_changed(id);
        }
        self.reweigh();
    }

    pub(super) fn reported(&mut self, process: ProcessId, epoch: u64, report: Report) {
        let (tenant, busy) = (self.roster.of(process), report == Report::Busy);
        if let Some(tenant) = tenant.filter(|tenant| busy || tenant.epoch == epoch) {
            tenant.report(process, report, self.now);
        }
    }

    /// Tenants that have begun to ask for the device take their parts, and those that have not
    /// asked for long give theirs up.
    fn count(&mut self) {
        let now = self.now;
        let asks = |one: &Tenant| {
            let pending = one.pending() > 0 && !one.is_stuck();
            pending || one.members.waits() || one.is_recent(now)
        };
        if self.roster.count(asks) {
            self.reweigh();
        }
    }

    fn reweigh(&mut self) {
        let set = |tenant: &mut Tenant, weight| tenant.account.weight = weight;
        self.roster.reweigh(set);
    }

    /// The contents of processes' pages at `now`. A process without one did no work.
    pub(super) fn sample(&mut self, now: Nanos, works: &[(ProcessId, Work)]) {
        self.pass(now);
        if self.next.is_none() && self.wakes.is_some_and(|at| at <= self.now) {
            self.settle();
            return;
        }
        let span = self.now - self.sampled;
        if span == Nanos::ZERO {
            return;
        }
        // Without samples time has passed already.
        let due = self.now - self.passed;
        self.read(works, span);
        self.note_idle(span);
        self.count();
        (self.sampled, self.passed) = (self.now, self.now);
        let tenants = (&mut self.roster, &mut self.rest, &mut self.outside);
        service::settle(tenants, &self.rules, (self.now, span));
        self.audit(span);
        // A bill is at most a second. What a longer span was used for is not known.
        let is_known = span <= Rules::MOST;
        self.note_useful(span, is_known);
        self.pay((span, due), is_known);
        self.next = None;
        self.settle();
    }

    /// In the last `span` processes had so much of the device, as the driver's samples say it.
    /// Those that are registered and not here are not outside: they joined lately, or left. What is
    /// outside had together what steered ones left: the times of processes that share a context, as
    /// clients of one MPS server do, overlap.
    pub(super) fn ran(&mut self, now: Nanos, span: Nanos, ran: &[(Option<ProcessId>, Nanos)]) {
        self.now = self.now.max(now);
        let tenants = self.roster.tenants_mut();
        let unsteered = tenants.flat_map(|one| one.members.take_unsteered());
        let unsteered: BTreeSet<ProcessId> = unsteered.collect();
        let (mut many, mut had, mut left) = (0, Nanos::ZERO, span);
        for (process, ran) in ran.iter().filter(|(_, ran)| *ran > Nanos::ZERO) {
            if process.is_none_or(|process| unsteered.contains(&process)) {
                (many, had) = (many + 1, had + *ran);
            } else {
                left = Nanos(left.0.saturating_sub(ran.0));
            }
        }
        self.outside.read(self.now, span, (many, had.min(left)));
    }

    /// Compares the bills of the last `span` with the clock. The gates have not changed since the
    /// span.
    fn audit(&mut self, span: Nanos) {
        let open = self.roster.tenants().filter(|one| one.runs());
        let pending: Vec<u64> = open.map(Tenant::pending).collect();
        let billed = self.roster.tenants().map(|one| one.own.bill).sum();
        self.books.note(span, &pending, billed);
    }

    /// What the driver, or steering, leaves useful shows only where all bills are known and more
    /// than one tenant wants the device: one that starts counts as active, and leaves the device to
    /// another.
    fn note_useful(&mut self, span: Nanos, is_known: bool) {
        let now = self.now;
        let all = || self.roster.tenants();
        let mut active = all().filter(|one| one.is_active());
        let known = is_known && active.all(|one| !one.own.done.guessed);
        let contended = all().filter(|one| one.is_pending(now)).count() > 1;
        let recent = || all().filter(|one| one.is_recent(now));
        let useful: Vec<u64> = recent().map(|one| one.own.bill).collect();
        let useful = (known && contended).then_some(&useful[..]);
        let recent = self.roster.ids(|one| one.is_recent(now));
        self.steering.note((now, span), useful, recent);
    }

    /// Counts the part of a span in which no tenant had work on the device while one waited at its
    /// closed gate.
    fn note_idle(&mut self, span: Nanos) {
        let waits = |one: &&Tenant| one.waiting().is_some();
        let waiting = || self.roster.tenants().filter(waits);
        if waiting().next().is_none() {
            return;
        }
        let capped = waiting().all(|one| one.account.is_throttled());
        let works = |one: &&Tenant| one.waiting().is_none() || !one.members.is_drained();
        let busy = self.roster.tenants().filter(works);
        let busy = busy.fold(0, |sum: u64, one| sum + one.pending());
        let idle = Nanos(span.0 * (1000 - busy.min(1000)) / 1000);
        let tally = &mut self.roster.tally;
        let cause = if capped {
            &mut tally.capped
        } else {
            &mut tally.held
        };
        *cause = *cause + idle;
    }

    /// Charges caps and guarantees: by service beside others, by time in flight when alone. A span
    /// of which that is not known charges no guarantee, and one that is not believed to ask for
    /// anything is owed nothing.
    fn pay(&mut self, (span, due): (Nanos, Nanos), is_known: bool) {
        let all = || self.roster.tenants();
        let told: u64 = all().map(Tenant::pending).sum();
        let believed: u64 = all().map(|one| one.own.done.pending).sum();
        for tenant in self.roster.tenants_mut() {
            let (own, bill, asks) = (tenant.pending(), tenant.own.bill, tenant.own.done.pending);
            let flight = Nanos(span.0 * own / 1000);
            // A stuck tenant may have a long kernel on the device, or may be stopped. If it counted
            // as working in the latter case, a gate that is closed for a cap would never open.
            let alone = told - own < Rules::ALONE;
            let behind = believed - asks < Rules::ALONE;
            let flight = match tenant.account.is_throttled() {
                false if alone => Flight::Alone(flight),
                true if behind && !tenant.members.is_drained() => Flight::Behind(flight),
                // A launch that waits at the closed gate has nothing of the device.
                _ if tenant.is_shut() && tenant.members.is_drained() => Flight::Beside(Nanos::ZERO),
                _ if tenant.own.done.guessed => Flight::Beside(Nanos::ZERO),
                _ => Flight::Beside(flight),
            };
            tenant.pay_cap((span, due), flight);
            if is_known {
                tenant.pay_promise(span, (Nanos(bill), asks > 0), &self.policy);
            }
        }
    }

    /// When to sample pages next. `None` while no tenant needs steering, and time changes nothing.
    pub(super) fn next_sample(&self) -> Option<Nanos> {
        self.next.or(self.wakes)
    }

    /// Other settings from now on.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        (self.rules.slice, self.rules.switch) = (policy.slice, policy.switch);
        self.settle();
    }

    /// Sets the gates as they should be, and outputs the changes.
    pub(super) fn settle(&mut self) {
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
        self.publish();
        self.plan(&active);
    }

    /// The steerable tenants that are not idle.
    fn active(&self) -> Vec<TenantId> {
        self.roster.ids(Tenant::is_active)
    }

    fn set_gates(&mut self, active: &[TenantId]) {
        let mut gates = self
            .steering
            .steer(&self.roster, active, &self.rules, self.now);
        self.keep_gangs(&mut gates);
        for (id, aim) in gates {
            let tenant = self.roster.get_mut(id);
            if tenant.is_some_and(|tenant| tenant.turn(aim, self.now)) {
                self.roster.renew(id);
            }
        }
    }

    /// When to sample next: never while one tenant is active alone, unless a cap requires it, or
    /// whether it uses the device is asked. While none is active whose cap is used up, only time
    /// has to pass until its gate opens, for it and for the other devices of its gang.
    fn plan(&mut self, active: &[TenantId]) {
        let now = self.now;
        let looked_at = |id: &TenantId| {
            let tenant = self.roster.get(*id);
            tenant.is_some_and(|one| one.account.is_capped() || one.is_asked(now))
        };
        self.wakes = None;
        if active.len() < 2 && !active.iter().any(looked_at) {
            self.next = None;
            let throttled = self
                .roster
                .tenants()
                .filter(|one| one.account.is_throttled());
            let opens = throttled.map(|one| one.account.throttled_for().clamp(Rules::TICK, DOZE));
            let free = active
                .iter()
                .filter_map(|id| self.roster.get(*id)?.own.bond);
            let asked = free.filter(|bond| bond.joint.asked).map(|_| Rules::ASKED);
            self.wakes = opens.chain(asked).min().map(|time| now + time);
            return;
        }
        let shut = self
            .roster
            .tenants()
            .any(|tenant| tenant.is_shut() && !tenant.account.is_throttled());
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

    /// Says what changed.
    fn publish(&mut self) {
        let now = self.now;
        let running = self.roster.ids(|tenant| tenant.may_run(now));
        // A process without a gate, or one that is away, may run what no page shows.
        let unsteered = self.roster.ids(|tenant| tenant.members.has_unsteered());
        // What is submitted when a turn ends runs on beside the next one.
        let window = match self.steering.takes_turns() {
            true => self.policy.window().min(self.rules.slice),
            false => self.policy.window(),
        };
        self.roster.publish(|id, tenant| {
            let another = |ids: &[TenantId]| ids.iter().any(|other| *other != id);
            let beside = another(&running);
            // A tenant of a higher class that pauses may be the one that is yielded to.
            let open = |slice| LeaseKind::Open {
                deadline: None,
                window,
                contended: beside || slice > Nanos::ZERO,
                slice: Some(slice),
            };
            match tenant.own.gate {
                Gate::Free => LeaseKind::Free,
                Gate::Noted => open(Nanos::ZERO),
                Gate::Slice(slice) => open(slice),
                Gate::Shut => LeaseKind::Closed {
                    contended: beside || another(&unsteered),
                },
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::secs(1);
    const GATED: ProcessId = ProcessId(1);
    const SEALED: ProcessId = ProcessId(2);
    const FREE: ProcessId = ProcessId(3);

    /// The contexts outside, in thousandths, after a second in which these had so much of it (ms).
    fn outside(ran: &[(Option<ProcessId>, u64)]) -> u64 {
        let mut shared = Shared::new(LeasePolicy::default());
        for (process, gated) in [(GATED, true), (SEALED, true), (FREE, false)] {
            let tenant = TenantId(process.0);
            shared.joined((tenant, process, gated), (500, Compute::default()));
        }
        shared.set_there(SEALED, |members| members.set_sealed(SEALED, true));
        let ran = ran
            .iter()
            .map(|(process, ms)| (*process, Nanos::millis(*ms)));
        let ran: Vec<_> = ran.collect();
        shared.ran(SECOND, SECOND, &ran);
        shared.outside.contexts(SECOND)
    }

    #[test]
    fn only_processes_without_a_gate_and_strangers_are_outside() {
        assert_eq!(outside(&[(None, 500)]), 1000);
        assert_eq!(outside(&[(Some(FREE), 500)]), 1000);
        assert_eq!(outside(&[(Some(GATED), 500), (Some(SEALED), 500)]), 0);
        let not_here = ProcessId(4);
        assert_eq!(outside(&[(Some(not_here), 500)]), 0);
    }

    /// As clients of one MPS server do: they are one context.
    #[test]
    fn those_that_run_at_the_same_time_have_what_tenants_leave() {
        let clients = [(None, 500); 8];
        let all: Vec<_> = [(Some(GATED), 500)].into_iter().chain(clients).collect();
        assert_eq!(outside(&all), 1000);
        let apart = [(Some(GATED), 200), (None, 400), (None, 400)];
        assert_eq!(outside(&apart), 2000);
    }
}
