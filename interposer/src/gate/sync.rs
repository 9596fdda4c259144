//! The atomics the gate is made of, in one place so that the model in `tests/gate_model.rs` can put
//! loom's in theirs.

pub(super) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// The launching thread's half of the asymmetric barrier: keeps the compiler from reordering; the
/// processor's half is the `membarrier` of the closing thread.
#[inline(always)]
pub(super) fn light_barrier() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
