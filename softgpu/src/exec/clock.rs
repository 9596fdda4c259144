//! The one clock of the timeline: `CLOCK_MONOTONIC` in nanoseconds, the same for every process of
//! the host.
//!
//! One `unsafe` call of `clock_gettime` that fills a local: `std::time::Instant` hides the number
//! that processes must share.
#![allow(unsafe_code, reason = "clock_gettime is a C function")]

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid, writable timespec for the length of the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } != 0;
    debug_assert!(
        !failed,
        "CLOCK_MONOTONIC exists on every kernel of this platform"
    );
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
