//! Small questions to the kernel.
//!
//! # Safety
//! Each call takes no pointer, or one to a local that outlives it.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in std")]

/// The calling thread, as the kernel numbers it.
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}
