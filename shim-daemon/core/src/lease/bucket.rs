//! The hard cap: a bucket of hold time.
//!
//! It fills with the cap's part of all time and pays for every nanosecond the container holds the device. In any span
//! of time the container holds cap × span less what the level rose, so the cap is kept in *every* window as closely as
//! the level is: it moves between [`CAPACITY`] and what one kernel overdraws. 10 ms of capacity are one percentage point
//! of a second; a kernel that starts on the last drop may take as much again before a one-second window is 2 points off.
//!
//! A container that ran dry waits for a whole turn's worth, not for the first drop, or it would switch on and off
//! with every fraction of a millisecond: half the capacity, or less where the cap is so high that a turn takes less.

use super::terms::part_of;
use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// The most it saves up: what a container may hold above its cap's pace after a pause.
const CAPACITY: i64 = 10_000_000;
/// What a dry bucket fills up to before the next turn, if a turn costs that much.
const RESUME: i64 = CAPACITY / 2;
/// What counts as a turn for that, whatever turns there are: whether a bucket allows one is nobody else's business.
const TURN: Nanos = Nanos::millis(20);

/// A container's allowance on one device. Levels in nanoseconds of hold time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    cap: Permille,
    level: i64,
    /// It ran dry and waits for a whole turn's worth.
    dry: bool,
}

impl Bucket {
    /// A bucket with one turn's worth in it.
    pub(super) fn new(cap: Permille) -> Self {
        Self {
            cap,
            level: RESUME,
            dry: false,
        }
    }

    /// The same level under another cap.
    pub(super) fn change(&mut self, cap: Permille) {
        self.cap = cap;
    }

    /// Time passes; `held` of it the container held the device. No more than `most_debt` is ever owed.
    pub(super) fn pass(&mut self, time: Nanos, held: Nanos, most_debt: Nanos) {
        let filled = signed(part_of(self.cap, time));
        let level = self
            .level
            .saturating_add(filled)
            .saturating_sub(signed(held));
        self.level = level.clamp(-signed(most_debt), CAPACITY);
    }

    /// The turn is over: whether there is enough left for another.
    pub(super) fn turn_over(&mut self) {
        self.dry = self.level < self.resume() / 4;
    }

    /// Whether the container may hold the device.
    pub(super) fn allows(&self) -> bool {
        self.level >= self.goal()
    }

    /// How long from now until it allows a turn, if nothing is taken from it.
    pub(super) fn wait(&self) -> Nanos {
        let missing = u64::try_from(self.goal().saturating_sub(self.level)).unwrap_or(0);
        Nanos(missing.saturating_mul(1000).div_ceil(self.cap.get().into()))
    }

    /// How long the container may hold the device from now on.
    pub(super) fn lasts(&self) -> Nanos {
        let level = u64::try_from(self.level).unwrap_or(0);
        let drain = 1000 - u64::from(self.cap.get().min(999));
        Nanos(level.saturating_mul(1000) / drain)
    }

    /// Whether all that can be owed is owed: what holds the device now is not billed any more.
    pub(super) fn at_most_debt(&self, most_debt: Nanos) -> bool {
        self.level <= -signed(most_debt)
    }

    fn goal(&self) -> i64 {
        if self.dry { self.resume() } else { 1 }
    }

    /// What a turn takes out of it, and no more than half of what it can hold.
    fn resume(&self) -> i64 {
        let refilled = part_of(self.cap, TURN);
        signed(TURN - refilled).clamp(1, RESUME)
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBT: Nanos = Nanos::secs(1);

    #[test]
    fn alone_it_is_open_for_the_caps_part_of_the_time() {
        let mut bucket = Bucket::new(Permille::new(300).unwrap());
        let (mut held, mut total) = (Nanos::ZERO, Nanos::ZERO);
        for _ in 0..1000 {
            let on = bucket.lasts();
            bucket.pass(on, on, DEBT);
            bucket.turn_over();
            assert!(!bucket.allows(), "it ran dry");
            let off = bucket.wait();
            bucket.pass(off, Nanos::ZERO, DEBT);
            assert!(bucket.allows(), "it waited as long as it was told");
            (held, total) = (held + on, total + on + off);
        }
        let part = held.0 * 10_000 / total.0;
        assert!(part.abs_diff(3000) <= 2, "{part} of 10000");
    }

    #[test]
    fn saving_up_stops_at_the_capacity() {
        let mut bucket = Bucket::new(Permille::new(500).unwrap());
        bucket.pass(Nanos::secs(100), Nanos::ZERO, DEBT);
        assert_eq!(bucket.lasts(), Nanos::millis(20));
    }

    #[test]
    fn a_debt_is_paid_back_and_one_above_the_most_is_not() {
        let mut bucket = Bucket::new(Permille::new(500).unwrap());
        bucket.pass(Nanos::millis(105), Nanos::millis(105), DEBT);
        bucket.turn_over();
        assert_eq!(
            bucket.wait().0,
            2 * (105_000_000 - 52_500_000),
            "to the level before"
        );
        bucket.pass(Nanos::secs(100), Nanos::secs(100), DEBT);
        assert!(bucket.at_most_debt(DEBT));
        assert_eq!(bucket.wait().0, 2 * (1_000_000_000 + 5_000_000));
    }

    #[test]
    fn a_short_use_leaves_it_open_without_waiting_for_a_whole_turn() {
        let mut bucket = Bucket::new(Permille::new(100).unwrap());
        bucket.pass(Nanos::millis(1), Nanos::millis(1), DEBT);
        bucket.turn_over();
        assert!(bucket.allows());
    }

    #[test]
    fn a_high_cap_pauses_briefly() {
        let mut bucket = Bucket::new(Permille::new(990).unwrap());
        let on = bucket.lasts();
        bucket.pass(on, on, DEBT);
        bucket.turn_over();
        assert!(bucket.wait() < Nanos::millis(1));
    }
}
