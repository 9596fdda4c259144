//! When to look at work that should be complete: each look costs a sleep and a call of the driver,
//! and a late look leaves the device without work.
//!
//! A slice ends late when another tenant had the device at its beginning, by what that one still
//! had to do. Tenants that serve requests do much the same each time, so slices are late by a few
//! usual times. The next look is made as late as it can be if the device shall be expected to wait
//! no longer than `IDLE` for it, by how late the last slices were. Pure: its inputs are times, it
//! returns when to look.

/// How long after the expected end a slice is due (ns): marks are passed a little later than the
/// work before them.
pub const BEHIND: u64 = 12_000;
/// How long the device may be expected to be without work for one look (ns). With what servers
/// beside a queue make of slices, less than that takes more looks and saves little; more than that
/// saves few looks.
const IDLE: u64 = 4_000;
/// The shortest and the longest time between two looks at a slice later than all known ones (ns).
const STEP: (u64, u64) = (20_000, 100_000);
/// Looks at such a slice become rarer: one part in so many of the time that it has taken too long.
const PART: u64 = 16;
/// Slices that are remembered.
const KEPT: u8 = 64;
/// The width of one class of lateness (ns).
const WIDTH: u64 = 25_000;
/// Classes of lateness; a last one has all that are later.
const CLASSES: u8 = 96;

/// How late the last slices were.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// The class of each, in a ring.
    last: [u8; KEPT as usize],
    next: usize,
    /// How many of them are in each class.
    counts: [u8; CLASSES as usize + 1],
}

/// The looks at one slice that saw that it was not complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// How late the last one came (ns), if there was one.
    last: Option<u64>,
}

impl Default for Lateness {
    /// All were in time.
    fn default() -> Self {
        let mut counts = [0; CLASSES as usize + 1];
        counts[0] = KEPT;
        Self {
            last: [0; KEPT as usize],
            next: 0,
            counts,
        }
    }
}

impl Lateness {
    /// How long after a slice is due the first look at it comes (ns): 0 if slices are hardly late.
    #[inline]
    pub fn first(&self) -> u64 {
        let until = self.until(0).unwrap_or(0);
        if until > STEP.1 { until } else { 0 }
    }

    /// The slice was not complete at a look that came `late` after it was due. Returns how long not
    /// to look (ns).
    #[inline]
    pub fn again(&self, looks: &mut Looks, late: u64) -> u64 {
        looks.last = Some(late);
        match self.until(class(late) + 1) {
            Some(until) => until.saturating_sub(late).max(STEP.0),
            None => (late / PART).clamp(STEP.0, STEP.1),
        }
    }

    /// It was complete at a look that came `late` after it was due.
    #[inline]
    pub fn ended(&mut self, looks: Looks, late: u64) {
        // It ended at any time since the look before. Taken for half of that, one that is slept
        // over again and again is looked at twice as early each time.
        let before = looks.last.unwrap_or(0);
        let class = class(before + late.saturating_sub(before) / 2);
        let last = core::mem::replace(&mut self.last[self.next], class);
        self.counts[usize::from(last)] -= 1;
        self.counts[usize::from(class)] += 1;
        self.next = (self.next + 1) % self.last.len();
    }

    /// Until when not to look at a slice of the class `from` or a later one (ns after it was due).
    /// `None` if slices of such classes are not known.
    fn until(&self, from: u8) -> Option<u64> {
        let counts = self.counts.get(usize::from(from)..)?;
        let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        if all == 0 {
            return None;
        }
        // Of slices that end before the look, and the sum of the times from their ends to it.
        let (mut ended, mut idle) = (0, 0);
        for class in from..CLASSES {
            let count = u64::from(self.counts[usize::from(class)]);
            idle += ended * WIDTH + count * WIDTH / 2;
            ended += count;
            if idle > all * IDLE {
                return Some(u64::from(class) * WIDTH);
            }
        }
        Some(u64::from(CLASSES) * WIDTH)
    }
}

fn class(late: u64) -> u8 {
    CLASSES.min(u8::try_from(late / WIDTH).unwrap_or(CLASSES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// The looks at a slice that is late by `late`, when each sleep takes `over` longer than asked.
    /// Returns how many there were, and how long after its end the last one.
    fn slice(lateness: &mut Lateness, late: u64, over: u64) -> (u32, u64) {
        let (mut looks, mut now, mut count) = (Looks::default(), lateness.first(), 1);
        while now < late {
            now += lateness.again(&mut looks, now) + over;
            count += 1;
        }
        lateness.ended(looks, now);
        (count, now - late)
    }

    /// So many slices that are late by what `late` says of each. Returns the mean of their looks,
    /// and of how long after its end the last one came.
    fn slices(lateness: &mut Lateness, count: u64, late: impl Fn(u64) -> u64) -> (u64, u64) {
        let seen: Vec<_> = (0..count)
            .map(|at| slice(lateness, late(at), 5 * US))
            .collect();
        let looks: u64 = seen.iter().map(|(looks, _)| u64::from(*looks)).sum();
        let after: u64 = seen.iter().map(|(_, after)| after).sum();
        (looks.div_ceil(count), after / count)
    }

    #[test]
    fn what_is_complete_in_time_is_looked_at_once_and_at_once() {
        let mut lateness = Lateness::default();
        assert_eq!(slices(&mut lateness, 200, |_| 0), (1, 0));
        assert_eq!(slice(&mut lateness, 15 * US, 0), (2, 5 * US));
    }

    #[test]
    fn slices_late_by_the_same_are_looked_at_three_times_and_no_later() {
        let mut lateness = Lateness::default();
        let (first, _) = slice(&mut lateness, 250 * US, 5 * US);
        assert!(first >= 8, "{first}");
        slices(&mut lateness, 2 * u64::from(KEPT), |_| 250 * US);
        for _ in 0..200 {
            let (looks, after) = slice(&mut lateness, 250 * US, 5 * US);
            assert!(looks <= 4 && after <= 25 * US, "{looks} {after}");
        }
    }

    #[test]
    fn slices_late_by_about_the_same_are_looked_at_four_times() {
        let mut lateness = Lateness::default();
        // As a server of 300 us every 1 ms makes those of a queue, by an H100's times.
        let late = |at: u64| (450 + at * 37 % 150) * US;
        slices(&mut lateness, 2 * u64::from(KEPT), late);
        let (looks, after) = slices(&mut lateness, 1_000, late);
        assert!(looks <= 5 && after <= 25 * US, "{looks} looks, {after} ns");
    }

    #[test]
    fn slices_late_by_one_of_two_times_are_not_slept_over() {
        for every in [2, 4, 8] {
            let mut lateness = Lateness::default();
            let late = |at: u64| if at.is_multiple_of(every) { 100 } else { 700 } * US;
            slices(&mut lateness, 4 * u64::from(KEPT), late);
            let (looks, after) = slices(&mut lateness, 1_000, late);
            assert!(
                looks <= 6 && after <= 30 * US,
                "{every}: {looks} looks, {after} ns"
            );
        }
    }

    #[test]
    fn slices_of_which_a_few_are_in_time_are_slept_over_by_little() {
        for every in [8, 16, 32, 64, 128] {
            let mut lateness = Lateness::default();
            let late = |at: u64| if at.is_multiple_of(every) { 0 } else { 550 } * US;
            slices(&mut lateness, 4 * u64::from(KEPT), late);
            let (looks, after) = slices(&mut lateness, 1_280, late);
            assert!(
                looks <= 5 && after <= 30 * US,
                "{every}: {looks} looks, {after} ns"
            );
        }
    }

    #[test]
    fn slices_that_are_late_no_longer_are_soon_looked_at_once() {
        let mut lateness = Lateness::default();
        slices(&mut lateness, 2 * u64::from(KEPT), |_| 2_000 * US);
        let after: u64 = (0..KEPT).map(|_| slice(&mut lateness, 0, 0).1).sum();
        assert!(after < 4 * 2_000 * US, "{after}");
        assert_eq!(slices(&mut lateness, u64::from(KEPT), |_| 0), (1, 0));
    }

    #[test]
    fn looks_become_rarer_the_longer_it_takes_but_not_by_much() {
        let mut lateness = Lateness::default();
        let (looks, after) = slice(&mut lateness, 5_000 * US, 0);
        assert!((60..90).contains(&looks) && after <= 100 * US, "{looks}");
        assert_eq!(lateness.again(&mut Looks::default(), 1 << 40), 100 * US);
        // Those later than all classes are slept over as far as the classes go.
        slices(&mut lateness, u64::from(KEPT), |_| 5_000 * US);
        assert_eq!(lateness.first(), u64::from(CLASSES) * WIDTH);
    }
}
