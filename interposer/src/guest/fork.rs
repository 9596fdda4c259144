//! State that belongs to one side of a fork.
//!
//! A forked child inherits its parent's memory, including locks that other threads held, and none
//! of the parent's CUDA state. So this library's state is kept in [`ForkLocal`]s, which read as
//! empty in the child: nothing is freed, no lock is taken.
//!
//! # Safety
//! `unsafe` turns a published pointer back into a reference. It comes from `Box::into_raw` and is
//! never freed.
#![allow(
    unsafe_code,
    reason = "references to leaked boxes, published through an atomic pointer"
)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The number of forks between this process and the first one that used the library.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Forgets every [`ForkLocal`]. For the fork handler of the child: one store.
pub(crate) fn forget_parent() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

#[derive(Debug)]
struct Tagged<T> {
    generation: u64,
    value: T,
}

/// A value for the life of the process, empty again in a forked child.
#[derive(Debug)]
pub(crate) struct ForkLocal<T: 'static>(AtomicPtr<Tagged<T>>);

impl<T: Send + Sync + 'static> ForkLocal<T> {
    /// Empty.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, `None` if this process has none yet.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked box published by `set` or `get_or`.
        let tagged = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        (tagged.generation == GENERATION.load(Ordering::Relaxed)).then_some(&tagged.value)
    }

    /// Publishes a value; an earlier one stays valid for its readers.
    pub(crate) fn set(&self, value: T) -> &'static T {
        let tagged = Box::into_raw(Box::new(Tagged {
            generation: GENERATION.load(Ordering::Relaxed),
            value,
        }));
        self.0.store(tagged, Ordering::Release);
        // SAFETY: just leaked.
        unsafe { &(*tagged).value }
    }

    /// The value, made by `make` if this process has none. Of racing threads one wins.
    #[inline]
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.publish(make()))
    }

    #[cold]
    fn publish(&self, value: T) -> &'static T {
        let generation = GENERATION.load(Ordering::Relaxed);
        let mine = Box::into_raw(Box::new(Tagged { generation, value }));
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a leaked box.
            if let Some(theirs) = unsafe { seen.as_ref() }
                && theirs.generation == generation
            {
                // SAFETY: never published; the box is ours alone.
                drop(unsafe { Box::from_raw(mine) });
                return &theirs.value;
            }
            match self
                .0
                .compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: just leaked.
                Ok(_) => return unsafe { &(*mine).value },
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_and_read_by_all() {
        static LOCAL: ForkLocal<u32> = ForkLocal::new();
        assert_eq!(LOCAL.get(), None);
        let answers: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| scope.spawn(move || *LOCAL.get_or(|| i)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:?}"
        );
        assert_eq!(LOCAL.get(), Some(&answers[0]));
    }

    #[test]
    fn a_value_of_another_generation_is_not_seen() {
        static LOCAL: ForkLocal<u32> = ForkLocal::new();
        // `forget_parent` makes every value stale. Here only this value is, because other tests run
        // in this process.
        let stale = Tagged {
            generation: u64::MAX,
            value: 7,
        };
        LOCAL
            .0
            .store(Box::into_raw(Box::new(stale)), Ordering::Release);
        assert_eq!(LOCAL.get(), None);
        assert_eq!(*LOCAL.get_or(|| 8), 8);
    }
}
