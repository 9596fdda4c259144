//! Whether a tenant's claims agree with the clock.

use super::done::Done;
use super::rules::Rules;
use crate::time::Nanos;

/// Whether a tenant's bills agree with the clock. While no other tenant may run, completed work
/// should take the elapsed time. While others yield to a deep queue, it should take what they leave
/// of it. One that claims less than half of that is not behind, and no tenant is held for it. A
/// process that was not scheduled for a while looks the same once, so the first doubt is short and
/// each further one twice as long, until its bills agree again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// No other tenant could run at the last sample.
    alone: bool,
    /// Its unbroken time alone, and its time beside tenants that yield to it while its queue is not
    /// empty, since the last verdicts.
    by_itself: Claimed,
    yielded_to: Claimed,
    until: Nanos,
    /// When it was last looked at.
    seen: Nanos,
    /// How long the next doubt is; zero if its bills agreed last.
    next: Nanos,
}

/// The time that a tenant could have, and its claims for that time (ns).
#[derive(Clone, Copy, Debug, Default)]
struct Claimed {
    time: u64,
    service: u64,
}

impl Claimed {
    /// Adds the work of a span in which it could have so much. After `enough` time it returns
    /// whether the claims agree.
    fn agrees(&mut self, could: u64, done: Done, enough: Nanos) -> Option<bool> {
        self.time = self.time.saturating_add(could);
        self.service = self.service.saturating_add(done.service);
        // An operation is claimed when it ends.
        if self.time < enough.0 || done.service == 0 {
            return None;
        }
        let agrees = self.service >= self.time / 2;
        *self = Self::default();
        Some(agrees)
    }
}

impl Doubt {
    /// Records the work of the last `span`. `alone`: at the end of the span no other tenant could
    /// run. `yielded`: so much of it was left by tenants that yielded to it.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        (alone, yielded): (bool, Option<u64>),
        done: Done,
    ) {
        self.seen = now;
        // Guesses are not billed, so they need not agree with the clock.
        let alone = alone && !done.guessed;
        let alone = std::mem::replace(&mut self.alone, alone) && alone;
        let mut verdict = None;
        if alone && done.pending >= Rules::MOSTLY {
            verdict = self.by_itself.agrees(span.0, done, Rules::VERDICT);
        } else {
            self.by_itself = Claimed::default();
        }
        if done.pending < Rules::ALWAYS || !done.deep || done.guessed {
            self.yielded_to = Claimed::default();
        } else if let Some(left) = yielded {
            let beside = self.yielded_to.agrees(left, done, Rules::VERDICT_BESIDE);
            verdict = verdict.or(beside);
        }
        let (first, most) = Rules::DOUBTED;
        match verdict {
            Some(true) => self.next = Nanos::ZERO,
            Some(false) => {
                let long = self.next.max(first);
                (self.until, self.next) = (now + long, Nanos(long.0 * 2).min(most));
            }
            None => {}
        }
    }

    /// Whether its claims were doubted at the last look.
    pub(super) fn is(&self) -> bool {
        self.seen < self.until
    }
}
