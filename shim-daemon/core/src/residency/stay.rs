//! A tenant's stay on the card, in the rotation: from when it counts, and since when the tenant
//! could work at all. A tenant that waited for its turn was idle for a long time when it gets it;
//! were it judged by that, it would be moved out again at once.

use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stay {
    from: Nanos,
    let_on: Nanos,
    /// When it last freed memory, and the most that it had in the frees of a moment before.
    freed: Nanos,
    before: Bytes,
    /// What it had until just before it left, if it freed some of that then.
    again: Bytes,
    /// Since when it has no memory, if it is in and has none.
    empty: Option<Nanos>,
    /// The memory that it had before that.
    had: Bytes,
}

impl Stay {
    /// From when its stay counts: when it came back. Time in which it had no memory, and time in
    /// which all its processes waited for more, are not counted.
    pub(crate) fn from(&self) -> Nanos {
        self.from
    }

    /// When it was last let go on: it came back, or got memory for which it had waited. Until then
    /// it could not work, however long ago it last did.
    pub(crate) fn let_on(&self) -> Nanos {
        self.let_on
    }

    /// When it last freed memory.
    pub(crate) fn freed(&self) -> Nanos {
        self.freed
    }

    /// Since when it has no memory though it had some in this stay, and how much that was.
    pub(crate) fn emptied(&self) -> Option<(Nanos, Bytes)> {
        let since = self.empty.filter(|_| !self.had.is_zero())?;
        Some((since, self.had))
    }

    /// It is back.
    pub(super) fn begin(&mut self, now: Nanos) {
        (self.from, self.let_on) = (now, now);
    }

    /// It has its first context, and no memory yet.
    pub(super) fn open(&mut self, now: Nanos) {
        self.begin(now);
        (self.empty, self.had) = (Some(now), Bytes::ZERO);
    }

    /// It has freed memory: it had so much before.
    pub(crate) fn frees(&mut self, now: Nanos, had: Bytes, moment: Nanos) {
        let goes_on = now < self.freed + moment;
        self.before = if goes_on { self.before.max(had) } else { had };
        self.freed = now;
    }

    /// It is asked to leave (`anew`), or begins to. Many programs take again what they freed a
    /// moment ago.
    pub(crate) fn leaves(&mut self, now: Nanos, moment: Nanos, anew: bool) {
        let known = if anew { Bytes::ZERO } else { self.again };
        let freed = now < self.freed + moment;
        self.again = if freed { known.max(self.before) } else { known };
    }

    /// The memory that it will have again soon after it is back: what it had until just before it
    /// left.
    pub(crate) fn again(&self) -> Bytes {
        self.again
    }

    /// It has so much memory. Returns whether it had none.
    pub(crate) fn holds(&mut self, now: Nanos, bytes: Bytes) -> bool {
        let empty = self.empty;
        if !bytes.is_zero() {
            self.had = bytes;
        }
        match (!bytes.is_zero(), empty) {
            (true, Some(since)) => {
                self.from = now.min(self.from + (now - since));
                (self.let_on, self.empty) = (now, None);
            }
            (false, None) => self.empty = Some(now),
            _ => {}
        }
        empty.is_some()
    }

    /// It has all its devices again, after it could not work `since`.
    pub(crate) fn goes_on(&mut self, now: Nanos, since: Nanos) {
        self.waited(now, now - self.from.max(since), true);
    }

    /// It got memory for which it had waited so long. `blocked`: none of its processes could work
    /// meanwhile.
    pub(crate) fn waited(&mut self, now: Nanos, waited: Nanos, blocked: bool) {
        self.let_on = now;
        if blocked {
            self.from = now.min(self.from + waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos::secs(seconds)
    }

    #[test]
    fn a_stay_begins_with_the_first_memory_however_long_that_was_waited_for() {
        let mut stay = Stay::default();
        stay.open(at(1));
        assert_eq!(stay.emptied(), None, "it had none yet");
        assert!(stay.holds(at(20), Bytes(7)));
        assert_eq!((stay.from(), stay.let_on()), (at(20), at(20)));
        assert!(!stay.holds(at(21), Bytes(9)), "it had some");
        assert_eq!(stay.from(), at(20));
    }

    #[test]
    fn a_stay_is_not_begun_anew_by_frees() {
        let mut stay = Stay::default();
        stay.open(at(0));
        stay.holds(at(0), Bytes(7));
        for second in 1..10 {
            stay.holds(at(second), Bytes::ZERO);
            assert_eq!(stay.emptied(), Some((at(second), Bytes(7))));
            stay.holds(Nanos(at(second).0 + 1_000_000), Bytes(7));
            assert_eq!(stay.emptied(), None);
        }
        assert_eq!(stay.from(), Nanos::millis(9), "a millisecond each");
    }

    #[test]
    fn only_time_in_which_nothing_of_it_could_work_is_not_counted() {
        let mut stay = Stay::default();
        stay.begin(at(10));
        stay.waited(at(30), at(5), true);
        assert_eq!((stay.from(), stay.let_on()), (at(15), at(30)));
        stay.waited(at(40), at(5), false);
        assert_eq!((stay.from(), stay.let_on()), (at(15), at(40)));
        stay.waited(at(50), at(400), true);
        assert_eq!(stay.from(), at(50), "no later than now");
    }

    #[test]
    fn time_without_another_device_is_not_counted() {
        let mut stay = Stay::default();
        stay.begin(at(10));
        stay.goes_on(at(30), at(25));
        assert_eq!((stay.from(), stay.let_on()), (at(15), at(30)));
        stay.goes_on(at(40), at(5));
        assert_eq!(stay.from(), at(40), "it could not work since it came");
    }

    #[test]
    fn what_is_freed_just_before_it_leaves_is_taken_again() {
        let (mut stay, moment) = (Stay::default(), at(1));
        stay.begin(at(1));
        stay.frees(at(10), Bytes(9), moment);
        stay.frees(at(10), Bytes(6), moment);
        stay.leaves(at(10), moment, true);
        assert_eq!(stay.again(), Bytes(9));
        stay.leaves(at(12), moment, false);
        assert_eq!(stay.again(), Bytes(9), "its seal took long");
        stay.leaves(at(20), moment, true);
        assert_eq!(stay.again(), Bytes::ZERO, "it freed it long ago");
        stay.frees(at(30), Bytes(6), moment);
        stay.leaves(at(30), moment, true);
        assert_eq!(stay.again(), Bytes(6), "the rest it freed long before");
    }
}
