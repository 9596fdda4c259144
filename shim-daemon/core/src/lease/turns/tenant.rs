//! A tenant on a device that is dealt in turns: its phase and its clock.

use super::clock::Reading;
use crate::ids::{ProcessId, TenantId};
use crate::lease::account::ComputeAccount;
use crate::lease::input::Report;
use crate::lease::members::Members;
use crate::lease::page::{Lease, LeaseKind};
use crate::lease::roster::{self, Tenant as _};
use crate::lease::terms::LeasePolicy;
use crate::lease::view::ShareState;
use crate::time::Nanos;

/// A tenant in the order of its class: by clock; among equals the one whose last turn was longest
/// ago.
pub(super) type Order = (Reading, Nanos, TenantId);

/// Where a tenant is in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Alone and without a cap: no time is measured.
    Free,
    /// Its gates are closed and it has drained.
    Out,
    /// It holds the device.
    Holding(Turn),
    /// Its gates are closed since then. It drains, and no other tenant is started.
    Closing(Nanos),
    /// Its gates are closed since then and it did not drain within the bound: other tenants are
    /// started beside it. It is `billed` until its debt reaches the bound.
    Overrun { closed: Nanos, billed: bool },
}

/// A turn under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Since when.
    pub(super) since: Nanos,
    /// Its clock at `read`: when the turn began, or later when its weight changed.
    pub(super) from: Reading,
    pub(super) read: Nanos,
    /// Its shortest duration while other tenants of its class wait.
    pub(super) length: Nanos,
    /// When its cap's allowance will be used up.
    pub(super) runs_dry: Option<Nanos>,
    /// No higher class ends it before: the end of the turn that its guarantee gave it.
    pub(super) kept: Nanos,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tenant {
    members: Members,
    account: ComputeAccount,
    phase: Phase,
    /// Names its present or last turn.
    epoch: u64,
    /// The content of its control page.
    said: Lease,
    /// How far its virtual time is.
    clock: Reading,
    /// Its class's mark when its clock was last brought up to date.
    mark: Reading,
    /// When it last got a turn: among equals the longest ago is next.
    granted: Nanos,
    /// When its last turn ended.
    ended: Nanos,
    /// Its last turn was cut short, not given up. It may return a turn behind the mark, which makes
    /// up for the loss.
    interrupted: bool,
    /// It waits, and its cap allowed it no turn when that was last looked at.
    throttled: bool,
    /// When it last began to wait.
    asked: Nanos,
    /// The number of its turns, of missed drain bounds, and the time of the last overrun report.
    turns: u64,
    overruns: u64,
    told: Option<Nanos>,
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
        let closed = matches!(self.phase, Phase::Out | Phase::Overrun { .. });
        (closed && self.members.waits()).then_some(self.asked)
    }
}

impl Tenant {
    /// A new tenant on a device: closed, without a demand.
    pub(super) fn new(
        (members, account): (Members, ComputeAccount),
        clock: Reading,
        epoch: u64,
    ) -> Self {
        Self {
            members,
            account,
            phase: Phase::Out,
            epoch,
            said: Lease::FREE,
            clock,
            mark: clock,
            granted: Nanos::ZERO,
            ended: Nanos::ZERO,
            interrupted: false,
            throttled: false,
            asked: Nanos::ZERO,
            turns: 0,
            overruns: 0,
            told: None,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_free(&self) -> bool {
        self.phase == Phase::Free
    }

    /// The content of its control page.
    pub(super) fn said(&self) -> Lease {
        self.said
    }

    /// Whether that is of its present or last turn.
    pub(super) fn is_told(&self) -> bool {
        self.said.epoch == self.epoch
    }

    /// How far its virtual time is.
    pub(super) fn clock(&self) -> Reading {
        self.clock
    }

    /// Its state, and since when.
    pub(super) fn state(&self) -> (ShareState, Nanos) {
        match self.phase {
            Phase::Free => (ShareState::Free, self.granted),
            Phase::Holding(turn) => (ShareState::Holding, turn.since),
            Phase::Closing(closed) | Phase::Overrun { closed, .. } => {
                (ShareState::Draining, closed)
            }
            Phase::Out if !self.members.waits() => (ShareState::Idle, self.granted),
            Phase::Out if self.is_throttled() => (ShareState::Capped, self.asked),
            Phase::Out => (ShareState::Waiting, self.asked),
        }
    }

    /// Turns it was given, and times it did not drain in the bound.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.turns, self.overruns)
    }

    /// Its control page says this from now on. Returns the lease if that is something else than
    /// before.
    pub(super) fn say(&mut self, kind: LeaseKind) -> Option<Lease> {
        let epoch = self.epoch;
        let lease = Lease { epoch, kind };
        (std::mem::replace(&mut self.said, lease) != lease).then_some(lease)
    }

    /// Takes a report of a process about the turn of `epoch`, if it is of the present one.
    pub(super) fn report(
        &mut self,
        process: ProcessId,
        (epoch, report): (u64, Report),
        (now, turn): (Nanos, Nanos),
    ) {
        let present = self.epoch == epoch;
        let heard = match report {
            Report::Wanted => present && !self.is_free(),
            Report::Drained | Report::Idle => present && self.is_in_turn(),
            Report::Busy => true,
        };
        if !heard {
            return;
        }
        let waited = self.members.waits();
        self.members.report(process, report);
        if self.members.waits() && !waited {
            self.ask(now, turn);
        }
    }

    /// A process is away, or sealed, or back. If it waited, it asks again: the time away is not
    /// saved up.
    pub(super) fn set_there(
        &mut self,
        process: ProcessId,
        (now, turn): (Nanos, Nanos),
        set: impl FnOnce(&mut Members),
    ) {
        let (waited, drained) = (self.members.waits(), !self.is_open());
        let waiting = self.waiting();
        set(&mut self.members);
        self.members.set_drained(process, drained);
        self.count_wait(now, waiting);
        if self.members.waits() && !waited {
            self.ask(now, turn);
        }
    }

    /// It is free no longer: idle time is not saved up.
    pub(super) fn bind(&mut self) {
        (self.clock, self.phase) = (self.clock.max(self.mark), Phase::Out);
    }

    /// Whether it pays for the time that passes: its work may be on the device because of a turn it
    /// had.
    pub(super) fn is_billed(&self) -> bool {
        match self.phase {
            Phase::Free | Phase::Out => false,
            Phase::Holding(_) | Phase::Closing(_) => true,
            Phase::Overrun { billed, .. } => billed,
        }
    }

    /// Whether its gates are open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Free | Phase::Holding(_))
    }

    /// Whether it is in a turn, or should be out of one and is not yet.
    pub(super) fn is_in_turn(&self) -> bool {
        !matches!(self.phase, Phase::Free | Phase::Out)
    }

    /// Whether it is one of the tenants of its class that work or want a turn.
    pub(super) fn is_in_demand(&self) -> bool {
        self.members.waits() || matches!(self.phase, Phase::Holding(_))
    }

    /// Whether it waits for a turn and may have one.
    pub(super) fn is_next_in_line(&self) -> bool {
        self.waiting().is_some() && !self.account.is_throttled()
    }

    /// Whether it waits and its cap allows it no turn.
    pub(super) fn is_throttled(&self) -> bool {
        self.waiting().is_some() && self.account.is_throttled()
    }

    pub(super) fn order(&self, id: TenantId) -> Order {
        (self.clock, self.granted, id)
    }

    /// Lets `time` pass before `now`, of which it is billed for `share`; the mark of its class is
    /// at `mark`. The debt of a resting tenant moves with the mark, and fades.
    pub(super) fn pass(
        &mut self,
        (now, time): (Nanos, Nanos),
        mark: Reading,
        share: Nanos,
        policy: &LeasePolicy,
    ) {
        let weight = self.account.weight();
        let rested = self.phase == Phase::Out
            && !self.members.waits()
            && now - time >= self.ended + LeasePolicy::GRACE;
        if rested && self.clock > self.mark {
            let moved = self.clock.moved(self.mark, mark);
            let faded = moved.before(Nanos(time.0 / LeasePolicy::PARDON), weight);
            self.clock = faded.max(mark.min(moved));
        }
        self.mark = mark;
        if time == Nanos::ZERO {
            return;
        }
        self.clock = self.clock.after(share, weight);
        self.account.bill(share);
        let held = if self.is_billed() { time } else { Nanos::ZERO };
        self.account.pay_cap(time, held, policy);
        if self.members.waits() || self.is_billed() {
            self.account.pay_promise(time, share);
        } else {
            // A program that waits for its work asks for nothing while it thinks.
            let kept = self.phase == Phase::Out && now < self.ended + LeasePolicy::KEPT;
            self.account.rest(time, kept, policy);
        }
    }

    /// Notes whether its cap allows it a turn. Allowed again, it may be as far behind its mark as a
    /// `turn`, which its cap may have cost it.
    pub(super) fn note_cap(&mut self, turn: Nanos) {
        let throttled = self.is_throttled();
        let was = std::mem::replace(&mut self.throttled, throttled);
        if was && self.is_next_in_line() {
            let floor = self.mark.before(turn, self.account.weight());
            self.clock = self.clock.max(floor);
        }
    }

    /// Whether its cap allowed it no turn when that was last noted.
    pub(super) fn was_throttled(&self) -> bool {
        self.throttled
    }

    /// It begins to want a turn. Idle time is not saved up; the rest of an interrupted `turn` is
    /// not lost.
    fn ask(&mut self, now: Nanos, turn: Nanos) {
        self.asked = now;
        if !self.is_in_turn() {
            let floor = if std::mem::take(&mut self.interrupted) {
                self.mark.before(turn, self.account.weight())
            } else {
                self.mark
            };
            self.clock = self.clock.max(floor);
        }
    }

    /// Its turn begins.
    pub(super) fn begin(&mut self, epoch: u64, turn: Turn) {
        let waiting = self.waiting();
        (self.epoch, self.granted) = (epoch, turn.since);
        self.phase = Phase::Holding(turn);
        self.count_wait(turn.since, waiting);
        self.turns += 1;
        self.members.reopen();
    }

    /// It is alone and unbound from `now` on. Its calls wait no more.
    pub(super) fn set_free(&mut self, epoch: u64, now: Nanos) {
        let waiting = self.waiting();
        (self.epoch, self.phase) = (epoch, Phase::Free);
        self.count_wait(now, waiting);
        self.members.reopen();
    }

    /// A later deadline: the gates that closed by themselves open again.
    pub(super) fn extend(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.members.reopen();
    }

    /// It is ordered to stop.
    pub(super) fn close(&mut self, now: Nanos) {
        self.interrupted = !self.members.is_quiet();
        self.phase = Phase::Closing(now);
    }

    /// It has drained.
    pub(super) fn end(&mut self, now: Nanos) {
        // In its turn: it closed by itself at its deadline.
        self.interrupted |= matches!(self.phase, Phase::Holding(_));
        (self.phase, self.ended) = (Phase::Out, now);
        self.account.turn_over(self.interrupted);
    }

    /// It has not drained within the bound. Returns whether to report that: where others `wait`,
    /// and at most once per `every`.
    pub(super) fn overran(
        &mut self,
        (now, closed): (Nanos, Nanos),
        wait: bool,
        every: Nanos,
    ) -> bool {
        let billed = true;
        self.phase = Phase::Overrun { closed, billed };
        self.overruns += 1;
        let tell = wait && self.told.is_none_or(|told| now >= told + every);
        if tell {
            self.told = Some(now);
        }
        tell
    }

    /// Forgives its debt above the bound. If it overran and its debt is at the bound, it is not
    /// billed any more.
    pub(super) fn forgive(&mut self, policy: &LeasePolicy) {
        let most = self.mark.after(policy.most_debt, self.account.weight());
        let owes_all = self.clock >= most || self.account.owes_its_cap_all(policy);
        self.clock = self.clock.min(most);
        if let Phase::Overrun { billed, .. } = &mut self.phase {
            *billed &= !owes_all;
        }
    }

    /// For how long it is billed for its overrun, beside so many others, at most, if it does not
    /// drain: until its debt is at the bound. `None`: it is not billed, or not for an overrun.
    pub(super) fn overruns_for(&self, others: u64, policy: &LeasePolicy) -> Option<Nanos> {
        if !matches!(self.phase, Phase::Overrun { billed: true, .. }) {
            return None;
        }
        let weight = self.account.weight();
        let most = self.mark.after(policy.most_debt, weight);
        let rest = most.since(self.clock, weight);
        // Rounded down, it would be looked at for ever in the same instant.
        Some(Nanos(rest.0.saturating_mul(others + 1)) + Nanos(1))
    }

    /// Changes the weight. The time by which it is ahead or behind stays the same.
    pub(super) fn reweigh(&mut self, weight: u64) {
        let (old, mark) = (self.account.weight(), self.mark);
        if weight == old {
            return;
        }
        let scaled = |reading: Reading| {
            let (ahead, behind) = (reading.since(mark, old), mark.since(reading, old));
            mark.after(ahead, weight).before(behind, weight)
        };
        self.clock = scaled(self.clock);
        self.account.set_weight(weight);
        if let Phase::Holding(turn) = &mut self.phase {
            turn.from = scaled(turn.from);
        }
    }

    /// Changes the terms. Its debt moves with it into another class, whose mark is at `mark`.
    pub(super) fn set(
        &mut self,
        now: Nanos,
        mark: Reading,
        (class, compute): (u16, crate::lease::terms::Compute),
    ) {
        if self.account.class() != class {
            let debt = self.clock.since(self.mark, self.account.weight());
            (self.clock, self.mark) = (mark.after(debt, self.account.weight()), mark);
            // Readings of two classes do not compare.
            if let Phase::Holding(turn) = &mut self.phase {
                (turn.from, turn.read) = (self.clock, now);
            }
        }
        self.account.set(class, compute);
        if let Phase::Holding(turn) = &mut self.phase {
            turn.runs_dry = self.account.cap_lasts().map(|lasts| now + lasts);
        }
    }
}
