//! When to look again at work that should be complete: each look costs a sleep and a call of the
//! driver, and a late look leaves the device without work.
//!
//! A slice ends late when another tenant had the device at its beginning, by what that one still
//! had to do. Tenants that serve requests do much the same each time, so late slices are late by
//! much the same. So a slice that is found to be late is slept over once for as long as nine in ten
//! of the last late ones were late, and looked at often after that. Pure: its inputs are times, it
//! returns when to look.

/// How long after the expected end the first look is (ns): marks are passed a little later than the
/// work before them.
pub const BEHIND: u64 = 12_000;
/// The shortest and the longest time between two looks at work that should be complete (ns).
const STEP: (u64, u64) = (20_000, 100_000);
/// Looks become rarer as it takes longer: one part in so many of the time that it has taken too
/// long.
const PART: u64 = 16;
/// By how much the long sleep grows with a slice that ended after it (ns), and by how much it
/// shrinks with a slice that ended within it. So about one late slice in ten is slept over, by
/// little where slices are late by much the same.
const GROWS: u64 = 5_000;
const SHRINKS: u64 = 48_000;
/// After so many slices in a row that ended after the long sleep it grows faster, by one part in
/// `PART_MISSED` of the time between its end and the slice's.
const SURE: u32 = 16;
const PART_MISSED: u64 = 4;

/// By how much the last late slices were late: how long to sleep once a slice is found to be late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// When the long sleep ends (ns, after the first look was due).
    until: u64,
    /// Slices in a row that ended after it.
    after: u32,
    /// Slices in a row that ended within it.
    within: u32,
}

/// The looks at one slice, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looks {
    /// None saw that it was not complete.
    #[default]
    InTime,
    /// It is late.
    Late,
    /// It is late, and the next look ends the long sleep.
    Asleep,
    /// It was not complete at the look after the long sleep.
    Later,
}

impl Lateness {
    /// The slice was not complete at a look that came `late` after it should have been. Returns how
    /// long not to look (ns).
    #[inline]
    pub fn again(&self, looks: &mut Looks, late: u64) -> u64 {
        let step = (late / PART).clamp(STEP.0, STEP.1);
        let long = self.until.saturating_sub(late);
        *looks = match *looks {
            Looks::InTime | Looks::Late if long > step => Looks::Asleep,
            Looks::InTime | Looks::Late => Looks::Late,
            Looks::Asleep | Looks::Later => Looks::Later,
        };
        if *looks == Looks::Asleep { long } else { step }
    }

    /// It was complete at a look that came `late` after it should have been.
    #[inline]
    pub fn ended(&mut self, looks: Looks, late: u64) {
        match looks {
            Looks::InTime => {}
            Looks::Asleep => self.ended_within(),
            Looks::Late | Looks::Later if late > self.until => self.ended_after(late),
            Looks::Late | Looks::Later => {}
        }
    }

    fn ended_within(&mut self) {
        self.after = 0;
        self.until = match self.within {
            0 => self.until.saturating_sub(SHRINKS),
            1 => self.until / 2,
            _ => 0,
        };
        self.within = self.within.saturating_add(1);
    }

    fn ended_after(&mut self, late: u64) {
        self.within = 0;
        self.after = self.after.saturating_add(1);
        let missed = match self.after > SURE {
            true => (late - self.until) / PART_MISSED,
            false => 0,
        };
        self.until = late.min(self.until + missed.max(GROWS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// The looks at a slice that is late by `late`, when each sleep takes `over` longer than asked.
    /// Returns how many there were, and how long after its end the last one.
    fn slice(lateness: &mut Lateness, late: u64, over: u64) -> (u32, u64) {
        let (mut looks, mut now, mut count) = (Looks::default(), 0, 1);
        while now < late {
            now += lateness.again(&mut looks, now) + over;
            count += 1;
        }
        lateness.ended(looks, now);
        (count, now - late)
    }

    /// So many slices that are late by what `late` says of each.
    fn teach(lateness: &mut Lateness, count: u64, late: impl Fn(u64) -> u64) {
        for at in 0..count {
            exact(lateness, late(at));
        }
    }

    /// A slice whose sleeps are as long as asked.
    fn exact(lateness: &mut Lateness, late: u64) -> (u32, u64) {
        slice(lateness, late, 0)
    }

    #[test]
    fn slices_late_by_the_same_are_looked_at_five_times_and_no_later() {
        let mut lateness = Lateness::default();
        let (first, _) = slice(&mut lateness, 250 * US, 5 * US);
        assert!(first >= 10, "{first}");
        teach(&mut lateness, 30, |_| 250 * US);
        for _ in 0..200 {
            let (looks, after) = slice(&mut lateness, 250 * US, 5 * US);
            assert!(looks <= 5 && after <= 25 * US, "{looks} {after}");
        }
    }

    #[test]
    fn slices_late_by_about_the_same_are_seldom_slept_over_and_by_little() {
        let mut lateness = Lateness::default();
        // As a server of 300 us every 1 ms beside a queue makes them, on an H100's times.
        let late = |at: u64| (450 + at * 37 % 150) * US;
        teach(&mut lateness, 50, late);
        let seen: Vec<_> = (50..1_050)
            .map(|at| exact(&mut lateness, late(at)))
            .collect();
        let looks: u32 = seen.iter().map(|(looks, _)| looks).sum();
        let after: u64 = seen.iter().map(|(_, after)| after).sum();

        assert!(looks <= 5_500, "{looks} looks at 1,000 slices");
        assert!(after <= 1_000 * 20 * US, "{after} ns of 1,000 slices");
    }

    #[test]
    fn what_is_complete_in_time_is_looked_at_once_and_teaches_nothing() {
        let mut lateness = Lateness::default();
        teach(&mut lateness, 100, |_| 250 * US);
        let before = lateness.until;
        (0..100).for_each(|_| assert_eq!(exact(&mut lateness, 0), (1, 0)));
        assert_eq!(lateness.until, before);
    }

    /// How long after their ends the last looks were at slices of which one in `every` is late by
    /// 100 us and the others by 400 us.
    fn slept_over(every: u32) -> Vec<u64> {
        let mut lateness = Lateness::default();
        let late = |at: u32| if at.is_multiple_of(every) { 100 } else { 400 };
        let slept = (1..1_000).map(|at| exact(&mut lateness, late(at) * US).1);
        slept.skip(100).collect()
    }

    #[test]
    fn one_slice_in_twenty_may_be_slept_over_and_not_one_in_four() {
        let rare = slept_over(20);
        assert!(rare.iter().any(|after| *after > 200 * US), "{rare:?}");
        let common = slept_over(4);
        assert!(common.iter().all(|after| *after <= 25 * US), "{common:?}");
    }

    #[test]
    fn slices_that_become_less_late_are_slept_over_three_times_only() {
        let mut lateness = Lateness::default();
        teach(&mut lateness, 100, |_| 2_000 * US);
        let slept = (0..100).map(|_| exact(&mut lateness, 100 * US).1);
        let long: Vec<u64> = slept.filter(|after| *after > 30 * US).collect();
        assert!((1..=3).contains(&long.len()), "{long:?}");
    }

    #[test]
    fn looks_become_rarer_the_longer_it_takes_but_not_by_much() {
        let mut lateness = Lateness::default();
        let (looks, after) = exact(&mut lateness, 5_000 * US);
        assert!((60..90).contains(&looks) && after <= 100 * US, "{looks}");
        assert_eq!(lateness.again(&mut Looks::default(), 1 << 40), 100 * US);
    }
}
