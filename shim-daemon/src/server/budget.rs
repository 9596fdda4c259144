//! How much of the daemon's time one process may ask for.
//!
//! All connections are served by one thread, and turns on devices change hands within milliseconds: a process that floods
//! the daemon has to wait, not its neighbours. An honest one sends a handful of requests for each turn it gets.

use gpushare_core::Nanos;

/// Requests a process may send for long: one each 100 µs.
const EVERY: Nanos = Nanos::micros(100);
/// What it may have saved up: requests it sends at once, such as one of each of its threads.
const BURST: u64 = 256;

/// A process's account of requests.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When all it sent would have been due, had it kept to the rate.
    owed_until: Nanos,
}

impl Budget {
    /// Counts a request. Returns when the next may be served, if that is not now.
    pub(super) fn spend(&mut self, now: Nanos) -> Option<Nanos> {
        self.owed_until = self.owed_until.max(now) + EVERY;
        let saved = Nanos(EVERY.0 * BURST);
        let rested = self.owed_until - saved;
        (rested > now).then_some(rested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_served_at_once_and_a_flood_at_the_rate() {
        let mut budget = Budget::default();
        let now = Nanos::secs(1);
        for sent in 0..BURST {
            assert_eq!(budget.spend(now), None, "request {sent}");
        }
        assert_eq!(budget.spend(now), Some(now + EVERY));
        assert_eq!(budget.spend(now + EVERY), Some(now + EVERY + EVERY));
    }

    #[test]
    fn one_that_keeps_to_the_rate_never_waits() {
        let mut budget = Budget::default();
        for at in 0..10_000 {
            assert_eq!(budget.spend(Nanos(EVERY.0 * at)), None);
        }
    }
}
