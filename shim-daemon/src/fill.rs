//! Memory of a file, allocated by several processes at a time.
//!
//! `fallocate` holds the file's lock, so it allocates with one thread. Page faults do not: each of
//! several processes maps a part of the range, has the kernel allocate it, and ends. They are no
//! threads, because a fault may wait for a process that can reach the file, and the kernel holds
//! the address space meanwhile: the daemon's loop could map no memory until then. Each has an
//! address space of its own, a copy of the daemon's, and shares its table of descriptors: a copy of
//! that would have to be closed, which may wait too.
//!
//! # Safety
//! A process that is made here goes on with a copy of one thread, in which locks of the others may
//! be held for ever. Until it ends it makes system calls only.
#![allow(
    unsafe_code,
    reason = "makes processes, each of which maps shared memory and ends"
)]

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Parts are multiples of this, a huge page, so that no two processes want the same one.
const PART: usize = 2 << 20;
/// As many share the work at most. With more, they would wait for the list of the file's pages.
const MOST: usize = 8;
/// Fewer are slower than `fallocate`, which neither zeroes pages nor maps them: a page costs it a
/// third of the time.
const LEAST: usize = 3;

/// How many more processes the daemon may have for this: half of the processors are left to others.
static FREE: LazyLock<AtomicUsize> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    AtomicUsize::new(processors / 2)
});

/// The processes that share in one range. They count until this is dropped.
#[derive(Debug)]
pub(crate) struct Workers<'a> {
    free: &'a AtomicUsize,
    number: usize,
}

impl Workers<'static> {
    /// As many as the daemon may have more now, perhaps none.
    pub(crate) fn take() -> Self {
        Self::of(&FREE)
    }
}

impl<'a> Workers<'a> {
    fn of(free: &'a AtomicUsize) -> Self {
        let (read, write) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = free.try_update(write, read, |free| Some(free - share(free)));
        Self {
            free,
            number: before.map_or(0, share),
        }
    }

    /// How many.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        self.free.fetch_add(self.number, Ordering::Relaxed);
    }
}

/// Of so many that are free, what one range gets.
fn share(free: usize) -> usize {
    match free {
        ..LEAST => 0,
        LEAST.. => free.min(MOST),
    }
}

/// Has this many processes allocate a range of a memory file, all zero. False if not all of it is:
/// the range is too small, or the kernel too old (before 5.14), or it refused. A part may be
/// allocated then, and none of the processes is left.
pub(crate) fn fill(file: &File, offset: u64, bytes: u64, workers: usize) -> bool {
    let (Ok(start), Ok(bytes)) = (i64::try_from(offset), usize::try_from(bytes)) else {
        return false;
    };
    let parts = parts(bytes, workers);
    if parts.len() < LEAST {
        return false;
    }
    let begun = parts.iter().map_while(|&(at, length)| {
        let offset = start.checked_add(i64::try_from(at).ok()?)?;
        worker(file.as_raw_fd(), offset, length)
    });
    let begun: Vec<Pid> = begun.collect();
    let done = begun.iter().filter(|&&worker| succeeds(worker)).count();
    done == parts.len()
}

/// The places and lengths of parts, one for each process at most.
fn parts(bytes: usize, workers: usize) -> Vec<(usize, usize)> {
    let pieces = bytes.div_ceil(PART);
    let length = pieces.div_ceil(workers.max(1)).max(1).saturating_mul(PART);
    let places = (0..bytes).step_by(length);
    places.map(|at| (at, length.min(bytes - at))).collect()
}

/// Starts a process for one part.
fn worker(file: RawFd, offset: i64, bytes: usize) -> Option<Pid> {
    // No signal tells of its end, so that nothing else waits for it.
    let flags = libc::c_long::from(libc::CLONE_FILES);
    let none = libc::c_long::from(0);
    // SAFETY: as `fork`: the new process has a copy of this thread's stack. It makes system calls
    // only, in `allocate`, which never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    if pid == 0 {
        allocate(file, offset, bytes);
    }
    let pid = Errno::result(pid).ok()?;
    Some(Pid::from_raw(i32::try_from(pid).ok()?))
}

/// What such a process does. Its end unmaps the memory.
fn allocate(file: RawFd, offset: i64, bytes: usize) -> ! {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let any = std::ptr::null_mut();
    // SAFETY: system calls on a new mapping at an address of the kernel's choice, which nothing
    // reads or writes. What cannot be allocated is an error of the call, and no signal.
    unsafe {
        let pages = libc::mmap(any, bytes, access, libc::MAP_SHARED, file, offset);
        let is_mapped = pages != libc::MAP_FAILED;
        if is_mapped {
            // Of use where the administrator allows it; elsewhere it changes nothing.
            libc::madvise(pages, bytes, libc::MADV_HUGEPAGE);
        }
        let is_done = is_mapped && libc::madvise(pages, bytes, libc::MADV_POPULATE_WRITE) == 0;
        libc::_exit(i32::from(!is_done))
    }
}

/// Waits for a process's end. Whether it allocated its part.
fn succeeds(worker: Pid) -> bool {
    loop {
        match waitpid(worker, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {}
            ended => return matches!(ended, Ok(WaitStatus::Exited(_, 0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_processors_leave_all_to_the_kernel_and_many_share() {
        for (free, each) in [(0, 0), (1, 0), (2, 0), (3, 3), (8, 8), (32, 8)] {
            assert_eq!(share(free), each, "{free} are free");
        }
    }

    #[test]
    fn parts_cover_a_range_once_and_part_at_huge_pages() {
        for (bytes, workers) in [
            (0, 3),
            (4096, 3),
            (PART, 8),
            (3 * PART, 3),
            (5 * PART + 4096, 4),
            (32 * PART, 8),
            (32 * PART, 7),
            (PART, 0),
        ] {
            let parts = parts(bytes, workers);
            assert!(parts.len() <= workers.max(1));
            let mut end = 0;
            for (at, length) in parts {
                assert!(at == end && at.is_multiple_of(PART) && length > 0);
                end += length;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn workers_count_until_their_range_is_done() {
        let free = AtomicUsize::new(12);
        let takes = || Workers::of(&free);
        let (one, two, three) = (takes(), takes(), takes());
        assert_eq!([&one, &two, &three].map(Workers::number), [8, 4, 0]);
        drop(two);
        assert_eq!(takes().number(), 4, "and they are given back at once");
        drop(one);
        assert_eq!(takes().number(), 8);
    }
}
