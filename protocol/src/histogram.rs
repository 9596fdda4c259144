//! Histograms of times: fixed buckets, so that recording is a few comparisons and an addition.

#[cfg(feature = "wire")]
use serde::{Deserialize, Serialize};

/// The upper bounds of the buckets, in nanoseconds: 10 µs to 300 s, three times as much each, in
/// round numbers. Longer times are in the bucket after the last.
pub const BOUNDS: [u64; 16] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
    100_000_000_000,
    300_000_000_000,
];

/// How many times there were of each length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "wire", derive(Serialize, Deserialize))]
pub struct Histogram {
    /// Times in each bucket of [`BOUNDS`]; the last counts those beyond all bounds. Not cumulative.
    pub counts: [u64; BOUNDS.len() + 1],
    /// All times together, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Counts one time. A time at a bound is in the bucket that the bound closes.
    pub fn record(&mut self, ns: u64) {
        let bucket = BOUNDS.iter().position(|bound| ns <= *bound);
        let count = &mut self.counts[bucket.unwrap_or(BOUNDS.len())];
        *count = count.saturating_add(1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (count, more) in sum.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        sum.sum_ns = sum.sum_ns.saturating_add(other.sum_ns);
        sum
    }

    /// The times counted since `earlier`. If any count fell, they are the whole of `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let fell = self.counts.iter().zip(&earlier.counts).any(|(n, e)| n < e);
        if fell {
            return *self;
        }
        let mut more = *self;
        for (count, before) in more.counts.iter_mut().zip(earlier.counts) {
            *count -= before;
        }
        more.sum_ns = more.sum_ns.saturating_sub(earlier.sum_ns);
        more
    }

    /// The bound, in nanoseconds, that so many thousandths of the times do not exceed. `None`
    /// without any time; [`u64::MAX`] beyond the last bound.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Option<u64> {
        let all = self.count();
        if all == 0 {
            return None;
        }
        let wanted = u128::from(all) * u128::from(permille);
        let mut below: u128 = 0;
        for (count, bound) in self.counts.iter().zip(BOUNDS) {
            below += u128::from(*count);
            if below * 1000 >= wanted {
                return Some(bound);
            }
        }
        Some(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut times = Histogram::default();
        for ns in [0, 10_000, 10_001, 300_000_000_000, 300_000_000_001] {
            times.record(ns);
        }
        assert_eq!(times.counts[..3], [2, 1, 0]);
        assert_eq!(times.counts[15..], [1, 1]);
        assert_eq!(times.count(), 5);
        assert_eq!(times.sum_ns, 600_000_020_002);
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_quantile_is_the_bound_that_so_many_do_not_exceed() {
        let mut times = Histogram::default();
        assert_eq!(times.quantile(990), None);
        (0..99).for_each(|_| times.record(20_000));
        times.record(5_000_000);
        assert_eq!(times.quantile(990), Some(30_000));
        assert_eq!(times.quantile(1000), Some(10_000_000));
        let beyond = Histogram {
            counts: std::array::from_fn(|at| u64::from(at == BOUNDS.len())),
            sum_ns: 0,
        };
        assert_eq!(beyond.quantile(500), Some(u64::MAX));
    }

    #[test]
    fn what_came_since_is_the_difference_or_all_after_a_reset() {
        let mut before = Histogram::default();
        before.record(1);
        let mut after = before;
        after.record(2_000_000);
        let more = after.since(&before);
        assert_eq!((more.count(), more.sum_ns), (1, 2_000_000));
        assert_eq!(before.since(&after), before);
        assert_eq!(before.plus(&more), after);
    }
}
