//! The time in which memory is on its way to or from a device, of all tenants together: moves at
//! the same time count once, as they share one link.

use crate::time::Nanos;

/// The clock of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moving {
    /// Since when at least one move is under way.
    since: Option<Nanos>,
    /// All such time before.
    before: Nanos,
}

impl Moving {
    /// Whether a move `is` under way from now on.
    pub(crate) fn note(&mut self, now: Nanos, is: bool) {
        match (self.since, is) {
            (None, true) => self.since = Some(now),
            (Some(_), false) => (self.before, self.since) = (self.total(now), None),
            _ => (),
        }
    }

    /// All such time until now. It never falls.
    pub(crate) fn total(&self, now: Nanos) -> Nanos {
        let since = self.since.map_or(Nanos::ZERO, |since| now - since);
        self.before + since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_a_move_is_under_way_and_once() {
        let at = Nanos::secs;
        let mut moving = Moving::default();
        moving.note(at(10), true);
        assert_eq!(moving.total(at(13)), at(3), "also before its end");
        // Another one begins, and one of the two ends.
        moving.note(at(14), true);
        moving.note(at(16), true);
        moving.note(at(20), false);
        assert_eq!(moving.total(at(50)), at(10));
        moving.note(at(60), false);
        moving.note(at(61), true);
        assert_eq!(moving.total(at(63)), at(12));
    }
}
