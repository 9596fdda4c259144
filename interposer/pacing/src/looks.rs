//! When to look again at work that should be complete: each look costs a sleep and a call of the
//! driver, and a late look leaves the device without work.
//!
//! A slice ends late when another tenant had the device at its beginning, by what that one still
//! had to do. Tenants that serve requests do much the same each time, so late slices are late by
//! much the same. Pure: its inputs are times, it returns when to look.

/// How long after the expected end the first look is (ns): marks are passed a little later than the
/// work before them.
pub const BEHIND: u64 = 12_000;
/// The shortest and the longest time between two looks at work that should be complete (ns).
const STEP: (u64, u64) = (20_000, 100_000);
/// Looks become rarer as it takes longer: one part in so many of the time that it has taken too
/// long.
const PART: u64 = 16;
/// Looks before those that late slices have taught, for the many that are hardly late.
const FIRST: u32 = 2;
/// How much earlier than late slices usually end the next look is (ns).
const EARLIER: u64 = 30_000;
/// Late slices that are remembered.
const KEPT: usize = 8;
/// How many of them may have ended earlier than the next look.
const SLEPT_OVER: usize = 1;

/// By how much the last late slices were late (ns, after the first look was due).
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    last: [u64; KEPT],
    next: usize,
}

/// The looks at one slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Looks that saw that it was not complete.
    made: u32,
    /// When the last look was, if the next one comes later than after the usual step.
    leap: Option<u64>,
}

impl Lateness {
    /// The slice was not complete at a look that came `late` after it should have been. Returns how
    /// long not to look (ns).
    #[inline]
    pub fn again(&self, looks: &mut Looks, late: u64) -> u64 {
        looks.made = looks.made.saturating_add(1);
        let step = (late / PART).clamp(STEP.0, STEP.1);
        let until = self.usual().saturating_sub(EARLIER);
        let leap = until.saturating_sub(late);
        let leaps = looks.made >= FIRST && leap > step;
        looks.leap = leaps.then_some(late);
        if leaps { leap } else { step }
    }

    /// The lateness that nearly all of the last ones had (ns); 0 before there were so many.
    fn usual(&self) -> u64 {
        let mut last = self.last;
        *last.select_nth_unstable(SLEPT_OVER).1
    }

    /// It was complete at a look that came `late` after it should have been.
    #[inline]
    pub fn ended(&mut self, looks: Looks, late: u64) {
        if looks.made < FIRST {
            return;
        }
        // It may have ended at the beginning of a leap.
        self.last[self.next] = looks.leap.unwrap_or(late);
        self.next = (self.next + 1) % KEPT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// The looks at a slice that is late by `late`, when each sleep takes `over` longer than asked.
    /// Returns how many there were, and how long after its end the last one.
    fn slice(lateness: &mut Lateness, late: u64, over: u64) -> (u32, u64) {
        let (mut looks, mut now) = (Looks::default(), 0);
        while now < late {
            now += lateness.again(&mut looks, now) + over;
        }
        lateness.ended(looks, now);
        (looks.made + 1, now - late)
    }

    fn teach(lateness: &mut Lateness, late: u64) {
        let _ = slice(lateness, late, 0);
    }

    #[test]
    fn slices_late_by_the_same_are_looked_at_five_times_and_no_later() {
        let mut lateness = Lateness::default();
        let (first, _) = slice(&mut lateness, 250 * US, 5 * US);
        assert!(first >= 10, "{first}");
        for _ in 0..KEPT {
            slice(&mut lateness, 250 * US, 5 * US);
        }
        for _ in 0..100 {
            let (looks, after) = slice(&mut lateness, 250 * US, 5 * US);
            assert!(looks <= 5 && after <= 25 * US, "{looks} {after}");
        }
    }

    #[test]
    fn what_is_complete_in_time_is_looked_at_once_and_teaches_nothing() {
        let mut lateness = Lateness::default();
        (0..100).for_each(|_| teach(&mut lateness, 250 * US));
        let before = slice(&mut lateness, 250 * US, 0);
        for _ in 0..100 {
            assert_eq!(slice(&mut lateness, 0, 0), (1, 0));
            assert_eq!(slice(&mut lateness, 15 * US, 0), (2, 5 * US));
        }
        assert_eq!(slice(&mut lateness, 250 * US, 0), before);
    }

    /// How long after their ends the last looks were at slices of which one in `every` is late by
    /// 100 us and the others by 400 us.
    fn slept_over(every: u32) -> Vec<u64> {
        let mut lateness = Lateness::default();
        let late = |at: u32| if at.is_multiple_of(every) { 100 } else { 400 };
        let slept = (1..400).map(|at| slice(&mut lateness, late(at) * US, 0).1);
        slept.skip(2 * KEPT).collect()
    }

    #[test]
    fn one_slice_of_eight_may_be_slept_over_and_no_two() {
        let rare = slept_over(9);
        assert!(rare.iter().any(|after| *after > 200 * US), "{rare:?}");
        let common = slept_over(4);
        assert!(common.iter().all(|after| *after <= 25 * US), "{common:?}");
    }

    #[test]
    fn slices_that_become_less_late_are_slept_over_a_few_times_only() {
        let mut lateness = Lateness::default();
        (0..KEPT).for_each(|_| teach(&mut lateness, 2_000 * US));
        let slept = (0..100).map(|_| slice(&mut lateness, 100 * US, 0).1);
        let long: Vec<u64> = slept.filter(|after| *after > 30 * US).collect();
        assert!(long.len() <= 2, "{long:?}");
    }

    #[test]
    fn looks_become_rarer_the_longer_it_takes_but_not_by_much() {
        let mut lateness = Lateness::default();
        let (looks, after) = slice(&mut lateness, 5_000 * US, 0);
        assert!((60..90).contains(&looks) && after <= 100 * US, "{looks}");
        assert_eq!(lateness.again(&mut Looks::default(), 1 << 40), 100 * US);
    }
}
