//! A tenant on a shared device: its terms, its processes, and its service against its share.

use super::bond::{Bond, Joint, Wish};
use super::done::Done;
use super::doubt::{Doubt, Left};
use super::gate::{Aim, Gate};
use super::habit::Habit;
use super::lag::Lag;
use super::meter::{Cost, Flight, Meter};
use super::rules::Rules;
use super::still::{StillOnes, Watch};
use crate::ids::{ProcessId, TenantId};
use crate::lease::input::Report;
use crate::lease::members::Members;
use crate::lease::seat::{self, Seat};
use crate::lease::terms::{Compute, LeasePolicy};
use crate::time::Nanos;

mod demand;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Its work in the last span, as its processes' pages told it. `None`: it has no steerable
    /// process, or was not looked at.
    pub(super) told: Option<Done>,
    /// The same without the processes that are stuck.
    pub(super) lively: Done,
    /// Its processes that complete nothing.
    pub(super) still: StillOnes,
    /// The believed part of its work.
    pub(super) done: Done,
    /// What it is billed for that span (ns).
    pub(super) bill: u64,
    /// Its guarantee against higher classes is due, and is until it has been paid: it is owed so
    /// many thousandths of a turn.
    pub(super) due: Option<u64>,
    pub(super) lag: Lag,
    meter: Meter,
    pub(super) habit: Habit,
    /// Whether its bills are believed.
    doubt: Doubt,
    pub(super) gate: Gate,
    /// The tenant for which it is closed or in slices.
    pub(super) by: Option<TenantId>,
    /// Its membership of a gang, also of one that is loose: see [`Tenant::bond`].
    pub(super) bond: Option<Bond>,
    /// When its gate last changed.
    pub(super) since: Nanos,
    /// When a process of it last said that it works again.
    began: Nanos,
    /// Times it was held.
    pub(super) holds: u64,
}

pub(super) type Tenant = Seat<State>;

impl State {
    /// Of a new tenant: open.
    pub(super) fn at(now: Nanos) -> Self {
        Self {
            since: now,
            began: now,
            ..Self::default()
        }
    }
}

impl seat::State for State {
    fn shuts_out(&self) -> bool {
        self.gate == Gate::Shut
    }

    /// Its gate was open, if it had one.
    fn admits(&self) -> bool {
        true
    }
}

impl Tenant {
    pub(super) fn is_shut(&self) -> bool {
        self.own.gate == Gate::Shut
    }

    /// How long it keeps the device at a time while it has work.
    pub(super) fn slice(&self, rules: &Rules) -> Nanos {
        match self.own.gate {
            Gate::Slice(slice) => slice,
            _ => rules.slice,
        }
    }

    /// Takes a report of a process.
    pub(super) fn report(&mut self, process: ProcessId, report: Report, now: Nanos) {
        let waiting = self.waiting();
        self.members.report(process, report);
        if report == Report::Busy {
            self.own.began = now;
        }
        self.asked = waiting.unwrap_or(now);
    }

    /// A process is away, or sealed, or back. What it waits for counts from its return.
    pub(super) fn set_there(&mut self, now: Nanos, set: impl FnOnce(&mut Members)) {
        let waiting = self.waiting();
        set(&mut self.members);
        self.count_wait(now, waiting);
        self.asked = waiting.unwrap_or(now);
    }

    /// Sets the gate's position. Whether that opens it, and it needs the next epoch: a closed epoch
    /// is never opened again.
    pub(super) fn turn(&mut self, Aim { gate, by }: Aim, now: Nanos) -> bool {
        let kind = |gate: Gate| match gate {
            Gate::Free => 0,
            Gate::Noted | Gate::Slice(_) => 1,
            Gate::Shut => 2,
        };
        let moves = kind(gate) != kind(self.own.gate);
        let waiting = self.waiting();
        (self.own.gate, self.own.by) = (gate, by);
        if moves {
            self.own.since = now;
            if gate == Gate::Shut {
                self.own.holds += u64::from(!self.account.is_throttled());
            }
            // The gate changed its position: earlier reports of its processes are void.
            self.members.reopen();
            self.count_wait(now, waiting);
        }
        moves && gate != Gate::Shut
    }

    /// Nanoseconds of service that it is behind its share of its class; negative if ahead.
    pub(super) fn lag(&self) -> i64 {
        self.own.lag.of_share()
    }

    /// Whether it works, or did since the last sample, or waits at its gate.
    pub(super) fn is_at_work(&self) -> bool {
        self.own.done.works || self.members.waits() || self.own.habit.was_at_work()
    }

    /// Whether it has completed nothing for so long that no tenant is held for it.
    pub(super) fn is_silent(&self) -> bool {
        self.own.meter.silent() >= Rules::SILENT
    }

    /// Whether its claims disagree with the clock: no tenant is held for it.
    pub(super) fn is_doubted(&self) -> bool {
        self.own.doubt.is()
    }

    /// Whether it counts as asking for nothing, because none of its processes with pending work
    /// completed anything where it could have.
    pub(super) fn is_stuck(&self) -> bool {
        self.pending() > 0 && self.own.lively.pending == 0
    }

    /// Whether work of it that is said to be pending may run.
    pub(super) fn runs(&self) -> bool {
        !self.is_shut() && !self.is_stuck()
    }

    /// It belongs to a gang of which this is decided, or to none. Whether that is new.
    pub(super) fn bind(&mut self, joint: Option<Joint>) -> bool {
        let bond = joint.map(|joint| Bond {
            joint,
            wish: self.own.bond.and_then(|bond| bond.wish),
        });
        std::mem::replace(&mut self.own.bond, bond) != bond
    }

    /// Notes why its gate would be closed on this device alone, if it belongs to a gang, and puts
    /// it where its gang is. Returns that. `outranked`: it would be closed however far it is behind
    /// its equals.
    pub(super) fn keep_bond(&mut self, gate: Gate, outranked: bool) -> Gate {
        let Some(bond) = &mut self.own.bond else {
            return gate;
        };
        if bond.joint.loose {
            bond.wish = None;
            return gate;
        }
        bond.wish = match gate {
            Gate::Shut if self.account.is_throttled() => Some(Wish::Throttled),
            Gate::Shut if outranked => Some(Wish::Rank),
            Gate::Shut => Some(Wish::Ahead),
            _ => None,
        };
        match gate {
            _ if self.account.is_throttled() || bond.joint.shut => Gate::Shut,
            Gate::Free => Gate::Free,
            _ => Gate::Noted,
        }
    }

    /// Sampling begins: claims count from here.
    pub(super) fn begin(&mut self) {
        self.members.begin();
        self.own.meter.begin();
        self.own.habit.begin();
    }

    /// Whether it would keep the device nine tenths busy by itself.
    pub(super) fn is_dense(&self) -> bool {
        self.own.habit.is_dense()
    }

    /// Whether it waits for each of its operations and soon submits the next one: see
    /// [`Habit::loops`].
    pub(super) fn loops(&self) -> bool {
        self.own.habit.loops()
    }

    /// For how many thousandths of the last span it had work pending, by its pages.
    pub(super) fn pending(&self) -> u64 {
        self.own.told.map_or(0, |told| told.pending)
    }

    /// For how many thousandths of the time its work was on the device, or waited for it there. A
    /// closed tenant runs until its submitted work is complete.
    pub(super) fn flight(&self) -> u64 {
        match self.is_shut() && self.members.is_drained() {
            true => 0,
            false => self.own.done.pending,
        }
    }

    /// The same of each of its contexts, added up.
    pub(super) fn contexts(&self) -> u64 {
        match self.flight() {
            0 => 0,
            _ => self.own.done.contexts,
        }
    }

    /// For how many thousandths of the time it wanted its share: where its cap is used up it wants
    /// nothing.
    pub(super) fn asks(&self) -> u64 {
        match self.account.is_throttled() {
            true => 0,
            false => self.own.done.pending,
        }
    }

    /// Whether it leaves gaps and is behind: it soon catches up, and another tenant fills its gaps
    /// meanwhile.
    pub(super) fn goes_first(&self, rules: &Rules) -> bool {
        !self.is_dense() && !self.is_silent() && self.behind() >= rules.calm_below()
    }

    /// The lag from which others yield to it: sooner if it would leave gaps by itself and has
    /// waited for so long, as a newcomer beside a deep queue.
    pub(super) fn yielded_to_at(&self, rules: &Rules) -> i64 {
        let is_starved = !self.is_dense() && self.own.habit.unbroken() >= rules.starved();
        rules.yield_at() / if is_starved { 2 } else { 1 }
    }

    /// Bills its cap for `span`: see [`Meter::capped`]. After a late look it is not known what the
    /// time was used for: the debt does not grow beyond a second by that.
    ///
    /// `due`: how much of the span has not passed for its cap yet.
    pub(super) fn pay_cap(&mut self, (span, due): (Nanos, Nanos), flight: Flight) {
        let told = self.own.told.unwrap_or_default();
        // A process that is away may have something in flight, and is back soon.
        let hidden = self.own.told.is_none() || self.members.has_unsteered();
        if !hidden && told.service == 0 && told.pending == 0 {
            self.own.meter.pauses();
        }
        let cost = Cost {
            bill: self.own.bill,
            service: told.service,
            goes_on: hidden || (told.works && told.pending >= Rules::ALWAYS),
        };
        let held = self.own.meter.capped(span, cost, flight);
        let most = match span > Rules::MOST && !self.account.owes_its_cap_all() {
            true => LeasePolicy::MOST_DEBT,
            false => LeasePolicy::MOST_CAP_DEBT,
        };
        self.account.pay_cap(due, held, most);
        self.account.charged();
    }

    /// Charges its guarantee for `span`, of which it was pending for some or none. One that leaves
    /// gaps saves up no more than a turn: a second of what it did not ask for would shut higher
    /// classes out for as long, once it asks for more. One whose claims are doubted saves up
    /// nothing.
    pub(super) fn pay_promise(
        &mut self,
        span: Nanos,
        (bill, pending): (Nanos, bool),
        policy: &LeasePolicy,
    ) {
        match pending && !self.is_doubted() {
            true => self.account.pay_promise(span, bill),
            false => self.account.rest(span, false, policy),
        }
        if !self.is_dense() {
            self.account.save_a_turn(policy);
        }
        let least = if self.own.due.is_some() { 1 } else { 1000 };
        let owed = self.account.turns_owed(policy);
        self.own.due = owed.filter(|owed| *owed >= least);
    }

    /// Time passes without a sample, in which it is not steered, and billed for nothing.
    pub(super) fn rest(&mut self, span: Nanos, policy: &LeasePolicy) {
        (self.own.told, self.own.bill) = (None, 0);
        self.pay_cap((span, span), Flight::Beside(Nanos::ZERO));
        self.pay_promise(span, (Nanos::ZERO, false), policy);
        self.own.lag.fade(span);
    }

    /// Other terms.
    pub(super) fn set(&mut self, class: u16, compute: Compute) {
        self.account.set(class, compute);
        self.own.due = self.own.due.filter(|_| self.account.has_promise());
    }

    /// How far it is behind its guarantee, for comparison.
    pub(super) fn behind(&self) -> i64 {
        self.own.lag.behind()
    }

    /// Notes the believed part of its pages. A gang's kernels occupy the device while they wait for
    /// their peers, so the time that they take alone says little of the time that it had.
    pub(super) fn believe(&mut self) {
        self.own.done = self.own.lively;
        if self.own.told.is_some() {
            self.own.done.guessed |= self.bond().is_some();
        }
    }

    /// Bills it for a `span` by its own claims, if these are no guesses, while so many thousandths
    /// of all contexts were pending.
    pub(super) fn bill(&mut self, rules: &Rules, (span, beside): (Nanos, u64)) {
        let (shut, done) = (self.is_shut(), self.own.done);
        if !done.guessed {
            self.own.bill = self.own.meter.bill(done, rules, (span, beside), shut);
        }
    }

    /// Bills it for a `span` in which its service is unknown: the part of the device's time that is
    /// left for it.
    pub(super) fn bill_rest(&mut self, had: u64, span: Nanos) {
        let work = (self.own.done, self.is_shut());
        self.own.bill = self.own.meter.rest(had, work, span);
    }

    /// Notes what it did in the last `span`, and how much of it others `left` it, if that is known.
    pub(super) fn note(&mut self, (now, span): (Nanos, Nanos), left: Option<Left>) {
        let (done, bill, waits) = (self.own.done, self.own.bill, self.members.waits());
        let unfinished = self.own.still.may_complete();
        self.own.doubt.note(now, left, (done, unfinished));
        self.own
            .habit
            .note((now, span), (bill, done.pending), waits);
        self.account.bill(Nanos(bill));
    }

    /// Notes the service of others, and watches its processes that complete nothing. The facts of
    /// the `watch` include the service of its other processes.
    pub(super) fn watch(&mut self, rules: &Rules, others: u64, watch: Watch) {
        self.own.meter.leave(others);
        let sliced = matches!(self.own.gate, Gate::Slice(_));
        if sliced && self.own.done.contexts > 1000 {
            self.own.still.rest();
        } else if !self.is_shut() {
            self.own.still.watch(rules, watch);
        }
    }

    /// The end of a sample: bounds its lag and applies the verdict on its bills.
    pub(super) fn finish(&mut self, (now, span): (Nanos, Nanos), rules: &Rules, others: usize) {
        if self.asks() == 0 {
            self.own.lag.fade(span);
        }
        if rules.switch > Nanos::ZERO {
            let is_open = matches!(self.own.gate, Gate::Noted | Gate::Free);
            let sure = rules.queue_samples(others);
            self.own.habit.judge(now, self.own.done, (is_open, sure));
        }
        self.own.lag.bound(self.is_dense(), rules);
        if self.is_doubted() {
            self.own.lag.lapse();
        }
    }
}
