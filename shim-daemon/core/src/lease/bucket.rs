//! The hard cap: a bucket of hold time.
//!
//! It fills with the cap's part of all time and pays for every nanosecond the container holds the device. In any span
//! of time the container holds cap × span less what the level rose, so the cap is kept in *every* window as closely as
//! the level is: it moves between [`BRIM`] and what one kernel overdraws, and 10 ms of it are one percentage point of a second.
//!
//! A container that ran dry waits for a whole turn's worth: as much as lets it go on and off once in a [`CYCLE`], and no
//! more than [`MOST`]. Every turn costs its container a handoff, some 0.2 to 0.4 ms in which it is billed and not served
//! yet, or not any more; ten to twenty a second are up to half a point. The room from there up to the brim is for
//! what is late: a daemon or a gate that the host wakes late has its container's time collected meanwhile.

use super::terms::part_of;
use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// The most it saves up: what a container may hold above its cap's pace after a pause.
const BRIM: i64 = 18_000_000;
/// How long a container that always has work is on and off together, if that takes no more than [`MOST`].
const CYCLE: Nanos = Nanos::millis(100);
/// The most a dry bucket waits for: with a cap of a half a cycle of 50 ms.
const MOST: i64 = 12_500_000;
/// No turn after a dry bucket is shorter: a tiny cap pauses longer instead.
const SHORTEST: Nanos = Nanos::millis(2);

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
        let mut bucket = Self {
            cap,
            level: 0,
            dry: false,
        };
        bucket.level = bucket.resume();
        bucket
    }

    /// The level of `old`, if there was a cap before, under this one.
    pub(super) fn under(old: Option<Self>, cap: Permille) -> Self {
        old.map_or_else(|| Self::new(cap), |old| Self { cap, ..old })
    }

    /// Time passes; `held` of it the container held the device. No more than `most_debt` is ever owed.
    pub(super) fn pass(&mut self, time: Nanos, held: Nanos, most_debt: Nanos) {
        let filled = signed(part_of(self.cap, time));
        let level = self
            .level
            .saturating_add(filled)
            .saturating_sub(signed(held));
        self.level = level.clamp(-signed(most_debt), BRIM);
    }

    /// The turn is over, `cut` short or given up: whether there is enough left for another. What was cut goes on only with a
    /// whole turn's worth: a rest would cost as much again to hand on, and its last kernel would overdraw.
    pub(super) fn turn_over(&mut self, cut: bool) {
        let least = self.resume();
        self.dry = self.level < if cut { least } else { least / 4 };
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

    /// What a turn takes out of it: the cap's part of a cycle, and of that what does not flow in meanwhile.
    fn resume(&self) -> i64 {
        let turn = part_of(self.cap, CYCLE).max(SHORTEST);
        signed(turn - part_of(self.cap, turn)).clamp(1, MOST)
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
            bucket.turn_over(true);
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
        assert_eq!(bucket.lasts(), Nanos::millis(36));
    }

    #[test]
    fn a_debt_is_paid_back_and_one_above_the_most_is_not() {
        let mut bucket = Bucket::new(Permille::new(500).unwrap());
        bucket.pass(Nanos::millis(105), Nanos::millis(105), DEBT);
        bucket.turn_over(true);
        assert_eq!(bucket.wait().0, 105_000_000, "to the level before");
        bucket.pass(Nanos::secs(100), Nanos::secs(100), DEBT);
        assert!(bucket.at_most_debt(DEBT));
        assert_eq!(bucket.wait().0, 2 * (1_000_000_000 + 12_500_000));
    }

    #[test]
    fn a_short_use_leaves_it_open_without_waiting_for_a_whole_turn() {
        let mut bucket = Bucket::new(Permille::new(100).unwrap());
        bucket.pass(Nanos::millis(1), Nanos::millis(1), DEBT);
        bucket.turn_over(false);
        assert!(bucket.allows());
    }

    #[test]
    fn it_is_on_once_a_cycle_and_a_tiny_cap_for_a_shortest_turn() {
        for (cap, on, cycle) in [
            (5, 2_000, 400_000),
            (20, 2_000, 100_000),
            (100, 10_000, 100_000),
            (500, 25_000, 50_000),
            (990, 99_000, 100_000),
        ] {
            let mut bucket = Bucket::new(Permille::new(cap).unwrap());
            let lasts = bucket.lasts();
            assert!(lasts.0.abs_diff(on * 1000) <= 1000, "{cap}: {lasts:?}");
            bucket.pass(lasts, lasts, DEBT);
            bucket.turn_over(true);
            assert!(
                (lasts + bucket.wait()).0.abs_diff(cycle * 1000) <= 1000,
                "{cap}"
            );
        }
    }
}
