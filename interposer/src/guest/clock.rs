//! The clock that the daemon's deadlines are told by (std's `Instant` hides the number that processes
//! share).

use crate::guest::sys;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    sys::monotonic()
}
