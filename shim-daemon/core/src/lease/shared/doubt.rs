//! Whether what a tenant claims agrees with the clock.

use super::rules::Rules;
use super::tenant::Done;
use crate::time::Nanos;

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
