//! A process's reaction to its tenant's turn on one device: when it closes its gate, when it has
//! drained, when it is idle.
//!
//! Pure: its inputs are the turn in the control page and the state of the work in flight, and it
//! returns one action at a time. A closed epoch is never opened again: only a turn of another epoch
//! opens.

use gpushare_protocol::page::lease::{LeaseState, Turn};

/// How long a holder has nothing under way before it says so, where the daemon does not tell (ns).
pub(crate) const IDLE_AFTER: u64 = 500_000;
/// Where tenants share the device, a process that has launched nothing does not count as idle for
/// this long after its start, or its last context there (ns): it makes its context and loads its
/// modules, and the queues of other tenants get short meanwhile. Chosen, not measured.
pub(crate) const STARTS: u64 = 1_000_000_000;
/// Where tenants share the device, half the time after which a holder is first looked at (ns), and
/// how often that is doubled.
const FIRST_LOOK: u64 = 1_000_000;
const FIRST_LOOKS: u32 = 16;
/// The longest time between two looks whether a holder is idle, in units of the time after which it
/// is.
const IDLE_PAUSES: u64 = 4;
/// The shortest and the longest time between two checks of a drain (ns).
pub(crate) const DRAIN_PAUSES: (u64, u64) = (40_000, 10_000_000);
/// How long an estimate alone is trusted at the beginning of a drain (ns).
pub(crate) const FIRST_PATIENCE: u64 = 250_000;
/// The expected rest of a drain (ns) at which the estimate no longer spaces the checks: waking from
/// a sleep may take as long.
const NEAR: u64 = 60_000;
/// Work that should be complete is looked at again after one part in so many of the time for which
/// it should be.
const LATE_LOOKS: u64 = 8;

/// Never, as a time to wake.
pub const NEVER: u64 = u64::MAX;

/// Where the gate of one device stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateState {
    /// Nothing binds.
    #[default]
    Free,
    /// Open in this epoch, with bounds.
    Open,
    /// Closed; submitted work is not complete.
    Closing,
    /// Closed and complete.
    Drained,
}

/// The facts about the work in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Nothing is under way, and every mark that was needed is made.
    pub empty: bool,
    /// No thread is inside the gate.
    pub quiet: bool,
    /// When something was last submitted or known to be under way.
    pub last_active: u64,
    /// Expected nanoseconds until all is complete; 0 if it should be.
    pub left: u64,
}

/// The follower's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Let everything through, unseen.
    Free,
    /// Let work through within the turn's bounds.
    Open,
    /// Let nothing through any more.
    Close,
    /// Say that this epoch is drained.
    Drained(u64),
    /// Say that this epoch's holder is idle.
    Idle(u64),
    /// Say that this epoch's holder works.
    Busy(u64),
    /// Report that a call waits, if one does: its earlier report ended with a turn that came and
    /// went unseen.
    Missed,
    /// Nothing before this time, unless something changes.
    Sleep(u64),
}

/// The state for one device.
#[derive(Debug, Default)]
pub struct LeaseFollower {
    stand: GateState,
    epoch: u64,
    /// When it was first asked, or a context was last made on the device.
    began: Option<u64>,
    /// When it took its stand.
    since: u64,
    /// Idleness was said in this epoch and not taken back.
    idle: bool,
    /// Idleness was said to a daemon that is silent since then. It may believe that still, and what
    /// was submitted meanwhile took nothing back.
    believed: bool,
    /// Times a holder was looked at and not found idle, since it last was.
    looks: u32,
    /// Since when the work in flight should be complete, or nearly so.
    near: Option<u64>,
    /// The epoch in which it was last said that a call waits.
    wanted: Option<u64>,
    /// Number of changes of state: facts from before the last one are outdated.
    stands: u64,
}

impl LeaseFollower {
    /// Where the gate stands.
    #[inline]
    pub fn stand(&self) -> GateState {
        self.stand
    }

    /// A number that is another one once it has taken another stand.
    #[inline]
    pub fn stands(&self) -> u64 {
        self.stands
    }

    /// Whether `turn` lets calls through that now wait.
    #[inline]
    pub fn is_opened_by(&self, turn: &Turn) -> bool {
        match turn.word.state() {
            LeaseState::Free => self.stand != GateState::Free,
            LeaseState::Open => {
                matches!(self.stand, GateState::Closing | GateState::Drained)
                    && turn.word.epoch() != self.epoch
            }
            LeaseState::Closed => false,
        }
    }

    /// Whether `turn` ends the turn that is open: the next [`step`](Self::step) at `now` closes.
    #[inline]
    pub fn closes(&self, now: u64, turn: &Turn) -> bool {
        let is_over = match turn.word.state() {
            LeaseState::Free => false,
            LeaseState::Open => turn.word.epoch() == self.epoch && now >= turn.deadline,
            LeaseState::Closed => true,
        };
        self.stand == GateState::Open && is_over
    }

    /// Whether the holder was found idle, and has not worked since.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// The next action at `now`, under `turn`. Unless it is [`Act::Sleep`], call again when it is
    /// done.
    pub fn step(&mut self, now: u64, turn: &Turn, facts: &Facts) -> Act {
        let epoch = turn.word.epoch();
        self.began.get_or_insert(now);
        let is_new = epoch != self.epoch;
        match (turn.word.state(), self.stand, is_new) {
            (LeaseState::Free, GateState::Free, _) => Act::Sleep(NEVER),
            (LeaseState::Free, ..) => self.take(GateState::Free, epoch, now, Act::Free),
            (LeaseState::Open, GateState::Free, _) | (LeaseState::Open, _, true) => {
                self.take(GateState::Open, epoch, now, Act::Open)
            }
            (LeaseState::Open, GateState::Open, false) if now >= turn.deadline => {
                self.take(GateState::Closing, epoch, now, Act::Close)
            }
            (LeaseState::Open, GateState::Open, false) => self.hold(now, turn, facts),
            (LeaseState::Closed, GateState::Free | GateState::Open, _) => {
                self.take(GateState::Closing, epoch, now, Act::Close)
            }
            (LeaseState::Closed, GateState::Closing | GateState::Drained, true) => {
                // A turn came and went unseen. Whether a thread is inside is asked while it closes.
                (self.stand, self.epoch) = (GateState::Closing, epoch);
                Act::Missed
            }
            (LeaseState::Open | LeaseState::Closed, GateState::Closing, false) => {
                self.drain(now, facts)
            }
            (LeaseState::Open | LeaseState::Closed, GateState::Drained, false) => Act::Sleep(NEVER),
        }
    }

    fn take(&mut self, stand: GateState, epoch: u64, now: u64, act: Act) -> Act {
        (self.stand, self.epoch, self.since) = (stand, epoch, now);
        (self.idle, self.looks) = (false, 0);
        self.near = None;
        self.stands = self.stands.wrapping_add(1);
        act
    }

    /// Open: until the deadline, or until it is worth looking whether it is idle.
    fn hold(&mut self, now: u64, turn: &Turn, facts: &Facts) -> Act {
        // Where tenants share the device, an idle tenant's gate is latched before another tenant
        // comes.
        let is_shared = turn.is_shared();
        let is_asked = turn.contended || turn.cap > 0 || is_shared;
        if core::mem::take(&mut self.believed) {
            return Act::Busy(self.epoch);
        }
        if !is_asked || self.idle {
            return Act::Sleep(turn.deadline);
        }
        let after = match turn.idle_after {
            0 => IDLE_AFTER,
            after => after,
        };
        let rested = facts.last_active.max(self.since).saturating_add(after);
        let starts = is_shared && facts.last_active == 0;
        let begun = self.began.filter(|_| starts);
        let rested = rested.max(begun.map_or(0, |began| began.saturating_add(STARTS)));
        if facts.empty && now >= rested {
            self.idle = true;
            self.looks = 0;
            return Act::Idle(self.epoch);
        }
        let earliest = if facts.empty {
            // The first launch of a process rings no bell.
            rested.min(now.saturating_add(after))
        } else {
            // Busy time after time: no need to look often.
            self.looks = self.looks.saturating_add(1);
            let done = now.saturating_add(facts.left);
            if is_shared {
                // Work submitted while unbound may be complete soon, and no other code would see
                // it.
                let pause = after.min(FIRST_LOOK << self.looks.min(FIRST_LOOKS));
                done.max(now.saturating_add(pause))
            } else {
                let times = u64::from(self.looks).min(IDLE_PAUSES);
                let pause = after.saturating_mul(times);
                rested.max(done).max(now.saturating_add(pause))
            }
        };
        Act::Sleep(earliest.max(now + 1).min(turn.deadline))
    }

    /// Closed: until the submitted work is complete.
    fn drain(&mut self, now: u64, facts: &Facts) -> Act {
        if facts.quiet && facts.empty {
            (self.stand, self.since, self.near) = (GateState::Drained, now, None);
            return Act::Drained(self.epoch);
        }
        if !facts.quiet || facts.left <= NEAR {
            // The end is near or should have come: less and less often.
            let near = *self.near.get_or_insert(now);
            let pause = now.saturating_sub(near) / LATE_LOOKS;
            return Act::Sleep(now + pause.clamp(DRAIN_PAUSES.0, DRAIN_PAUSES.1));
        }
        self.near = None;
        // Closer and closer looks, and never much later than a quarter of the whole: an estimate
        // that is too high, however much, must not leave the device idle by as much.
        let patience = now.saturating_sub(self.since) / 4 + FIRST_PATIENCE;
        let pause = (facts.left / 4 * 3)
            .min(facts.left.saturating_sub(NEAR))
            .min(patience);
        Act::Sleep(now + pause.min(DRAIN_PAUSES.1))
    }

    /// The work that was admitted would not end by the deadline: the turn is over early. `false` if
    /// there is none.
    pub fn land(&mut self, now: u64) -> bool {
        let is_open = self.stand == GateState::Open;
        if is_open {
            self.take(GateState::Closing, self.epoch, now, Act::Close);
        }
        is_open
    }

    /// A call waits. The epoch if that has not been said in it yet.
    #[inline]
    pub fn want(&mut self) -> Option<u64> {
        let is_closed = matches!(self.stand, GateState::Closing | GateState::Drained);
        let is_news = is_closed && self.wanted != Some(self.epoch);
        is_news.then(|| {
            self.wanted = Some(self.epoch);
            self.epoch
        })
    }

    /// Work is submitted. The epoch if it had been called idle in it.
    #[inline]
    pub fn work(&mut self) -> Option<u64> {
        core::mem::take(&mut self.idle).then_some(self.epoch)
    }

    /// The process makes a context on the device. Of what it said there before, the daemon knows
    /// nothing: it counts as active from here on, and starts there. The epoch if it had been called
    /// idle in it.
    pub fn joins(&mut self, now: u64) -> Option<u64> {
        self.began = Some(now);
        self.work()
    }

    /// The daemon is silent: what was said to it last it may still believe when it goes on.
    pub fn falls_silent(&mut self) {
        self.believed |= self.idle;
    }

    /// The gate is not maintained any more, and free until it is again.
    pub fn give_up(&mut self) {
        self.falls_silent();
        *self = Self {
            believed: self.believed,
            ..Self::default()
        };
    }

    /// The daemon is another one, or there is none any more, or the connection is new: nothing that
    /// was said counts.
    pub fn forget(&mut self) {
        self.wanted = None;
        (self.idle, self.believed) = (false, false);
        if self.stand == GateState::Drained {
            self.stand = GateState::Closing;
        }
    }
}

#[cfg(test)]
mod tests;
