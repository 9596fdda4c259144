//! Whether the bills of a shared device's tenants agree with the clock.
//!
//! Bills are claims: the time that completed operations take alone, by their processes' estimates.
//! While a tenant has work pending at an open gate all the time, the device has no gaps except the
//! pauses of yielding tenants. So all bills should add up to the elapsed time. Where they do not,
//! estimates are wrong, or work bypasses the gates.

use super::rules::Rules;
use crate::lease::arithmetic::any_of;
use crate::time::Nanos;

/// A span counts if an open tenant is pending for at least this many thousandths of it. For two
/// tenants that are pending for less, it is unknown whether their pending times overlap.
const ALWAYS: u64 = Rules::ALWAYS;
/// No result is reported before this much time was counted.
const LEAST: Nanos = Nanos::secs(1);
/// The counters are halved when they reach this, so that they describe the recent past.
const MOST: Nanos = Nanos::secs(10);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Nanoseconds billed in the time counted, and that time.
    billed: u64,
    clock: u64,
}

impl Books {
    /// In `span`, tenants with open gates were pending for this many thousandths, and this much was
    /// billed in all.
    pub(super) fn note(&mut self, span: Nanos, pending: &[u64], billed: u64) {
        let busiest = pending.iter().max().copied().unwrap_or(0);
        if busiest < ALWAYS {
            return;
        }
        let any = pending.iter().copied().fold(0, any_of);
        self.billed = self.billed.saturating_add(billed);
        self.clock = self.clock.saturating_add(span.0 * any / 1000);
        if self.clock > MOST.0 {
            (self.billed, self.clock) = (self.billed / 2, self.clock / 2);
        }
    }

    /// By how many thousandths of the time the bills are above it; negative if below. `None`: too
    /// little was counted.
    pub(super) fn off(&self) -> Option<i32> {
        if self.clock < LEAST.0 {
            return None;
        }
        let more = i128::from(self.billed) - i128::from(self.clock);
        let part = more * 1000 / i128::from(self.clock);
        Some(i32::try_from(part).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Nanos::millis(2);

    fn books(pending: &[u64], billed: u64) -> Books {
        let mut books = Books::default();
        for _ in 0..2_000 {
            books.note(TICK, pending, billed);
        }
        books
    }

    #[test]
    fn bills_that_add_up_to_the_time_are_not_off() {
        assert_eq!(books(&[1000, 300], TICK.0).off(), Some(0));
    }

    #[test]
    fn bills_above_and_below_the_time_are_off_by_their_part_of_it() {
        assert_eq!(books(&[1000, 1000], TICK.0 * 12 / 10).off(), Some(200));
        assert_eq!(books(&[1000], TICK.0 * 9 / 10).off(), Some(-100));
    }

    #[test]
    fn a_device_with_gaps_says_nothing_of_its_books() {
        assert_eq!(books(&[700, 700], TICK.0 / 2).off(), None);
        assert_eq!(books(&[], 0).off(), None);
    }

    #[test]
    fn what_is_off_is_of_lately() {
        let mut books = books(&[1000], TICK.0 / 2);
        for _ in 0..60_000 {
            books.note(TICK, &[1000], TICK.0);
        }
        assert_eq!(books.off(), Some(0));
    }
}
