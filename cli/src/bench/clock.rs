//! The clock that all processes of the benchmark share.

use nix::time::{ClockId, clock_gettime};
use std::thread::sleep;
use std::time::Duration;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| super::tenant::ns(Duration::from(time)))
}

/// Sleeps until `moment`.
pub(crate) fn sleep_until(moment: u64) {
    let rest = moment.saturating_sub(now());
    if rest > 0 {
        sleep(Duration::from_nanos(rest));
    }
}
