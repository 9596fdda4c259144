//! The usage file: opened without following links, locked by the byte, mapped.
//!
//! Two kinds of descriptor. The *slot descriptor* lives as long as the process and its forked
//! children, on purpose: the driver keeps a dead process's memory as long as a forked child holds
//! the device open, and the slot's lock lives exactly as long. A *lock descriptor* is opened for
//! each taking of the tenant lock and closed in children by the fork handler, so that a child
//! never keeps a dead parent's lock.
//!
//! A program may close both descriptors. Their locks stay held ([`Pinned`]), and where the file is
//! needed again it is reopened by its path.
//!
//! # Safety
//! `unsafe` calls libc with descriptors and structures owned here, and maps the file for ever.
#![allow(unsafe_code, reason = "open, fcntl, fallocate and mmap")]

use core::ffi::{CStr, c_int};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::pinned::Pinned;
use crate::guest::descriptor::{Descriptor, identity};

use gpushare_protocol::page::{MAX_SLOTS, PAGE_BYTES, Page, lock_byte};

/// The descriptor that holds the tenant lock, for the fork handler; -1 for none.
static LOCK_DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// Inode of the file that it means: a program may have closed it, and have another file under its
/// number.
static LOCK_INODE: AtomicU64 = AtomicU64::new(0);

const USAGE: &CStr = c"usage";

/// A tenant's usage file.
#[derive(Debug)]
pub(crate) struct UsageFile {
    path: CString,
    /// Never closed by us once it is another's: a program may close it and have another file under
    /// its number.
    folder: Descriptor,
    file: Pinned,
}

/// The kernel's status of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Whether it still has a name; not once it was deleted.
    pub(crate) linked: bool,
    mode: u32,
    owner: u32,
}

/// The tenant lock, held. Freed when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: Pinned,
}

impl UsageFile {
    /// Opens the usage file in `folder`; makes it if `create`.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a plain file of this user alone.
    pub(crate) fn open(folder: &Path, create: bool) -> io::Result<Self> {
        let path = CString::new(folder.as_os_str().as_bytes())?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a C string that outlives the call.
        let folder = Descriptor::new(unsafe { libc::open(path.as_ptr(), flags) })?;
        let file = open_usage(folder.number(), if create { libc::O_CREAT } else { 0 })?;
        let status = status(file.as_raw_fd())?;
        if status.mode & libc::S_IFMT != libc::S_IFREG || status.owner != effective_user() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the usage file is not this user's",
            ));
        }
        Ok(Self {
            path,
            folder,
            file: Pinned::new(file)?,
        })
    }

    /// The file, opened anew: by the folder's descriptor, or where the program has closed that, by
    /// its path.
    ///
    /// # Errors
    /// If it cannot be opened, or another file has its name now.
    fn opened_again(&self) -> io::Result<OwnedFd> {
        let file = if self.folder.is_ours() {
            open_usage(self.folder.number(), 0)?
        } else {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            // SAFETY: a C string that outlives the call.
            let folder = owned(unsafe { libc::open(self.path.as_ptr(), flags) })?;
            open_usage(folder.as_raw_fd(), 0)?
        };
        if status(file.as_raw_fd())?.identity == self.file.identity() {
            return Ok(file);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the usage file was replaced",
        ))
    }

    fn number(&self) -> io::Result<c_int> {
        self.file
            .number()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// The file as it is now.
    ///
    /// # Errors
    /// If the descriptor was closed behind our back.
    pub(crate) fn status(&self) -> io::Result<Status> {
        status(self.number()?)
    }

    /// Makes the bytes of `range` real, so that touching them cannot fail.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let (start, end) = (offset(range.start)?, offset(range.end)?);
        // SAFETY: no memory is involved.
        match unsafe { libc::posix_fallocate(self.number()?, start, end - start) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Maps the page, for the life of the process.
    ///
    /// Through a description of its own: a mapping keeps its description alive, and with it the
    /// locks, in a child that has closed every descriptor, the driver's among them.
    ///
    /// # Errors
    /// If the file is shorter than a page or was replaced, or the kernel refuses.
    pub(crate) fn map(&self) -> io::Result<&'static Page> {
        let file = self.opened_again()?;
        if status(file.as_raw_fd())?.bytes < PAGE_BYTES as u64 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the usage file was cut short",
            ));
        }
        let (protection, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a fresh mapping at an address the kernel chooses; the length was checked against
        // the file.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE_BYTES,
                protection,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        // SAFETY: PAGE_BYTES bytes, never unmapped; files of this name are touched by nothing but
        // this page type.
        Ok(unsafe { Page::from_mapping(base) })
    }

    /// Sets the length, with zeros where there was nothing.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn set_length(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: no memory is involved.
        check(unsafe { libc::ftruncate(self.number()?, offset(bytes)?) })
    }

    /// Tries to take the tenant lock, without waiting. `None` if another process or thread holds
    /// it.
    ///
    /// # Errors
    /// If the file cannot be opened again, or is no longer the same.
    pub(crate) fn try_lock(&self) -> io::Result<Option<FileLock>> {
        lock_tenant(self.opened_again()?, self.file.identity())
    }

    /// Takes a slot's lock for this process and its forked children. Fails if it is held.
    ///
    /// # Errors
    /// If another process holds it.
    pub(crate) fn hold_slot(&self, slot: usize) -> io::Result<()> {
        set_lock(self.number()?, libc::F_WRLCK, lock_byte(slot))
    }

    /// Gives a slot's lock back.
    pub(crate) fn drop_slot(&self, slot: usize) {
        if let Some(number) = self.file.number() {
            let _ = set_lock(number, libc::F_UNLCK, lock_byte(slot));
        }
    }

    /// Whether a process other than this one lives in `slot`. A kernel that cannot tell counts as
    /// yes.
    pub(crate) fn is_alive(&self, slot: usize) -> bool {
        self.anyone(lock_byte(slot), 1)
    }

    /// Whether any process other than this one lives in the tenant.
    pub(crate) fn has_company(&self) -> bool {
        self.anyone(lock_byte(0), MAX_SLOTS as u64)
    }

    fn anyone(&self, byte: u64, length: u64) -> bool {
        // A program that closes descriptors it did not open may have another file under our number
        // by now. No process holds locks on that file, so every process would look dead.
        match self.file.number() {
            Some(number) => is_locked(number, byte, length),
            // A file that cannot be had again says nothing.
            None => self
                .opened_again()
                .map_or(true, |file| is_locked(file.as_raw_fd(), byte, length)),
        }
    }
}

/// Whether another open file description has a lock there.
fn is_locked(number: c_int, byte: u64, length: u64) -> bool {
    let mut lock = flock(libc::F_WRLCK, byte, length);
    // SAFETY: `lock` outlives the call.
    let answer = unsafe { libc::fcntl(number, libc::F_OFD_GETLK, &raw mut lock) };
    answer != 0 || c_int::from(lock.l_type) != libc::F_UNLCK
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Where the program has closed it, the lock goes with the mapping.
        let Some(number) = self.file.number() else {
            return;
        };
        // Unlocked by name, because a forked child may share the description for a moment.
        let _ = set_lock(number, libc::F_UNLCK, 0);
        let _ = LOCK_DESCRIPTOR.compare_exchange(number, -1, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// As [`UsageFile::try_lock`], for a usage page without any name but this one in `/proc`. It is
/// opened anew, because only then is the lock this process's own.
///
/// # Errors
/// If it cannot be opened again, or the name means another file by now.
pub(crate) fn try_lock_opened(path: &CStr, identity: (u64, u64)) -> io::Result<Option<FileLock>> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a C string that outlives the call.
    let descriptor = owned(unsafe { libc::open(path.as_ptr(), flags) })?;
    lock_tenant(descriptor, identity)
}

/// Tries to lock byte 0 by an open file description that is not shared.
fn lock_tenant(descriptor: OwnedFd, identity: (u64, u64)) -> io::Result<Option<FileLock>> {
    let number = descriptor.as_raw_fd();
    LOCK_INODE.store(identity.1, Ordering::Relaxed);
    LOCK_DESCRIPTOR.store(number, Ordering::Release);
    let lock = FileLock {
        file: Pinned::new(descriptor)?,
    };
    if lock.file.identity() != identity {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the usage file was replaced",
        ));
    }
    match set_lock(number, libc::F_WRLCK, 0) {
        Ok(()) => Ok(Some(lock)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Closes a tenant lock that was held when this child was forked. For the fork handler: two
/// system calls.
pub(crate) fn drop_parents_lock() {
    let descriptor = LOCK_DESCRIPTOR.swap(-1, Ordering::AcqRel);
    let inode = LOCK_INODE.load(Ordering::Relaxed);
    if descriptor >= 0 && identity(descriptor).is_ok_and(|(_, now)| now == inode) {
        // SAFETY: the parent's thread that owns it does not exist here.
        unsafe { libc::close(descriptor) };
    }
}

/// The user files must belong to.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() }
}

fn open_usage(folder: c_int, create: c_int) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | create;
    // SAFETY: a static C string.
    owned(unsafe { libc::openat(folder, USAGE.as_ptr(), flags, 0o600) })
}

fn owned(descriptor: c_int) -> io::Result<OwnedFd> {
    check(descriptor.min(0))?;
    // SAFETY: just opened, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn check(answer: c_int) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn status(descriptor: c_int) -> io::Result<Status> {
    // SAFETY: all-zero is a valid `stat`.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` outlives the call.
    check(unsafe { libc::fstat(descriptor, &raw mut stat) })?;
    Ok(Status {
        identity: (stat.st_dev, stat.st_ino),
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        linked: stat.st_nlink > 0,
        mode: stat.st_mode,
        owner: stat.st_uid,
    })
}

fn set_lock(descriptor: c_int, kind: c_int, byte: u64) -> io::Result<()> {
    let lock = flock(kind, byte, 1);
    // SAFETY: `lock` outlives the call.
    check(unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small constants in C's own types"
)]
fn flock(kind: c_int, byte: u64, length: u64) -> libc::flock {
    // SAFETY: all-zero is a valid `flock`, and an OFD lock needs the pid to be zero.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = length as libc::off_t;
    lock
}

fn offset(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_lives_as_long_as_the_file_that_holds_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (
            UsageFile::open(folder.path(), true).unwrap(),
            UsageFile::open(folder.path(), false).unwrap(),
        );
        assert!(!b.is_alive(3) && !b.has_company());
        a.hold_slot(3).unwrap();
        assert!(b.is_alive(3) && !b.is_alive(4) && b.has_company());
        assert!(!a.is_alive(3), "one's own lock is not seen");
        assert!(b.hold_slot(3).is_err());
        drop(a);
        assert!(!b.is_alive(3));
    }

    /// Puts another file under this number.
    fn replace(number: c_int) {
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both descriptors are open; the one replaced is used by one test alone.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), number) } >= 0);
    }

    #[test]
    fn a_slot_is_kept_and_the_others_seen_without_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let open = |create| UsageFile::open(folder.path(), create).unwrap();
        let (a, b) = (open(true), open(false));
        a.hold_slot(3).unwrap();
        b.hold_slot(4).unwrap();
        let numbers = [a.number().unwrap(), a.folder.number()];
        numbers.into_iter().for_each(replace);
        assert!(a.number().is_err() && b.is_alive(3), "it is still held");
        assert!(a.is_alive(4) && !a.is_alive(5));
        assert!(a.try_lock().unwrap().is_some());
        drop(b);
        assert!(!a.is_alive(4));
        drop(a);
        assert!(!open(false).is_alive(3), "it goes with its process");
        let null = status(numbers[0]).unwrap();
        assert_eq!(null.mode & libc::S_IFMT, libc::S_IFCHR, "not ours to close");
        for number in numbers {
            // SAFETY: this test's own, put there by `replace`.
            unsafe { libc::close(number) };
        }
    }

    #[test]
    fn nobody_looks_dead_where_the_file_cannot_be_had_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        assert!(!file.is_alive(3));
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        replace(file.number().unwrap());
        assert!(file.is_alive(3) && file.try_lock().is_err());
    }

    #[test]
    fn a_tenant_lock_outlives_its_descriptor_and_goes_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        let held = file.try_lock().unwrap().unwrap();
        let number = held.file.number().unwrap();
        replace(number);
        assert!(file.try_lock().unwrap().is_none(), "still locked");
        drop(held);
        assert!(file.try_lock().unwrap().is_some());
        // SAFETY: this test's own, put there by `replace`.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was left open");
    }

    #[test]
    fn a_replaced_file_gives_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        assert!(file.try_lock().unwrap().is_some());
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        assert!(file.try_lock().is_err());
        std::fs::write(folder.path().join("usage"), b"").unwrap();
        assert!(file.try_lock().is_err());
    }
}
