//! The mapped state file and its lock: a mutex that survives the death of its holder.
//!
//! # Safety
//! The mapping is as long as the file was created ([`layout::file_len`](super::layout::file_len)),
//! which is checked when it is opened, and lives as long as [`Shm`]. The records are integers,
//! valid for any bytes. References into it exist only inside [`Shm::locked`], under the mutex,
//! which every process that maps the file uses. The file has mode 0600 in a folder of the same
//! user; with `SOFTGPU_FOLDER` all users of that folder can write it, and must trust each other.
#![allow(unsafe_code, reason = "shared memory and a process-shared mutex")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use gpushare_cuda_abi::cuda::CUresult;

use super::layout::{Header, LANES_AT, MAGIC, PAGES_AT, Page, file_len, pages_per_device};
use super::state::View;
use crate::error::Result;
use crate::spec::{ManagedAccess, Spec};

/// A mapped state file.
#[derive(Debug)]
pub(super) struct Shm {
    base: NonNull<u8>,
    len: usize,
    spec: Spec,
}

// SAFETY: the memory it points to is only accessed under the process-shared mutex, or as atomics.
unsafe impl Send for Shm {}
// SAFETY: as above.
unsafe impl Sync for Shm {}

impl Shm {
    /// Maps `file`; its length must be the length that `spec` requires.
    pub(super) fn map(file: &File, spec: &Spec) -> std::io::Result<Self> {
        let len = file_len(spec);
        if file.metadata()?.len() != len as u64 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                rw,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let base = NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED);
        Ok(Self {
            base: base.ok_or_else(std::io::Error::last_os_error)?,
            len,
            spec: spec.clone(),
        })
    }

    fn header(&self) -> *mut Header {
        self.base.as_ptr().cast()
    }

    /// Initialises the header of a zero-filled file. No other process may have it open yet.
    pub(super) fn initialise(&self) {
        let header = self.header();
        // SAFETY: the file is zero-filled and no other process uses it until the magic is stored;
        // the attributes are a local.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(&raw mut (*header).mutex, &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            let text = self.spec.to_string();
            (&raw mut (*header).spec)
                .cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), text.len());
            (*header).spec_len = u32::try_from(text.len()).expect("SPEC is short");
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            (&raw mut (*header).magic).write_volatile(MAGIC);
        }
    }

    /// The SPEC that a state file was created with; `None` if its creation was not finished.
    pub(super) fn spec_of(file: &File) -> Option<String> {
        use std::os::unix::fs::FileExt;
        let mut head = vec![0; size_of::<Header>().min(4096)];
        file.read_exact_at(&mut head, 0).ok()?;
        let field = |at: usize, len: usize| head.get(at..at + len);
        let magic = field(std::mem::offset_of!(Header, magic), 8)?;
        let len = field(std::mem::offset_of!(Header, spec_len), 4)?;
        let len = u32::from_ne_bytes(len.try_into().ok()?) as usize;
        let text = field(std::mem::offset_of!(Header, spec), len)?;
        let founded = u64::from_ne_bytes(magic.try_into().ok()?) == MAGIC;
        founded.then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Words that no lock guards, from an index of [`turns_word`](super::layout::turns_word) or
    /// [`served_word`](super::layout::served_word).
    pub(super) fn words(&self, place: usize, count: usize) -> &[AtomicU64] {
        let at = LANES_AT + place * size_of::<u64>();
        assert!(
            at + count * size_of::<u64>() <= PAGES_AT,
            "the index of a word comes from a slot, a device and a lane"
        );
        // SAFETY: inside the mapping (the page records come after it), aligned, and only used as
        // atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at).cast::<AtomicU64>(), count) }
    }

    /// Runs `act` on the state with the machine's lock held. If the last holder of the lock died,
    /// the state is repaired first.
    pub(super) fn locked<T>(&self, act: impl FnOnce(&mut View<'_>) -> T) -> Result<T> {
        // SAFETY: `initialise` made the mutex, and it is never destroyed while a process maps it.
        let answer = unsafe { libc::pthread_mutex_lock(&raw mut (*self.header()).mutex) };
        self.with(answer, act)
    }

    /// Whether another process, or another thread, holds the machine's lock now.
    pub(super) fn is_locked(&self) -> Result<bool> {
        // SAFETY: as in `locked`.
        let answer = unsafe { libc::pthread_mutex_trylock(&raw mut (*self.header()).mutex) };
        match answer {
            libc::EBUSY => Ok(true),
            _ => self.with(answer, |_| false),
        }
    }

    /// Runs `act` under the lock that was taken with this answer, and releases it.
    fn with<T>(&self, answer: i32, act: impl FnOnce(&mut View<'_>) -> T) -> Result<T> {
        let header = self.header();
        if answer != 0 && answer != libc::EOWNERDEAD {
            return Err(CUresult::OPERATING_SYSTEM);
        }
        let unlock = Unlock(header);
        let count = pages_per_device(&self.spec) * self.spec.count as usize;
        // SAFETY: the lock is held, so these are the only references; the mapping contains header
        // and pages (checked in `map`).
        let mut view = unsafe {
            View {
                header: &mut *header,
                pages: std::slice::from_raw_parts_mut(
                    self.base.as_ptr().add(PAGES_AT).cast::<Page>(),
                    count,
                ),
                per_device: pages_per_device(&self.spec),
                seed: self.spec.seed,
                linger: self.spec.linger.into(),
                evicts: self.spec.managed == ManagedAccess::Concurrent,
                erase: Vec::new(),
            }
        };
        if answer == libc::EOWNERDEAD {
            view.repair();
            // SAFETY: this thread owns the mutex in its inconsistent state, and the state it
            // protects is consistent again.
            unsafe { libc::pthread_mutex_consistent(&raw mut (*header).mutex) };
        }
        let result = act(&mut view);
        drop(unlock);
        Ok(result)
    }
}

/// Unlocks even if the action panics.
struct Unlock(*mut Header);

impl Drop for Unlock {
    fn drop(&mut self) {
        // SAFETY: created by `Shm::locked` after it took this lock, in this thread.
        unsafe { libc::pthread_mutex_unlock(&raw mut (*self.0).mutex) };
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // SAFETY: this is the object's own mapping, and no reference into it outlives `locked`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
