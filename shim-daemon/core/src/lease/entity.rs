//! A container on one device: its terms, its processes, its turn, and what it owes.

use super::bucket::Bucket;
use super::clock::Reading;
use super::promise::Promise;
use super::terms::Compute;
use super::word::Lease;
use crate::ids::ProcessId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// How long after its turn a container that says nothing counts as one that has more to do.
pub(super) const GRACE: Nanos = Nanos::millis(1);

/// A debt of who rests fades at this part of the time: after a pause of 100 s a second's debt is gone, and nobody gains
/// more than a hundredth of the time by it.
const FADE: u64 = 100;

/// Where a container stands in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Alone and without a cap: nothing is measured.
    Free,
    /// Its gates are closed and it has drained.
    Out,
    /// It holds the device.
    Holding(Turn),
    /// The device is kept for it and its gates are closed: until the rest of its gang can begin, or has drained.
    Kept {
        /// Since when.
        since: Nanos,
        /// It was called and its turn has not begun.
        fresh: bool,
    },
    /// Its gates are closed; it drains, and nobody else is let in.
    Closing {
        /// Since when.
        closed: Nanos,
    },
    /// What is left of its drain should take less than the lead: the next has been let in.
    Ending {
        /// Since when its gates are closed.
        closed: Nanos,
    },
    /// It did not drain in the bound: others are let in beside it.
    Overrun {
        /// Since when its gates are closed.
        closed: Nanos,
        /// Whether it still pays for what it takes; not once it owes the most that can be owed.
        billed: bool,
    },
}

/// A turn under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Since when.
    pub(super) since: Nanos,
    /// Its clock at `read`.
    pub(super) from: Reading,
    /// When its clock was read: when the turn began, or later when its weight changed.
    pub(super) read: Nanos,
    /// The least it lasts while others wait.
    pub(super) length: Nanos,
    /// When its allowance will be used up.
    pub(super) runs_dry: Option<Nanos>,
    /// It was let in before a higher class, for its guarantee: that class waits until the turn is over.
    pub(super) promoted: bool,
    /// One launch of each process, for a sibling that waits for it.
    pub(super) step: bool,
}

/// A process as its reports describe it. Only gated ones that can answer are asked to drain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) gated: bool,
    /// Its connection has ended: it can say nothing, and its gate is open.
    pub(super) away: bool,
    /// A call waits at its gate.
    pub(super) wants: bool,
    /// It has nothing to do in this turn.
    pub(super) idle: bool,
    /// It closed in this turn and will have drained soon.
    pub(super) ending: bool,
    /// It closed and drained in this turn.
    pub(super) drained: bool,
}

/// What of the time that passes a container pays for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bill {
    /// By its clock and its guarantee.
    pub(super) share: Nanos,
    /// By its cap.
    pub(super) whole: Nanos,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Entity {
    /// Priority: strict, higher first.
    pub(super) class: u16,
    pub(super) compute: Compute,
    /// Its part among those of its class, in thousandths; follows from everybody's requests.
    pub(super) weight: u64,
    pub(super) members: BTreeMap<ProcessId, Member>,
    pub(super) phase: Phase,
    /// Names its present or last turn.
    pub(super) epoch: u64,
    /// What its control page says.
    pub(super) said: Lease,
    /// As of `passed`; a debt of one that rests moves on with its class's mark. See [`Self::reading`].
    pub(super) clock: Reading,
    /// Up to when time has passed for it: whatever changes with time alone is brought up to now when it is needed.
    pub(super) passed: Nanos,
    /// Its class's mark at `passed`.
    pub(super) seen: Reading,
    /// It has been idle since `passed`.
    pub(super) rests: bool,
    /// When it last got a turn: among equals the longest ago is next.
    pub(super) granted: Nanos,
    /// When its last turn ended.
    pub(super) ended: Nanos,
    pub(super) bucket: Option<Bucket>,
    pub(super) promise: Option<Promise>,
    /// It is here for a gang: it is let in when the gang is, and not in its own order.
    pub(super) gang: bool,
    /// Its last turn was cut short, by its cap or by a higher class, not by itself: it may come back a turn behind the
    /// mark, which is what it lost.
    pub(super) interrupted: bool,
    /// All it was billed for since it came.
    pub(super) held: Nanos,
    /// When it last began to wait.
    pub(super) asked: Nanos,
    /// Turns it was given.
    pub(super) turns: u64,
    /// Times it did not drain in the bound.
    pub(super) overruns: u64,
    /// When an overrun was last told.
    pub(super) told: Option<Nanos>,
    /// Whether it was told that a process of it takes no turns.
    pub(super) told_ungated: bool,
}

impl Entity {
    /// A container that comes to a device: closed, and asked for nothing yet.
    pub(super) fn new(
        class: u16,
        compute: Compute,
        clock: Reading,
        (epoch, now): (u64, Nanos),
    ) -> Self {
        Self {
            passed: now,
            seen: clock,
            rests: false,
            class,
            compute,
            weight: super::clock::WHOLE,
            members: BTreeMap::new(),
            phase: Phase::Out,
            epoch,
            said: Lease::FREE,
            clock,
            granted: Nanos::ZERO,
            ended: Nanos::ZERO,
            bucket: compute.cap().map(Bucket::new),
            promise: compute.request.map(Promise::new),
            gang: false,
            interrupted: false,
            held: Nanos::ZERO,
            asked: Nanos::ZERO,
            turns: 0,
            overruns: 0,
            told: None,
            told_ungated: false,
        }
    }

    /// Whether it pays for the time that passes: its work may be on the device because of a turn it had.
    pub(super) fn is_billed(&self) -> bool {
        match self.phase {
            Phase::Free | Phase::Out => false,
            Phase::Holding(_)
            | Phase::Kept { .. }
            | Phase::Closing { .. }
            | Phase::Ending { .. } => true,
            Phase::Overrun { billed, .. } => billed,
        }
    }

    /// Whether the device is its own: in a turn, or before or after it.
    pub(super) fn takes(&self) -> bool {
        matches!(
            self.phase,
            Phase::Holding(_) | Phase::Kept { .. } | Phase::Closing { .. }
        )
    }

    /// Whether it is in a turn, or should be out of one and is not yet.
    pub(super) fn is_in_turn(&self) -> bool {
        !matches!(self.phase, Phase::Free | Phase::Out)
    }

    /// Lets time pass up to `now`, and has it pay the bill.
    pub(super) fn pass(&mut self, now: Nanos, mark: Reading, bill: Bill, most_debt: Nanos) {
        let time = now - self.passed;
        let Bill { share, whole } = bill;
        self.clock = self.reading(now, mark).after(share, self.weight);
        (self.passed, self.seen) = (now, mark);
        if time == Nanos::ZERO {
            return;
        }
        self.held = self.held + share;
        let waits = self.wants();
        if let Some(bucket) = &mut self.bucket {
            bucket.pass(time, whole, most_debt);
        }
        if let Some(promise) = &mut self.promise {
            if waits || whole != Nanos::ZERO {
                promise.pass(time, share);
            } else {
                promise.idles(time);
            }
        }
    }

    /// What its clock reads at `now`, with its class's mark there: who rests and owes something goes with the mark, and
    /// what it owes fades.
    pub(super) fn reading(&self, now: Nanos, mark: Reading) -> Reading {
        if !self.rests || self.clock <= self.seen {
            return self.clock;
        }
        let moved = self.clock.moved(self.seen, mark);
        let faded = moved.before(Nanos((now - self.passed).0 / FADE), self.weight);
        faded.max(mark.min(moved))
    }

    pub(super) fn wants(&self) -> bool {
        self.members.values().any(|member| member.wants)
    }

    /// Whether all its processes that have a gate closed it and drained.
    pub(super) fn is_drained(&self) -> bool {
        self.gated().all(|member| member.drained)
    }

    /// Whether all its processes that have a gate closed it and have drained or are about to.
    pub(super) fn is_ending(&self) -> bool {
        self.gated().all(|member| member.drained || member.ending)
    }

    /// Whether all its processes that have a gate have nothing to do, one way or the other.
    pub(super) fn is_quiet(&self) -> bool {
        self.gated().all(|member| member.drained || member.idle)
    }

    /// Its gates open: what its processes said before is over.
    pub(super) fn reopen(&mut self) {
        for member in self.members.values_mut() {
            (member.wants, member.ending, member.drained) = (false, false, false);
        }
    }

    fn gated(&self) -> impl Iterator<Item = &Member> {
        let members = self.members.values();
        members.filter(|member| member.gated && !member.away)
    }
}
