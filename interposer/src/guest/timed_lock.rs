//! A lock whose wait is bounded.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Admits one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct TimedLock {
    queue: Mutex<Queue>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    busy: bool,
    waiting: usize,
}

/// A turn; dropping it lets the next one go.
#[derive(Debug)]
pub(crate) struct TimedLockGuard<'a>(&'a TimedLock);

impl TimedLock {
    /// Waits for a turn, `patience` at most; `None` when that was not enough.
    pub(crate) fn take(&self, patience: Duration) -> Option<TimedLockGuard<'_>> {
        let mut queue = self.lock();
        if queue.busy {
            queue.waiting += 1;
            let waited = self
                .over
                .wait_timeout_while(queue, patience, |queue| queue.busy);
            let (waited, _) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = waited;
            queue.waiting -= 1;
            if queue.busy {
                return None;
            }
        }
        queue.busy = true;
        Some(TimedLockGuard(self))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TimedLockGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.busy = false;
        let waiting = queue.waiting > 0;
        drop(queue);
        // A wake without waiters would still be a system call.
        if waiting {
            self.0.over.notify_one();
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
