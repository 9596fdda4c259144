//! Yielding: while another tenant works on the device, a little is submitted, and nothing more
//! before all of it is complete. Only a device without any work of this process switches to another
//! one's at once.
//!
//! Pure: its inputs are submissions and the times when no work is in flight; it returns whether a
//! launch may go.

/// The least time that a full slice is waited for (ns), however little was submitted: ten slices of
/// the driver's, so that several other tenants may have had the device meanwhile.
const STUCK: u64 = 20_000_000;
/// The most that it is waited for (ns), however long it should take.
const PATIENCE: u64 = 10_000_000_000;
/// Slices in a row that did not end in time before yielding is given up for a while. After that
/// one more is enough, until one ends in time.
const STRIKES: u32 = 3;
/// For how long it is given up (ns).
const SPARED: u64 = 1_000_000_000;

/// A slice that has no room: what to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When all of it should be complete (`CLOCK_MONOTONIC` ns).
    pub ends: u64,
    /// When launches go on though it is not.
    pub limit: u64,
}

/// The slices of one device.
#[derive(Debug, Default)]
pub struct Slices {
    /// Expected nanoseconds admitted since no work was in flight.
    used: u64,
    /// Launches that this is of.
    count: u64,
    /// When a launch first found no room, and when it is waited no longer.
    full: Option<u64>,
    /// Slices in a row that did not end in time.
    strikes: u32,
    /// No yielding before.
    spared_until: u64,
}

impl Slices {
    /// Nothing is under way. Whether a launch waited for that.
    #[inline]
    pub fn emptied(&mut self) -> bool {
        (self.used, self.count) = (0, 0);
        let waited = self.full.take().is_some();
        if waited {
            self.strikes = 0;
        }
        waited
    }

    /// Yielding is off now: no launch waits, but work in flight still counts.
    #[inline]
    pub fn rest(&mut self) {
        self.full = None;
    }

    /// May a launch go that is expected to take `expected` nanoseconds, where `slice` may be
    /// submitted at a time? Its stream has work for `in_stream` with it, at least. `left` is what
    /// everything under way is expected to take still. `None`: it goes, if nothing else is in its
    /// way.
    #[inline]
    pub fn ask(
        &mut self,
        now: u64,
        slice: u64,
        expected: u64,
        in_stream: u64,
        left: u64,
    ) -> Option<Full> {
        if self.has_room(now, slice, expected, in_stream) {
            return None;
        }
        let stuck = now.saturating_add(left.saturating_mul(2).clamp(STUCK, PATIENCE));
        let limit = *self.full.get_or_insert(stuck);
        if now >= limit {
            let _ = self.overran(now, limit);
            return None;
        }
        Some(Full {
            ends: now.saturating_add(left),
            limit,
        })
    }

    /// Whether a launch that is expected to take so long, in a stream that has work for `in_stream`
    /// with it, goes without further questions.
    #[inline]
    pub fn has_room(&self, now: u64, slice: u64, expected: u64, in_stream: u64) -> bool {
        self.count == 0 || self.full.is_none() && !self.fills(now, slice, expected, in_stream)
    }

    /// How much goes without further questions (ns), in any stream: one has work for `longest`.
    #[inline]
    pub fn room(&self, now: u64, slice: u64, longest: u64) -> u64 {
        match self.full {
            Some(_) => 0,
            None if now < self.spared_until => u64::MAX,
            None => slice.saturating_sub(self.used.max(longest)),
        }
    }

    /// The slice that is waited for until `limit` did not end in time, or its end cannot be
    /// noticed: launches continue. The slices are the process's, so this holds for all its threads;
    /// each of those that wait may say so, and the slice counts once. Whether a new one begins.
    pub fn overran(&mut self, now: u64, limit: u64) -> bool {
        if self.full != Some(limit) {
            return false;
        }
        (self.used, self.count) = (0, 0);
        self.full = None;
        self.strikes += 1;
        if self.strikes >= STRIKES {
            self.strikes = STRIKES - 1;
            self.spared_until = now.saturating_add(SPARED);
        }
        true
    }

    /// Whether nothing was admitted in this slice.
    #[inline]
    pub fn is_new(&self) -> bool {
        self.count == 0
    }

    /// So many launches go that are expected to take so long together (ns).
    #[inline]
    pub fn admitted(&mut self, count: u32, ns: u64) {
        self.used = self.used.saturating_add(ns);
        self.count = self.count.saturating_add(count.into());
    }

    /// So many of them were not made after all, or will be admitted again.
    #[inline]
    pub fn put_back(&mut self, count: u32, ns: u64) {
        self.used = self.used.saturating_sub(ns);
        self.count = self.count.saturating_sub(count.into());
    }

    /// Whether there is no room for one more launch of `ns` nanoseconds, with which its stream has
    /// work for `in_stream`.
    #[inline]
    pub fn fills(&self, now: u64, slice: u64, ns: u64, in_stream: u64) -> bool {
        now >= self.spared_until && self.used.saturating_add(ns).max(in_stream) > slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const SLICE: u64 = 500 * US;

    /// Asks for a launch of so long, and makes it.
    fn launch(slices: &mut Slices, now: u64, ns: u64) -> bool {
        let goes = slices.ask(now, SLICE, ns, 0, slices.used).is_none();
        if goes {
            slices.admitted(1, ns);
        }
        goes
    }

    #[test]
    fn a_slice_is_submitted_and_no_more_before_it_is_complete() {
        let mut slices = Slices::default();
        for _ in 0..3 {
            let count = (0..50).filter(|_| launch(&mut slices, MS, 50 * US)).count();
            assert_eq!(count, 10);
            slices.emptied();
        }
    }

    #[test]
    fn one_longer_operation_goes_and_nothing_beside_it() {
        let mut slices = Slices::default();
        assert!(launch(&mut slices, MS, 20 * MS));
        assert!(!launch(&mut slices, MS, US));
        slices.emptied();
        assert!(launch(&mut slices, 30 * MS, US));
        assert!(!launch(&mut slices, 30 * MS, 20 * MS));
        assert!(
            !launch(&mut slices, 30 * MS, US),
            "a short one does not overtake it"
        );
    }

    #[test]
    fn a_waiting_launch_is_told_when_all_should_end_and_when_it_goes_on() {
        let mut slices = Slices::default();
        slices.admitted(1, SLICE);
        let full = slices.ask(MS, SLICE, SLICE, 0, 400 * US);
        assert_eq!(
            full,
            Some(Full {
                ends: MS + 400 * US,
                limit: 21 * MS
            })
        );
        let later = slices.ask(2 * MS, SLICE, SLICE, 0, 0);
        assert_eq!(
            later,
            Some(Full {
                ends: 2 * MS,
                limit: 21 * MS
            }),
            "the limit does not move"
        );
        assert_eq!(slices.ask(21 * MS, SLICE, SLICE, 0, 0), None);
        slices.emptied();
        slices.admitted(1, 20 * MS);
        let long = slices.ask(MS, SLICE, SLICE, 0, 20 * MS).unwrap();
        assert_eq!(long.limit, 41 * MS, "twice its expected time");
        slices.rest();
        let endless = slices.ask(MS, SLICE, SLICE, 0, u64::MAX).unwrap();
        assert_eq!(endless.limit, MS + PATIENCE);
    }

    /// Fills a slice and waits in vain.
    fn strikes(slices: &mut Slices, now: u64) {
        slices.admitted(1, SLICE);
        assert!(slices.ask(now, SLICE, SLICE, 0, 0).is_some());
        assert!(slices.ask(now + STUCK, SLICE, SLICE, 0, 0).is_none());
    }

    #[test]
    fn three_slices_in_a_row_that_end_late_spare_the_next_for_a_second() {
        let mut slices = Slices::default();
        (0..3).for_each(|at| strikes(&mut slices, at * 100 * MS));
        let until = 220 * MS + SPARED;
        slices.admitted(1, SLICE);
        assert!(slices.ask(until - 1, SLICE, SLICE, 0, 0).is_none());
        assert!(!slices.fills(until - 1, SLICE, SLICE, 0));
        assert!(slices.ask(until, SLICE, SLICE, 0, 0).is_some());
        assert!(slices.fills(until, SLICE, SLICE, 0));
    }

    #[test]
    fn a_slice_that_several_threads_gave_up_counts_once() {
        let mut slices = Slices::default();
        let gives_up = |slices: &mut Slices, now| {
            slices.admitted(1, SLICE);
            let full = slices.ask(now, SLICE, SLICE, 0, 0).unwrap();
            assert!(slices.overran(now, full.limit) && slices.is_new());
            slices.admitted(1, SLICE / 2);
            for _ in 1..STRIKES {
                assert!(!slices.overran(now, full.limit) && !slices.is_new());
            }
            slices.put_back(1, SLICE / 2);
        };
        for at in 1..STRIKES {
            gives_up(&mut slices, u64::from(at) * 10 * MS);
            assert_eq!(slices.spared_until, 0, "{at} slices");
        }
        gives_up(&mut slices, 100 * MS);
        assert_eq!(slices.spared_until, 100 * MS + SPARED);
    }

    #[test]
    fn one_that_ends_in_time_between_forgives_them() {
        let mut slices = Slices::default();
        for at in 0..20 {
            let now = at * 100 * MS;
            strikes(&mut slices, now);
            strikes(&mut slices, now + 30 * MS);
            slices.emptied();
            slices.admitted(1, SLICE);
            assert!(slices.ask(now + 60 * MS, SLICE, SLICE, 0, 0).is_some());
            slices.emptied();
        }
    }

    #[test]
    fn slices_that_end_late_because_others_have_their_turns_are_no_overruns() {
        let mut slices = Slices::default();
        for at in 0..100 {
            let now = at * 20 * MS;
            assert!(launch(&mut slices, now, SLICE));
            assert_ne!(slices.room(now, SLICE, 0), u64::MAX, "slice {at}");
            // Two visitors have a slice of the driver's each, 2.09 ms, and the changes take time.
            for look in 0..12 {
                let asked = slices.ask(now + look * MS / 2, SLICE, SLICE, 0, SLICE);
                assert!(asked.is_some(), "slice {at}");
            }
            slices.emptied();
        }
    }

    #[test]
    fn a_process_that_keeps_endless_work_is_kept_for_one_slice_a_second() {
        let mut slices = Slices::default();
        let mut kept = 0;
        for now in (0..10_000).map(|at| at * MS) {
            // Nothing is expected to be left of it.
            let goes = slices.ask(now, SLICE, SLICE, 0, 0).is_none();
            slices.admitted(goes.into(), SLICE);
            kept += u64::from(!goes);
        }
        assert!(kept <= 3 * 20 + 10 * 20, "{kept} ms of 10,000");
        // A slice that ends in time forgives it.
        let later = 20_000 * MS;
        slices.admitted(1, SLICE);
        assert!(slices.ask(later, SLICE, SLICE, 0, 0).is_some());
        slices.emptied();
        (1..STRIKES).for_each(|at| strikes(&mut slices, later + u64::from(at) * 100 * MS));
        assert!(slices.spared_until < later);
    }

    #[test]
    fn a_rest_between_is_no_overrun() {
        let mut slices = Slices::default();
        for at in 0..20 {
            slices.admitted(1, SLICE);
            assert!(slices.ask(at * 10 * MS, SLICE, SLICE, 0, 0).is_some());
            slices.rest();
        }
        assert_eq!(slices.spared_until, 0);
    }

    #[test]
    fn a_slice_holds_no_more_of_one_stream_than_that_does_in_it() {
        let mut slices = Slices::default();
        slices.admitted(4, 200 * US);
        assert!(slices.has_room(MS, SLICE, 50 * US, SLICE));
        assert!(!slices.has_room(MS, SLICE, 50 * US, SLICE + 1));
        assert!(slices.ask(MS, SLICE, 50 * US, SLICE + 1, MS).is_some());
        slices.rest();
        assert_eq!(slices.room(MS, SLICE, 0), 300 * US);
        assert_eq!(slices.room(MS, SLICE, 400 * US), 100 * US);
        assert!(!slices.fills(MS, SLICE, 300 * US, 0) && slices.fills(MS, SLICE, 301 * US, 0));
        assert!(slices.fills(MS, SLICE, 50 * US, SLICE + 1));
        assert!(!slices.fills(MS, SLICE, 50 * US, SLICE));
    }

    #[test]
    fn the_first_launch_goes_however_much_its_stream_has() {
        let slices = Slices::default();
        assert!(slices.has_room(MS, SLICE, 50 * US, 2 * SLICE));
    }

    #[test]
    fn launches_that_are_admitted_again_are_counted_once() {
        let mut slices = Slices::default();
        slices.admitted(9, 450 * US);
        slices.admitted(5, 250 * US);
        assert!(!slices.has_room(MS, SLICE, 50 * US, 0));
        assert_eq!(slices.room(MS, SLICE, 0), 0);
        slices.put_back(5, 250 * US);
        assert!(slices.has_room(MS, SLICE, 50 * US, 0));
    }

    #[test]
    fn a_launch_that_the_driver_refused_leaves_its_room() {
        let mut slices = Slices::default();
        assert!(launch(&mut slices, MS, SLICE));
        assert!(!launch(&mut slices, MS, SLICE));
        slices.rest();
        slices.put_back(1, SLICE);
        assert!(launch(&mut slices, MS, SLICE));
    }
}
