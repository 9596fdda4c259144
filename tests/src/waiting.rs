//! Waiting for state without a notification: polls it, for a bounded time. Threads that wait for
//! one another.

use std::fmt::Debug;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for an expected state.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait of threads for one another: each has moves of others to wait for.
const MEETING: Duration = Duration::from_secs(300);
/// The least pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);
/// A pause in times of what a check took: one that starts a program has a fifth of a processor.
const REST: u32 = 4;

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
        let began = Instant::now();
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        rest_after(began);
    }
}

/// Waits until `wanted` holds for what `look` returns, and returns that.
#[track_caller]
pub fn until_holds<T: Debug>(mut look: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        let began = Instant::now();
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        assert!(began < end, "it stays: {seen:?}");
        rest_after(began);
    }
}

/// Pauses after a check that began then, by what it cost.
pub(crate) fn rest_after(began: Instant) {
    std::thread::sleep(PAUSE.max(REST * began.elapsed()));
}

/// A place where threads of a test wait for one another.
#[derive(Debug)]
pub struct Meeting {
    all: usize,
    end: Instant,
    here: Mutex<usize>,
    changed: Condvar,
}

impl Meeting {
    /// A meeting of so many threads, which begins within five minutes from now: a thread that
    /// failed never comes.
    pub fn of(all: usize) -> Self {
        let (here, changed) = (Mutex::new(0), Condvar::new());
        let end = Instant::now() + MEETING;
        Self {
            all,
            end,
            here,
            changed,
        }
    }

    fn here(&self) -> MutexGuard<'_, usize> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes, and waits for nobody.
    pub fn come(&self) {
        *self.here() += 1;
        self.changed.notify_all();
    }

    /// Whether all have come.
    #[track_caller]
    pub fn is_full(&self) -> bool {
        let is_full = *self.here() >= self.all;
        assert!(
            is_full || Instant::now() < self.end,
            "another thread never came"
        );
        is_full
    }

    /// Comes, and waits until all have.
    #[track_caller]
    pub fn attend(&self) {
        self.come();
        let left = self.end.saturating_duration_since(Instant::now());
        let waited = self
            .changed
            .wait_timeout_while(self.here(), left, |here| *here < self.all);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let is_full = self.is_full();
        assert!(is_full, "another thread never came");
    }
}
