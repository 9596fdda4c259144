//! Whether a tenant's claims agree with the clock.

use super::done::Done;
use super::rules::Rules;
use crate::time::Nanos;

/// Whether a tenant's bills agree with the clock. While no other tenant may run, completed work
/// should take the elapsed time. One that claims less than half of it is not behind, and no tenant
/// is held for it. A process that was not scheduled for a while looks the same once, so the first
/// doubt is short and each further one twice as long, until its bills agree again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// No other tenant could run at the last sample.
    alone: bool,
    /// Its unbroken time alone since the last verdict, and its claims for that time (ns).
    time: u64,
    claimed: u64,
    until: Nanos,
    /// When it was last looked at.
    seen: Nanos,
    /// How long the next doubt is; zero if its bills agreed last.
    next: Nanos,
}

impl Doubt {
    /// Records the work of the last `span`. `alone`: at the end of the span no other tenant could
    /// run.
    pub(super) fn note(&mut self, now: Nanos, (span, alone): (Nanos, bool), done: Done) {
        self.seen = now;
        if std::mem::replace(&mut self.alone, alone) && alone && done.pending >= Rules::MOSTLY {
            self.time += span.0;
            self.claimed = self.claimed.saturating_add(done.service);
        } else {
            (self.time, self.claimed) = (0, 0);
        }
        // An operation is claimed when it ends.
        if self.time >= Rules::VERDICT.0 && done.service > 0 {
            let (first, most) = Rules::DOUBTED;
            if self.claimed < self.time / 2 {
                let long = self.next.max(first);
                (self.until, self.next) = (now + long, Nanos(long.0 * 2).min(most));
            } else {
                self.next = Nanos::ZERO;
            }
            (self.time, self.claimed) = (0, 0);
        }
    }

    /// Whether its claims were doubted at the last look.
    pub(super) fn is(&self) -> bool {
        self.seen < self.until
    }
}
