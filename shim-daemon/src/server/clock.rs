//! The one place that asks what time it is.

use crate::clocks;
use gpushare_core::Nanos;
use nix::time::{ClockId, clock_gettime};

/// The machine's `CLOCK_MONOTONIC`, which clients in any time namespace can find out too.
pub(super) fn now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
    let own = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Nanos(clocks::here().machines(own))
}

/// A time of [`now`] in the clock that this process's timers have.
pub(super) fn for_timers(time: Nanos) -> Nanos {
    Nanos(time.0.saturating_add_signed(clocks::here().monotonic))
}

/// A number no other daemon of this machine has: the wall clock and the pid at its start.
#[expect(
    clippy::disallowed_methods,
    reason = "a number that differs: not a time"
)]
pub(super) fn instance() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    (nanos ^ u64::from(std::process::id()) << 40).max(1)
}
