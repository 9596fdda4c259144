//! An open file description that stays though its descriptor is closed: a mapping keeps it, and with it the locks that are its own.
//!
//! Programs that become daemons close descriptors that they did not open. A lock of an open file description goes with its last
//! reference, so one page of the file is mapped through each description that holds locks. Nothing is ever read or written there, and
//! forked children do not get the mapping: what they keep is their copy of the descriptor, which is theirs to close.
//!
//! # Safety
//! `unsafe` maps a page without access, takes it back at the end, and closes a descriptor after it was seen to be the one opened here.
#![allow(unsafe_code, reason = "mmap, munmap, close")]

use core::ffi::{c_int, c_void};
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use crate::guest::descriptor::identity;

/// The least that can be mapped; the kernel rounds up.
const BYTES: usize = 1;

/// A descriptor, and the mapping that keeps what it means.
#[derive(Debug)]
pub(super) struct Pinned {
    number: c_int,
    identity: (u64, u64),
    /// Address of the mapping, 0 where there is none to be had.
    base: usize,
}

impl Pinned {
    /// Takes over a descriptor of a plain file. Where no mapping is to be had it is kept by its number alone.
    ///
    /// # Errors
    /// If it is not open.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let identity = identity(descriptor.as_raw_fd())?;
        // SAFETY: a fresh mapping at an address the kernel chooses, which nobody can read or write.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        let base = if base == libc::MAP_FAILED {
            ptr::null_mut()
        } else {
            base
        };
        if !base.is_null() {
            // SAFETY: the mapping made above.
            unsafe { libc::madvise(base, BYTES, libc::MADV_DONTFORK) };
        }
        Ok(Self {
            number: descriptor.into_raw_fd(),
            identity,
            base: base.addr(),
        })
    }

    /// Device and inode of the file.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The number, `None` once it means another file or none.
    pub(super) fn number(&self) -> Option<c_int> {
        let is_ours = identity(self.number).is_ok_and(|now| now == self.identity);
        is_ours.then_some(self.number)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            // SAFETY: ours, as has just been seen.
            unsafe { libc::close(number) };
        }
        if self.base != 0 {
            let base: *mut c_void = ptr::with_exposed_provenance_mut(self.base);
            // SAFETY: the mapping made in `new`, which nothing refers to.
            unsafe { libc::munmap(base, BYTES) };
        }
    }
}
