//! Sleeps on a futex word until it changes: a word of this process, or one in a shared page.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use crate::guest::sys::{self, Scope};

/// A futex word to sleep on, and its value when the awaited condition was last checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FutexWaiter {
    word: &'static AtomicU32,
    seen: u32,
    scope: Scope,
}

impl FutexWaiter {
    /// Of this process's own.
    pub(crate) fn own(word: &'static AtomicU32) -> Self {
        // A fence, because memory that can only be read has relaxed loads alone.
        let seen = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Self {
            word,
            seen,
            scope: Scope::Private,
        }
    }

    /// In a page that is never unmapped. Reading is enough.
    pub(crate) fn of_page(word: &'static AtomicU32) -> Self {
        Self {
            scope: Scope::Shared,
            ..Self::own(word)
        }
    }

    /// The same where the awaited condition was checked after the word was read as `seen`.
    pub(crate) fn of_page_at(word: &'static AtomicU32, seen: u32) -> Self {
        Self {
            word,
            seen,
            scope: Scope::Shared,
        }
    }

    /// Sleeps while the word has that value, at most `longest`. May return early for no reason.
    pub(crate) fn sleep(self, longest: Duration) {
        sys::futex_wait(self.word, self.seen, longest, self.scope);
    }
}

/// Wakes one sleeper on `word`, a word of this process's own. `false` if there is none.
pub(crate) fn wake_one(word: &AtomicU32) -> bool {
    sys::futex_wake(word, 1, Scope::Private)
}

/// Wakes one sleeper on a word in a page that processes share.
pub(crate) fn wake_one_of_page(word: &AtomicU32) {
    sys::futex_wake(word, 1, Scope::Shared);
}

/// Wakes all sleepers on a word in a page that processes share.
pub(crate) fn wake_page(word: &AtomicU32) {
    sys::futex_wake(word, i32::MAX, Scope::Shared);
}

/// Wakes all sleepers on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    sys::futex_wake(word, i32::MAX, Scope::Private);
}
