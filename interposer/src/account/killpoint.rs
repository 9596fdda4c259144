//! Stops the process after its n-th store to shared memory, for the tests that kill it there.
//!
//! Only in a build with debug assertions, which no shipped one is; in others every call compiles to
//! nothing. `scripts/check_binary.py` holds the shipped library to that.

/// Says that a store to the usage page was just made.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn hit() {}

/// Says that a store to the usage page was just made. Stops the process if it is the one named by
/// `GPUTEST_KILLPOINT`.
#[cfg(debug_assertions)]
pub(crate) fn hit() {
    use core::sync::atomic::{AtomicU64, Ordering};
    use std::sync::OnceLock;

    static AT: OnceLock<Option<u64>> = OnceLock::new();
    static STORES: AtomicU64 = AtomicU64::new(0);
    let at = *AT.get_or_init(|| std::env::var("GPUTEST_KILLPOINT").ok()?.parse().ok());
    if at.is_some_and(|at| STORES.fetch_add(1, Ordering::SeqCst) + 1 == at) {
        // The whole process stops until the test kills or continues it.
        crate::guest::sys::stop();
    }
}
