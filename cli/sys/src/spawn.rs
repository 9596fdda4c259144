//! Starting a program with a signal mask that is not our own, and sending it signals.
//!
//! # Safety
//! One closure runs in the child between fork and exec, where only async-signal-safe calls are
//! allowed; it makes one, `pthread_sigmask`, and allocates nothing. One call of the C library sends
//! a signal by its number, because nix has no names for real-time signals.
#![allow(unsafe_code, reason = "code between fork and exec needs it")]

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
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

/// Sends a signal, by its number, to a process.
///
/// # Errors
/// As `kill(2)`.
pub fn send(process: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill touches no memory of ours.
    Errno::result(unsafe { libc::kill(process.as_raw(), signal) }).map(drop)
}
