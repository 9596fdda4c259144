//! How long a tenant's submitted work may take to end, once its processes are sealed.
//!
//! A sealed process submits nothing, so a queue of work ends by itself; how deep it is nobody
//! knows before. So the time is doubled each time that it was too short. A kernel that never ends
//! is told from a deep queue by the longest time alone. While a tenant is sealed in vain its
//! program stands, so the pauses between such attempts grow with them.

use super::terms::SwapPolicy;
use crate::time::Nanos;

/// After the longest time was too short, the next pause is as long as that time, then twice, and so
/// on: so many doublings at most. So a tenant that never drains is sealed for a ninth of the time.
const DOUBLED: u32 = 3;

/// The time for one tenant and device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drain {
    /// What the last order to be sealed gave; zero before there was one.
    given: Nanos,
    /// What the next one gives at least; zero: the first time.
    next: Nanos,
    /// How often in a row the longest time was too short.
    longest: u32,
    /// The last order to be sealed was not answered: more time for work would not have helped.
    silent: bool,
}

impl Drain {
    /// The processes are to be sealed now. The tenant for which that is cannot wait for another
    /// attempt, and its wait is worth `least` of time for this one; zero: it can.
    pub(crate) fn begin(&mut self, least: Nanos, terms: &SwapPolicy) {
        let least = if self.silent { Nanos::ZERO } else { least };
        self.given = self.next(terms).max(least.min(terms.drain.1));
    }

    /// What the last order to be sealed gave; zero before there was one.
    pub(crate) fn given(&self) -> Nanos {
        self.given
    }

    /// What the next order to be sealed gives at least.
    pub(crate) fn next(&self, terms: &SwapPolicy) -> Nanos {
        self.next.max(terms.drain.0).min(terms.drain.1)
    }

    /// The work did not end in the time given, or a call of the driver did not. Returns for how
    /// long the tenant is to run at least before it is sealed again, of which it was now sealed
    /// for `vain`.
    pub(crate) fn was_short(&mut self, vain: Nanos, terms: &SwapPolicy) -> Nanos {
        self.silent = false;
        self.next = (self.given + self.given).min(terms.drain.1);
        if self.given < terms.drain.1 {
            return vain;
        }
        let pause = Nanos(vain.0.saturating_mul(1 << self.longest.min(DOUBLED)));
        self.longest = self.longest.saturating_add(1);
        pause
    }

    /// A process did not answer the order.
    pub(crate) fn was_silent(&mut self) {
        (self.silent, self.next) = (true, Nanos::ZERO);
    }

    /// All processes were sealed after this time. The next time they are given twice as long, or
    /// half of what they needed before.
    pub(crate) fn took(&mut self, time: Nanos) {
        let half = Nanos(self.next.0 / 2);
        (self.longest, self.silent) = (0, false);
        self.next = half.max(time + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: fn() -> SwapPolicy = SwapPolicy::default;

    fn seconds(time: Nanos) -> u64 {
        time.0 / 1_000_000_000
    }

    #[test]
    fn the_time_is_doubled_each_time_that_it_was_too_short() {
        let (mut drain, terms) = (Drain::default(), TERMS());
        let all = (0..9).map(|_| {
            drain.begin(Nanos::ZERO, &terms);
            let given = drain.given();
            (seconds(given), seconds(drain.was_short(given, &terms)))
        });
        let expected = [
            (2, 2),
            (4, 4),
            (8, 8),
            (16, 16),
            (32, 32),
            (60, 60),
            (60, 120),
            (60, 240),
            (60, 480),
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
        drain.begin(Nanos::ZERO, &terms);
        let last = drain.was_short(Nanos::secs(60), &terms);
        assert_eq!(seconds(last), 480, "the longest pause");
    }

    #[test]
    fn one_that_cannot_wait_gives_more_unless_the_last_seal_had_no_answer() {
        let (mut drain, terms) = (Drain::default(), TERMS());
        for (least, given) in [(1, 2), (9, 9), (60, 60), (99, 60)] {
            drain.begin(Nanos::secs(least), &terms);
            assert_eq!(drain.given(), Nanos::secs(given));
        }
        drain.was_silent();
        drain.begin(terms.drain.1, &terms);
        assert_eq!(drain.given(), terms.drain.0);
        drain.was_short(terms.drain.0, &terms);
        drain.begin(terms.drain.1, &terms);
        assert_eq!(drain.given(), terms.drain.1);
    }

    #[test]
    fn what_a_tenant_needed_is_given_the_next_time_and_forgotten_slowly() {
        let (mut drain, terms) = (Drain::default(), TERMS());
        drain.begin(terms.drain.1, &terms);
        drain.took(Nanos::secs(10));
        let all = (0..5).map(|_| {
            drain.begin(Nanos::ZERO, &terms);
            drain.took(Nanos::millis(5));
            seconds(drain.given())
        });
        assert_eq!(all.collect::<Vec<_>>(), [20, 10, 5, 2, 2]);
    }
}
