//! The turn of asking the daemon: one question at a time, and each asker waits for a bounded time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Whether the daemon is asked now.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

/// The turn of one asker, over when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Asking);

impl Asking {
    /// The turn, once no other has it; `None`: one still has it at the end.
    pub(crate) fn by(&self, end: Instant) -> Option<Turn<'_>> {
        let left = end.saturating_duration_since(Instant::now());
        let is_taken = self.state();
        let waited = self
            .ended
            .wait_timeout_while(is_taken, left, |taken| *taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *is_taken, true)).then(|| Turn(self))
    }

    fn state(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.state() = false;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_turn_is_one_askers_until_it_drops_it() {
        let asking = Asking::default();
        let now = Instant::now();
        let turn = asking.by(now).expect("it is free");
        assert!(asking.by(now).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| asking.by(now + Duration::from_secs(60)).is_some());
            drop(turn);
            assert!(waits.join().expect("it ends"));
        });
        assert!(asking.by(now).is_some());
    }
}
