//! Descriptors inside a foreign program: kept out of its low numbers, checked before use, and not
//! closed once the number is the program's.
//!
//! Programs close descriptors they did not open (daemons close all of them), and the number then
//! means another file. So each remembers which file it is, and is looked at before every use.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::io;

use crate::guest::sys;

/// Numbers below this are left to the program: many use the lowest by habit, or close them in bulk.
pub(crate) const ABOVE: c_int = 200;

/// A descriptor of ours, close-on-exec. Closed when dropped, unless it is no longer ours.
#[derive(Debug)]
pub(crate) struct Descriptor {
    number: c_int,
    identity: (u64, u64),
}

impl Descriptor {
    /// Takes ownership of a system call's result.
    ///
    /// # Errors
    /// The call's error if it answered one.
    pub(crate) fn new(answer: c_int) -> io::Result<Self> {
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = raised(answer);
        let identity = identity(number)?;
        Ok(Self { number, identity })
    }

    /// The number, for a system call that follows at once.
    pub(crate) fn number(&self) -> c_int {
        self.number
    }

    /// Device and inode of the file behind it.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Whether the number still means the file it meant.
    pub(crate) fn is_ours(&self) -> bool {
        identity(self.number).is_ok_and(|now| now == self.identity)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.is_ours() {
            sys::close(self.number);
        }
    }
}

/// A descriptor that a forked child does not keep: it is the parent's connection, or the parent's
/// page.
#[derive(Debug)]
pub(crate) struct ParentsOnly {
    number: AtomicI32,
    inode: AtomicU64,
}

impl ParentsOnly {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            number: AtomicI32::new(-1),
            inode: AtomicU64::new(0),
        }
    }

    /// From now on this number, of the file of this device and inode.
    pub(crate) fn set(&self, number: c_int, (_, inode): (u64, u64)) {
        self.inode.store(inode, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// As [`set`](Self::set).
    pub(crate) fn is(&self, descriptor: &Descriptor) {
        self.set(descriptor.number, descriptor.identity);
    }

    /// None any more, if it was this number.
    pub(crate) fn forget(&self, number: c_int) {
        let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.number.compare_exchange(number, -1, done, lost);
    }

    /// Closes it, in a forked child's fork handler: two system calls.
    pub(crate) fn close(&self) {
        let number = self.number.swap(-1, Ordering::AcqRel);
        let inode = self.inode.load(Ordering::Relaxed);
        if number >= 0 && identity(number).is_ok_and(|(_, now)| now == inode) {
            // The child's copy of its parent's descriptor; the owner's threads do not exist here.
            sys::close(number);
        }
    }
}

/// The number, open, under which a descriptor of ours goes on: a high one. Where none is to be had,
/// the low one stays.
pub(crate) fn raised(number: c_int) -> c_int {
    if number >= ABOVE {
        return number;
    }
    let high = sys::duplicate(number, ABOVE);
    if high < 0 {
        return number;
    }
    sys::close(number);
    high
}

/// Which file a descriptor means.
///
/// # Errors
/// If it is not open.
pub(crate) fn identity(number: c_int) -> io::Result<(u64, u64)> {
    let stat = sys::status(number)?;
    Ok((stat.st_dev, stat.st_ino))
}
