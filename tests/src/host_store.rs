//! The host memory that a daemon played by a test gives to processes whose memory moves.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use crate::GIB;

/// The size of the file: far more than a test gives.
const SIZE: u64 = 64 * GIB;

/// A sealed memory file, ranges of which are given in order.
#[derive(Debug)]
pub struct HostStore {
    file: Mutex<Option<OwnedFd>>,
    given: AtomicU64,
    /// Most bytes that it gives.
    most: AtomicU64,
    ranges: Mutex<Vec<u64>>,
}

impl Default for HostStore {
    fn default() -> Self {
        Self {
            file: Mutex::default(),
            given: AtomicU64::new(0),
            most: AtomicU64::new(SIZE),
            ranges: Mutex::default(),
        }
    }
}

impl HostStore {
    /// The sizes of the ranges given so far.
    pub fn ranges(&self) -> Vec<u64> {
        self.ranges.lock().expect("nothing fails there").clone()
    }

    /// Bytes given so far.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::SeqCst)
    }

    /// From now on it gives no more than this in all.
    pub fn bound(&self, most: u64) {
        self.most.store(most, Ordering::SeqCst);
    }

    /// A range, allocated, and the file.
    pub(crate) fn give(&self, bytes: u64) -> Option<(u64, OwnedFd)> {
        let mut file = self.file.lock().expect("nothing fails there");
        let file = file.get_or_insert_with(|| {
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            let file = memfd_create(c"gpushare-host", flags).expect("memory");
            let size = i64::try_from(SIZE).expect("a small number");
            ftruncate(&file, size).expect("a size");
            let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
            fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("seals");
            file
        });
        let offset = self.given();
        if offset + bytes > self.most.load(Ordering::SeqCst) {
            return None;
        }
        let number = |bytes: u64| i64::try_from(bytes).expect("a small number");
        fallocate(
            &*file,
            FallocateFlags::empty(),
            number(offset),
            number(bytes),
        )
        .ok()?;
        self.given.fetch_add(bytes, Ordering::SeqCst);
        let mut ranges = self.ranges.lock().expect("nothing fails there");
        ranges.push(bytes);
        Some((offset, file.try_clone().expect("a descriptor")))
    }
}
