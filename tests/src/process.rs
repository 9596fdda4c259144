//! A process as the kernel shows it: dead, or stopped by a signal.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The letter of a process's state.
fn state(id: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let behind_name = text.rsplit(") ").next()?;
    Some(behind_name.split(' ').next()?.to_owned())
}

/// Whether it has ended; perhaps its parent was not told yet.
pub fn is_dead(id: u32) -> bool {
    state(id).is_none_or(|letter| letter == "Z")
}

/// Whether it is stopped by a signal.
pub fn is_stopped(id: u32) -> bool {
    state(id).is_some_and(|letter| letter == "T")
}

/// Lets a stopped process go on.
#[track_caller]
pub fn goes_on(id: u32) {
    let id = Pid::from_raw(i32::try_from(id).expect("a process"));
    kill(id, Signal::SIGCONT).expect("it lives");
}
