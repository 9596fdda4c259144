//! System calls without a contract of their own: numbers in, numbers out, and memory of ours where
//! any is involved.
//!
//! # Safety
//! `unsafe` calls the C library. Each call is given numbers, or the address of something that
//! outlives it.
#![allow(unsafe_code, reason = "system calls")]

use core::ffi::{c_int, c_long, c_uint, c_ulong};
use core::ptr;
use core::sync::atomic::AtomicU32;
use std::io;
use std::time::Duration;

/// The calling thread's id in the kernel.
pub(crate) fn this_thread() -> i64 {
    // SAFETY: takes nothing and always succeeds. By number: glibc has a name for it since 2.30
    // only.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Whether a thread of this process lives. Where the kernel does not answer, it does.
pub(crate) fn is_alive(thread: i64) -> bool {
    // SAFETY: signal 0 is not delivered.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The processes that may sleep on a word and wake its sleepers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This process.
    Private,
    /// All that share the memory it lies in.
    Shared,
}

impl Scope {
    fn flag(self) -> c_int {
        match self {
            Self::Private => libc::FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps while `word` says `seen`, at most `longest`. May return early for no reason.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, longest: Duration, scope: Scope) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the word and the timeout outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | scope.flag(),
            seen,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        );
    }
}

/// Whether there is a word at an address of this process and it says `value`. The address may be
/// any that a word can have. `None`: the system does not tell.
///
/// Asked by a call that compares and then would move sleepers to another word, but none: it does
/// not sleep, and a program that may sleep on a word may make it.
pub(crate) fn says(address: usize, value: u32) -> Option<bool> {
    let other = AtomicU32::new(0);
    // SAFETY: the kernel reads the word, or says that it cannot; the other word outlives the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::with_exposed_provenance::<u32>(address),
            libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG,
            0,
            ptr::null::<u32>(),
            other.as_ptr(),
            value,
        )
    };
    if answer >= 0 {
        return Some(true);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EFAULT) => Some(false),
        _ => None,
    }
}

/// Wakes `count` sleepers on `word`. Returns whether there were any.
pub(crate) fn futex_wake(word: &AtomicU32, count: c_int, scope: Scope) -> bool {
    futex_wake_at(word.as_ptr(), count, scope)
}

/// As [`futex_wake`], on a word that may be gone.
pub(crate) fn futex_wake_at(word: *const u32, count: c_int, scope: Scope) -> bool {
    // SAFETY: the address is only compared with those of sleepers.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | scope.flag(),
            count,
        )
    };
    woken > 0
}

/// `membarrier(2)` without flags; negative if the system refuses.
pub(crate) fn membarrier(command: c_int) -> i64 {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// By how much the calling thread's sleeps may be longer than asked for (ns); negative if unknown.
pub(crate) fn timer_slack() -> c_int {
    // SAFETY: asks for a number of the calling thread's.
    unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
}

/// Sets that; 0 is the system's usual.
pub(crate) fn set_timer_slack(slack: c_ulong) {
    // SAFETY: a number for this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
}

/// `SYS_close_range`, the same number on all architectures.
const SYS_CLOSE_RANGE: c_long = 436;

/// `close_range(2)`, since Linux 5.9. Whether the system did it.
pub(crate) fn close_range(first: c_int, last: c_int, flags: c_uint) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(SYS_CLOSE_RANGE, first, last, flags) == 0 }
}

/// `unshare(2)` of the calling thread's table of descriptors. Whether it has one of its own now.
pub(crate) fn unshare_descriptors() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
}

/// Whether a number is open in the calling thread's table.
pub(crate) fn is_open(number: c_int) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Whether an open file is a regular one. No file system asks its server for that.
///
/// # Errors
/// If it is not open.
pub(crate) fn is_regular(number: c_int) -> io::Result<bool> {
    let mut facts = core::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path and `facts` outlive the call. By number: glibc has a name for it since
    // 2.28 only.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_statx,
            number,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            facts.as_mut_ptr(),
        )
    };
    let mode = if answer == 0 {
        // SAFETY: zeros are valid, and the kernel has filled it.
        unsafe { facts.assume_init() }.stx_mode.into()
    } else {
        status(number)?.st_mode
    };
    Ok(mode & libc::S_IFMT == libc::S_IFREG)
}

/// The kernel's number of the file system that an open file is in (`f_type` of `statfs(2)`). May
/// wait for a file system's server.
///
/// # Errors
/// If it is not open, or its server does not answer.
pub(crate) fn file_system(number: c_int) -> io::Result<u64> {
    let mut facts = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `facts` outlives the call.
    if unsafe { libc::fstatfs(number, facts.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a valid `statfs`, and the kernel has filled it.
    let kind = unsafe { facts.assume_init() }.f_type;
    // The numbers have 32 bits.
    Ok(kind.cast_unsigned() & u64::from(u32::MAX))
}

/// Closes a descriptor of ours. No cancellation point, as `close` would be.
pub(crate) fn close(number: c_int) {
    // SAFETY: no memory is involved; the caller has checked that the number still means the
    // descriptor it opened.
    unsafe { libc::syscall(libc::SYS_close, number) };
}

/// A copy of a descriptor at `least` or above, close-on-exec; negative if there is none.
pub(crate) fn duplicate(number: c_int, least: c_int) -> c_int {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, least) }
}

/// The seals of a memfd; negative for a descriptor that is none.
pub(crate) fn seals(number: c_int) -> c_int {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(number, libc::F_GET_SEALS) }
}

/// The kernel's status of an open file.
///
/// # Errors
/// If it is not open.
pub(crate) fn status(number: c_int) -> io::Result<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `stat` outlives the call.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a valid `stat`, and the kernel has filled it.
    Ok(unsafe { stat.assume_init() })
}

/// Opens a file to append to, made for its owner alone if it is not there; negative if it cannot
/// be.
pub(crate) fn open_to_append(path: &core::ffi::CStr) -> c_int {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: a C string that outlives the call.
    unsafe { libc::open(path.as_ptr(), flags, 0o600) }
}

/// Writes as much as goes. What cannot be written is lost. No cancellation point, as `write` would
/// be: a line of the log is written in any call.
pub(crate) fn write(number: c_int, bytes: &[u8]) {
    // SAFETY: the buffer outlives the call.
    let _ = unsafe { libc::syscall(libc::SYS_write, number, bytes.as_ptr(), bytes.len()) };
}

/// A mapping of one page without access rights, not inherited by forked children: it keeps an open
/// file description alive whose descriptor may be closed.
#[derive(Debug)]
pub(crate) struct Pin {
    /// Where it is.
    base: usize,
}

/// Keeps the file description of a plain file's descriptor; `None` where no mapping is available.
pub(crate) fn pin(number: c_int) -> Option<Pin> {
    // The least that can be mapped; the kernel rounds up.
    const BYTES: usize = 1;
    // SAFETY: a fresh mapping at an address that the kernel chooses, without any access.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_NONE,
            libc::MAP_SHARED,
            number,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base = base.expose_provenance();
    keep_from_children(base, BYTES);
    Some(Pin { base })
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: the mapping that `pin` made, which nothing refers to.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.base), 1) };
    }
}

/// The processor's counter: a few nanoseconds to read, where the clock takes tens. The length of a
/// tick is measured by [`clock`](crate::guest::clock). It is precise enough to time checks, not for
/// bills.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: takes nothing; every processor has it.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    let ticks = {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which the system leaves readable for its own clock.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    };
    ticks
}

/// Whether the program runs with more rights than its user: set-user-id, file capabilities.
pub(crate) fn is_secure() -> bool {
    // SAFETY: reads the auxiliary vector that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has `handler` be called in forked children, which may only store there.
pub(crate) fn at_fork_in_child(handler: extern "C" fn()) {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { __register_atfork(None, None, Some(handler), ptr::null_mut()) };
}

/// Stops this process until another one continues it.
#[cfg(debug_assertions)]
pub(crate) fn stop() {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

// SAFETY: the types are those of the C++ ABI and of glibc's own declaration.
unsafe extern "C" {
    // What `pthread_atfork` calls, which is in no library of the C library that every program has.
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *mut core::ffi::c_void,
    ) -> c_int;

    // With a library of its own named, a handler is called when that is unloaded; without one only
    // at the process's end.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut core::ffi::c_void),
        argument: *mut core::ffi::c_void,
        library: *mut core::ffi::c_void,
    ) -> c_int;
}

/// Has `handler` be called when the process ends. Whether it will be.
pub(crate) fn at_exit(handler: extern "C" fn(*mut core::ffi::c_void)) -> bool {
    // SAFETY: a function of this library, which is never unloaded; its argument is not used.
    unsafe { __cxa_atexit(handler, ptr::null_mut(), ptr::null_mut()) == 0 }
}

/// Forked children do not have this mapping of ours.
pub(crate) fn keep_from_children(address: usize, bytes: usize) {
    let base = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller owns the mapping, of which nothing changes in this process.
    unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
}

/// Undoes a mapping of ours of a memory file, and frees its pages: they read as zero for any other
/// that has them mapped.
pub(crate) fn give_back(address: usize, bytes: usize) {
    // SAFETY: the caller owns the mapping and has given up all that pointed into it.
    unsafe {
        libc::madvise(
            ptr::with_exposed_provenance_mut(address),
            bytes,
            libc::MADV_REMOVE,
        )
    };
    unmap(address, bytes);
}

/// Undoes a mapping of ours that nothing uses any more.
pub(crate) fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller owns the mapping and has given up all that pointed into it.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), bytes) };
}
