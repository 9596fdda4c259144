//! A condition variable of the timeline. Ringing it costs nothing while no thread waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::Timeline;

/// A condition variable. Threads ring it and wait for it with the timeline's lock held, so that no
/// ring is lost.
pub(super) struct Bell {
    condition: Condvar,
    listeners: AtomicUsize,
}

impl Bell {
    pub(super) const fn new() -> Self {
        Self {
            condition: Condvar::new(),
            listeners: AtomicUsize::new(0),
        }
    }

    /// Releases the timeline's lock until the bell rings, for `time` at most. Spurious wake-ups are
    /// possible.
    pub(super) fn wait<'a>(
        &self,
        timeline: MutexGuard<'a, Timeline>,
        time: Option<Duration>,
    ) -> MutexGuard<'a, Timeline> {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        let timeline = match time {
            None => self
                .condition
                .wait(timeline)
                .unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.condition
                    .wait_timeout(timeline, time)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        self.listeners.fetch_sub(1, Ordering::Relaxed);
        timeline
    }

    /// Wakes all waiting threads. The reference proves that the caller holds the timeline's lock.
    pub(super) fn ring(&self, _: &Timeline) {
        if self.listeners.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}
