//! Whether a tenant's claims agree with the clock.

use super::done::Done;
use super::outside::beside;
use super::rules::Rules;
use crate::lease::arithmetic::signed;
use crate::time::Nanos;

/// How much of a span a tenant could have (ns); negative where others had what belongs to earlier
/// spans.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// No other tenant that always wants the device may run.
    Held(i64),
    /// All others that always want the device yield to it.
    Yielded(i64),
}

/// Whether a tenant's bills agree with the clock. Completed work should take the time that others
/// leave: all of it where none may run. A tenant that claims less than half of that is not behind,
/// and no other is held for it. A process that was not scheduled for a while looks the same once,
/// so the first doubt is short and each further one twice as long, until its bills agree again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// The others were held at the last sample.
    alone: bool,
    /// Its unbroken time beside held tenants, and its time beside tenants that yield to it while
    /// its queue is not empty, since the last verdicts.
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
    time: i64,
    service: i64,
}

impl Left {
    /// The same where beside so many thousandths of its own contexts those of work run that no gate
    /// governs.
    pub(super) fn beside(self, contexts: (u64, u64)) -> Self {
        match self {
            Self::Held(time) => Self::Held(beside(time, contexts)),
            Self::Yielded(time) => Self::Yielded(beside(time, contexts)),
        }
    }
}

impl Claimed {
    /// Adds the work of a span in which it could have so much, and may have `unfinished` operations
    /// that take long. After `enough` time it returns whether the claims agree.
    fn agrees(&mut self, could: i64, claims: (Done, bool), enough: Nanos) -> Option<bool> {
        let (done, unfinished) = claims;
        let claimed = signed(Nanos(done.service));
        self.time = self.time.saturating_add(could).max(-signed(Rules::MOST));
        self.service = self.service.saturating_add(claimed);
        // An operation is claimed when it ends.
        if self.time < signed(enough) || claimed == 0 || unfinished {
            return None;
        }
        let agrees = self.service >= self.time / 2;
        *self = Self::default();
        Some(agrees)
    }
}

impl Doubt {
    /// Records the work of the last span, of which others `left` it so much at its end, if that is
    /// known. Some operation of it that takes long may be `unfinished`.
    pub(super) fn note(
        &mut self,
        now: Nanos,
        left: Option<Left>,
        (done, unfinished): (Done, bool),
    ) {
        self.seen = now;
        // Guesses are not billed, so they need not agree with the clock.
        let left = left.filter(|_| !done.guessed);
        let alone = matches!(left, Some(Left::Held(_)));
        let was_alone = std::mem::replace(&mut self.alone, alone);
        let mut verdict = None;
        match left {
            Some(Left::Held(could)) if was_alone && done.pending >= Rules::MOSTLY => {
                verdict = self
                    .by_itself
                    .agrees(could, (done, unfinished), Rules::VERDICT);
            }
            _ => self.by_itself = Claimed::default(),
        }
        if done.pending < Rules::ALWAYS || !done.deep || done.guessed {
            self.yielded_to = Claimed::default();
        } else if let Some(Left::Yielded(could)) = left {
            verdict = self
                .yielded_to
                .agrees(could, (done, unfinished), Rules::VERDICT_BESIDE);
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

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Nanos = Nanos::millis(2);

    /// A tenant is alone for a second. Its completed operations claim this part of each span, in
    /// thousandths, and another one may be `unfinished`: for how much of the time it is doubted.
    fn doubted(claim: u64, unfinished: bool) -> Nanos {
        let mut doubt = Doubt::default();
        let done = Done {
            service: SPAN.0 * claim / 1000,
            pending: 1000,
            contexts: 1000,
            works: true,
            ..Done::default()
        };
        let left = Some(Left::Held(signed(SPAN)));
        let spans = (1..=500).filter(|at| {
            doubt.note(Nanos(SPAN.0 * at), left, (done, unfinished));
            doubt.is()
        });
        Nanos(SPAN.0 * spans.count() as u64)
    }

    #[test]
    fn one_that_claims_too_little_is_doubted_and_no_other() {
        assert_eq!(doubted(500, false), Nanos::ZERO);
        let time = doubted(400, false);
        assert!(time >= Nanos::millis(900), "{time:?}");
    }

    /// It completes short operations meanwhile.
    #[test]
    fn none_is_doubted_while_a_long_operation_of_it_may_run() {
        assert_eq!(doubted(100, true), Nanos::ZERO);
    }
}
