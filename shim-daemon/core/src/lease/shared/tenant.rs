//! A tenant on a shared device: its terms, its processes, and its service against its share.

use super::bond::{Bond, Wish};
use super::done::Done;
use super::doubt::{Doubt, Left};
use super::gate::Gate;
use super::habit::Habit;
use super::lag::Lag;
use super::meter::{Flight, Meter};
use super::rules::Rules;
use crate::ids::ProcessId;
use crate::lease::account::ComputeAccount;
use crate::lease::input::Report;
use crate::lease::members::Members;
use crate::lease::page::{Lease, LeaseKind};
use crate::lease::roster::{self, Tenant as _};
use crate::lease::terms::{Compute, LeasePolicy};
use crate::lease::work::Work;
use crate::time::Nanos;

mod demand;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tenant {
    members: Members,
    account: ComputeAccount,
    /// Its guarantee against higher classes is due, and is until it has been paid: it is owed so
    /// many thousandths of a turn.
    due: Option<u64>,
    lag: Lag,
    meter: Meter,
    habit: Habit,
    /// Whether its bills are believed.
    doubt: Doubt,
    gate: Gate,
    /// Its membership of a gang.
    bond: Option<Bond>,
    /// Its cap is used up now.
    throttled: bool,
    epoch: u64,
    said: Lease,
    /// When its gate last changed.
    since: Nanos,
    /// When it last began to want the device at its closed gate.
    asked: Nanos,
    /// When a process of it last said that it works again.
    began: Nanos,
    /// Times it was held.
    holds: u64,
}

impl roster::Tenant for Tenant {
    fn members(&self) -> &Members {
        &self.members
    }
    fn members_mut(&mut self) -> &mut Members {
        &mut self.members
    }
    fn account(&self) -> &ComputeAccount {
        &self.account
    }
    fn account_mut(&mut self) -> &mut ComputeAccount {
        &mut self.account
    }
    fn into_guest(self) -> (Members, ComputeAccount) {
        (self.members, self.account)
    }
    fn waiting(&self) -> Option<Nanos> {
        (self.is_shut() && self.members.waits()).then_some(self.asked)
    }
}

impl Tenant {
    pub(super) fn new(
        (members, account): (Members, ComputeAccount),
        (epoch, now): (u64, Nanos),
    ) -> Self {
        let throttled = account.is_throttled();
        Self {
            members,
            account,
            due: None,
            lag: Lag::default(),
            meter: Meter::new(),
            habit: Habit::default(),
            doubt: Doubt::default(),
            gate: Gate::Noted,
            bond: None,
            throttled,
            epoch,
            said: Lease::FREE,
            since: now,
            asked: now,
            began: now,
            holds: 0,
        }
    }

    pub(super) fn gate(&self) -> Gate {
        self.gate
    }

    pub(super) fn is_shut(&self) -> bool {
        self.gate == Gate::Shut
    }

    /// How long it keeps the device at a time while it has work.
    pub(super) fn slice(&self, rules: &Rules) -> Nanos {
        match self.gate {
            Gate::Slice(slice) => slice,
            _ => rules.slice,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The lease that its page shows.
    pub(super) fn said(&self) -> Lease {
        self.said
    }

    /// Changes the lease that its page shows. Returns the new lease if it differs from the old one.
    pub(super) fn say(&mut self, kind: LeaseKind) -> Option<Lease> {
        let epoch = self.epoch;
        let lease = Lease { epoch, kind };
        (std::mem::replace(&mut self.said, lease) != lease).then_some(lease)
    }

    /// Since when its gate is as it is, and how often it was held.
    pub(super) fn history(&self) -> (Nanos, u64) {
        (self.since, self.holds)
    }

    /// Takes a report of a process.
    pub(super) fn report(&mut self, process: ProcessId, report: Report, now: Nanos) {
        let waiting = self.waiting();
        self.members.report(process, report);
        if report == Report::Busy {
            self.began = now;
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

    /// Sets the gate's position. An opening gate gets the next epoch: a closed epoch is never
    /// opened again.
    pub(super) fn turn(&mut self, gate: Gate, now: Nanos, epochs: &mut u64) {
        let kind = |gate: Gate| match gate {
            Gate::Free => 0,
            Gate::Noted | Gate::Slice(_) => 1,
            Gate::Shut => 2,
        };
        if kind(gate) != kind(self.gate) {
            let waiting = self.waiting();
            self.since = now;
            if gate == Gate::Shut {
                self.holds += u64::from(!self.throttled);
            } else {
                *epochs += 1;
                self.epoch = *epochs;
            }
            // The gate changed its position: earlier reports of its processes are void.
            self.members.reopen();
            self.count_wait(now, waiting);
        }
        self.gate = gate;
    }

    /// Whether its cap allows nothing now.
    pub(super) fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// What it is owed, in thousandths of a turn, if its guarantee against higher classes is due.
    pub(super) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Nanoseconds of service that it is behind its share of its class; negative if ahead.
    pub(super) fn lag(&self) -> i64 {
        self.lag.of_share()
    }

    /// The part of the time it is pending, lately, in thousandths.
    pub(super) fn presence(&self) -> u64 {
        self.habit.presence()
    }

    /// Whether it was pending at the last sample.
    pub(super) fn works(&self) -> bool {
        self.habit.works()
    }

    /// Whether it works, or did since the last sample, or waits at its gate.
    pub(super) fn is_at_work(&self) -> bool {
        self.works() || self.waits() || self.habit.was_at_work()
    }

    /// Whether it has completed nothing for so long that no tenant is held for it.
    pub(super) fn is_silent(&self) -> bool {
        self.meter.silent() >= Rules::SILENT
    }

    /// Whether its claims disagree with the clock: no tenant is held for it.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubt.is()
    }

    /// Whether work of it that is said to be pending may run.
    pub(super) fn runs(&self) -> bool {
        !self.is_shut() && !self.meter.is_stuck()
    }

    pub(super) fn bond(&self) -> Option<Bond> {
        self.bond
    }

    /// It belongs to a gang that is open or closed (`Some(true)`), or to none. Whether that is new.
    pub(super) fn bind(&mut self, shut: Option<bool>) -> bool {
        let bond = shut.map(|shut| Bond {
            shut,
            wish: self.bond.and_then(|bond| bond.wish),
        });
        std::mem::replace(&mut self.bond, bond) != bond
    }

    /// Notes why its gate would be closed on this device alone, if it belongs to a gang, and puts
    /// it where its gang is. Returns that. `outranked`: it would be closed however far it is behind
    /// its equals.
    pub(super) fn keep_bond(&mut self, gate: Gate, outranked: bool) -> Gate {
        let Some(bond) = &mut self.bond else {
            return gate;
        };
        bond.wish = match gate {
            Gate::Shut if self.throttled => Some(Wish::Throttled),
            Gate::Shut if outranked => Some(Wish::Rank),
            Gate::Shut => Some(Wish::Ahead),
            _ => None,
        };
        match gate {
            _ if self.throttled || bond.shut => Gate::Shut,
            Gate::Free => Gate::Free,
            _ => Gate::Noted,
        }
    }

    pub(super) fn class(&self) -> u16 {
        self.account.class()
    }

    pub(super) fn weight(&self) -> u64 {
        self.account.weight()
    }

    pub(super) fn is_capped(&self) -> bool {
        self.account.is_capped()
    }

    /// Whether some steerable process has not reported idle.
    pub(super) fn is_active(&self) -> bool {
        self.members.is_active()
    }

    /// Whether no work is left behind its closed gates.
    pub(super) fn is_drained(&self) -> bool {
        self.members.is_drained()
    }

    pub(super) fn waits(&self) -> bool {
        self.members.waits()
    }

    /// The content of a process's page at the last sample; see [`Members::saw`].
    pub(super) fn saw(&mut self, process: ProcessId, work: Work) -> Option<Work> {
        self.members.saw(process, work)
    }

    /// Sampling begins: claims count from here.
    pub(super) fn begin(&mut self) {
        self.meter.begin();
        self.habit.begin();
    }

    /// Whether it would keep the device nine tenths busy by itself.
    pub(super) fn is_dense(&self) -> bool {
        self.habit.is_dense()
    }

    /// Whether it waits for each of its operations and soon submits the next one: see
    /// [`Habit::loops`].
    pub(super) fn loops(&self) -> bool {
        self.habit.loops()
    }

    /// Whether its service was known at the last sample.
    pub(super) fn is_known(&self) -> bool {
        self.habit.is_known()
    }

    /// Which part of its own time is service, in thousandths.
    pub(super) fn service(&self) -> u64 {
        self.habit.service()
    }

    /// Whether the operator promised it a share.
    pub(super) fn has_promise(&self) -> bool {
        self.account.has_promise()
    }

    /// For how many thousandths of the time it wanted its share, of `pending`: where its cap is
    /// used up it wants nothing.
    pub(super) fn asks(&self, pending: u64) -> u64 {
        if self.throttled { 0 } else { pending }
    }

    /// Whether it leaves gaps and is behind: it soon catches up, and another tenant fills its gaps
    /// meanwhile.
    pub(super) fn goes_first(&self, rules: &Rules) -> bool {
        !self.is_dense() && !self.is_silent() && self.behind() >= rules.calm_below()
    }

    /// The lag from which others yield to it: sooner if it would leave gaps by itself and has
    /// waited for so long, as a newcomer beside a deep queue.
    pub(super) fn yielded_to_at(&self, rules: &Rules) -> i64 {
        let is_starved = !self.is_dense() && self.habit.unbroken() >= rules.starved();
        rules.yield_at() / if is_starved { 2 } else { 1 }
    }

    /// Bills its cap for `span`: see [`Meter::capped`].
    pub(super) fn pay_cap(
        &mut self,
        span: Nanos,
        bill: (u64, bool),
        flight: Flight,
        policy: &LeasePolicy,
    ) {
        let held = self.meter.capped(span, bill, flight);
        self.account.pay_cap(span, held, policy);
        self.account.charged();
        self.throttled = self.account.is_throttled();
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
        let least = if self.due.is_some() { 1 } else { 1000 };
        let owed = self.account.turns_owed(policy);
        self.due = owed.filter(|owed| *owed >= least);
    }

    /// Time passes without a sample, in which it is not steered, and billed for nothing.
    pub(super) fn rest(&mut self, span: Nanos, policy: &LeasePolicy) {
        self.pay_cap(span, (0, false), Flight::Beside, policy);
        self.pay_promise(span, (Nanos::ZERO, false), policy);
        self.lag.fade(span);
    }

    /// Other terms.
    pub(super) fn set(&mut self, class: u16, compute: Compute) {
        self.account.set(class, compute);
        self.due = self.due.filter(|_| self.account.has_promise());
    }

    /// How far it is behind its guarantee, for comparison.
    pub(super) fn behind(&self) -> i64 {
        self.lag.behind()
    }

    /// See [`Lag::owe`].
    pub(super) fn owe(&mut self, dues: (u64, u64), lower: u64) {
        self.lag.owe(dues, lower);
    }

    /// See [`Lag::tolerate`].
    pub(super) fn tolerate(&mut self, due: u64, part: i64) {
        self.lag.tolerate(Nanos(due), part);
    }

    /// See [`Lag::forgive`].
    pub(super) fn forgive(&mut self, owed: i128, owing: i128) {
        self.lag.forgive(owed, owing);
    }

    /// The believed part of its pages. A gang's kernels occupy the device while they wait for their
    /// peers, so the time that they take alone says little of the time that it had.
    pub(super) fn believe(&mut self, done: &mut Done) {
        done.guessed |= self.bond.is_some();
        self.meter.believe(done);
    }

    /// Its bill for a `span` by its own claims, while so many thousandths of all were pending.
    pub(super) fn bill(&mut self, done: Done, rules: &Rules, (span, beside): (Nanos, u64)) -> u64 {
        let shut = self.is_shut();
        self.meter.bill(done, rules, (span, beside), shut)
    }

    /// Its bill for a `span` in which its service is unknown: the part of the device's time that is
    /// left for it.
    pub(super) fn bill_rest(&mut self, had: u64, done: Done, span: Nanos) -> u64 {
        let waits = self.is_shut();
        self.meter.rest(had, (done, waits), span)
    }

    /// Notes what it did in the last `span`, for which it is billed so much, and how much of it
    /// others `left` it, if that is known.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        (done, left): (Done, Option<Left>),
        bill: u64,
    ) {
        self.doubt.note(now, left, done);
        let had = (bill, done.pending);
        self.habit
            .note((now, span), had, (done.works, self.waits()));
        self.account.bill(Nanos(bill));
    }

    /// While it completes nothing: see [`Meter::watch`].
    pub(super) fn watch(&mut self, rules: &Rules, span: (Nanos, u64), others: u64, left: u64) {
        self.meter.leave(others);
        if !self.is_shut() {
            self.meter.watch(rules, span, others, left);
        }
    }

    /// The end of a sample: bounds its lag and applies the verdict on its bills.
    pub(super) fn finish(&mut self, (now, span): (Nanos, Nanos), done: Done, rules: &Rules) {
        if self.asks(done.pending) == 0 {
            self.lag.fade(span);
        }
        if rules.switch > Nanos::ZERO {
            let is_open = matches!(self.gate, Gate::Noted | Gate::Free);
            self.habit.judge(now, done, is_open);
        }
        self.lag.bound(self.is_dense(), rules);
        if self.is_doubted() {
            self.lag.lapse();
        }
    }
}
