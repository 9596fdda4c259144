//! Looks at devices: those under way, the charges when they began, and the last results.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::{Nanos, ProcessId};
use gpushare_protocol::units::Bytes;

use super::look_failures::Failures;

/// How long NVML may take to answer for a device. It takes milliseconds, and a second where
/// a GPU wakes up.
pub(super) const SLOW: Nanos = Nanos::secs(10);

/// So many looks, one after the other, find a device lost before it is given up, which is for good:
/// a driver may answer so for a moment, as while a GPU is reset.
const GONE: u32 = 3;
/// For how long at least. What waits for memory has looks taken one right after the other.
const GONE_FOR: Nanos = Nanos::secs(2);

/// The charges of processes when a look began, and the result of the last look.
#[derive(Debug, Default)]
struct Began {
    /// A look is under way, or waits until other devices have answered.
    under_way: bool,
    /// Another look was requested while one was under way, which may have begun too early to answer
    /// it.
    again: bool,
    charged: BTreeMap<ProcessId, Bytes>,
    /// The memory of each process in the last look that listed processes.
    shown: BTreeMap<ProcessId, Bytes>,
    /// Whether that was the last look.
    lists: bool,
    /// So many looks found the device lost, and none an answer since, and when the first did.
    gone: Option<(u32, Nanos)>,
}

/// See the module's page. Devices are indices.
#[derive(Debug, Default)]
pub(super) struct Looks {
    began: BTreeMap<usize, Began>,
    /// Devices that are lost.
    lost: BTreeSet<usize>,
    failures: BTreeMap<usize, Failures>,
    /// The device that is asked now, and since when.
    asked: Option<(usize, Nanos)>,
}

impl Looks {
    /// A look is to begin while so much is `charged`. False: one is under way, and another follows
    /// it.
    pub(super) fn begin(&mut self, device: usize, charged: BTreeMap<ProcessId, Bytes>) -> bool {
        let began = self.began.entry(device).or_default();
        if began.under_way {
            began.again = true;
            return false;
        }
        (began.under_way, began.charged) = (true, charged);
        true
    }

    /// A look has ended. Returns the charges when it began, and whether another is wanted; `None`
    /// if none began.
    pub(super) fn end(&mut self, device: usize) -> Option<(BTreeMap<ProcessId, Bytes>, bool)> {
        let began = self.began.get_mut(&device)?;
        began.under_way = false;
        let again = std::mem::take(&mut began.again);
        Some((std::mem::take(&mut began.charged), again))
    }

    /// This device is asked now, since then; `None`: none is.
    pub(super) fn ask(&mut self, asked: Option<(usize, Nanos)>) {
        self.asked = asked;
    }

    /// The device that has not answered for longer than it may take. Devices are asked one after
    /// the other: looks that are under way at others wait for it.
    pub(super) fn hangs(&self, now: Nanos) -> Option<usize> {
        let slow = self.asked.filter(|(_, since)| now - *since >= SLOW);
        slow.map(|(device, _)| device)
    }

    /// The result of a look for each process.
    pub(super) fn list(&mut self, device: usize, shown: BTreeMap<ProcessId, Bytes>) {
        let began = self.began.entry(device).or_default();
        (began.shown, began.lists) = (shown, true);
    }

    /// A look listed no processes, or failed.
    pub(super) fn list_none(&mut self, device: usize) {
        self.began.entry(device).or_default().lists = false;
    }

    /// Whether the last look at a device listed processes, and the next one may.
    pub(super) fn lists(&self, device: usize) -> bool {
        !self.is_lost(device) && self.began.get(&device).is_some_and(|began| began.lists)
    }

    /// A dead process counts as shown on a device until that has been looked at: a look at another
    /// must not forget it.
    pub(super) fn remember(&mut self, device: usize, process: ProcessId, bytes: Bytes) {
        let began = self.began.entry(device).or_default();
        began.shown.insert(process, bytes);
    }

    /// The result of the last look at a device. `None`: there was none.
    pub(super) fn shown(&self, device: usize) -> Option<&BTreeMap<ProcessId, Bytes>> {
        self.began.get(&device).map(|began| &began.shown)
    }

    /// Whether the last look at any other device that is not lost showed a process.
    pub(super) fn show_elsewhere(&self, device: usize, process: ProcessId) -> bool {
        let mut others = self.began.keys().filter(|other| **other != device);
        others.any(|other| self.shows(*other, process))
    }

    /// The same of all devices.
    pub(super) fn show(&self, process: ProcessId) -> bool {
        let mut devices = self.began.keys();
        devices.any(|device| self.shows(*device, process))
    }

    fn shows(&self, device: usize, process: ProcessId) -> bool {
        let shown = self.shown(device);
        !self.is_lost(device) && shown.is_some_and(|shown| shown.contains_key(&process))
    }

    /// The failures of looks at a device.
    pub(super) fn failures(&mut self, device: usize) -> &mut Failures {
        self.failures.entry(device).or_default()
    }

    /// A look found a device lost. Whether that is believed.
    pub(super) fn is_gone(&mut self, device: usize, now: Nanos) -> bool {
        let began = self.began.entry(device).or_default();
        let (times, since) = began.gone.get_or_insert((0, now));
        *times = times.saturating_add(1);
        *times >= GONE && now - *since >= GONE_FOR
    }

    /// A device answered.
    pub(super) fn answers(&mut self, device: usize) {
        self.began.entry(device).or_default().gone = None;
    }

    /// A device is gone for good. False: that is known.
    pub(super) fn lose(&mut self, device: usize) -> bool {
        self.lost.insert(device)
    }

    pub(super) fn is_lost(&self, device: usize) -> bool {
        self.lost.contains(&device)
    }
}

/// What a process had charged all through a look: the less of before and after it. One that was
/// `before` this daemon, and came while the look was under way, had all of it.
pub(super) fn all_through(before: Option<Bytes>, after: Bytes, is_older: bool) -> Bytes {
    let unknown = if is_older { after } else { Bytes::ZERO };
    before.map_or(unknown, |before| before.min(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_wanted_while_one_is_under_way_follows_it_once() {
        let mut looks = Looks::default();
        let charged = BTreeMap::from([(ProcessId(1), Bytes::mib(1))]);
        assert!(looks.begin(0, charged.clone()));
        assert!(!looks.begin(0, BTreeMap::new()));
        assert_eq!(looks.end(0), Some((charged, true)));
        assert!(looks.begin(0, BTreeMap::new()));
        assert_eq!(looks.end(0), Some((BTreeMap::new(), false)));
        assert_eq!(looks.end(1), None, "none began");
    }

    #[test]
    fn a_device_is_gone_after_three_looks_without_an_answer_between() {
        let mut looks = Looks::default();
        for second in 0..10 {
            let at = [0, 1].map(|more| Nanos::secs(2 * second + more));
            assert!(!at.into_iter().any(|now| looks.is_gone(0, now)));
            looks.answers(0);
        }
        let seen = [30, 31, 32, 33].map(|second| looks.is_gone(0, Nanos::secs(second)));
        assert_eq!(seen, [false, false, true, true]);
        let at_once = [40; 9].map(|second| looks.is_gone(1, Nanos::secs(second)));
        assert_eq!(at_once, [false; 9], "all in one moment");
        assert!(looks.is_gone(1, Nanos::secs(42)));
    }

    #[test]
    fn a_device_hangs_once_it_has_been_asked_for_ten_seconds() {
        let mut looks = Looks::default();
        let began = Nanos::secs(5);
        let later = began + SLOW;
        (0..3).for_each(|device| assert!(looks.begin(device, BTreeMap::new())));
        assert_eq!(looks.hangs(later), None, "none is asked");
        looks.ask(Some((1, began)));
        assert_eq!(looks.hangs(later - Nanos(1)), None);
        assert_eq!(looks.hangs(later), Some(1), "looks at 0 and 2 wait");
        looks.ask(Some((2, later)));
        assert_eq!(looks.hangs(later + SLOW - Nanos(1)), None);
        looks.ask(None);
        assert_eq!(looks.hangs(later + SLOW), None);
    }

    #[test]
    fn a_process_is_shown_elsewhere_by_the_last_look_there() {
        let mut looks = Looks::default();
        looks.remember(1, ProcessId(7), Bytes::mib(1));
        assert!(looks.show_elsewhere(0, ProcessId(7)));
        assert!(!looks.show_elsewhere(1, ProcessId(7)));
        looks.list(1, BTreeMap::new());
        assert!(!looks.show_elsewhere(0, ProcessId(7)));
        looks.remember(1, ProcessId(7), Bytes::mib(1));
        looks.lose(1);
        assert!(!looks.show_elsewhere(0, ProcessId(7)), "it is no more");
    }

    #[test]
    fn a_process_had_all_through_a_look_what_it_had_before_and_after() {
        let [none, less, more] = [0, 2, 5].map(Bytes::mib);
        for (before, after, is_older, all) in [
            (Some(less), more, false, less),
            (Some(more), less, false, less),
            (Some(less), more, true, less),
            (None, more, false, none),
            (None, more, true, more),
        ] {
            assert_eq!(all_through(before, after, is_older), all);
        }
    }
}
