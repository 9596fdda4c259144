//! Thrash detection: whether moves take too much of a device's time.
//!
//! Stays follow the measured cost, so moves take at most a part in 12 of the time. Tenants of
//! higher priority, idle tenants that wake, and costs that change can make it more. Then all stays
//! are lengthened, step by step, until it is less.

use crate::time::Nanos;

/// The time over which moves are counted.
const WINDOW: Nanos = Nanos::secs(60);
/// Above this part of a window, in percent, stays are doubled; below the other they are halved.
const PARTS: (u64, u64) = (30, 10);
/// Stays are lengthened at most this many times: eightfold.
const MOST: u32 = 3;

/// A change of the stays at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Stays are longer from now on; moves took so many percent of the window.
    Worse(u64),
    /// They are shorter again.
    Better,
}

/// The detector of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detector {
    since: Nanos,
    moving: Nanos,
    doubled: u32,
}

impl Detector {
    /// A move took this long.
    pub(crate) fn moved(&mut self, now: Nanos, took: Nanos) -> Option<Verdict> {
        self.moving = self.moving + took;
        self.pass(now)
    }

    /// By how much stays are lengthened now.
    pub(crate) fn stretch(&self) -> u64 {
        1 << self.doubled
    }

    fn pass(&mut self, now: Nanos) -> Option<Verdict> {
        let span = now - self.since;
        if span < WINDOW {
            return None;
        }
        let part = u128::from(self.moving.0) * 100 / u128::from(span.0.max(1));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        (self.since, self.moving) = (now, Nanos::ZERO);
        if part > PARTS.0 && self.doubled < MOST {
            self.doubled += 1;
            return Some(Verdict::Worse(part));
        }
        if part < PARTS.1 && self.doubled > 0 {
            self.doubled -= 1;
            return Some(Verdict::Better);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_for_most_of_a_minute_double_the_stays_once_a_minute() {
        let mut detector = Detector::default();
        let verdicts =
            (1..=300).filter_map(|second| detector.moved(Nanos::secs(second), Nanos::millis(500)));
        assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Worse(50); 3]);
        assert_eq!(detector.stretch(), 8);
    }

    #[test]
    fn rare_moves_change_nothing_and_undo_what_was_doubled() {
        let mut detector = Detector::default();
        let quiet = |detector: &mut Detector, from: u64| {
            let seconds = from..from + 240;
            let moves =
                seconds.filter_map(|second| detector.moved(Nanos::secs(second), Nanos::millis(20)));
            moves.collect::<Vec<_>>()
        };
        assert_eq!(quiet(&mut detector, 1), []);
        detector.moved(Nanos::secs(400), Nanos::secs(200));
        assert_eq!(detector.stretch(), 2);
        assert_eq!(quiet(&mut detector, 401), [Verdict::Better]);
        assert_eq!(detector.stretch(), 1);
    }
}
