//! A tenant on a device that is dealt in turns: its phase and its clock.

use super::clock::Reading;
use crate::ids::ContainerId;
use crate::lease::account::ComputeAccount;
use crate::lease::members::Members;
use crate::lease::page::Lease;
use crate::lease::roster;
use crate::lease::terms::LeasePolicy;
use crate::time::Nanos;

/// A tenant in the order of its class: by clock, among equals the one whose last turn was longest
/// ago.
pub(super) type Order = (Reading, Nanos, ContainerId);

/// Where a tenant is in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Alone and without a cap: nothing is measured.
    Free,
    /// Its gates are closed and it has drained.
    Out,
    /// It holds the device.
    Holding(Turn),
    /// Its gates are closed since then; it drains, and nobody else is let in.
    Closing(Nanos),
    /// Its gates are closed since then and it did not drain in the bound: others are let in beside
    /// it. It is `billed` for what it takes until it owes the most that can be owed.
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
    /// The least it lasts while others wait.
    pub(super) length: Nanos,
    /// When its cap's allowance will be used up.
    pub(super) runs_dry: Option<Nanos>,
    /// It was let in before a higher class, for its guarantee: that class waits until the turn is
    /// over.
    pub(super) promoted: bool,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Tenant {
    members: Members,
    account: ComputeAccount,
    pub(super) phase: Phase,
    /// Names its present or last turn.
    pub(super) epoch: u64,
    /// What its control page says.
    pub(super) said: Lease,
    /// How far its virtual time is.
    pub(super) clock: Reading,
    /// Its class's mark when its clock was last brought up to date.
    pub(super) mark: Reading,
    /// When it last got a turn: among equals the longest ago is next.
    pub(super) granted: Nanos,
    /// When its last turn ended.
    ended: Nanos,
    /// Its last turn was cut short, not given up: it may come back a turn behind the mark, which is
    /// what it lost.
    interrupted: bool,
    /// It waits, and its cap allowed it no turn when that was last looked at.
    throttled: bool,
    /// When it last began to wait.
    pub(super) asked: Nanos,
    /// Turns it was given, times it did not drain in the bound, and when that was last told.
    pub(super) turns: u64,
    pub(super) overruns: u64,
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
}

impl Tenant {
    /// A tenant that comes to a device: closed, and asked for nothing yet.
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

    /// Whether it counts among those of its class that work or want.
    pub(super) fn is_in_demand(&self) -> bool {
        self.members.waits() || matches!(self.phase, Phase::Holding(_))
    }

    /// Whether it waits for a turn and may have one.
    pub(super) fn is_next_in_line(&self) -> bool {
        let may = matches!(self.phase, Phase::Out | Phase::Overrun { .. });
        may && self.members.waits() && !self.is_throttled()
    }

    /// Whether it waits and its cap allows it no turn.
    pub(super) fn is_throttled(&self) -> bool {
        let may = matches!(self.phase, Phase::Out | Phase::Overrun { .. });
        may && self.members.waits() && self.account.is_throttled()
    }

    pub(super) fn order(&self, container: ContainerId) -> Order {
        (self.clock, self.granted, container)
    }

    /// In how long its guarantee gives it a turn before any class. `None`: it has none.
    pub(super) fn due_in(&self, policy: &LeasePolicy) -> Option<Nanos> {
        let (_, wait) = self.account.guaranteed_turn(policy)?;
        Some(wait)
    }

    /// Lets `time` pass before `now`, of which it is billed for `share`; the mark of its class is at
    /// `mark`. A debt of one that rests goes with the mark, and fades.
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
        let asks = self.members.waits() || self.is_billed();
        self.account.pay_promise(time, share, asks);
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

    /// It wants a turn. Idle time is not saved up; what an interrupted `turn` lacked is not lost.
    pub(super) fn ask(&mut self, now: Nanos, turn: Nanos) {
        if self.members.waits() {
            return;
        }
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
        (self.epoch, self.granted) = (epoch, turn.since);
        self.phase = Phase::Holding(turn);
        self.turns += 1;
        self.members.begin_turn();
    }

    /// It is alone and nothing binds it.
    pub(super) fn set_free(&mut self, epoch: u64) {
        (self.epoch, self.phase) = (epoch, Phase::Free);
    }

    /// A later deadline: the gates that closed by themselves open again.
    pub(super) fn extend(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.members.reopen();
    }

    /// It is told to stop.
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

    /// It has not drained in the bound. Whether that is to be told, which is not more often than
    /// `every`.
    pub(super) fn overran(&mut self, (now, closed): (Nanos, Nanos), every: Nanos) -> bool {
        let billed = true;
        self.phase = Phase::Overrun { closed, billed };
        self.overruns += 1;
        self.told.is_none_or(|told| now >= told + every)
    }

    pub(super) fn told_overrun(&mut self, now: Nanos) {
        self.told = Some(now);
    }

    /// What it owes above the most is forgiven, and if it overran and owes that much it pays no
    /// more.
    pub(super) fn forgive(&mut self, policy: &LeasePolicy) {
        let most = self.mark.after(policy.most_debt, self.account.weight());
        let owes_all = self.clock >= most || self.account.owes_its_cap_all(policy);
        self.clock = self.clock.min(most);
        if let Phase::Overrun { billed, .. } = &mut self.phase {
            *billed &= !owes_all;
        }
    }

    /// Another weight from now on: what it is ahead or behind stays what it is in time.
    pub(super) fn reweigh(&mut self, now: Nanos, weight: u64) {
        let (old, mark) = (self.account.weight(), self.mark);
        let (ahead, behind) = (self.clock.since(mark, old), mark.since(self.clock, old));
        self.clock = mark.after(ahead, weight).before(behind, weight);
        self.account.set_weight(weight);
        if let Phase::Holding(turn) = &mut self.phase {
            (turn.from, turn.read) = (self.clock, now);
        }
    }

    /// Other terms; its debt comes with it into another class, whose mark is at `mark`.
    pub(super) fn set(
        &mut self,
        now: Nanos,
        mark: Reading,
        (class, compute): (u16, crate::lease::terms::Compute),
    ) {
        if self.account.class() != class {
            let debt = self.clock.since(self.mark, self.account.weight());
            (self.clock, self.mark) = (mark.after(debt, self.account.weight()), mark);
        }
        self.account.set(class, compute);
        if let Phase::Holding(turn) = &mut self.phase {
            turn.runs_dry = self.account.cap_lasts().map(|lasts| now + lasts);
        }
    }
}
