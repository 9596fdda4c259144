//! Sleeps that end when they should.
//!
//! # Safety
//! `unsafe` changes how exactly the calling thread sleeps, by numbers for that thread alone.
#![allow(unsafe_code, reason = "prctl, for the calling thread")]

use core::ffi::{c_int, c_ulong};

/// By how much a sleep may be longer than asked for (ns): the least there is. 0 would mean the
/// system's usual slack.
const LEAST: c_ulong = 1;

/// While this lives, the calling thread's sleeps end when they should, as exactly as the system
/// allows. A thread that leaves by a jump keeps that.
#[derive(Debug)]
pub(crate) struct Exact(Option<c_ulong>);

impl Exact {
    /// From now on.
    pub(crate) fn begin() -> Self {
        // SAFETY: asks for a number of the calling thread's.
        let before: c_int = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let before = c_ulong::try_from(before)
            .ok()
            .filter(|slack| *slack > LEAST);
        if before.is_some() {
            set(LEAST);
        }
        Self(before)
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            set(before);
        }
    }
}

fn set(slack: c_ulong) {
    // SAFETY: a number for this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slack() -> c_int {
        // SAFETY: asks for a number of the calling thread's.
        unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
    }

    #[test]
    fn a_threads_slack_is_least_while_it_naps_and_as_before_afterwards() {
        std::thread::spawn(|| {
            for before in [70_000, 50_000] {
                set(before);
                let exact = Exact::begin();
                assert_eq!(slack(), 1);
                drop(exact);
                assert_eq!(c_ulong::try_from(slack()), Ok(before));
            }
        })
        .join()
        .unwrap();
    }
}
