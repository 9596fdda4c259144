//! How long operations are expected to take: one running mean per kernel function and per graph, learned from batches.
//!
//! A batch of operations is seen to be complete only when somebody looks, so what is measured is an interval: it took at least as
//! long as it was seen not to be complete, and at most until it was. A mean above that interval moves to its end, one below it to its
//! middle, but to twice its beginning at most, and one within not at all. Pure: no clock, no driver.

use super::apart::SPOILT;

/// Ways a key can be stored; of more keys with one hash the one that was learned least gives way.
const WAYS: usize = 4;
/// Sets of the table: 4096 keys, 96 KiB, made when first used.
const SETS: usize = 1024;
/// From so many measurements on a mean is believed.
const LEARNED: u8 = 3;
/// Different keys of one batch that are told apart; the time of others moves no mean.
pub(super) const KINDS: usize = 8;

/// What is remembered of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The key, 0 for none.
    key: u64,
    /// Nanoseconds of one operation.
    mean: u64,
    seen: u8,
}

/// The table. Empty until the first lesson.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    sets: Vec<[Entry; WAYS]>,
}

/// What an operation is expected to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Nanoseconds.
    pub(super) ns: u64,
    /// Whether it was measured often enough to be believed.
    pub(super) known: bool,
}

/// What a batch is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    kinds: [(u64, u32); KINDS],
    /// Operations.
    pub(super) count: u32,
    /// What they were expected to take together.
    pub(super) ns: u64,
    /// Whether there is one among them that little is known of.
    pub(super) has_unknown: bool,
    /// Whether there is one among them whose time teaches nothing.
    spoilt: bool,
}

impl Mix {
    /// Adds an operation of `key` that is expected to take `ns`.
    pub(super) fn add(&mut self, key: u64, ns: u64, known: bool) {
        self.has_unknown |= !known;
        self.spoilt |= key == SPOILT;
        self.count = self.count.saturating_add(1);
        self.ns = self.ns.saturating_add(ns);
        let place = self
            .kinds
            .iter_mut()
            .find(|(known, count)| *known == key || *count == 0);
        if let Some((known, count)) = place {
            *known = key;
            *count += 1;
        }
    }

    /// Takes over what another batch is made of.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (key, count) in other.kinds.iter().filter(|(_, count)| *count > 0) {
            let place = self
                .kinds
                .iter_mut()
                .find(|(known, count)| known == key || *count == 0);
            if let Some((known, sum)) = place {
                *known = *key;
                *sum += count;
            }
        }
        self.has_unknown |= other.has_unknown;
        self.spoilt |= other.spoilt;
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl Estimates {
    /// What one operation of `key` takes; `assumed` nanoseconds where nothing is known.
    pub(super) fn of(&self, key: u64, assumed: u64) -> Expected {
        let entry = self.sets.get(set_of(key)).and_then(|set| {
            let found = set.iter().find(|entry| entry.key == key);
            found.filter(|entry| entry.key != 0 && entry.seen > 0)
        });
        entry.map_or(
            Expected {
                ns: assumed,
                known: false,
            },
            |entry| Expected {
                ns: entry.mean,
                known: entry.seen >= LEARNED,
            },
        )
    }

    /// Learns that the batch `mix` took between `least` and `most` nanoseconds.
    pub(super) fn learn(&mut self, mix: &Mix, least: u64, most: u64) {
        if mix.count == 0 || mix.ns == 0 || mix.spoilt {
            return;
        }
        if self.sets.is_empty() {
            self.sets = vec![[Entry::default(); WAYS]; SETS];
        }
        // By what is known today: the means may have moved since it was submitted, and would move by as much again.
        let expected = self.expected(mix);
        let most = most.max(1);
        // What was seen running for longer than expected may have run on for long before anybody looked again.
        let took = if expected < least.min(most) {
            least.saturating_mul(2).min(least / 2 + most / 2)
        } else {
            expected.min(most)
        };
        let assumed = mix.ns / u64::from(mix.count);
        for (key, _) in mix.kinds.iter().filter(|(_, count)| *count > 0) {
            let entry = self.entry(*key);
            let before = if entry.seen == 0 { assumed } else { entry.mean };
            let told = scaled(before, took, expected);
            entry.mean = moved(before, told, entry.seen);
            entry.seen = entry.seen.saturating_add(1);
        }
    }

    /// What a batch is expected to take by today's means; operations nothing is known of as it was assumed.
    fn expected(&self, mix: &Mix) -> u64 {
        let assumed = mix.ns / u64::from(mix.count.max(1));
        let kinds = mix.kinds.iter().filter(|(_, count)| *count > 0);
        let (mut told_apart, mut ns) = (0, 0_u64);
        for (key, count) in kinds {
            told_apart += count;
            ns = ns.saturating_add(self.of(*key, assumed).ns.saturating_mul((*count).into()));
        }
        let others = mix.count.saturating_sub(told_apart);
        ns.saturating_add(assumed.saturating_mul(others.into()))
            .max(1)
    }

    /// The key's place, another's if there is none left.
    fn entry(&mut self, key: u64) -> &mut Entry {
        let set = &mut self.sets[set_of(key)];
        let at = (0..WAYS)
            .find(|at| set[*at].key == key)
            .or_else(|| (0..WAYS).min_by_key(|at| set[*at].seen))
            .unwrap_or(0);
        let entry = &mut set[at];
        if entry.key != key {
            *entry = Entry {
                key,
                ..Entry::default()
            };
        }
        entry
    }
}

/// Fibonacci hashing: addresses differ in their middle bits.
fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % SETS
}

/// `value * part / whole` without overflow.
fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// A mean after one more measurement. A bound that was measured is believed at once while little is known. What grew counts for
/// more than what shrank a little: a drain that is too long is worse than a window that is too small for a while.
fn moved(mean: u64, told: u64, seen: u8) -> u64 {
    match seen {
        0..LEARNED => told,
        _ if told >= mean || told < mean / 2 => {
            mean / 2 + told / 2 + (mean % 2 + told % 2).div_ceil(2)
        }
        _ => mean - (mean - told).div_ceil(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUMED: u64 = 500_000;

    fn batch(ops: &[(u64, u64)]) -> Mix {
        let mut mix = Mix::default();
        ops.iter().for_each(|(key, ns)| mix.add(*key, *ns, true));
        mix
    }

    #[test]
    fn what_was_never_seen_is_assumed_and_not_believed() {
        let estimates = Estimates::default();
        let expected = estimates.of(7, ASSUMED);
        assert_eq!((expected.ns, expected.known), (ASSUMED, false));
    }

    #[test]
    fn a_kernel_that_is_measured_closely_is_known_after_three_times() {
        let mut estimates = Estimates::default();
        for _ in 0..3 {
            assert!(!estimates.of(7, ASSUMED).known);
            let expected = estimates.of(7, ASSUMED).ns;
            estimates.learn(&batch(&[(7, expected)]), 9_000, 10_000);
        }
        assert_eq!(
            estimates.of(7, ASSUMED),
            Expected {
                ns: 10_000,
                known: true
            }
        );
    }

    #[test]
    fn a_batch_with_an_operation_whose_time_is_not_its_own_teaches_nothing() {
        let mut estimates = Estimates::default();
        let (mut first, mut rest) = (batch(&[(7, 10_000), (SPOILT, 10_000)]), Mix::default());
        estimates.learn(&first, 50_000_000, 50_000_000);
        rest.absorb(&first);
        estimates.learn(&rest, 50_000_000, 50_000_000);
        assert!(!estimates.of(7, ASSUMED).known && estimates.of(7, ASSUMED).ns == ASSUMED);
        first = batch(&[(7, 10_000)]);
        estimates.learn(&first, 9_000, 9_000);
        assert_eq!(estimates.of(7, ASSUMED).ns, 9_000);
    }

    #[test]
    fn one_that_was_only_looked_at_late_moves_nothing_and_one_that_was_seen_running_does() {
        let mut estimates = Estimates::default();
        (0..3).for_each(|_| estimates.learn(&batch(&[(7, 10_000)]), 10_000, 10_000));
        estimates.learn(&batch(&[(7, 10_000)]), 0, 50_000_000);
        assert_eq!(estimates.of(7, ASSUMED).ns, 10_000);
        estimates.learn(&batch(&[(7, 10_000)]), 40_000, 50_000_000);
        assert_eq!(
            estimates.of(7, ASSUMED).ns,
            45_000,
            "half way to twice 40 µs"
        );
    }

    #[test]
    fn a_batch_is_split_by_what_its_kinds_took_before() {
        let mut estimates = Estimates::default();
        estimates.learn(&batch(&[(1, 10_000)]), 10_000, 10_000);
        estimates.learn(&batch(&[(2, 90_000)]), 90_000, 90_000);
        for _ in 0..40 {
            let expected = |key| (key, estimates.of(key, ASSUMED).ns);
            let mix = batch(&[expected(1), expected(2)]);
            estimates.learn(&mix, 200_000, 200_000);
        }
        let (one, two) = (estimates.of(1, ASSUMED).ns, estimates.of(2, ASSUMED).ns);
        assert!((19_900..=20_100).contains(&one), "{one}");
        assert!((179_900..=180_100).contains(&two), "{two}");
    }

    #[test]
    fn many_batches_submitted_before_the_first_lesson_teach_one_and_the_same() {
        let mut estimates = Estimates::default();
        let queued = batch(&[(7, 20_000)]);
        for _ in 0..40 {
            estimates.learn(&queued, 900_000, 1_100_000);
        }
        let mean = estimates.of(7, ASSUMED).ns;
        assert!((800_000..=1_100_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_mean_follows_work_that_becomes_short_and_work_that_becomes_long() {
        let mut estimates = Estimates::default();
        for took in [1_000_000, 5_000, 3_000_000] {
            for _ in 0..60 {
                let expected = estimates.of(9, ASSUMED).ns;
                estimates.learn(&batch(&[(9, expected)]), took, took);
            }
            let mean = estimates.of(9, ASSUMED).ns;
            assert!(mean.abs_diff(took) <= 4, "{mean} for {took}");
        }
    }

    #[test]
    fn more_keys_than_there_is_room_for_cost_the_least_learned() {
        let mut estimates = Estimates::default();
        for _ in 0..5 {
            estimates.learn(&batch(&[(77, 1_000)]), 1_000, 1_000);
        }
        for key in 1_000..101_000 {
            estimates.learn(&batch(&[(key, 2_000)]), 2_000, 2_000);
        }
        assert_eq!(estimates.of(77, ASSUMED).ns, 1_000);
        assert_eq!(estimates.sets.len(), SETS);
    }

    #[test]
    fn extreme_times_neither_overflow_nor_reach_zero_for_ever() {
        let mut estimates = Estimates::default();
        estimates.learn(&batch(&[(1, u64::MAX), (2, u64::MAX)]), 0, u64::MAX);
        estimates.learn(&batch(&[(3, 1)]), 0, 0);
        let _ = estimates.of(1, ASSUMED);
        for _ in 0..80 {
            let expected = estimates.of(3, ASSUMED).ns.max(1);
            estimates.learn(&batch(&[(3, expected)]), 1_000_000, 1_000_000);
        }
        let mean = estimates.of(3, ASSUMED).ns;
        assert!(mean > 900_000, "{mean}");
    }
}
