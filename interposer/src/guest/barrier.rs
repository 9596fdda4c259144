//! The closing thread's half of the asymmetric barrier: `membarrier` makes every running thread of
//! the process pass a full one.

use core::ffi::c_int;
use std::os::unix::fs::MetadataExt as _;

use crate::guest::sys::membarrier;

/// Commands of `membarrier(2)`, from the kernel's `linux/membarrier.h`.
const QUERY: c_int = 0;
const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

/// Links of the folder of a process's threads where there is one thread: its own two, and the
/// thread's.
const LINKS_OF_ONE: u64 = 3;

/// Whether this system has the barrier. Not in every sandbox, nor before Linux 4.14.
pub(crate) fn is_offered() -> bool {
    let wanted = i64::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
    let offered = membarrier(QUERY);
    offered > 0 && offered & wanted == wanted
}

/// Registers the process while it has one thread, which takes a microsecond. Later the kernel waits
/// for all processors first, ten milliseconds and more, and a thread that is in that wait keeps the
/// process from ending.
pub(crate) fn register_alone() {
    let threads = std::fs::metadata("/proc/self/task").map(|tasks| tasks.nlink());
    if threads.is_ok_and(|links| links == LINKS_OF_ONE) && is_offered() {
        membarrier(REGISTER_PRIVATE_EXPEDITED);
    }
}

/// Makes every running thread of this process pass a full barrier. The first time the process is
/// registered for it, if it was not before ([`register_alone`]), which takes milliseconds. `false`
/// if the system will not.
pub(crate) fn heavy() -> bool {
    membarrier(PRIVATE_EXPEDITED) == 0
        || (membarrier(REGISTER_PRIVATE_EXPEDITED) == 0 && membarrier(PRIVATE_EXPEDITED) == 0)
}
