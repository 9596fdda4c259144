//! System calls.
//!
//! # Safety
//! Each call takes no pointer, or a pointer to a local that outlives the call, and descriptors that
//! stay open during the call.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in std")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use super::device::PageRun;

/// The calling thread's kernel id.
pub fn thread_id() -> i32 {
    // SAFETY: takes no arguments, cannot fail.
    unsafe { libc::gettid() }
}

/// The calling thread's name.
pub(super) fn thread_name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: a buffer of the maximum size that this request fills.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let length = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..length.unwrap_or(name.len())]).into_owned()
}

/// The effective user of this process.
pub(super) fn user() -> u32 {
    // SAFETY: takes no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// The mode of a lock on a range of a file. An open file description holds the lock until its last
/// copy is closed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hold {
    Shared,
    Exclusive,
}

/// Locks `len` bytes from `start` for the file description of `file`; false if another description
/// holds them.
pub(super) fn try_lock(file: BorrowedFd<'_>, start: u64, len: u64, hold: Hold) -> io::Result<bool> {
    let mut request = flock(start, len, hold);
    // SAFETY: `request` is a local of the type this command takes.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut request) };
    match io::Error::last_os_error() {
        _ if answer == 0 => Ok(true),
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Whether another file description than that of `file` holds any of `len` bytes from `start`. If
/// the request fails, the answer is yes.
pub(super) fn is_held(file: &File, start: u64, len: u64) -> bool {
    let mut request = flock(start, len, Hold::Exclusive);
    // SAFETY: `request` is a local of the type this command takes.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) };
    answer != 0 || i32::from(request.l_type) != libc::F_UNLCK
}

fn flock(start: u64, len: u64, hold: Hold) -> libc::flock {
    let kind = match hold {
        Hold::Shared => libc::F_RDLCK,
        Hold::Exclusive => libc::F_WRLCK,
    };
    // SAFETY: an all-zero `flock` is valid; `l_pid` must be 0 for these commands.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = i16::try_from(kind).expect("a small constant");
    request.l_whence = i16::try_from(libc::SEEK_SET).expect("a small constant");
    request.l_start = i64::try_from(start).expect("a small offset");
    request.l_len = i64::try_from(len).expect("a small length");
    request
}

/// Punches the pages out of the file: they read as zeroes and take no memory.
pub(super) fn erase(file: &File, run: PageRun) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let start =
        i64::try_from(u64::from(run.first) * crate::spec::PAGE).map_err(io::Error::other)?;
    let len = i64::try_from(run.bytes()).map_err(io::Error::other)?;
    // SAFETY: no pointers.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Registers `child`, called in every child that this process forks, and `end`, called when it
/// exits normally.
pub(super) fn on_fork_and_exit(child: extern "C" fn(), end: extern "C" fn()) {
    // SAFETY: both are plain functions of this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(child));
        libc::atexit(end);
    }
}

/// Registers `end`, called when the calling thread ends but not when the process exits, so that
/// exit handlers still find the thread's state. Every call must pass the same `end`.
pub(crate) fn at_thread_end(end: extern "C" fn()) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    extern "C" fn ended(end: *mut libc::c_void) {
        // SAFETY: the value was set below and is a function.
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(end)() }
    }
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a local of the type that the call fills, and a function of this library, which is
        // never unloaded.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0).then_some(key)
    });
    if let Some(key) = *key {
        // SAFETY: the key is never deleted.
        unsafe { libc::pthread_setspecific(key, end as *const libc::c_void) };
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a local of the type the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The size of the file system at `path` in bytes; `None` if there is none.
pub(super) fn file_system_size(path: &str) -> Option<u64> {
    let path = std::ffi::CString::new(path).ok()?;
    // SAFETY: all zeroes are a valid `statvfs`.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated string, and a local of the type that the call fills.
    let answer = unsafe { libc::statvfs(path.as_ptr(), &raw mut found) };
    (answer == 0).then_some(found.f_blocks * found.f_frsize)
}

/// Microseconds since the epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "NVML's samples carry wall-clock times"
)]
pub fn epoch_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
