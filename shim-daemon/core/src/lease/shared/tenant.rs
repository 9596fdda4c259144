//! A tenant on a shared device: its terms, its processes, and what it has had against its share.

use super::rules::{Rules, signed};
use crate::ids::ProcessId;
use crate::lease::account::ComputeAccount;
use crate::lease::members::Members;
use crate::lease::page::Lease;
use crate::lease::roster;
use crate::lease::terms::{Compute, LeasePolicy};
use crate::lease::work::Work;
use crate::time::Nanos;

/// What a tenant's gates are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing binds and nothing is noted.
    Free,
    /// Open; what is submitted is noted.
    Noted,
    /// Open, so much at a time.
    Slice(Nanos),
    /// Closed.
    Shut,
}

/// Why a device would close a gang's tenant, the weakest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// It has had more than its share.
    Ahead,
    /// A higher class, or a guarantee that is due, is behind.
    Rank,
    /// Its cap allows nothing now.
    Throttled,
}

/// A tenant's membership of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bond {
    /// Its gang is closed.
    pub(super) shut: bool,
    pub(super) wish: Option<Wish>,
}

/// How a gang's tenant stands on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What the device would do with it.
    pub(crate) wish: Option<Wish>,
    /// Others ask for the device, and it is not ahead there by as much as others have to be behind
    /// to be helped.
    pub(crate) behind: bool,
}

/// What a tenant did since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Nanoseconds of service it claims.
    pub(super) service: u64,
    /// For how much of the time work was pending, in thousandths.
    pub(super) pending: u64,
    /// Work is pending at its end.
    pub(super) works: bool,
    /// The service is mostly guessed.
    pub(super) guessed: bool,
}

/// Whether a tenant says that work of its is pending that does not run: its process was stopped, or
/// waits for something other than the device. Its neighbours then have the device's whole time
/// while it should have its part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    pub(super) is: bool,
    /// How long it has been open, silent and beside others, and what they had in that time.
    watched: Nanos,
    others: Nanos,
}

/// Whether a tenant's books agree with the clock: while nobody else may run, what completes takes
/// the time that passes. Nobody yields or is held for a tenant that claims less than half of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// Nobody else might run at the last sample.
    alone: bool,
    /// So much time it has been alone without a break since the last verdict, and what it claimed
    /// of it (ns).
    time: u64,
    claimed: u64,
    until: Nanos,
}

impl Doubt {
    /// What was done in the last `span`, at the end of which nobody else might run or somebody
    /// might.
    pub(super) fn note(&mut self, now: Nanos, (span, alone): (Nanos, bool), done: Done) {
        if std::mem::replace(&mut self.alone, alone) && alone && done.pending >= 900 {
            self.time += span.0;
            self.claimed = self.claimed.saturating_add(done.service);
        } else {
            (self.time, self.claimed) = (0, 0);
        }
        // An operation is claimed when it ends.
        if self.time >= Rules::VERDICT.0 && done.service > 0 {
            if self.claimed < self.time / 2 {
                self.until = now + Rules::DOUBTED;
            }
            (self.time, self.claimed) = (0, 0);
        }
    }

    pub(super) fn is(&self, now: Nanos) -> bool {
        now < self.until
    }
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tenant {
    members: Members,
    account: ComputeAccount,
    /// Its guarantee against higher classes is due, and is until it has been paid.
    pub(super) due: bool,
    /// Nanoseconds of service that it is behind its share of its class; negative if ahead.
    pub(super) lag: i64,
    /// Nanoseconds of service that lower classes had while it was pending.
    pub(super) passed_over: i64,
    /// Nanoseconds billed by time for operations that are not complete.
    pub(super) advance: u64,
    /// How long it has been pending without completing anything, and whether that is billed by
    /// time.
    pub(super) silent: Nanos,
    pub(super) by_time: bool,
    pub(super) stuck: Stuck,
    /// The most service it may still claim: it grows with the time.
    pub(super) room: u64,
    /// How much longer claims of unknown service leave its lag alone.
    pub(super) unknown: Nanos,
    /// Whether its books are believed.
    pub(super) doubt: Doubt,
    /// Service had, and time in which nothing was pending, lately: both halved now and then.
    pub(super) solo: u64,
    pub(super) think: u64,
    /// The part of the time it is pending, lately, in thousandths; and how many samples that is a
    /// mean of.
    pub(super) presence: u64,
    pub(super) samples: u64,
    /// It was pending at the last sample.
    pub(super) works: bool,
    /// When work was last seen pending.
    pub(super) pending_at: Option<Nanos>,
    pub(super) gate: Gate,
    /// Nanoseconds in flight that its cap has paid for and that are not claimed as service yet.
    pub(super) paid: u64,
    /// Its membership of a gang.
    pub(super) bond: Option<Bond>,
    /// Its cap allows nothing now.
    pub(super) throttled: bool,
    pub(super) epoch: u64,
    pub(super) said: Lease,
    /// When its gate last changed.
    pub(super) since: Nanos,
    /// Times it was held.
    pub(super) holds: u64,
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
}

impl Tenant {
    pub(super) fn new(
        (members, account): (Members, ComputeAccount),
        (epoch, now): (u64, Nanos),
    ) -> Self {
        Self {
            members,
            account,
            due: false,
            lag: 0,
            passed_over: 0,
            advance: 0,
            silent: Nanos::ZERO,
            by_time: false,
            stuck: Stuck::default(),
            room: 0,
            unknown: Rules::UNKNOWN,
            doubt: Doubt::default(),
            solo: 0,
            think: 0,
            presence: 0,
            samples: 0,
            works: false,
            pending_at: None,
            gate: Gate::Noted,
            paid: 0,
            bond: None,
            throttled: false,
            epoch,
            said: Lease::FREE,
            since: now,
            holds: 0,
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

    /// Whether a process that can be steered has not said that it is idle.
    pub(super) fn is_active(&self) -> bool {
        self.members.is_active()
    }

    /// Whether its closed gates hold nothing under way any more.
    pub(super) fn is_drained(&self) -> bool {
        self.members.is_drained()
    }

    pub(super) fn waits(&self) -> bool {
        self.members.waits()
    }

    /// What a process's page said at the last sample; see [`Members::saw`].
    pub(super) fn saw(&mut self, process: ProcessId, work: Work) -> Option<Work> {
        self.members.saw(process, work)
    }

    /// Its gate has another position: what its processes said before is over.
    pub(super) fn reopen(&mut self) {
        self.members.reopen();
    }

    /// Sampling begins: what it may claim begins anew.
    pub(super) fn begin(&mut self) {
        self.room = Rules::MOST.0;
        self.samples = 0;
        (self.silent, self.by_time, self.advance) = (Nanos::ZERO, false, 0);
    }

    /// Whether its gang is closed: nobody is held for it, and it fills no gaps.
    pub(super) fn is_barred(&self) -> bool {
        self.bond.is_some_and(|bond| bond.shut)
    }

    /// Whether what its gang left on the device when it was closed occupies it, waiting for a peer
    /// that was not launched.
    pub(super) fn spins(&self) -> bool {
        self.bond.is_some() && self.gate == Gate::Shut && !self.is_drained()
    }

    /// Whether it asks for the device, or did a moment ago.
    pub(super) fn is_pending(&self, now: Nanos) -> bool {
        self.waits() || self.pending_at.is_some_and(|at| now <= at + Rules::LATELY)
    }

    /// Whether its work may run on the device now, or did a moment ago.
    pub(super) fn may_run(&self, now: Nanos) -> bool {
        let shut = self.gate == Gate::Shut && self.is_drained();
        !shut && self.is_pending(now)
    }

    /// Whether it would keep the device nine tenths busy by itself.
    pub(super) fn is_dense(&self) -> bool {
        let all = self.solo + self.think;
        all >= Nanos::millis(20).0 && self.solo * 10 >= all * 9
    }

    /// For how much of the time it asked for its share, of `pending` thousandths: its cap asks for
    /// nothing where it allows nothing.
    pub(super) fn asks(&self, pending: u64) -> u64 {
        if self.throttled { 0 } else { pending }
    }

    /// Whether it leaves gaps and is behind: it is soon repaid, and somebody fills its gaps
    /// meanwhile.
    pub(super) fn goes_first(&self, rules: &Rules) -> bool {
        !self.is_dense() && self.silent < Rules::SILENT && self.behind() >= rules.calm_below()
    }

    /// Bills its cap for `span`: the service, or while it is alone the time in flight. Time that
    /// was billed for an operation is not billed again as its service. That is at most the time
    /// since the last end of an operation, and a sample's.
    pub(super) fn pay_cap(
        &mut self,
        span: Nanos,
        (bill, flight): (u64, Option<Nanos>),
        policy: &LeasePolicy,
    ) {
        let held = if let Some(flight) = flight {
            self.paid = (self.paid + flight.0).saturating_sub(bill);
            flight
        } else {
            let again = bill.min(self.paid);
            self.paid -= again;
            Nanos(bill - again)
        };
        if bill > 0 {
            self.paid = self.paid.min(span.0);
        }
        self.account.pay_cap(span, held, policy);
        if !self.throttled && self.account.cap_lasts() == Some(Nanos::ZERO) {
            self.account.turn_over(true);
        }
        self.throttled = self.account.is_throttled();
    }

    /// Its guarantee is paid for `span`, of which it was pending for some or none.
    pub(super) fn pay_promise(
        &mut self,
        span: Nanos,
        (bill, pending): (Nanos, bool),
        policy: &LeasePolicy,
    ) {
        self.account.pay_promise(span, bill, pending);
        if let Some((_, wait)) = self.account.guaranteed_turn(policy) {
            self.due = if self.due {
                self.account.is_owed()
            } else {
                wait == Nanos::ZERO
            };
        }
    }

    /// Other terms.
    pub(super) fn set(&mut self, class: u16, compute: Compute) {
        self.account.set(class, compute);
        self.due &= self.account.has_promise();
    }

    /// How far it is behind what it is promised, for comparison.
    pub(super) fn behind(&self) -> i64 {
        self.lag.saturating_add(self.passed_over)
    }

    /// What it did in the last `span`: so much service, pending for so much of it.
    pub(super) fn note(&mut self, now: Nanos, span: Nanos, bill: u64, pending: u64) {
        if pending > 0 {
            self.pending_at = Some(now);
        }
        self.solo += bill;
        // A long pause is no gap: what works on after it is as dense as before.
        if self.is_pending(now) {
            self.think += span.0 * (1000 - pending) / 1000;
        }
        if self.solo + self.think > Nanos::millis(200).0 {
            (self.solo, self.think) = (self.solo / 2, self.think / 2);
        }
        // A mean over some 20 samples, or as many as there have been.
        self.samples = (self.samples + 1).min(20);
        self.presence = (self.presence * (self.samples - 1) + pending) / self.samples;
        self.account.bill(Nanos(bill));
    }

    /// While it completes nothing: whether others had so much of the time (`others` of `span`) that
    /// it cannot have had half of its even part. `beside` is who was pending, in thousandths.
    pub(super) fn watch(&mut self, (span, beside): (Nanos, u64), others: u64) {
        if self.silent == Nanos::ZERO || self.gate == Gate::Shut || beside < 1500 {
            return;
        }
        let stuck = &mut self.stuck;
        stuck.watched = stuck.watched + span;
        stuck.others = stuck.others + Nanos(others);
        let half = stuck.watched.0 * 500 / beside;
        stuck.is = stuck.watched >= Rules::STUCK && (stuck.watched - stuck.others).0 < half;
    }

    /// Keeps its lag within what is remembered. Who leaves gaps can be owed no more than starts a
    /// hold.
    pub(super) fn bound(&mut self, rules: &Rules) {
        let most = if self.is_dense() {
            signed(Rules::MOST)
        } else {
            rules.hold_at()
        };
        self.lag = self.lag.clamp(-signed(Rules::MOST), most);
        self.passed_over = self.passed_over.clamp(0, rules.hold_at());
    }

    /// Time passes in which it asks for nothing.
    pub(super) fn fade(&mut self, span: Nanos) {
        let part = |lag: i64| {
            let gone = i128::from(lag) * i128::from(span.0) / i128::from(Rules::FADE.0);
            i64::try_from(gone).unwrap_or(lag).min(lag).max(1)
        };
        if self.lag > 0 {
            self.lag -= part(self.lag);
        } else {
            self.lag = (self.lag + signed(span) / Rules::PARDON).min(0);
        }
        if self.passed_over > 0 {
            self.passed_over -= part(self.passed_over);
        }
    }
}
