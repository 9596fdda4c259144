//! Sleeping on a number until it changes: one of this process's own, or one in a page that processes share.
//!
//! # Safety
//! `unsafe` hands the kernel the address of an atomic that outlives the call.
#![allow(unsafe_code, reason = "the futex system call")]

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A number to sleep on, and what it said when it was last looked at what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bed {
    word: &'static AtomicU32,
    seen: u32,
    /// Whether it lies in memory that processes share.
    shared: bool,
}

impl Bed {
    /// Of this process's own.
    pub(crate) fn own(word: &'static AtomicU32) -> Self {
        let seen = word.load(Ordering::Acquire);
        Self {
            word,
            seen,
            shared: false,
        }
    }

    /// In a page that is never unmapped. Reading is enough.
    pub(crate) fn of_page(word: &'static AtomicU32) -> Self {
        Self {
            shared: true,
            ..Self::own(word)
        }
    }

    /// Sleeps while the number is what it was, at most `longest`. May return early for no reason.
    pub(crate) fn sleep(self, longest: Duration) {
        let private = if self.shared {
            0
        } else {
            libc::FUTEX_PRIVATE_FLAG
        };
        wait(self.word, self.seen, longest, private);
    }
}

fn wait(word: &AtomicU32, seen: u32, longest: Duration, private: c_int) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: both outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | private,
            seen,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        );
    }
}

/// Wakes one of those who sleep on `word`, a word of this process's own. `false` if nobody does.
pub(crate) fn wake_one(word: &AtomicU32) -> bool {
    // SAFETY: the address is only compared with those of sleepers.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
    woken > 0
}

/// Wakes all who sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
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
