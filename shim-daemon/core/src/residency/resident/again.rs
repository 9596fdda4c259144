//! When a tenant that did not leave is asked again.

use super::{Place, Resident, SwapPolicy};
use crate::time::Nanos;

impl Resident {
    /// Until when it is not asked to leave because it did not.
    pub(crate) fn backs_off(&self) -> Nanos {
        self.backoff.0
    }

    /// It did not leave: it is not asked again for a while, twice as long each time.
    pub(crate) fn back_off(&mut self, now: Nanos, least: Nanos, terms: &SwapPolicy) {
        let (first, most) = terms.backoff;
        let doubled = Nanos(first.0.saturating_mul(1 << self.backoff.1.min(16)));
        let pause = doubled.min(most).max(least);
        self.backoff = (now + pause, self.backoff.1 + 1);
    }

    /// How long its work may take to end: by the order in force, or the next time if that is more.
    pub(crate) fn drains_for(&self, terms: &SwapPolicy) -> Nanos {
        let now = match self.place {
            Place::Sealing => self.drain.given(),
            _ => Nanos::ZERO,
        };
        self.drain.next(terms).max(now)
    }

    /// How often in a row it made no progress for too long.
    pub(crate) fn slow(&self) -> u32 {
        self.slow
    }

    /// It made no progress for too long.
    pub(crate) fn was_slow(&mut self) {
        self.slow = self.slow.saturating_add(1);
    }

    /// It has left: the next time it is asked as if it had never refused.
    pub(crate) fn has_left(&mut self) {
        (self.backoff, self.slow) = ((Nanos::ZERO, 0), 0);
    }
}
