//! The host memory that a daemon played by a test gives to processes whose memory moves, and the
//! file in which it stores some of that.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_protocol::wire::{Reply, Request, Stored};
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
    /// The next range lies behind the file's end: it cannot be mapped.
    is_misplaced: AtomicBool,
    spilled: Mutex<Spilled>,
}

/// An answer, with the number of its question.
type Answer = (u32, Reply, OwnedFd);

/// The file, and the answers to the questions about it.
#[derive(Debug, Default)]
struct Spilled {
    file: Option<File>,
    /// Its end.
    end: u64,
    made: Option<Answer>,
    due: Option<Answer>,
    /// Each is answered at once.
    at_once: bool,
}

impl Default for HostStore {
    fn default() -> Self {
        Self {
            file: Mutex::default(),
            given: AtomicU64::new(0),
            most: AtomicU64::new(SIZE),
            ranges: Mutex::default(),
            is_misplaced: AtomicBool::new(false),
            spilled: Mutex::default(),
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

    /// The next range lies behind the file's end: its process cannot map it.
    pub fn misplaces_next(&self) {
        self.is_misplaced.store(true, Ordering::SeqCst);
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
        let behind = match self.is_misplaced.swap(false, Ordering::SeqCst) {
            true => SIZE,
            false => 0,
        };
        Some((offset + behind, file.try_clone().expect("a descriptor")))
    }

    /// A process has a range stored, or fetched: its bytes are copied at once. It is not answered.
    pub(crate) fn asked(&self, id: u32, request: &Request) {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        let end = spilled.end;
        let file = spilled
            .file
            .get_or_insert_with(|| tempfile::tempfile().expect("a file"));
        let file = file.try_clone().expect("a descriptor");
        let answer = match *request {
            Request::HostStore { offset, bytes } => {
                copy((&self.memory(), offset), (&file, end), bytes);
                spilled.end += bytes;
                let stored = Stored {
                    file: 1,
                    at: end,
                    bytes,
                    sum: 0,
                };
                (id, Reply::HostStored(stored), OwnedFd::from(file))
            }
            Request::HostFetch(Stored { at, bytes, .. }) => {
                let (offset, memory) = self.give(bytes).expect("it gives more");
                copy((&file, at), (&self.memory(), offset % SIZE), bytes);
                (id, Reply::HostRange { offset, bytes }, memory)
            }
            _ => return,
        };
        match spilled.at_once {
            true => spilled.due = Some(answer),
            false => spilled.made = Some(answer),
        }
    }

    /// From now on such questions are answered at once.
    pub fn answers_at_once(&self) {
        self.spilled.lock().expect("nothing fails there").at_once = true;
    }

    fn memory(&self) -> File {
        let file = self.file.lock().expect("nothing fails there");
        let file = file.as_ref().expect("it has given some");
        File::from(file.try_clone().expect("a descriptor"))
    }

    /// The last such question is answered now.
    pub fn answers(&self) {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        spilled.due = Some(spilled.made.take().expect("a question"));
    }

    /// The answer that is to be sent.
    pub(crate) fn due(&self) -> Option<Answer> {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        spilled.due.take()
    }
}

fn copy((from, at): (&File, u64), (to, there): (&File, u64), bytes: u64) {
    let mut all = vec![0; usize::try_from(bytes).expect("a small number")];
    from.read_exact_at(&mut all, at).expect("its bytes");
    to.write_all_at(&all, there).expect("room for them");
}
