//! Waiting for state without a notification: polls it, for a bounded time. Threads that wait for
//! one another.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for an expected state.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait of threads for one another: each has moves of others to wait for.
const MEETING: Duration = Duration::from_secs(300);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `done` returns true.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_some(what, || done().then_some(()));
}

/// Waits until `look` returns a value.
#[track_caller]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// A place where threads of a test wait for one another.
#[derive(Debug)]
pub struct Meeting {
    all: usize,
    here: Mutex<usize>,
    changed: Condvar,
}

impl Meeting {
    /// A meeting of so many threads.
    pub fn of(all: usize) -> Self {
        let (here, changed) = (Mutex::new(0), Condvar::new());
        Self { all, here, changed }
    }

    /// Waits until all have come. A thread that failed never comes: the wait is bounded.
    #[track_caller]
    pub fn attend(&self) {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        *here += 1;
        self.changed.notify_all();
        let waited = self
            .changed
            .wait_timeout_while(here, MEETING, |here| *here < self.all);
        let (_here, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "another thread never came");
    }
}
