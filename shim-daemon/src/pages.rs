//! Shared pages: sealed memfds that the daemon makes, maps and hands to a tenant's processes.
//!
//! # Safety
//! A mapping of `Mapped` is no longer than its file. The seals fix the file's size before the
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpushare_protocol::page::control::{CONTROL_BYTES, ControlPage};
use gpushare_protocol::page::{PAGE_BYTES, Page, PageError};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;

use crate::connection::Passed;
use crate::foreign::Foreign;

/// How long a lock of a page is tried for: the loop waits meanwhile.
const LONGEST: Duration = Duration::from_millis(20);

/// Waiters of a page that an announcement wakes itself, on the loop: the gate's thread and the
/// mover's of 512 processes. A tenant decides how many wait, and each takes about a microsecond.
const WAKES: usize = 1024;

/// How often as many are woken beside the loop, at most: more than a machine has threads.
const ROUNDS: usize = 1024;

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
    file: Arc<OwnedFd>,
}

// SAFETY: the mapping belongs to the value and moves with it; all access is by atomics.
unsafe impl Send for Mapped {}

// SAFETY: as above. Its descriptor is used by calls that any thread may make.
unsafe impl Sync for Mapped {}

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
        Self::map(file, bytes).map_err(|(_, error)| error)
    }

    /// Maps a file, which comes back where the kernel refuses.
    fn map(file: OwnedFd, bytes: NonZeroUsize) -> Result<Self, (OwnedFd, PagesError)> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is at least as long
        // as the mapping.
        let mapped = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, &file, 0) };
        match mapped.map_err(failed("map shared memory")) {
            Err(error) => Err((file, error)),
            Ok(base) => Ok(Self {
                base: base.cast(),
                bytes,
                file: Arc::new(file),
            }),
        }
    }

    fn seal(&self, seals: SealFlag) -> Result<(), PagesError> {
        fcntl(&*self.file, FcntlArg::F_ADD_SEALS(seals))
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
    /// The size of its file, in all minors of its major.
    const BYTES: NonZeroUsize = size(PAGE_BYTES.next_multiple_of(4096));

    /// Makes and seals a blank page.
    ///
    /// # Errors
    /// [`PagesError::System`] when the host is out of memory or descriptors.
    pub fn create() -> Result<Self, PagesError> {
        let mapped = Mapped::create(c"gpushare-usage", Self::BYTES)?;
        mapped.seal(size_seals())?;
        Ok(Self(mapped))
    }

    /// Takes a page that a client of an earlier daemon presents. A file that is refused is closed
    /// on its lane.
    ///
    /// # Errors
    /// If it is not sealed as ours, has another length, or its header is not a usage page's. Its
    /// *contents* stay untrusted.
    pub fn adopt(presented: Foreign) -> Result<Self, PagesError> {
        let lane = presented.lane().clone();
        Self::fits(presented.file())?;
        let file = presented.into_memory().map_err(|_| PagesError::Unsealed)?;
        let page = match Mapped::map(file, Self::BYTES) {
            Ok(mapped) => Self(mapped),
            Err((file, error)) => {
                drop(Foreign::new(file, &lane));
                return Err(error);
            }
        };
        if let Err(error) = page.view().check() {
            lane.run(move || drop(page));
            return Err(error.into());
        }
        Ok(page)
    }

    /// Whether a file is memory of ordinary pages, sealed as ours is, and as long.
    fn fits(file: &impl AsFd) -> Result<(), PagesError> {
        match fcntl(file, FcntlArg::F_GET_SEALS) {
            Ok(seals) if SealFlag::from_bits_truncate(seals).contains(size_seals()) => {}
            Ok(_) | Err(Errno::EINVAL) => return Err(PagesError::Unsealed),
            Err(error) => return Err(PagesError::System("read the seals", error)),
        }
        let system = fstatfs(file.as_fd()).map_err(failed("inspect the descriptor"))?;
        if system.filesystem_type() != TMPFS_MAGIC {
            // Huge pages: a mapping of them has another length.
            return Err(PagesError::Unsealed);
        }
        let found = fstat(file)
            .map_err(failed("inspect the descriptor"))?
            .st_size;
        let expected = Self::BYTES.get();
        match usize::try_from(found) {
            Ok(length) if length == expected => Ok(()),
            _ => Err(PagesError::Size { found, expected }),
        }
    }

    /// Whether a descriptor is of this very page.
    #[must_use]
    pub fn is(&self, other: &impl AsFd) -> bool {
        // Only memory can be looked at at any time.
        if fcntl(other, FcntlArg::F_GET_SEALS).is_err() {
            return false;
        }
        match (fstat(&*self.0.file), fstat(other)) {
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

    /// The same, to be sent.
    pub fn passed(&self) -> Passed {
        Passed::Kept(Arc::clone(&self.0.file))
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
pub struct ControlPages {
    mapped: Arc<Mapped>,
    /// Whether a [`Rest`] is to be woken.
    rest: Arc<AtomicBool>,
}

/// Waiters of a control page whom an announcement did not wake.
#[derive(Debug)]
#[must_use = "they sleep on"]
pub struct Rest {
    page: Arc<Mapped>,
    due: Arc<AtomicBool>,
    /// How many are woken at a time.
    most: usize,
}

impl Rest {
    /// Wakes them. Takes as long as there are some: not for the loop.
    pub fn wake(self) {
        // An announcement after this has its own.
        self.due.store(false, Ordering::SeqCst);
        let mut rounds = 0..ROUNDS;
        while rounds.next().is_some() && wake(&self.page, self.most) >= self.most {}
    }
}

/// Wakes so many waiters of a control page. Returns how many it has woken.
fn wake(page: &Mapped, most: usize) -> usize {
    // SAFETY: the mapping is page-aligned, as long as a control page, and lives as long as `page`.
    let view = unsafe { ControlPage::from_mapping(page.base) };
    let word = view.header.changes.as_ptr();
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    // SAFETY: the word lies in that mapping. Not private: the waiters are other processes. Waking
    // no waiter is no failure, and the call has no other failure for a mapped address.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, most) };
    usize::try_from(woken).unwrap_or(0)
}

impl ControlPages {
    /// Makes the page of daemon `instance` and seals it so that no later mapping can write.
    ///
    /// # Errors
    /// [`PagesError::System`] when the host is out of memory or descriptors.
    pub fn create(instance: u64) -> Result<Self, PagesError> {
        let mapped = Mapped::create(c"gpushare-control", size(CONTROL_BYTES))?;
        mapped.seal(SealFlag::F_SEAL_FUTURE_WRITE | size_seals())?;
        let page = Self {
            mapped: Arc::new(mapped),
            rest: Arc::default(),
        };
        page.view().found(instance);
        Ok(page)
    }

    /// The page.
    pub fn view(&self) -> &ControlPage {
        // SAFETY: the mapping is page-aligned, as long as the page, and lives as long as `self`.
        unsafe { ControlPage::from_mapping(self.mapped.base) }
    }

    /// Wakes waiters of the page after a change. Call it after the stores of that change. Returns
    /// those that are left, if some may be and none are to be woken already.
    pub fn announce(&self) -> Option<Rest> {
        self.announce_to(WAKES)
    }

    fn announce_to(&self, most: usize) -> Option<Rest> {
        self.view().header.changes.fetch_add(1, Ordering::Release);
        if wake(&self.mapped, most) < most || self.rest.swap(true, Ordering::SeqCst) {
            return None;
        }
        Some(Rest {
            page: Arc::clone(&self.mapped),
            due: Arc::clone(&self.rest),
            most,
        })
    }

    /// The descriptor that clients get.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.mapped.file.as_fd()
    }

    /// The same, to be sent.
    pub fn passed(&self) -> Passed {
        Passed::Kept(Arc::clone(&self.mapped.file))
    }
}

#[cfg(test)]
mod tests;
