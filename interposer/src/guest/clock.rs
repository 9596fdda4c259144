//! The clock that the daemon's deadlines are told by.
//!
//! # Safety
//! `unsafe` has the system fill a structure that outlives the call.
#![allow(
    unsafe_code,
    reason = "clock_gettime: std's Instant hides the number that processes share"
)]

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
