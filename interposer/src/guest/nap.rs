//! Sleeps that end at the requested time, by the smallest timer slack of the system.

use core::ffi::c_ulong;

use crate::guest::sys::{set_timer_slack, timer_slack};

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
        let before = c_ulong::try_from(timer_slack())
            .ok()
            .filter(|slack| *slack > LEAST);
        if before.is_some() {
            set_timer_slack(LEAST);
        }
        Self(before)
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            set_timer_slack(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_slack_is_least_while_it_naps_and_as_before_afterwards() {
        std::thread::spawn(|| {
            for before in [70_000, 50_000] {
                set_timer_slack(before);
                let exact = Exact::begin();
                assert_eq!(timer_slack(), 1);
                drop(exact);
                assert_eq!(c_ulong::try_from(timer_slack()), Ok(before));
            }
        })
        .join()
        .unwrap();
    }
}
