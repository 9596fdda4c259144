//! A request that a thread of this library's own looks. Atomics only, so that a model can check the
//! shipped code.
//!
//! The thread sleeps on a word that a request does not change, often one in a page of the daemon's.
//! So a wake is lost where it comes between the thread's last look at the bell and its sleep. The
//! thread says before that look that it is about to sleep, and a thread that rings sees whether
//! that may be so.

use crate::gate::sync::{AtomicU32, Ordering, fence};

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Bell {
    /// 1: it was rung since the last round began.
    rung: AtomicU32,
    /// 1: the thread sleeps or is about to.
    sleeps: AtomicU32,
}

impl Bell {
    /// Of these words, both 0.
    pub(crate) const fn of(rung: AtomicU32, sleeps: AtomicU32) -> Self {
        Self { rung, sleeps }
    }

    /// A round of the thread begins: it sees all that was done before a ring that this takes.
    pub(crate) fn take(&self) {
        self.rung.swap(0, Ordering::AcqRel);
    }

    /// The thread is about to sleep. `false`: it was rung for, and does not.
    pub(crate) fn arm(&self) -> bool {
        self.sleeps.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.rung.load(Ordering::Relaxed) == 0
    }

    /// The thread is awake.
    pub(crate) fn disarm(&self) {
        self.sleeps.store(0, Ordering::Release);
    }

    /// Rings. `wakes` all that sleep where the thread does, again and again until the thread has
    /// heard it, as long as it `goes_on`.
    pub(crate) fn ring(&self, wakes: impl Fn(), mut goes_on: impl FnMut() -> bool) {
        self.rung.swap(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        // Either the thread's look at the bell sees it, or this sees that the thread is about to
        // sleep.
        while self.is_unheard() {
            wakes();
            if !goes_on() {
                return;
            }
        }
    }

    /// Whether it was rung, and the thread may sleep all the same.
    pub(crate) fn is_unheard(&self) -> bool {
        self.sleeps.load(Ordering::Acquire) != 0 && self.rung.load(Ordering::Acquire) != 0
    }

    /// 1 while it was rung: for a thread that sleeps on that.
    pub(crate) fn rope(&self) -> &AtomicU32 {
        &self.rung
    }

    /// A forked child has no thread. Stores only.
    pub(crate) fn forget(&self) {
        self.rung.store(0, Ordering::Relaxed);
        self.sleeps.store(0, Ordering::Relaxed);
    }
}
