//! The rounds of the gate thread on one device: what it finds of the work under way, and what it
//! does about it.

use gpushare_protocol::page::lease::Turn;

use super::{BATCH_AGE, DeviceGate, GateState, Inner, LONGEST_REST, Quiet, bounds};
use crate::guest::clock;
use gpushare_pacing::follower::{Act, Facts};

impl DeviceGate {
    /// For [`step`](Self::step): taken before the turn is read.
    pub(in crate::gate) fn stands(&self) -> u64 {
        self.lock().follower.stands()
    }

    /// One round of the gate thread: returns the next action under `turn`. Carries out the part
    /// that concerns the gate's word and the marks; the rest is for the caller. If the gate has
    /// changed since `stands`, the turn is outdated: returns to be called again at once.
    pub(in crate::gate) fn step(&self, turn: &Turn, stands: u64) -> Act {
        let quiet = self.prepare(turn, stands);
        let now = clock::now();
        let mut inner = self.lock();
        if inner.follower.stands() != stands {
            return Act::Sleep(now);
        }
        let facts = self.facts(&mut inner, now, turn, quiet);
        self.act(&mut inner, now, turn, &facts)
    }

    /// Puts the marks that are due. It may take long, so launches come and go meanwhile: where the
    /// gate has to close, none is put before that. Whether no launch is inside the closed gate.
    fn prepare(&self, turn: &Turn, stands: u64) -> bool {
        let (stand, closes) = {
            let inner = self.lock();
            let follower = &inner.follower;
            (follower.stand(), follower.closes(clock::now(), turn))
        };
        let quiet = stand == GateState::Closing && self.quiet() != Quiet::No;
        if quiet {
            self.mark_all(stands);
        } else if stand == GateState::Open && !closes {
            self.drop_unreported();
            self.glance(turn);
            self.mark_tails(turn);
        }
        quiet
    }

    /// The state of the work under way, as far as it matters now.
    fn facts(&self, inner: &mut Inner, now: u64, turn: &Turn, quiet: bool) -> Facts {
        let stand = inner.follower.stand();
        if stand != GateState::Free {
            inner.refresh(now);
            inner.look(now);
            self.settle(inner, now);
        }
        let unseen = match stand {
            GateState::Closing => inner.unseen.is_some(),
            GateState::Open => turn.is_shared() && inner.wants_glance(),
            GateState::Free | GateState::Drained => false,
        };
        Facts {
            empty: inner.window.is_empty() && !unseen,
            quiet,
            last_active: inner.window.last_active().max(inner.waited),
            left: inner.window.left(now),
        }
    }

    /// For a waiting thread: if the daemon has given the turn, opens without waiting for the gate
    /// thread to wake. `turn` reads the page under the lock, so that no thread opens by a page from
    /// before the last close.
    pub(in crate::gate) fn follow(&self, turn: impl FnOnce() -> Turn) {
        let mut inner = self.lock();
        let turn = turn();
        if inner.follower.is_opened_by(&turn) {
            let _ = self.act(&mut inner, clock::now(), &turn, &Facts::default());
        }
    }

    fn act(&self, inner: &mut Inner, now: u64, turn: &Turn, facts: &Facts) -> Act {
        let was_free = inner.follower.stand() == GateState::Free;
        let act = inner.follower.step(now, turn, facts);
        if inner.follower.stand() == GateState::Open {
            inner.bounds = bounds(turn.window, turn.deadline);
        }
        match act {
            Act::Free => {
                inner.unseen = Some(0);
                crate::gate::free(self.index);
                self.settle(inner, now);
            }
            Act::Open => {
                inner.moved(was_free);
                inner.window.begin_turn();
                crate::gate::open(self.index);
            }
            Act::Close => {
                inner.moved(was_free);
                crate::gate::close(self.index);
            }
            Act::Drained(_) | Act::Idle(_) | Act::Busy(_) | Act::Missed | Act::Sleep(_) => {}
        }
        act
    }

    /// The gate is not maintained any more: everything passes, until it is maintained again.
    pub(in crate::gate) fn give_up(&self) {
        let mut inner = self.lock();
        inner.follower.give_up();
        inner.unseen = Some(0);
        crate::gate::free(self.index);
    }

    /// Marks work that no further work has followed for a while, so that its completion is noticed;
    /// and work that has no mark for long in one stream, while other streams go on.
    fn mark_tails(&self, turn: &Turn) {
        let rest = match turn.idle_after {
            0 => 250_000,
            after => (after / 2).min(LONGEST_REST),
        };
        let rests = {
            let inner = self.lock();
            let now = clock::now();
            let rested = now.saturating_sub(inner.window.last_submitted) >= rest;
            let least = if rested { 0 } else { BATCH_AGE };
            let mut unmarked = inner.window.unmarked_streams();
            unmarked.any(|(_, since)| now.saturating_sub(since) >= least)
        };
        if rests {
            let _ = self.mark_rest(0, BATCH_AGE);
        }
    }
}

#[cfg(test)]
mod tests;
