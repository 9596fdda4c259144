//! An open file description that stays though its descriptor is closed: a mapping keeps it, and
//! with it the locks that are its own.
//!
//! Programs that become daemons close descriptors that they did not open. A lock of an open file
//! description ends with its last reference. So one page of the file is mapped through each
//! description that holds locks. It is never read or written, and forked children do not get the
//! mapping: they inherit a copy of the descriptor, which they may close.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use crate::guest::descriptor::{ABOVE, identity};
use crate::guest::sys::{self, Pin};

/// A descriptor, and the mapping that keeps its file description open.
#[derive(Debug)]
pub(super) struct Pinned {
    number: c_int,
    identity: (u64, u64),
    /// The mapping, where one was to be had.
    _pin: Option<Pin>,
}

impl Pinned {
    /// Takes over a descriptor of a plain file. Where no mapping is to be had it is kept by its
    /// number alone.
    ///
    /// # Errors
    /// If it is not open.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let identity = identity(descriptor.as_raw_fd())?;
        let pin = sys::pin(descriptor.as_raw_fd());
        Ok(Self {
            number: descriptor.into_raw_fd(),
            identity,
            _pin: pin,
        })
    }

    /// Device and inode of the file.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The number, `None` once it means another file or none.
    pub(super) fn number(&self) -> Option<c_int> {
        self.status().map(|(number, _)| number)
    }

    /// The number and the file's status, `None` once the number means another file or none.
    pub(super) fn status(&self) -> Option<(c_int, libc::stat)> {
        let status = sys::status(self.number).ok()?;
        let is_ours = (status.st_dev, status.st_ino) == self.identity;
        is_ours.then_some((self.number, status))
    }

    /// The number, whatever it means now.
    pub(super) fn any_number(&self) -> c_int {
        self.number
    }

    /// Whether the number is one of those that are left to the program.
    pub(super) fn is_low(&self) -> bool {
        self.number < ABOVE
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            sys::close(number);
        }
    }
}
