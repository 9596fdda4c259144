//! This library's own threads inside a foreign program: detached, small, with all signals blocked.
//! Also keeps the program's threads from being cancelled where they may wait in this library.
//!
//! # Safety
//! `unsafe` starts a thread of the system's with a pointer to a leaked box, which that thread takes
//! over, and changes the calling thread's own state, with numbers that outlive the calls.
#![allow(
    unsafe_code,
    reason = "a thread with its own signal mask and a small stack"
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::io;

/// The stack of a thread whose deepest call decodes a small message.
pub(crate) const SHALLOW: usize = 256 << 10;
/// The stack of a thread that calls the driver.
pub(crate) const DEEP: usize = 1 << 20;

/// `PTHREAD_CANCEL_DISABLE`, of glibc and musl.
const CANCEL_DISABLE: c_int = 1;

// SAFETY: the types are those of `pthread.h` and of glibc's own declaration.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;

    // What a thread's stack must have at least: glibc's own, which others ask too. 0 if unknown.
    fn __pthread_get_minstack(attributes: *const libc::pthread_attr_t) -> usize;
}

/// While this lives the calling thread is not cancelled: the system would unwind it out of the
/// middle of this library, and end the program where it cannot. Cancelled meanwhile, it ends at its
/// own next cancellation point.
#[derive(Debug)]
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    /// From now on.
    pub(crate) fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the thread's own state, and a number that outlives the call.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: restores the earlier state; a null pointer is allowed on Linux.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

struct Start {
    name: &'static CStr,
    work: Box<dyn FnOnce() + Send>,
}

/// Starts a thread that does `work`, which must not unwind, on a stack of `stack` bytes beside the
/// program's static thread-locals, which live on it too. Where the C library does not say how much
/// those take and they do not fit, the system's usual size is taken.
///
/// # Errors
/// If the system has none to give.
pub(crate) fn start(
    name: &'static CStr,
    stack: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let start = Box::into_raw(Box::new(Start {
        name,
        work: Box::new(work),
    }));
    let began = [Some(stack), None]
        .into_iter()
        .map(|stack| begin(stack, start.cast()))
        .find(|answer| *answer != libc::EINVAL)
        .unwrap_or(libc::EINVAL);
    if began != 0 {
        // SAFETY: no thread was started that could have it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(began));
    }
    Ok(())
}

/// Begins a detached thread in which every signal is blocked: the program's handlers run in the
/// program's threads.
fn begin(stack: Option<usize>, start: *mut c_void) -> c_int {
    // SAFETY: all structures are made here and outlive the calls; the mask of this thread is put
    // back.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        if let Some(bytes) = stack {
            let beside = __pthread_get_minstack(&raw const attributes);
            libc::pthread_attr_setstacksize(&raw mut attributes, bytes.saturating_add(beside));
        }
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread: libc::pthread_t = core::mem::zeroed();
        let answer = libc::pthread_create(&raw mut thread, &raw const attributes, main, start);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        answer
    }
}

extern "C" fn main(start: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `start` leaked for this thread alone.
    let Start { name, work } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: a static C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    work();
    ptr::null_mut()
}
