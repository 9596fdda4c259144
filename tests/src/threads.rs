//! The threads of a process, as the kernel shows them.

use std::fmt::Display;
use std::fs;

use nix::libc::{SYS_futex, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::waiting::until;

/// The kernel's number of the last thread of `process` with this name.
pub fn thread(process: impl Display, name: &str) -> Option<String> {
    let is_it = |task: &fs::DirEntry| {
        let its = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        its.trim() == name
    };
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let found = tasks.flatten().filter(is_it).map(|task| task.file_name());
    found.last()?.into_string().ok()
}

/// Waits until the thread of `process` with this name sleeps in a futex. Fails at once where the
/// thread ends instead.
#[track_caller]
pub fn until_thread_waits(process: impl Display + Copy, name: &str) {
    let futex = format!("{SYS_futex} ");
    let mut was_there = false;
    until("the thread waits", || {
        let Some(thread) = thread(process, name) else {
            assert!(!was_there, "{name} has ended and does not wait");
            return false;
        };
        was_there = true;
        let called = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall"));
        called.is_ok_and(|called| called.starts_with(&futex))
    });
}

/// Waits until the first thread of `process` sleeps in a futex.
#[track_caller]
pub fn until_first_thread_waits(process: u32) {
    let first = Pid::from_raw(process.cast_signed());
    until("the first thread waits", || is_in(first, SYS_futex));
}

/// Whether a thread is in this system call.
fn is_in(thread: Pid, call: c_long) -> bool {
    let text = fs::read_to_string(format!("/proc/{thread}/syscall"));
    text.is_ok_and(|text| text.starts_with(&format!("{call} ")))
}

/// A thread of a child of ours that is stopped, while the child's other threads go on, until this
/// is dropped. Only the thread that has stopped it can use it.
#[derive(Debug)]
pub struct StoppedThread(Pid);

impl StoppedThread {
    /// Stops the thread of `process` with this name where it sleeps in a futex: so it holds no
    /// lock. `None` where the system does not let a process trace its children.
    #[track_caller]
    pub fn stop(process: u32, name: &str) -> Option<Self> {
        loop {
            until_thread_waits(process, name);
            let thread = thread(process, name).expect("it has one");
            let thread = Pid::from_raw(thread.parse().expect("a number"));
            ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD).ok()?;
            ptrace::interrupt(thread).expect("it is traced");
            let stopped = Self(thread);
            stopped.await_stop();
            if is_in(thread, SYS_futex) {
                return Some(stopped);
            }
        }
    }

    /// Lets it go on until it is about to make this system call.
    #[track_caller]
    pub fn goes_to(&self, call: c_long) {
        loop {
            ptrace::syscall(self.0, None).expect("it is stopped");
            self.await_stop();
            if is_in(self.0, call) {
                return;
            }
        }
    }

    fn await_stop(&self) {
        waitpid(self.0, Some(WaitPidFlag::__WALL)).expect("it stops");
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // Its process may have been killed.
        let _ = ptrace::detach(self.0, None);
    }
}
