//! How often a shared device's mode changed, in all and lately.

use crate::time::Nanos;
use std::collections::VecDeque;

/// For how long a change of mode is remembered.
const MINUTE: Nanos = Nanos::secs(60);
/// The bound of remembered changes: a minute with one change in each sample.
const MOST: usize = 60_000;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Changes {
    all: u64,
    /// When those of the last minute were.
    lately: VecDeque<Nanos>,
}

impl Changes {
    /// The mode changes.
    pub(super) fn note(&mut self, now: Nanos) {
        self.all += 1;
        self.lately.push_back(now);
        let old = |at: &Nanos| *at + MINUTE <= now;
        while self.lately.len() > MOST || self.lately.front().is_some_and(old) {
            self.lately.pop_front();
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// How many there were in the minute before `now`.
    pub(super) fn lately(&self, now: Nanos) -> u32 {
        let lately = self.lately.iter().filter(|at| **at + MINUTE > now);
        u32::try_from(lately.count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_mode_are_counted_for_a_minute() {
        let mut changes = Changes::default();
        for at in [1, 1, 31] {
            changes.note(Nanos::secs(at));
        }
        assert_eq!(changes.lately(Nanos::secs(31)), 3);
        assert_eq!(changes.lately(Nanos::secs(61)), 1);
        changes.note(Nanos::secs(200));
        assert_eq!((changes.all(), changes.lately.len()), (4, 1));
    }
}
