//! Calls under way that make contexts, and the turns of those that would.
//!
//! A call is entered before the daemon is asked, and leaves when it has returned. Until then the
//! process does not say that it has no context. The calls of several threads that need one primary
//! context are one here: the first one's ask serves all. Only so many are under way at a time as
//! the daemon lets one process ask for; others wait until one of them has left.
//!
//! A call that was left by a jump, or whose thread has ended, never leaves by itself. Where one is
//! in the way of another, it is looked for, and forgotten.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::guest::timed_lock::Holder;
use crate::guest::{frames, futex, left};

/// Most under way on one device: as many as a restarted daemon believes.
const MOST: usize = 8;
/// Most under way on all devices: one less than a process may have asks waiting.
const MOST_TOGETHER: usize = 15;
/// A call may have left by a jump, which cannot always be seen: it counts for this long after it
/// was let begin, or after its time to wait, as the daemon sets memory aside for it (`open_grace`).
const COUNTS: Duration = Duration::from_secs(10);
/// How often a call that waits for its turn looks for calls that were left.
const LOOKED_EACH: Duration = Duration::from_secs(1);

/// A call is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) device: u8,
    pub(super) key: u32,
    /// Whether another call of the same context was let begin.
    pub(super) is_let: bool,
    call: Call,
}

/// A call by its number, which no other has, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: u32,
    by: Holder,
}

/// A context of calls that were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) device: u8,
    /// The number of its ask, and whether that is for a first context.
    pub(super) ask: Option<(u32, bool)>,
    pub(super) is_let: bool,
}

#[derive(Debug)]
struct One {
    key: u32,
    device: u8,
    /// It makes the device's primary context.
    is_primary: bool,
    /// Calls of this context.
    calls: Vec<Call>,
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
    /// Calls so far.
    calls: AtomicU32,
    /// Rises with each that is entered, which is its key, and with each that leaves.
    moved: AtomicU32,
    /// Rises with each that is let begin or leaves: waiting threads sleep on it.
    changed: AtomicU32,
}

impl Openings {
    fn all(&self) -> MutexGuard<'_, Vec<One>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call, which waits for its turn until `end` at most. `forgotten` is called with each
    /// that was left.
    pub(super) fn enter(
        &self,
        device: u8,
        is_primary: bool,
        end: Instant,
        forgotten: impl Fn(Left),
    ) -> Entered {
        let here = Holder::here();
        loop {
            let seen = self.changed.load(Ordering::Acquire);
            let now = Instant::now();
            if let Some(entered) = self.try_enter(device, is_primary, (now, end), here) {
                return entered;
            }
            let all_left = self.forget(here, left::has_left);
            if all_left.is_empty() {
                let left = end.saturating_duration_since(now).min(LOOKED_EACH);
                frames::sleep_on(&self.changed, seen, left);
            }
            all_left.into_iter().for_each(&forgotten);
        }
    }

    /// Forgets calls that were left, seen from the call `here`. Returns the contexts that none is
    /// left of.
    fn forget(&self, here: Holder, is_left: impl Fn(Holder, Holder) -> bool) -> Vec<Left> {
        let mut gone: Vec<Call> = Vec::new();
        gone.extend(self.all().iter().flat_map(|one| &one.calls));
        // Not under the lock: it asks the system.
        gone.retain(|call| is_left(call.by, here));
        let mut contexts = Vec::new();
        if gone.is_empty() {
            return contexts;
        }
        self.all().retain_mut(|one| {
            one.calls.retain(|call| !gone.contains(call));
            let stays = !one.calls.is_empty();
            if !stays {
                contexts.push(Left {
                    device: one.device,
                    ask: one.ask,
                    is_let: one.is_let,
                });
            }
            stays
        });
        if !contexts.is_empty() {
            self.moved.fetch_add(1, Ordering::AcqRel);
            self.wake();
        }
        contexts
    }

    /// Forgets calls that were left if some are under way on the device, or on any.
    pub(super) fn forgotten(&self, device: Option<u8>) -> Vec<Left> {
        let is_of = |one: &One| device.is_none_or(|device| one.device == device);
        if !self.all().iter().any(is_of) {
            return Vec::new();
        }
        self.forget(Holder::here(), left::has_left)
    }

    /// Enters a call without waiting. From `end` on it is entered in any case.
    fn try_enter(
        &self,
        device: u8,
        is_primary: bool,
        (now, end): (Instant, Instant),
        by: Holder,
    ) -> Option<Entered> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call { number, by };
        let mut all = self.all();
        let mut shared = all.iter_mut().filter(|one| one.until > now);
        let shared = shared.find(|one| is_primary && one.is_primary && one.device == device);
        if let Some(one) = shared {
            if one.is_let {
                one.calls.push(call);
                return Some(Entered {
                    device,
                    key: one.key,
                    is_let: true,
                    call,
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
            calls: vec![call],
            ask: None,
            is_let: false,
            until: end.checked_add(COUNTS).unwrap_or(end),
        });
        Some(Entered {
            device,
            key,
            is_let: false,
            call,
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
    pub(super) fn leave(&self, entered: Entered) -> Option<u32> {
        let mut all = self.all();
        let at = all.iter().position(|one| one.key == entered.key)?;
        let one = all.get_mut(at)?;
        // An earlier call that was left may have been in the same place.
        one.calls.retain(|call| {
            let is_another = call.number != entered.call.number;
            is_another && (call.by.at == 0 || call.by != entered.call.by)
        });
        if !one.calls.is_empty() {
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

    /// A call of the first device, of a thread at a place.
    fn call(openings: &Openings, is_primary: bool, thread: i64, at: u64) -> Option<Entered> {
        openings.try_enter(0, is_primary, soon(), Holder { thread, at })
    }

    fn enter(openings: &Openings, is_primary: bool) -> Option<Entered> {
        openings.try_enter(0, is_primary, soon(), Holder::default())
    }

    fn forget(openings: &Openings, left: &[i64]) -> Vec<Left> {
        openings.forget(Holder::default(), |call, _| left.contains(&call.thread))
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
        openings.is_asked(first.key, 7, true);
        openings.is_let(first.key, Instant::now());
        assert!(!is_none(&openings), "it is being made");
        assert!(openings.is_first(first.key));
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
        assert!(enter(&openings, true).is_none(), "it is asked for");
        openings.is_asked(one.key, 7, false);
        openings.is_let(one.key, Instant::now());
        let other = enter(&openings, true).expect("a turn");
        assert_eq!(other.key, one.key);
        assert_eq!(openings.further(), [(7, 0)]);
        assert_eq!(openings.leave(one), None, "the other one is under way");
        assert_eq!(openings.leave(other), Some(7));
    }

    #[test]
    fn other_contexts_have_asks_of_their_own() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        openings.is_let(one.key, Instant::now());
        let own = enter(&openings, false).expect("a turn");
        assert_ne!(own.key, one.key);
        let third = enter(&openings, false).expect("a turn");
        assert_ne!(third.key, own.key);
        let elsewhere = openings.try_enter(1, true, soon(), Holder::default());
        assert!(!elsewhere.expect("a turn").is_let);
    }

    #[test]
    fn a_refused_ask_is_refused_to_its_own_call_only() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        openings.is_asked(one.key, 7, false);
        assert!(enter(&openings, true).is_none());
        assert_eq!(openings.leave(one), None, "nothing was set aside");
        assert!(enter(&openings, true).is_some_and(|next| next.key != one.key));
    }

    #[test]
    fn so_many_calls_are_under_way_on_a_device_and_others_wait() {
        let openings = Openings::default();
        let all = (0..MOST).filter_map(|_| enter(&openings, false));
        let all: Vec<Entered> = all.collect();
        assert_eq!(all.len(), MOST);
        assert!(enter(&openings, false).is_none());
        let now = Instant::now();
        let late = openings.try_enter(0, false, (now, now), Holder::default());
        assert!(late.is_some(), "its time to wait for its turn is over");
        let more: Vec<Entered> = (0..MOST)
            .filter_map(|_| openings.try_enter(1, false, soon(), Holder::default()))
            .collect();
        assert_eq!(all.len() + 1 + more.len(), MOST_TOGETHER);
        assert!(enter(&openings, false).is_none());
        for entered in all.into_iter().chain(more) {
            openings.leave(entered);
        }
        assert!(enter(&openings, false).is_some());
    }

    #[test]
    fn a_call_that_left_by_a_jump_keeps_no_turn() {
        let openings = Openings::default();
        let now = Instant::now();
        let long_ago = now.checked_sub(2 * COUNTS).unwrap_or(now);
        for _ in 0..MOST {
            let entered = enter(&openings, true).expect("a turn");
            openings.is_let(entered.key, long_ago);
        }
        assert!(enter(&openings, true).is_some(), "one of its own");
        assert!(!is_none(&openings));
    }

    #[test]
    fn a_call_that_left_while_it_waited_is_forgotten_with_its_ask() {
        let openings = Openings::default();
        let one = call(&openings, true, 1, 8).expect("a turn");
        openings.is_asked(one.key, 7, false);
        assert!(call(&openings, true, 2, 8).is_none());
        assert_eq!(forget(&openings, &[2]), [], "it has not left");
        assert!(call(&openings, true, 2, 8).is_none());
        let context = Left {
            device: 0,
            ask: Some((7, false)),
            is_let: false,
        };
        assert_eq!(forget(&openings, &[1]), [context]);
        assert_eq!(openings.further(), [], "no next daemon is told");
        assert!(is_none(&openings));
        assert!(call(&openings, true, 2, 8).is_some_and(|next| next.key != one.key));
        assert_eq!(openings.leave(one), None);
        assert!(!is_none(&openings), "the second one is under way");
    }

    #[test]
    fn a_context_stays_while_one_of_its_calls_has_not_left() {
        let openings = Openings::default();
        let one = call(&openings, true, 1, 8).expect("a turn");
        openings.is_asked(one.key, 7, false);
        openings.is_let(one.key, Instant::now());
        let other = call(&openings, true, 2, 8).expect("a turn");
        assert_eq!(forget(&openings, &[1]), []);
        assert_eq!(openings.leave(other), Some(7), "it was the last one");
    }

    #[test]
    fn a_call_from_where_its_thread_left_another_takes_that_with_it() {
        let openings = Openings::default();
        let one = call(&openings, true, 1, 8).expect("a turn");
        openings.is_asked(one.key, 7, false);
        openings.is_let(one.key, Instant::now());
        let again = call(&openings, true, 1, 8).expect("a turn");
        assert_eq!(openings.leave(again), Some(7));
        assert!(is_none(&openings));
    }

    #[test]
    fn a_call_sleeps_until_another_leaves() {
        let openings = Openings::default();
        let one = enter(&openings, true).expect("a turn");
        let (_, end) = soon();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| openings.enter(0, true, end, |_| ()).key);
            openings.is_let(one.key, Instant::now());
            assert_eq!(waits.join().ok(), Some(one.key));
        });
    }
}
