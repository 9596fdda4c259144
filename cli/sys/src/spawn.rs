//! Starting a program with a signal mask that is not our own.
//!
//! # Safety
//! One closure runs in the child between fork and exec, where only async-signal-safe calls are
//! allowed; it makes one, `pthread_sigmask`, and allocates nothing.
#![allow(unsafe_code, reason = "code between fork and exec needs it")]

use nix::sys::signal::SigSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts `command` with exactly the signals of `mask` blocked. A child otherwise inherits the mask
/// of the thread that starts it.
///
/// # Errors
/// As [`Command::spawn`].
pub fn with_mask(command: &mut Command, mask: SigSet) -> io::Result<Child> {
    // SAFETY: `thread_set_mask` is `pthread_sigmask`, which is async-signal-safe; the set is owned
    // by the closure, and turning an errno into an `io::Error` does not allocate.
    unsafe { command.pre_exec(move || mask.thread_set_mask().map_err(io::Error::from)) }.spawn()
}
