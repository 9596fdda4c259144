//! The usage file: opened without following links, locked by the byte, mapped.
//!
//! Two kinds of descriptor. The *slot descriptor* lives as long as the process and its forked
//! children, on purpose: the driver keeps a dead process's memory as long as a forked child holds
//! the device open, and the slot's lock lives exactly as long. The tenant lock has a descriptor of
//! its own ([`lock_file`](super::lock_file)).
//!
//! A program may close both descriptors. Their locks stay held ([`Pinned`]), and where the file is
//! needed again it is reopened by its path.
//!
//! # Safety
//! `unsafe` calls libc with descriptors and structures owned here, and maps the file for ever.
#![allow(unsafe_code, reason = "open, fcntl, fallocate and mmap")]

use core::ffi::{CStr, c_int};
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::lock_file::Lockable;
use super::pinned::Pinned;
use crate::guest::descriptor::{self, Descriptor, identity};

use gpushare_protocol::page::{MAX_SLOTS, PAGE_BYTES, Page, lock_byte};

const USAGE: &CStr = c"usage";
/// The byte of the tenant lock.
const TENANT_BYTE: u64 = 0;

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
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Whether it still has a name; not once it was deleted.
    pub(crate) linked: bool,
    mode: u32,
    owner: u32,
}

impl Status {
    fn is_plain_file_of(&self, user: u32) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG && self.owner == user
    }
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
        let file = raised(file);
        let status = status(file.as_raw_fd())?;
        if !status.is_plain_file_of(effective_user()) {
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

    /// Whether the file may become so long. Where a limit of this process (`ulimit -f`) is below
    /// that, the kernel ends the program whose call makes the file grow.
    fn may_grow_to(&self, end: u64) -> io::Result<()> {
        if end > most_bytes() && end > self.status()?.bytes {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        Ok(())
    }

    /// Makes the bytes of `range` real, so that touching them cannot fail.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.may_grow_to(range.end)?;
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
        let file = self.open_again()?;
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
        self.may_grow_to(bytes)?;
        // SAFETY: no memory is involved.
        check(unsafe { libc::ftruncate(self.number()?, offset(bytes)?) })
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
                .open_again()
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

impl Lockable for UsageFile {
    /// By the folder's descriptor, or where the program has closed that, by its path.
    fn open_again(&self) -> io::Result<OwnedFd> {
        let file = if self.folder.is_ours() {
            open_usage(self.folder.number(), 0)?
        } else {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            // SAFETY: a C string that outlives the call.
            let folder = owned(unsafe { libc::open(self.path.as_ptr(), flags) })?;
            open_usage(folder.as_raw_fd(), 0)?
        };
        the_same(file, self.file.identity())
    }

    fn needs_name(&self) -> bool {
        true
    }
}

/// Opens a usage page without any name but this one in `/proc`.
///
/// # Errors
/// If it cannot be opened again, or the name means another file by now.
pub(crate) fn open_page(path: &CStr, identity: (u64, u64)) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a C string that outlives the call.
    the_same(
        owned(unsafe { libc::open(path.as_ptr(), flags) })?,
        identity,
    )
}

fn the_same(file: OwnedFd, expected: (u64, u64)) -> io::Result<OwnedFd> {
    if identity(file.as_raw_fd())? == expected {
        Ok(file)
    } else {
        Err(replaced())
    }
}

/// The error where the file's name is gone or means another file.
pub(super) fn replaced() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the usage file was replaced")
}

/// The same description under a number that programs do not use.
pub(super) fn raised(file: OwnedFd) -> OwnedFd {
    let number = descriptor::raised(file.into_raw_fd());
    // SAFETY: the only number left of the descriptor that was given up.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Tries to lock the tenant's byte by an open file description. `false` if another one has it.
pub(super) fn try_lock_tenant(number: c_int) -> io::Result<bool> {
    match set_lock(number, libc::F_WRLCK, TENANT_BYTE) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Unlocks it.
pub(super) fn unlock_tenant(number: c_int) {
    let _ = set_lock(number, libc::F_UNLCK, TENANT_BYTE);
}

/// The user files must belong to.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() }
}

/// How long a file of this process may become.
fn most_bytes() -> u64 {
    // SAFETY: all-zero is a valid `rlimit`.
    let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
    // SAFETY: `limit` outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
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
    use super::super::lock_file::LockFile;
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

    /// The tenant lock, by a description of its own.
    fn locked(file: &UsageFile) -> io::Result<Option<LockFile>> {
        let mut lock = LockFile::once();
        Ok(lock.try_lock(file)?.then_some(lock))
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
        assert!(locked(&a).unwrap().is_some());
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
        assert!(file.is_alive(3) && locked(&file).is_err());
    }

    #[test]
    fn a_tenant_lock_outlives_its_descriptor_and_goes_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        let held = locked(&file).unwrap().unwrap();
        let number = held.number().unwrap();
        replace(number);
        assert!(locked(&file).unwrap().is_none(), "still locked");
        drop(held);
        assert!(locked(&file).unwrap().is_some());
        // SAFETY: this test's own, put there by `replace`.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was left open");
    }

    #[test]
    fn a_kept_lock_file_is_opened_once_and_anew_where_it_was_closed() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        let mut kept = LockFile::kept();
        let mut take = || {
            assert!(kept.try_lock(&file).unwrap());
            assert!(locked(&file).unwrap().is_none(), "another's is refused");
            kept.unlock();
            assert!(locked(&file).unwrap().is_some());
            kept.number().unwrap()
        };
        let number = take();
        assert_eq!(take(), number);
        replace(number);
        assert_ne!(take(), number, "that is not ours now");
        // SAFETY: this test's own, put there by `replace`.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was left open");
    }

    #[test]
    fn a_kept_lock_file_locks_nothing_once_its_name_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        let mut kept = LockFile::kept();
        assert!(kept.try_lock(&file).unwrap());
        kept.unlock();
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        assert!(kept.try_lock(&file).is_err());
    }

    #[test]
    fn only_a_plain_file_of_this_user_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        let (status, me) = (file.status().unwrap(), effective_user());
        assert!(status.is_plain_file_of(me) && !status.is_plain_file_of(me + 1));
        let path = folder.path().join("usage");
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let refused = UsageFile::open(folder.path(), false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_replaced_file_gives_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let file = UsageFile::open(folder.path(), true).unwrap();
        assert!(locked(&file).unwrap().is_some());
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        assert!(locked(&file).is_err());
        std::fs::write(folder.path().join("usage"), b"").unwrap();
        assert!(locked(&file).is_err());
    }
}
