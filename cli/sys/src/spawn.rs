//! Starting programs, with a signal mask that is not our own or without the descriptors that we
//! inherited; and sending them signals.
//!
//! # Safety
//! Two closures run in the child between fork and exec, where only async-signal-safe calls are
//! allowed; they call `pthread_sigmask` and `fcntl`, and allocate nothing. One call of the C library
//! sends a signal by its number, because nix has no names for real-time signals.
#![allow(unsafe_code, reason = "code between fork and exec needs it")]

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use std::fs;
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

/// Starts `command` with its standard streams and no other open descriptor: those that we inherited
/// are the caller's, which may wait until the last holder of a pipe or of a lock is gone.
///
/// # Errors
/// As [`Command::spawn`], or if our descriptors cannot be listed.
pub fn apart(command: &mut Command) -> io::Result<Child> {
    let open = inherited()?;
    let close = move || {
        for fd in &open {
            // SAFETY: it touches no memory. Descriptors that are closed by now refuse it.
            unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        Ok(())
    };
    // SAFETY: `fcntl` is async-signal-safe; the list is owned by the closure, and reading it does
    // not allocate.
    unsafe { command.pre_exec(close) }.spawn()
}

/// The open descriptors above the standard streams.
fn inherited() -> io::Result<Vec<i32>> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|text| text.parse().ok());
        open.extend(number.filter(|fd: &i32| *fd > 2));
    }
    Ok(open)
}

/// Sends a signal, by its number, to a process.
///
/// # Errors
/// As `kill(2)`.
pub fn send(process: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill touches no memory of ours.
    Errno::result(unsafe { libc::kill(process.as_raw(), signal) }).map(drop)
}
