//! Sleeping on a number of this process's own until it changes.
//!
//! # Safety
//! `unsafe` hands the kernel the address of an atomic that outlives the call.
#![allow(unsafe_code, reason = "the futex system call")]

use core::ptr;
use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` says `seen`, at most `longest`. May return early for no reason.
pub(super) fn wait(word: &AtomicU32, seen: u32, longest: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: both outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        );
    }
}

/// Wakes all who sleep on `word`.
pub(super) fn wake_all(word: &AtomicU32) {
    // SAFETY: the address is only compared with those of sleepers.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}
