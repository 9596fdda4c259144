//! Whether the gate thread has shown no sign of life for so long that a waiting thread goes on
//! without it.
//!
//! The time alone does not say: in a process that was stopped or frozen nothing stirs, and when it
//! goes on the waiting thread may run first. So the waiting thread counts its own looks, each some
//! time after the last. Pure: no clock.

/// Two looks count if they are so far apart (ns): as long as a waiting thread naps.
const APART: u64 = 100_000_000;
/// So many looks in a row without a sign of life: ten seconds in which the waiting thread ran.
const LOOKS: u32 = 100;

/// The signs of life that one waiting thread has seen.
#[derive(Debug, Default)]
pub(super) struct Stillness {
    /// When the gate thread stirred last, and when that was counted.
    stirred: u64,
    counted: u64,
    looks: u32,
}

impl Stillness {
    /// A look at `now`: the gate thread last `stirred` then. `true` if it is not waited for any
    /// longer.
    pub(super) fn look(&mut self, now: u64, stirred: u64) -> bool {
        if self.stirred != stirred {
            *self = Self {
                stirred,
                counted: now,
                looks: 0,
            };
        } else if now.saturating_sub(self.counted) >= APART {
            self.counted = now;
            self.looks += 1;
        }
        self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Looks every 100 ms for so many seconds; whether the thread was given up.
    fn looks(stillness: &mut Stillness, from: u64, seconds: u64, stirred: u64) -> bool {
        let mut looks = (0..=seconds * 10).map(|nap| from + nap * APART);
        looks.any(|now| stillness.look(now, stirred))
    }

    #[test]
    fn a_thread_that_does_not_stir_for_ten_seconds_is_given_up() {
        let mut stillness = Stillness::default();
        assert!(!looks(&mut stillness, SECOND, 9, 7));
        assert!(looks(&mut stillness, 10 * SECOND, 2, 7));
    }

    #[test]
    fn a_process_that_was_frozen_waits_as_before() {
        let mut stillness = Stillness::default();
        assert!(!looks(&mut stillness, SECOND, 5, 7));
        assert!(!stillness.look(3_600 * SECOND, 7), "it thaws");
        assert!(!looks(&mut stillness, 3_600 * SECOND, 4, 7));
        assert!(!looks(&mut stillness, 3_605 * SECOND, 9, 8), "it stirred");
    }

    #[test]
    fn many_looks_at_a_time_are_one() {
        let mut stillness = Stillness::default();
        assert!((0..10_000).all(|ns| !stillness.look(SECOND + ns, 7)));
    }

    #[test]
    fn a_thread_that_stirs_is_waited_for() {
        let mut stillness = Stillness::default();
        for second in 0..100 {
            assert!(!looks(&mut stillness, second * SECOND, 1, second));
        }
    }
}
