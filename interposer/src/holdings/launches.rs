//! Whether a graph still has the memory that its last launch was given: pure bookkeeping, for one
//! device.
//!
//! Graphs share the memory that the driver keeps for them. A graph's next launch may use what its
//! last one was given as long as no other launch can have taken that memory and nothing has given
//! it back. A call is in the driver from some moment after it began to some moment before it ended,
//! so two calls that overlap may have come to the memory in either order: what they were given is
//! not certain (ADR 147).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls on the memory of one device's graphs.
#[derive(Debug, Default)]
pub(crate) struct Launches(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// Calls that may take memory, begun so far.
    launches: u64,
    /// All calls begun so far: those, and those after which memory may have been given back.
    all: u64,
    /// Of all, those that have not ended. A call that never returns counts for ever, and no launch
    /// is certain of its memory from then on.
    under_way: u64,
}

/// A call that may take memory. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    within: UnderWay<'a>,
    /// Its number among the launches, and among all calls.
    number: u64,
    call: u64,
    /// No other call was under way when it began.
    alone: bool,
}

/// A call after which memory may have been given back. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Lessening<'a>(#[expect(dead_code, reason = "held for its drop")] UnderWay<'a>);

#[derive(Debug)]
struct UnderWay<'a>(&'a Launches);

/// The memory that a launch was given, all of which it certainly had when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The number of the launch.
    launch: u64,
    /// Bytes that the driver held for all graphs when it ended.
    reserved: u64,
}

impl Launches {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that may take memory begins.
    pub(crate) fn begin(&self) -> Launch<'_> {
        let mut calls = self.lock();
        calls.launches += 1;
        let alone = calls.enter();
        Launch {
            within: UnderWay(self),
            number: calls.launches,
            call: calls.all,
            alone,
        }
    }

    /// A call begins after which memory may have been given back.
    pub(crate) fn lessens(&self) -> Lessening<'_> {
        self.lock().enter();
        Lessening(UnderWay(self))
    }

    /// Whether the driver still has what a launch was given, and has given it to no other since.
    /// `reserved` is what it holds for all graphs now: as long as no launch begins, that can only
    /// fall.
    pub(crate) fn has(&self, given: &Given, reserved: u64) -> bool {
        self.lock().launches == given.launch && given.reserved <= reserved
    }
}

impl Calls {
    /// Counts a call that begins. Returns whether it is the only one under way.
    fn enter(&mut self) -> bool {
        self.all += 1;
        self.under_way += 1;
        self.under_way == 1
    }
}

impl Launch<'_> {
    /// It has succeeded, and after it the driver held `reserved` bytes for all graphs. `None` if
    /// another call overlapped it.
    pub(crate) fn succeeded(self, reserved: u64) -> Option<Given> {
        let certain = self.alone && self.within.0.lock().all == self.call;
        certain.then_some(Given {
            launch: self.number,
            reserved,
        })
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 20;

    #[test]
    fn a_launch_has_what_the_one_before_it_was_given() {
        let launches = Launches::default();
        let given = launches.begin().succeeded(BYTES).expect("it was alone");
        assert!(launches.has(&given, BYTES));
        assert!(launches.has(&given, BYTES + 1));
        let again = launches.begin().succeeded(BYTES).expect("it was alone");
        assert!(launches.has(&again, BYTES));
    }

    #[test]
    fn another_launch_may_have_taken_it() {
        let launches = Launches::default();
        let given = launches.begin().succeeded(BYTES).expect("it was alone");
        let other = launches.begin();
        assert!(!launches.has(&given, BYTES), "it has begun");
        drop(other);
        assert!(!launches.has(&given, BYTES), "it failed, perhaps after all");
    }

    #[test]
    fn memory_that_was_given_back_is_not_there() {
        let launches = Launches::default();
        let given = launches.begin().succeeded(BYTES).expect("it was alone");
        drop(launches.lessens());
        assert!(launches.has(&given, BYTES), "all of it was in use");
        assert!(!launches.has(&given, BYTES - 1));
    }

    /// The other launch began first and came to the memory last.
    #[test]
    fn nothing_is_certain_of_a_launch_that_began_beside_another() {
        let launches = Launches::default();
        let other = launches.begin();
        assert_eq!(launches.begin().succeeded(BYTES), None);
        drop(other);
        assert!(launches.begin().succeeded(BYTES).is_some());
    }

    #[test]
    fn nothing_is_certain_of_a_launch_beside_which_another_began() {
        let launches = Launches::default();
        let launch = launches.begin();
        drop(launches.begin());
        assert_eq!(launch.succeeded(BYTES), None);
    }

    /// The trim came between the launch and the look at what is reserved.
    #[test]
    fn nothing_is_certain_of_a_launch_beside_a_trim() {
        let launches = Launches::default();
        let launch = launches.begin();
        drop(launches.lessens());
        assert_eq!(launch.succeeded(0), None);
        let trim = launches.lessens();
        let launch = launches.begin();
        drop(trim);
        assert_eq!(launch.succeeded(0), None);
    }

    /// One call ended and another began: as many are under way as before.
    #[test]
    fn calls_that_take_turns_beside_a_launch_are_all_seen() {
        let launches = Launches::default();
        let first = launches.begin();
        let launch = launches.begin();
        drop(first);
        let last = launches.lessens();
        assert_eq!(launch.succeeded(BYTES), None);
        drop(last);
    }
}
