//! The thread that a record is for. Atomics only, so that a model can check the shipped code.
//!
//! The kernel uses the id of a dead thread again. A thread that finds its own id on a record takes
//! the record over, while another thread may have just found the earlier owner dead and be about to
//! take it too. So each change of hands has a number, and only one of the two gets the record.

use crate::gate::sync::{AtomicU64, Ordering};

/// Nobody.
pub(super) const NOBODY: i32 = 0;
/// The owner of a record that is being freed. No thread has this id, nor is one with it dead.
pub(super) const IN_HAND: i32 = -1;

/// A thread's id in the kernel, and above it how often the record has changed hands. All zeros is
/// nobody.
#[derive(Debug)]
pub(super) struct Owner(pub(super) AtomicU64);

/// An owner as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    /// The thread's id.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the id")]
    pub(super) fn thread(self) -> i32 {
        (self.0 as u32).cast_signed()
    }

    /// The record in the hands of this thread.
    fn passed_to(self, thread: i32) -> u64 {
        let changes = (self.0 >> 32).wrapping_add(1) << 32;
        changes | u64::from(thread.cast_unsigned())
    }
}

impl Owner {
    /// The owner now.
    pub(super) fn seen(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Whether the record passes to `thread`: it has not changed hands since it was `seen`.
    pub(super) fn passes(&self, seen: Seen, thread: i32) -> bool {
        let next = seen.passed_to(thread);
        let changed = self
            .0
            .compare_exchange(seen.0, next, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }

    /// Whether the record is that of `from` and passes to `thread`.
    pub(super) fn passes_from(&self, from: i32, thread: i32) -> bool {
        loop {
            let seen = self.seen();
            if seen.thread() != from {
                return false;
            }
            if self.passes(seen, thread) {
                return true;
            }
        }
    }
}
