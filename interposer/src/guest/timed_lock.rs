//! A lock whose wait is bounded.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::guest::{frames, sys};

/// How often the time to wait passes before a turn is taken from a thread that may come back.
const ROUNDS: u32 = 3;

/// Admits one thread at a time.
#[derive(Debug)]
pub(crate) struct TimedLock {
    queue: Mutex<Queue>,
    over: Condvar,
}

#[derive(Debug)]
struct Queue {
    busy: bool,
    waiting: usize,
    /// Turns so far.
    turns: u64,
    /// Of the thread that has the turn.
    holder: Holder,
}

/// A thread that has a turn, by one of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its system number.
    pub(crate) thread: i64,
    /// The address of its call's [`Frame`](crate::guest::frames::Frame); 0 if that is not known.
    pub(crate) at: u64,
}

/// A turn; dropping it lets the next one go.
#[derive(Debug)]
pub(crate) struct TimedLockGuard<'a> {
    lock: &'a TimedLock,
    turn: u64,
    seized: bool,
}

impl Holder {
    /// This thread, by the call that it is in.
    pub(crate) fn here() -> Self {
        Self {
            thread: sys::this_thread(),
            at: frames::current(),
        }
    }
}

impl Default for TimedLock {
    fn default() -> Self {
        Self::new()
    }
}

impl TimedLock {
    /// One that no thread has.
    pub(crate) const fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                busy: false,
                waiting: 0,
                turns: 0,
                holder: Holder { thread: 0, at: 0 },
            }),
            over: Condvar::new(),
        }
    }

    /// Waits for a turn, `patience` at most; `None` when that was not enough.
    pub(crate) fn take(&self, patience: Duration) -> Option<TimedLockGuard<'_>> {
        let queue = self.wait(patience);
        (!queue.busy).then(|| self.begin(queue, Holder::default(), false))
    }

    /// The same, where the thread that has the turn may never come back from it: its turn is taken
    /// from it when the time is over and `is_left` says that it has left its call, and after three
    /// times as long in any case.
    pub(crate) fn seize(
        &self,
        patience: Duration,
        me: Holder,
        is_left: impl Fn(Holder) -> bool,
    ) -> TimedLockGuard<'_> {
        let mut rounds = 1;
        loop {
            let queue = self.wait(patience);
            let left = queue.busy && is_left(queue.holder);
            if !queue.busy || left || rounds >= ROUNDS {
                return self.begin(queue, me, left);
            }
            rounds += 1;
        }
    }

    fn wait(&self, patience: Duration) -> MutexGuard<'_, Queue> {
        let mut queue = self.lock();
        if queue.busy {
            queue.waiting += 1;
            let waited = self
                .over
                .wait_timeout_while(queue, patience, |queue| queue.busy);
            let (waited, _) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = waited;
            queue.waiting -= 1;
        }
        queue
    }

    fn begin(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        holder: Holder,
        seized: bool,
    ) -> TimedLockGuard<'_> {
        (queue.busy, queue.holder) = (true, holder);
        queue.turns += 1;
        TimedLockGuard {
            lock: self,
            turn: queue.turns,
            seized,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimedLockGuard<'_> {
    /// Whether it was taken from a thread that has left its call.
    pub(crate) fn is_seized(&self) -> bool {
        self.seized
    }
}

impl Drop for TimedLockGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.lock.lock();
        if queue.turns != self.turn {
            // It was taken from this thread.
            return;
        }
        queue.busy = false;
        let waiting = queue.waiting > 0;
        drop(queue);
        // A wake without waiters would still be a system call.
        if waiting {
            self.lock.over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_goes_only_after_the_first_and_does_not_wait_for_ever() {
        let turns = TimedLock::default();
        let first = turns.take(Duration::ZERO).expect("free");
        assert!(turns.take(Duration::from_millis(1)).is_none());
        drop(first);
        assert!(turns.take(Duration::ZERO).is_some());
    }

    #[test]
    fn a_turn_is_taken_from_a_thread_that_does_not_come_back() {
        let turns = TimedLock::default();
        let holder = |at| Holder { thread: 1, at };
        let seize = |at, left: u64| {
            turns.seize(Duration::from_millis(1), holder(at), move |other| {
                other.at == left
            })
        };
        let late = seize(1, 0);
        assert!(!late.is_seized());
        let next = seize(2, 1);
        assert!(next.is_seized());
        drop(late);
        assert!(turns.take(Duration::ZERO).is_none(), "the next one has it");
        drop(next);
        assert!(!seize(3, 2).is_seized());
    }

    #[test]
    fn a_turn_taken_from_a_thread_that_may_come_back_is_not_called_left() {
        let turns = TimedLock::default();
        let slow = turns.seize(Duration::ZERO, Holder::default(), |_| false);
        let next = turns.seize(Duration::from_millis(1), Holder::default(), |_| false);
        assert!(!next.is_seized(), "it may end what it is about to end");
        drop(slow);
        assert!(turns.take(Duration::ZERO).is_none(), "the next one has it");
    }

    #[test]
    fn turns_exclude_each_other_and_all_come() {
        let turns = TimedLock::default();
        let sum = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _turn = turns.take(Duration::from_secs(30)).expect("in time");
                        let mut only = sum.try_lock().expect("no other thread has a turn");
                        *only += 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock().expect("unlocked"), 2000);
    }
}
