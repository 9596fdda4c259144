//! The threads of a process, as the kernel shows them.

use std::fmt::Display;
use std::fs;

use crate::waiting::until;

/// The kernel's number of the last thread of `process` with this name.
pub(crate) fn thread(process: impl Display, name: &str) -> Option<String> {
    let is_it = |task: &fs::DirEntry| {
        let its = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        its.trim() == name
    };
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let found = tasks.flatten().filter(is_it).map(|task| task.file_name());
    found.last()?.into_string().ok()
}

/// Waits until the thread of `process` with this name sleeps in a futex.
#[track_caller]
pub fn until_thread_waits(process: impl Display + Copy, name: &str) {
    let futex = format!("{} ", nix::libc::SYS_futex);
    until("the thread waits", || {
        let thread = thread(process, name).unwrap_or_default();
        let called = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall"));
        called.is_ok_and(|called| called.starts_with(&futex))
    });
}
