//! A tenant on a device that is dealt in turns: its phase and its clock.

use super::clock::Reading;
use crate::ids::{ProcessId, TenantId};
use crate::lease::input::Report;
use crate::lease::members::Members;
use crate::lease::seat::{self, Seat, State as _};
use crate::lease::terms::{Compute, LeasePolicy};
use crate::lease::view::ShareState;
use crate::time::Nanos;

/// A tenant in the order of its class: by clock; among equals the one whose last turn was longest
/// ago.
pub(super) type Order = (Reading, Nanos, TenantId);

/// Where a tenant is in its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Alone and without a cap: no time is measured.
    Free,
    /// Its gates are closed and it has drained.
    #[default]
    Out,
    /// It holds the device.
    Holding(Turn),
    /// Its gates are closed since then. It drains, and no other tenant is started.
    Closing(Nanos),
    /// Its gates are closed since then, because it may have been stopped. It has its turn back when
    /// it has drained.
    Asked(Nanos),
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
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) phase: Phase,
    /// How far its virtual time is.
    pub(super) clock: Reading,
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
    pub(super) throttled: bool,
    /// The number of its turns, of missed drain bounds, and the time of the last overrun report.
    pub(super) turns: u64,
    pub(super) overruns: u64,
    told: Option<Nanos>,
}

pub(super) type Tenant = Seat<State>;

impl State {
    /// Of a new tenant, at the mark of its class: closed, without a demand.
    pub(super) fn at(mark: Reading) -> Self {
        Self {
            clock: mark,
            mark,
            ..Self::default()
        }
    }
}

impl seat::State for State {
    fn shuts_out(&self) -> bool {
        matches!(self.phase, Phase::Out | Phase::Overrun { .. })
    }

    fn admits(&self) -> bool {
        matches!(self.phase, Phase::Free | Phase::Holding(_))
    }
}

impl Tenant {
    pub(super) fn is_free(&self) -> bool {
        self.own.phase == Phase::Free
    }

    /// Its state, and since when.
    pub(super) fn state(&self) -> (ShareState, Nanos) {
        match self.own.phase {
            Phase::Free => (ShareState::Free, self.own.granted),
            Phase::Holding(turn) => (ShareState::Holding, turn.since),
            Phase::Closing(closed) | Phase::Asked(closed) | Phase::Overrun { closed, .. } => {
                (ShareState::Draining, closed)
            }
            Phase::Out if !self.members.waits() => (ShareState::Idle, self.own.granted),
            Phase::Out if self.is_throttled() => (ShareState::Capped, self.asked),
            Phase::Out => (ShareState::Waiting, self.asked),
        }
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
        let (waited, drained) = (self.members.waits(), !self.own.admits());
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
        (self.own.clock, self.own.phase) = (self.own.clock.max(self.own.mark), Phase::Out);
    }

    /// Whether it pays for the time that passes: its work may be on the device because of a turn it
    /// had.
    pub(super) fn is_billed(&self) -> bool {
        match self.own.phase {
            Phase::Free | Phase::Out => false,
            Phase::Holding(_) | Phase::Closing(_) | Phase::Asked(_) => true,
            Phase::Overrun { billed, .. } => billed,
        }
    }

    /// Its bill for a span of which each billed tenant has this share.
    pub(super) fn bill_of(&self, share: Nanos) -> Nanos {
        match self.is_billed() {
            true => share,
            false => Nanos::ZERO,
        }
    }

    /// Whether it holds the device, or drains from it within the bound.
    pub(super) fn holds(&self) -> bool {
        let phase = self.own.phase;
        matches!(
            phase,
            Phase::Holding(_) | Phase::Closing(_) | Phase::Asked(_)
        )
    }

    /// Whether it is in a turn, or should be out of one and is not yet.
    pub(super) fn is_in_turn(&self) -> bool {
        !matches!(self.own.phase, Phase::Free | Phase::Out)
    }

    /// Whether it is one of the tenants of its class that work or want a turn.
    pub(super) fn is_in_demand(&self) -> bool {
        self.members.waits() || matches!(self.own.phase, Phase::Holding(_))
    }

    /// Whether it works or wants a turn, or did not long ago.
    pub(super) fn is_recent(&self, now: Nanos) -> bool {
        let had = self.own.turns > 0 && now < self.own.ended + LeasePolicy::RECENT;
        self.members.waits() || self.own.phase != Phase::Out || had
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
        (self.own.clock, self.own.granted, id)
    }

    /// Lets `time` pass before `now`, of which it pays for this `share` if it is billed; the mark
    /// of its class is at `mark`. The debt of a resting tenant moves with the mark, and fades. What
    /// its guarantee gives it while it is `outranked` by a tenant of a higher class is no debt to
    /// its own.
    pub(super) fn pass(
        &mut self,
        (now, time): (Nanos, Nanos),
        mark: Reading,
        (share, outranked): (Nanos, bool),
        policy: &LeasePolicy,
    ) {
        let weight = self.account.weight;
        let share = self.bill_of(share);
        let rested = self.own.phase == Phase::Out
            && !self.members.waits()
            && now - time >= self.own.ended + LeasePolicy::GRACE;
        if rested && self.own.clock > self.own.mark {
            let moved = self.own.clock.moved(self.own.mark, mark);
            let faded = moved.before(Nanos(time.0 / LeasePolicy::PARDON), weight);
            self.own.clock = faded.max(mark.min(moved));
        }
        self.own.mark = mark;
        if time == Nanos::ZERO {
            return;
        }
        let explained = match outranked {
            true => self.account.promised(time),
            false => 0,
        };
        let owed = Nanos(share.0.saturating_sub(explained));
        self.own.clock = self.own.clock.after(owed, weight);
        self.account.bill(share);
        let held = if self.is_billed() { time } else { Nanos::ZERO };
        self.account.pay_cap(time, held, LeasePolicy::MOST_DEBT);
        if self.members.waits() || self.is_billed() {
            self.account.pay_promise(time, share);
        } else {
            // A program that waits for its work asks for nothing while it thinks.
            let kept = self.own.phase == Phase::Out && now < self.own.ended + LeasePolicy::KEPT;
            self.account.rest(time, kept, policy);
        }
    }

    /// Notes whether its cap allows it a turn. Allowed again, it may be as far behind its mark as a
    /// `turn`, which its cap may have cost it.
    pub(super) fn note_cap(&mut self, turn: Nanos) {
        let throttled = self.is_throttled();
        let was = std::mem::replace(&mut self.own.throttled, throttled);
        if was && self.is_next_in_line() {
            let floor = self.own.mark.before(turn, self.account.weight);
            self.own.clock = self.own.clock.max(floor);
        }
    }

    /// It begins to want a turn. Idle time is not saved up; the rest of an interrupted `turn` is
    /// not lost.
    fn ask(&mut self, now: Nanos, turn: Nanos) {
        self.asked = now;
        if !self.is_in_turn() {
            let floor = if std::mem::take(&mut self.own.interrupted) {
                self.own.mark.before(turn, self.account.weight)
            } else {
                self.own.mark
            };
            self.own.clock = self.own.clock.max(floor);
        }
    }

    /// Its turn begins.
    pub(super) fn begin(&mut self, turn: Turn) {
        let waiting = self.waiting();
        self.own.granted = turn.since;
        self.own.phase = Phase::Holding(turn);
        self.count_wait(turn.since, waiting);
        self.own.turns += 1;
    }

    /// It is alone and unbound from `now` on. Its calls wait no more.
    pub(super) fn set_free(&mut self, now: Nanos) {
        let waiting = self.waiting();
        self.own.phase = Phase::Free;
        self.count_wait(now, waiting);
    }

    /// It is ordered to stop.
    pub(super) fn close(&mut self, now: Nanos) {
        self.own.interrupted = !self.members.is_quiet();
        self.own.phase = Phase::Closing(now);
    }

    /// It is ordered to stop, to see whether it still runs.
    pub(super) fn ask_whether_it_runs(&mut self, now: Nanos) {
        self.close(now);
        self.own.phase = Phase::Asked(now);
    }

    /// It is ordered to stop since then for others.
    pub(super) fn close_for_others(&mut self, closed: Nanos) {
        self.own.phase = Phase::Closing(closed);
    }

    /// It has drained.
    pub(super) fn end(&mut self, now: Nanos) {
        // In its turn: it closed by itself at its deadline.
        self.own.interrupted |= matches!(self.own.phase, Phase::Holding(_));
        (self.own.phase, self.own.ended) = (Phase::Out, now);
        self.account.turn_over(self.own.interrupted);
    }

    /// It has not drained within the bound. Returns whether to report that: where others `wait`,
    /// and now and then.
    pub(super) fn overran(&mut self, (now, closed): (Nanos, Nanos), wait: bool) -> bool {
        let billed = true;
        self.own.phase = Phase::Overrun { closed, billed };
        self.own.overruns += 1;
        // Its work may wait for a launch: what its cap allows it then must be enough for that.
        self.account.turn_over(true);
        let tell = wait
            && self
                .own
                .told
                .is_none_or(|told| now >= told + LeasePolicy::NOTICE_EVERY);
        if tell {
            self.own.told = Some(now);
        }
        tell
    }

    /// Forgives its debt above the bound. If it overran and its debt is at the bound, it is not
    /// billed any more.
    pub(super) fn forgive(&mut self) {
        let most = self
            .own
            .mark
            .after(LeasePolicy::MOST_DEBT, self.account.weight);
        let owes_all = self.own.clock >= most || self.account.owes_its_cap_all();
        self.own.clock = self.own.clock.min(most);
        if let Phase::Overrun { billed, .. } = &mut self.own.phase {
            *billed &= !owes_all;
        }
    }

    /// For how long it is billed for its overrun, beside so many others, at most, if it does not
    /// drain: until its debt is at the bound. `None`: it is not billed, or not for an overrun.
    pub(super) fn overruns_for(&self, others: u64) -> Option<Nanos> {
        if !matches!(self.own.phase, Phase::Overrun { billed: true, .. }) {
            return None;
        }
        let weight = self.account.weight;
        let most = self.own.mark.after(LeasePolicy::MOST_DEBT, weight);
        let rest = most.since(self.own.clock, weight);
        // Rounded down, it would be looked at for ever in the same instant.
        Some(Nanos(rest.0.saturating_mul(others + 1)) + Nanos(1))
    }

    /// Changes the weight. The time by which it is ahead or behind stays the same.
    pub(super) fn reweigh(&mut self, weight: u64) {
        let (old, mark) = (self.account.weight, self.own.mark);
        if weight == old {
            return;
        }
        let scaled = |reading: Reading| {
            let (ahead, behind) = (reading.since(mark, old), mark.since(reading, old));
            mark.after(ahead, weight).before(behind, weight)
        };
        self.own.clock = scaled(self.own.clock);
        self.account.weight = weight;
        if let Phase::Holding(turn) = &mut self.own.phase {
            turn.from = scaled(turn.from);
        }
    }

    /// Changes the terms. Its debt moves with it into another class, whose mark is at `mark`.
    pub(super) fn set(&mut self, now: Nanos, mark: Reading, (class, compute): (u16, Compute)) {
        if self.account.class != class {
            let debt = self.own.clock.since(self.own.mark, self.account.weight);
            (self.own.clock, self.own.mark) = (mark.after(debt, self.account.weight), mark);
            // Readings of two classes do not compare.
            if let Phase::Holding(turn) = &mut self.own.phase {
                (turn.from, turn.read) = (self.own.clock, now);
            }
        }
        self.account.set(class, compute);
        if let Phase::Holding(turn) = &mut self.own.phase {
            turn.runs_dry = self.account.cap_lasts().map(|lasts| now + lasts);
        }
    }
}
