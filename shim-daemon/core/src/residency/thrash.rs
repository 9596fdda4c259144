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
    /// When the window began, and the time of all moves until then.
    since: Nanos,
    moved: Nanos,
    doubled: u32,
}

impl Detector {
    /// A move is over. `moving` is the time so far in which moves were under way: one that takes
    /// its time beside another one takes none of the device's.
    pub(crate) fn moved(&mut self, now: Nanos, moving: Nanos) -> Option<Verdict> {
        let span = now - self.since;
        if span < WINDOW {
            return None;
        }
        let took = moving - self.moved;
        let part = u128::from(took.0) * 100 / u128::from(span.0.max(1));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        (self.since, self.moved) = (now, moving);
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

    /// By how much stays are lengthened now.
    pub(crate) fn stretch(&self) -> u64 {
        1 << self.doubled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_for_most_of_a_minute_double_the_stays_once_a_minute() {
        let mut detector = Detector::default();
        let verdicts = (1..=300)
            .filter_map(|second| detector.moved(Nanos::secs(second), Nanos::millis(500 * second)));
        assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Worse(50); 3]);
        assert_eq!(detector.stretch(), 8);
    }

    #[test]
    fn rare_moves_change_nothing_and_undo_what_was_doubled() {
        let mut detector = Detector::default();
        let quiet = |detector: &mut Detector, from: u64| {
            let before = detector.moved;
            let moves = (0..240).filter_map(|second| {
                let moving = before + Nanos::millis(20 * (second + 1));
                detector.moved(Nanos::secs(from + second), moving)
            });
            moves.collect::<Vec<_>>()
        };
        assert_eq!(quiet(&mut detector, 1), []);
        let moving = detector.moved + Nanos::secs(200);
        detector.moved(Nanos::secs(400), moving);
        assert_eq!(detector.stretch(), 2);
        assert_eq!(quiet(&mut detector, 401), [Verdict::Better]);
        assert_eq!(detector.stretch(), 1);
    }
}
