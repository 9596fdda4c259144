//! The report on a device's work in this process that the daemon reads: how much was completed, and
//! for how long some was pending. Pure: its inputs are facts and times, its output the words of the
//! usage line.

use gpushare_protocol::page::pending::PendingWord;

/// Completed service up to which the past counts as recent (ns): beyond it, the counters are
/// halved.
const LATELY: u64 = 50_000_000;
/// Service counts as known while at least four of these five parts are of measured kinds.
const PARTS: (u64, u64) = (4, 5);

/// The words of the usage line of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// See `Line::service`.
    pub service: u64,
    /// See `Line::busy`.
    pub busy: u64,
    /// See `Line::pending`.
    pub pending: PendingWord,
}

/// The state of one device.
#[derive(Debug, Default)]
pub struct Report {
    service: u64,
    busy: u64,
    /// Since when work is pending.
    since: Option<u64>,
    /// When a launch was last known to wait.
    waited: u64,
    /// Recently completed service: of measured kinds, and of others.
    lately: (u64, u64),
}

impl Report {
    /// Work was completed that takes so long alone (ns): `measured` of kinds that were measured.
    pub fn completed(&mut self, measured: u64, guessed: u64) {
        self.service = self
            .service
            .saturating_add(measured)
            .saturating_add(guessed);
        self.lately.0 = self.lately.0.saturating_add(measured);
        self.lately.1 = self.lately.1.saturating_add(guessed);
        while self.lately.0.saturating_add(self.lately.1) > LATELY {
            self.lately.0 /= 2;
            self.lately.1 /= 2;
        }
    }

    /// Work of kinds that are not measured was seen to run for so much longer than was assumed of
    /// it (ns). That says nothing of the kinds of later work.
    pub fn ran_longer(&mut self, ns: u64) {
        self.service = self.service.saturating_add(ns);
    }

    /// The state at `now`: whether work is in flight, whether a launch waits, and until when work
    /// is known to have been in flight.
    pub fn stands(&mut self, now: u64, under_way: bool, waits: bool, ended: u64) {
        if waits {
            self.waited = now;
        }
        if under_way || waits {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            let end = ended.max(self.waited).clamp(since, now.max(since));
            self.busy = self.busy.saturating_add(end - since);
        }
    }

    /// Whether work is pending.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.since.is_some()
    }

    /// Whether less than four fifths of the recently completed service was of measured kinds, or
    /// none was.
    fn is_guessed(&self) -> bool {
        let (measured, guessed) = self.lately;
        let all = measured.saturating_add(guessed);
        all == 0 || measured.saturating_mul(PARTS.1) < all.saturating_mul(PARTS.0)
    }

    /// The words of the usage line.
    pub fn words(&self) -> Words {
        Words {
            service: self.service,
            busy: self.busy,
            pending: PendingWord::new(self.since, self.is_guessed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    fn stands(report: &mut Report, now: u64, under_way: bool, ended: u64) -> Words {
        report.stands(now, under_way, false, ended);
        report.words()
    }

    #[test]
    fn pending_time_ends_when_the_work_did_and_not_at_the_look() {
        let mut report = Report::default();
        let begun = stands(&mut report, MS, true, 0);
        assert_eq!((begun.busy, begun.pending.since()), (0, Some(MS)));
        let later = stands(&mut report, 2 * MS, true, 2 * MS);
        assert_eq!(
            (later.busy, later.pending.since()),
            (0, Some(MS)),
            "it is counted when it ends"
        );
        let ended = stands(&mut report, 9 * MS, false, 3 * MS);
        assert_eq!((ended.busy, ended.pending.since()), (2 * MS, None));
        let idle = stands(&mut report, 20 * MS, false, 3 * MS);
        assert_eq!(idle.busy, 2 * MS, "an idle time is not pending");
    }

    #[test]
    fn an_end_before_the_begin_or_in_the_future_adds_nothing() {
        let mut report = Report::default();
        stands(&mut report, 5 * MS, true, 0);
        assert_eq!(stands(&mut report, 6 * MS, false, MS).busy, 0);
        stands(&mut report, 7 * MS, true, 0);
        assert_eq!(stands(&mut report, 8 * MS, false, 90 * MS).busy, MS);
    }

    #[test]
    fn a_launch_that_waits_is_pending_until_it_was_last_known_to() {
        let mut report = Report::default();
        report.stands(10 * MS, false, true, 2 * MS);
        assert_eq!(report.words().pending.since(), Some(10 * MS));
        report.stands(60 * MS, false, true, 2 * MS);
        report.stands(300 * MS, false, false, 2 * MS);
        assert_eq!(report.words().busy, 50 * MS);
    }

    #[test]
    fn a_launch_that_waited_and_went_is_one_stretch() {
        let mut report = Report::default();
        report.stands(MS, false, true, 0);
        report.stands(3 * MS, true, false, 3 * MS);
        report.stands(9 * MS, false, false, 4 * MS);
        assert_eq!(report.words().busy, 3 * MS);
    }

    #[test]
    fn service_adds_up_and_is_guessed_until_four_fifths_of_it_are_measured() {
        let mut report = Report::default();
        assert!(report.words().pending.is_guessed(), "nothing is known yet");
        report.completed(0, 100 * US);
        assert!(report.words().pending.is_guessed());
        report.completed(300 * US, 0);
        assert!(report.words().pending.is_guessed(), "three quarters");
        report.completed(100 * US, 0);
        assert!(!report.words().pending.is_guessed(), "four fifths");
        assert_eq!(report.words().service, 500 * US);
    }

    #[test]
    fn what_was_guessed_long_ago_is_forgotten_and_what_is_guessed_now_counts() {
        let mut report = Report::default();
        report.completed(0, 1_000 * MS);
        (0..400).for_each(|_| report.completed(MS, 0));
        assert!(!report.words().pending.is_guessed());
        (0..20).for_each(|_| report.completed(0, MS));
        assert!(report.words().pending.is_guessed());
        assert_eq!(report.words().service, 1_420 * MS);
    }

    #[test]
    fn what_a_guess_took_longer_is_service_and_makes_no_kind_unknown() {
        let mut report = Report::default();
        report.completed(400 * US, 100 * US);
        report.ran_longer(1_000 * MS);
        assert!(!report.words().pending.is_guessed());
        assert_eq!(report.words().service, 1_000 * MS + 500 * US);
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let mut report = Report::default();
        report.completed(u64::MAX, u64::MAX);
        report.completed(u64::MAX, 1);
        report.stands(u64::MAX, true, true, 0);
        report.stands(0, false, false, u64::MAX);
        let _ = report.words();
    }
}
