//! Shared pages: sealed memfds that the daemon makes, maps and hands to a tenant's processes.
//!
//! # Safety
//! A mapping of `Mapped` is as long as its file. The seals fix the file's size before the
//! descriptor is passed on, so no access is beyond its end. They do not forbid holes: a process of
//! the tenant can give a page's memory back, and the next access allocates it again. That fails,
//! and the daemon ends by SIGBUS, where the kernel has no memory for it or refuses it (see
//! docs/BYPASSES.md). Mapped memory is viewed only through the protocol's pages of atomics.
#![allow(
    unsafe_code,
    reason = "maps shared memory and views it as the protocol's pages"
)]

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpushare_protocol::page::control::{CONTROL_BYTES, ControlPage};
use gpushare_protocol::page::{PAGE_BYTES, Page, PageError};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// How long a lock of a page is tried for: the loop waits meanwhile.
const LONGEST: Duration = Duration::from_millis(20);

/// Why a page could not be made or a presented one is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// The kernel refused; the first field names the operation.
    #[error("cannot {0}: {1}")]
    System(&'static str, #[source] Errno),
    /// The descriptor is not a memfd sealed as ours are: its owner could shrink it under us.
    #[error("the descriptor is not sealed against resizing")]
    Unsealed,
    /// The descriptor's size is not that of a page.
    #[error("the descriptor holds {found} bytes, a page has {expected}")]
    Size {
        /// Its size.
        found: i64,
        /// The required size.
        expected: usize,
    },
    /// A process has as many ranges as there are places for.
    #[error("the process has no place for one more range")]
    NoPlace,
    /// The bytes are no page of this protocol.
    #[error(transparent)]
    Content(#[from] PageError),
}

/// A shared mapping of a sealed memfd.
#[derive(Debug)]
struct Mapped {
    base: NonNull<u8>,
    bytes: NonZeroUsize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to the value and moves with it; all access is by atomics.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Makes a memfd of `bytes` zero bytes, all of them allocated now so that a full host shows
    /// here and not as SIGBUS.
    fn create(name: &std::ffi::CStr, bytes: NonZeroUsize) -> Result<Self, PagesError> {
        let file = memfd(name).map_err(failed("make shared memory"))?;
        let length = i64::try_from(bytes.get()).map_err(|_| PagesError::Size {
            found: 0,
            expected: bytes.get(),
        })?;
        ftruncate(&file, length).map_err(failed("size shared memory"))?;
        fallocate(&file, FallocateFlags::empty(), 0, length)
            .map_err(failed("allocate shared memory"))?;
        Self::map(file, bytes)
    }

    /// Maps a memfd that came from elsewhere, if it is sealed and sized as ours are.
    fn adopt(file: OwnedFd, bytes: NonZeroUsize) -> Result<Self, PagesError> {
        let needed = size_seals();
        match fcntl(&file, FcntlArg::F_GET_SEALS) {
            Ok(seals) if SealFlag::from_bits_truncate(seals).contains(needed) => {}
            Ok(_) | Err(Errno::EINVAL) => return Err(PagesError::Unsealed),
            Err(error) => return Err(PagesError::System("read the seals", error)),
        }
        let found = fstat(&file)
            .map_err(failed("inspect the descriptor"))?
            .st_size;
        if usize::try_from(found) != Ok(bytes.get()) {
            return Err(PagesError::Size {
                found,
                expected: bytes.get(),
            });
        }
        Self::map(file, bytes)
    }

    fn map(file: OwnedFd, bytes: NonZeroUsize) -> Result<Self, PagesError> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is as long as the
        // mapping.
        let base = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, &file, 0) }
            .map_err(failed("map shared memory"))?
            .cast::<u8>();
        Ok(Self { base, bytes, file })
    }

    fn seal(&self, seals: SealFlag) -> Result<(), PagesError> {
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(seals))
            .map(drop)
            .map_err(failed("seal shared memory"))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, made in `map`; views of it borrow this value. It cannot fail
        // for a whole mapping.
        let _ = unsafe { munmap(self.base.cast(), self.bytes.get()) };
    }
}

/// A sealable memfd. By number, because glibc has the function only since 2.27 and the shipped
/// daemon needs no more than 2.17.
pub(crate) fn memfd(name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    let fd = Errno::result(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the kernel made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn size_seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

pub(crate) fn failed(what: &'static str) -> impl Fn(Errno) -> PagesError {
    move |errno| PagesError::System(what, errno)
}

const fn size(bytes: usize) -> NonZeroUsize {
    match NonZeroUsize::new(bytes) {
        Some(bytes) => bytes,
        None => panic!("a page has bytes"),
    }
}

/// A tenant's usage page: its processes write it, the daemon reads it as hostile input.
#[derive(Debug)]
pub struct UsagePage(Mapped);

impl UsagePage {
    /// Makes and seals a blank page.
    ///
    /// # Errors
    /// [`PagesError::System`] when the host is out of memory or descriptors.
    pub fn create() -> Result<Self, PagesError> {
        let mapped = Mapped::create(c"gpushare-usage", size(PAGE_BYTES.next_multiple_of(4096)))?;
        mapped.seal(size_seals())?;
        Ok(Self(mapped))
    }

    /// Takes a page that a client of an earlier daemon presents.
    ///
    /// # Errors
    /// If it is not sealed and sized as ours, or its header is not a usage page's. Its *contents*
    /// stay untrusted.
    pub fn adopt(file: OwnedFd) -> Result<Self, PagesError> {
        let mapped = Mapped::adopt(file, size(PAGE_BYTES.next_multiple_of(4096)))?;
        let page = Self(mapped);
        page.view().check()?;
        Ok(page)
    }

    /// Whether a descriptor is of this very page.
    #[must_use]
    pub fn is(&self, other: &OwnedFd) -> bool {
        // Only memory can be looked at at any time.
        if fcntl(other, FcntlArg::F_GET_SEALS).is_err() {
            return false;
        }
        match (fstat(&self.0.file), fstat(other)) {
            (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    /// Calls `body` while no process of the page raises its credit: holds the lock under which they
    /// raise it, byte 0 of the file. Tries this often, at intervals of 0.1 ms. Returns `false` if
    /// the lock was not free, or the page could not be reopened.
    ///
    /// Uses an open file description of its own: one that processes share would keep the lock when
    /// this daemon is killed.
    pub fn locked_within(&self, tries: u32, body: impl FnOnce()) -> bool {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        let path = format!("/proc/self/fd/{}", self.0.file.as_raw_fd());
        let own = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            // Its owner may have a lease on it, which an open would wait for.
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let Ok(own) = own else { return false };
        #[expect(clippy::cast_possible_truncation, reason = "constants that fit")]
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        };
        let began = Instant::now();
        let takes = || fcntl(&own, FcntlArg::F_OFD_SETLK(&lock)).is_ok();
        let is_taken = tried(tries, takes, || began.elapsed());
        if is_taken {
            // Closing the description releases the lock.
            body();
        }
        is_taken
    }

    /// The page.
    pub fn view(&self) -> &Page {
        // SAFETY: the mapping is page-aligned, at least as long as the page, and lives as long as
        // `self`.
        unsafe { Page::from_mapping(self.0.base) }
    }

    /// The descriptor that clients get.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

/// Tries this often, at intervals of 0.1 ms, and not again once it has taken [`LONGEST`]: a try
/// takes as long as the file has locks, and a process takes as many as it likes.
fn tried(tries: u32, mut takes: impl FnMut() -> bool, taken: impl Fn() -> Duration) -> bool {
    for left in (0..tries).rev() {
        if takes() {
            return true;
        }
        if left == 0 || taken() >= LONGEST {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    false
}

/// A tenant's control page: the daemon writes it, clients can only read it.
#[derive(Debug)]
pub struct ControlPages(Mapped);

impl ControlPages {
    /// Makes the page of daemon `instance` and seals it so that no later mapping can write.
    ///
    /// # Errors
    /// [`PagesError::System`] when the host is out of memory or descriptors.
    pub fn create(instance: u64) -> Result<Self, PagesError> {
        let mapped = Mapped::create(c"gpushare-control", size(CONTROL_BYTES))?;
        mapped.seal(SealFlag::F_SEAL_FUTURE_WRITE | size_seals())?;
        let page = Self(mapped);
        page.view().found(instance);
        Ok(page)
    }

    /// The page.
    pub fn view(&self) -> &ControlPage {
        // SAFETY: the mapping is page-aligned, as long as the page, and lives as long as `self`.
        unsafe { ControlPage::from_mapping(self.0.base) }
    }

    /// Wakes all waiters of the page after a change. Call it after the stores of that change.
    pub fn announce(&self) {
        let changes = &self.view().header.changes;
        changes.fetch_add(1, Ordering::Release);
        // SAFETY: the word lies in a mapping that lives as long as `self`. Not private: the waiters
        // are other processes. Waking no waiter is no failure, and the call has no other failure
        // for a mapped address.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                changes.as_ptr(),
                libc::FUTEX_WAKE,
                i32::MAX,
            );
        }
    }

    /// The descriptor that clients get.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn again(descriptor: BorrowedFd<'_>) -> OwnedFd {
        descriptor.try_clone_to_owned().unwrap()
    }

    #[test]
    fn tries_for_a_lock_end_once_they_take_too_long() {
        for (each, times) in [(Duration::ZERO, 8), (LONGEST / 2, 2), (LONGEST, 1)] {
            let count = std::cell::Cell::new(0);
            let takes = || {
                count.set(count.get() + 1);
                false
            };
            assert!(!tried(8, takes, || each * count.get()));
            assert_eq!(count.get(), times, "{each:?}");
        }
        assert!(tried(1, || true, || LONGEST));
    }

    #[test]
    fn a_usage_page_comes_back_with_what_was_written() {
        let page = UsagePage::create().unwrap();
        page.view().found(7, 9);
        page.view().header.set_text("limits");
        let adopted = UsagePage::adopt(again(page.descriptor())).unwrap();
        assert_eq!(adopted.view().header.text(), "limits");
    }

    #[test]
    fn the_lock_of_a_page_is_had_when_nobody_else_holds_it() {
        let page = UsagePage::create().unwrap();
        let mut inner = None;
        let outer = page.locked_within(1, || inner = Some(page.locked_within(2, || ())));
        assert_eq!((outer, inner), (true, Some(false)));
        assert!(page.locked_within(1, || ()));
    }

    #[test]
    fn a_page_on_which_its_process_has_a_lease_is_not_waited_for() {
        /// `F_SETSIG` of the kernel's `asm-generic/fcntl.h`.
        const SETSIG: libc::c_int = 10;
        let first = UsagePage::create().unwrap();
        first.view().found(7, 9);
        // Of a file that is open once, as a process can have it.
        let path = format!("/proc/self/fd/{}", first.0.file.as_raw_fd());
        let again = std::fs::File::options().read(true).write(true).open(path);
        let page = UsagePage::adopt(again.unwrap().into()).unwrap();
        drop(first);
        let lease = |how, what: libc::c_int| {
            // SAFETY: no pointers.
            let done = unsafe { libc::fcntl(page.0.file.as_raw_fd(), how, what) };
            assert_eq!(Errno::result(done), Ok(0));
        };
        // By default the signal would end this process.
        lease(SETSIG, libc::SIGURG);
        lease(libc::F_SETLEASE, libc::F_WRLCK);
        // An open that waits gets it: after 45 s the kernel takes the lease away.
        assert!(!page.locked_within(1, || ()));
        lease(libc::F_SETLEASE, libc::F_UNLCK);
        assert!(page.locked_within(1, || ()));
    }

    #[test]
    fn a_blank_or_unsealed_or_short_descriptor_is_no_usage_page() {
        let blank = UsagePage::create().unwrap();
        assert!(matches!(
            UsagePage::adopt(again(blank.descriptor())),
            Err(PagesError::Content(PageError::NotAPage))
        ));
        let unsealed = memfd(c"x").unwrap();
        assert!(matches!(
            UsagePage::adopt(unsealed),
            Err(PagesError::Unsealed)
        ));
        let plain = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(matches!(UsagePage::adopt(plain), Err(PagesError::Unsealed)));
        let control = ControlPages::create(1).unwrap();
        assert!(matches!(
            UsagePage::adopt(again(control.descriptor())),
            Err(PagesError::Size { .. })
        ));
    }

    #[test]
    fn a_read_only_mapping_can_wait_for_a_change_and_is_woken_by_it() {
        let control = ControlPages::create(5).unwrap();
        let length = size(CONTROL_BYTES);
        let (access, shared) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
        // SAFETY: a new read-only mapping of a sealed page.
        let seen = unsafe { mmap(None, length, access, shared, control.descriptor(), 0) }.unwrap();
        // SAFETY: as long as a control page, never unmapped.
        let seen = unsafe { ControlPage::from_mapping(seen.cast()) };
        let waits = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let before = seen.header.changes.load(Ordering::Acquire);
                waits.wait();
                while seen.header.changes.load(Ordering::Acquire) == before {
                    let word = seen.header.changes.as_ptr();
                    let forever = std::ptr::null::<libc::timespec>();
                    // SAFETY: the word stays mapped; the wait ends when it is woken or holds
                    // another value.
                    unsafe {
                        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, before, forever)
                    };
                }
                seen.devices[1].grant.load(Ordering::Relaxed)
            });
            waits.wait();
            control.view().devices[1].grant.store(7, Ordering::Relaxed);
            control.announce();
            assert_eq!(waiter.join().unwrap(), 7);
        });
    }

    #[test]
    fn nobody_can_resize_a_page_or_map_the_control_page_writable() {
        let control = ControlPages::create(5).unwrap();
        assert_eq!(ftruncate(control.descriptor(), 0), Err(Errno::EPERM));
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let length = size(CONTROL_BYTES);
        // SAFETY: a new mapping that is not used, if the call succeeds at all.
        let writable = unsafe {
            mmap(
                None,
                length,
                access,
                MapFlags::MAP_SHARED,
                control.descriptor(),
                0,
            )
        };
        assert_eq!(writable.map(|_| ()), Err(Errno::EPERM));
        control.view().devices[2].grant.store(11, Ordering::Relaxed);
        // SAFETY: a new read-only mapping of a sealed page.
        let seen = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                control.descriptor(),
                0,
            )
        }
        .unwrap();
        // SAFETY: as long as a control page, never unmapped.
        let seen = unsafe { ControlPage::from_mapping(seen.cast()) };
        assert_eq!(seen.check(), Ok(()));
        assert_eq!(seen.devices[2].grant.load(Ordering::Relaxed), 11);
    }
}
