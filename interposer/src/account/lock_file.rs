//! The open file description by which a process takes its tenant's lock.
//!
//! It is opened at joining and kept, because later a program may be unable to open anything: at its
//! limit of open files, in another root, as another user, in a sandbox. Where the program has
//! closed the descriptor it is opened anew. A forked child closes its copy, so that it never keeps
//! a dead parent's lock.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::file;
use super::pinned::Pinned;
use crate::guest::descriptor::ParentsOnly;

/// The numbers that a forked child closes: the kept one, and one that is in use once.
static KEPT: ParentsOnly = ParentsOnly::new();
static ONCE: ParentsOnly = ParentsOnly::new();

/// Something with a tenant lock.
pub(crate) trait Lockable {
    /// Opens its file anew, so that a lock through it is this process's own.
    ///
    /// # Errors
    /// If it cannot be opened, or its name means another file.
    fn open_again(&self) -> io::Result<OwnedFd>;

    /// Whether the file is of use only while it has a name, by which other processes find it.
    fn needs_name(&self) -> bool;
}

/// See the module's page. The lock is taken by one thread at a time.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: Option<Pinned>,
    in_children: &'static ParentsOnly,
}

impl LockFile {
    /// The process's own, not open yet.
    pub(crate) const fn kept() -> Self {
        Self {
            file: None,
            in_children: &KEPT,
        }
    }

    /// One for a single use.
    pub(crate) const fn once() -> Self {
        Self {
            file: None,
            in_children: &ONCE,
        }
    }

    /// Opens the file, unless it is open. Returns its number.
    ///
    /// # Errors
    /// If it cannot be opened, or the file has lost its name.
    fn open(&mut self, of: &impl Lockable) -> io::Result<c_int> {
        if let Some((number, status)) = self.file.as_ref().and_then(Pinned::status) {
            return if of.needs_name() && status.st_nlink == 0 {
                Err(file::replaced())
            } else {
                Ok(number)
            };
        }
        self.close();
        let opened = file::raised(of.open_again()?);
        let number = opened.as_raw_fd();
        let file = Pinned::new(opened)?;
        self.in_children.set(number, file.identity());
        self.file = Some(file);
        Ok(number)
    }

    /// Tries to take the lock, without waiting. `false` if another process, or another description
    /// in this one, holds it.
    ///
    /// # Errors
    /// As [`open`](Self::open), or if the kernel refuses.
    pub(crate) fn try_lock(&mut self, of: &impl Lockable) -> io::Result<bool> {
        let locked = file::try_lock_tenant(self.open(of)?);
        if !matches!(locked, Ok(true)) {
            self.leave_low();
        }
        locked
    }

    /// Opens the file for later.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn prepare(&mut self, of: &impl Lockable) -> io::Result<()> {
        self.open(of)?;
        self.leave_low();
        Ok(())
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&mut self) {
        match self.file.as_ref().and_then(Pinned::number) {
            // By name, because a child may share the description for a moment.
            Some(number) => file::unlock_tenant(number),
            // The program has closed it: the lock goes with the mapping.
            None => self.close(),
        }
        self.leave_low();
    }

    /// Where no high number was to be had, the low one is not kept.
    fn leave_low(&mut self) {
        if self.file.as_ref().is_some_and(Pinned::is_low) {
            self.close();
        }
    }

    /// Its number, while it is open.
    #[cfg(test)]
    pub(crate) fn number(&self) -> Option<c_int> {
        self.file.as_ref().and_then(Pinned::number)
    }

    fn close(&mut self) {
        if let Some(file) = self.file.take() {
            self.in_children.forget(file.any_number());
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            self.unlock();
            self.close();
        }
    }
}

/// Closes the parent's descriptors, with a lock that it held when this child was forked. For the
/// fork handler: at most four system calls.
pub(crate) fn close_parents() {
    KEPT.close();
    ONCE.close();
}
