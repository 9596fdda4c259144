//! Calls under way that make contexts, and the turns of those that would.
//!
//! A call is entered before the daemon is asked, and leaves when it has returned. Until then the
//! process does not say that it has no context. The calls of several threads that need one primary
//! context are one here: the first one's ask serves all. Only so many are under way at a time as
//! the daemon lets one process ask for; others wait until one of them has left.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::guest::{frames, futex};

/// Most under way on one device: as many as a restarted daemon believes.
const MOST: usize = 8;
/// Most under way on all devices: one less than a process may have asks waiting.
const MOST_TOGETHER: usize = 15;
/// A call may have left by a jump: it counts for this long after it was let begin, or after its
/// time to wait, as the daemon sets memory aside for it (`open_grace`).
const COUNTS: Duration = Duration::from_secs(10);

/// A call is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) device: u8,
    pub(super) key: u32,
    /// Whether another call of the same context was let begin.
    pub(super) is_let: bool,
}

#[derive(Debug)]
struct One {
    key: u32,
    device: u8,
    /// It makes the device's primary context.
    is_primary: bool,
    /// Calls of this context.
    calls: u32,
    /// The number of its ask, and whether that is for a first context. None: there is no ask.
    ask: Option<(u32, bool)>,
    is_let: bool,
    /// Until when it counts.
    until: Instant,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Openings {
    all: Mutex<Vec<One>>,
    /// Rises with each that is entered, which is its key, and with each that leaves.
    moved: AtomicU32,
    /// Rises with each that is let begin or leaves: waiting threads sleep on it.
    changed: AtomicU32,
}

impl Openings {
    fn all(&self) -> MutexGuard<'_, Vec<One>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call, which waits for its turn until `end` at most.
    pub(super) fn enter(&self, device: u8, is_primary: bool, end: Instant) -> Entered {
        loop {
            let seen = self.changed.load(Ordering::Acquire);
            let now = Instant::now();
            if let Some(entered) = self.try_enter(device, is_primary, (now, end)) {
                return entered;
            }
            let left = end.saturating_duration_since(now);
            frames::sleep_on(&self.changed, seen, left);
        }
    }

    /// The same without waiting. From `end` on it is entered in any case.
    fn try_enter(
        &self,
        device: u8,
        is_primary: bool,
        (now, end): (Instant, Instant),
    ) -> Option<Entered> {
        let mut all = self.all();
        let mut shared = all.iter_mut().filter(|one| one.until > now);
        let shared = shared.find(|one| is_primary && one.is_primary && one.device == device);
        if let Some(one) = shared {
            if one.is_let {
                one.calls += 1;
                return Some(Entered {
                    device,
                    key: one.key,
                    is_let: true,
                });
            }
            if now < end {
                return None;
            }
        }
        let count = |on: Option<u8>| {
            let counted = all.iter().filter(|one| one.until > now);
            counted
                .filter(|one| on.is_none_or(|on| one.device == on))
                .count()
        };
        if (count(Some(device)) >= MOST || count(None) >= MOST_TOGETHER) && now < end {
            return None;
        }
        let key = self.moved.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        all.push(One {
            key,
            device,
            is_primary,
            calls: 1,
            ask: None,
            is_let: false,
            until: end.checked_add(COUNTS).unwrap_or(end),
        });
        Some(Entered {
            device,
            key,
            is_let: false,
        })
    }

    /// A mark: another one is got once a call is entered or leaves.
    pub(super) fn mark(&self) -> u32 {
        self.moved.load(Ordering::Acquire)
    }

    fn with(&self, key: u32, does: impl FnOnce(&mut One)) {
        if let Some(one) = self.all().iter_mut().find(|one| one.key == key) {
            does(one);
        }
    }

    fn wake(&self) {
        self.changed.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&self.changed);
    }

    /// The daemon is asked under that number, for a first context of the device or another one.
    pub(super) fn is_asked(&self, key: u32, ask: u32, is_first: bool) {
        self.with(key, |one| one.ask = Some((ask, is_first)));
    }

    /// It may make its context.
    pub(super) fn is_let(&self, key: u32, now: Instant) {
        self.with(key, |one| {
            (one.is_let, one.until) = (true, now.checked_add(COUNTS).unwrap_or(now));
        });
        self.wake();
    }

    /// Whether it makes a first context that was asked for.
    pub(super) fn is_first(&self, key: u32) -> bool {
        let all = self.all();
        let one = all.iter().find(|one| one.key == key);
        one.is_some_and(|one| matches!(one.ask, Some((_, true))))
    }

    /// One of its calls has returned. The number of its ask for a further context, if that was the
    /// last one, and it was let begin.
    pub(super) fn leave(&self, key: u32) -> Option<u32> {
        let mut all = self.all();
        let at = all.iter().position(|one| one.key == key)?;
        let one = all.get_mut(at)?;
        one.calls -= 1;
        if one.calls > 0 {
            return None;
        }
        let one = all.swap_remove(at);
        self.moved.fetch_add(1, Ordering::AcqRel);
        drop(all);
        self.wake();
        match one.ask {
            Some((ask, false)) if one.is_let => Some(ask),
            _ => None,
        }
    }

    /// Further contexts that were asked for: the numbers of the asks, and the devices.
    pub(super) fn further(&self) -> Vec<(u32, u8)> {
        let all = self.all();
        let asks = all.iter().filter_map(|one| match one.ask {
            Some((ask, false)) => Some((ask, one.device)),
            _ => None,
        });
        asks.collect()
    }

    /// Does it if no call is under way on a device, and none was entered or left on any since the
    /// mark. Whether that is so.
    pub(super) fn if_none(&self, device: u8, mark: u32, does: impl FnOnce()) -> bool {
        let all = self.all();
        let none = all.iter().all(|one| one.device != device) && self.mark() == mark;
        if none {
            does();
        }
        none
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> (Instant, Instant) {
        let now = Instant::now();
        (now, now + Duration::from_secs(60))
    }

    fn enter(openings: &Openings, is_primary: bool) -> Option<u32> {
        let entered = openings.try_enter(0, is_primary, soon());
        entered.map(|entered| entered.key)
    }

    fn is_none(openings: &Openings) -> bool {
        openings.if_none(0, openings.mark(), || ())
    }

    #[test]
    fn there_is_no_context_only_while_no_call_is_under_way() {
        let openings = Openings::default();
        let before = openings.mark();
        assert!(is_none(&openings));
        let first = enter(&openings, false).expect("a turn");
        assert!(!is_none(&openings), "it was not even asked for");
        openings.is_asked(first, 7, true);
        openings.is_let(first, Instant::now());
        assert!(!is_none(&openings), "it is being made");
        assert!(openings.is_first(first));
        let mark = openings.mark();
        assert_eq!(openings.leave(first), None, "its end is not said");
        assert!(is_none(&openings));
        for mark in [before, mark] {
            assert!(!openings.if_none(0, mark, || ()), "it may have made one");
        }
    }

    #[test]
    fn calls_of_one_primary_context_share_an_ask() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        assert_eq!(enter(&openings, true), None, "it is asked for");
        openings.is_asked(one, 7, false);
        openings.is_let(one, Instant::now());
        assert_eq!(enter(&openings, true), Some(one));
        assert_eq!(openings.further(), [(7, 0)]);
        assert_eq!(openings.leave(one), None, "the other one is under way");
        assert_eq!(openings.leave(one), Some(7));
    }

    #[test]
    fn other_contexts_have_asks_of_their_own() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        openings.is_let(one, Instant::now());
        let own = enter(&openings, false).expect("a turn");
        assert_ne!(own, one);
        assert_ne!(enter(&openings, false), Some(own));
        let elsewhere = openings.try_enter(1, true, soon()).expect("a turn");
        assert!(!elsewhere.is_let);
    }

    #[test]
    fn a_refused_ask_is_refused_to_its_own_call_only() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        openings.is_asked(one, 7, false);
        assert_eq!(enter(&openings, true), None);
        assert_eq!(openings.leave(one), None, "nothing was set aside");
        assert!(enter(&openings, true).is_some_and(|next| next != one));
    }

    #[test]
    fn so_many_calls_are_under_way_on_a_device_and_others_wait() {
        let openings = Openings::default();
        let all: Vec<u32> = (0..MOST).filter_map(|_| enter(&openings, false)).collect();
        assert_eq!(all.len(), MOST);
        assert_eq!(enter(&openings, false), None);
        let now = Instant::now();
        let late = openings.try_enter(0, false, (now, now));
        assert!(late.is_some(), "its time to wait for its turn is over");
        let more: Vec<u32> = (0..MOST)
            .filter_map(|_| openings.try_enter(1, false, soon()))
            .map(|entered| entered.key)
            .collect();
        assert_eq!(all.len() + 1 + more.len(), MOST_TOGETHER);
        assert_eq!(enter(&openings, false), None);
        for key in all.iter().chain(&more) {
            openings.leave(*key);
        }
        assert!(enter(&openings, false).is_some());
    }

    #[test]
    fn a_call_that_left_by_a_jump_keeps_no_turn() {
        let openings = Openings::default();
        let now = Instant::now();
        let long_ago = now.checked_sub(2 * COUNTS).unwrap_or(now);
        for _ in 0..MOST {
            let key = enter(&openings, true).expect("a turn");
            openings.is_let(key, long_ago);
        }
        assert!(enter(&openings, true).is_some(), "one of its own");
        assert!(!is_none(&openings));
    }

    #[test]
    fn a_call_sleeps_until_another_leaves() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        let (_, end) = soon();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| openings.enter(0, true, end).key);
            openings.is_let(one, Instant::now());
            assert_eq!(waits.join().ok(), Some(one));
        });
    }
}
