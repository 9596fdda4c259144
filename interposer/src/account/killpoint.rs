//! Stops the process after its n-th store to shared memory, for the tests that kill it there.
//!
//! Only with the cargo feature `killpoints`, which no shipped build has; without it every call
//! compiles to nothing.

/// Says that a store to the usage page was just made.
#[cfg(not(feature = "killpoints"))]
#[inline(always)]
pub(crate) fn hit() {}

/// Says that a store to the usage page was just made. Stops the process if it is the one named by
/// `GPUTEST_KILLPOINT`.
#[cfg(feature = "killpoints")]
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
