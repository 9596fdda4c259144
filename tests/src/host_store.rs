//! The host memory that a daemon played by a test gives to processes whose memory moves, and the
//! file in which it stores some of that.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_protocol::wire::{Refusal, Reply, Request, Stored};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
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
    /// Most bytes of a range.
    longest: AtomicU64,
    ranges: Mutex<Vec<u64>>,
    /// The next range lies behind the file's end: it cannot be mapped.
    is_misplaced: AtomicBool,
    /// The next range comes without the file's descriptor.
    is_without_file: AtomicBool,
    /// Ranges are given once the test says so.
    is_late: AtomicBool,
    spilled: Mutex<Spilled>,
}

/// An answer, with the number of its question, and what comes with it.
type Answer = (u32, Reply, Vec<OwnedFd>);

/// The file, and the answers to the questions about it.
#[derive(Debug, Default)]
struct Spilled {
    file: Option<File>,
    /// Its end.
    end: u64,
    made: Vec<Answer>,
    due: VecDeque<Answer>,
    /// Each is answered at once.
    at_once: bool,
}

impl Default for HostStore {
    fn default() -> Self {
        Self {
            file: Mutex::default(),
            given: AtomicU64::new(0),
            most: AtomicU64::new(SIZE),
            longest: AtomicU64::new(SIZE),
            ranges: Mutex::default(),
            is_misplaced: AtomicBool::new(false),
            is_without_file: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
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

    /// From now on a process that asks for a longer range is given one of so many bytes, as by a
    /// daemon with a small budget.
    pub fn shortens(&self, longest: u64) {
        self.longest.store(longest, Ordering::SeqCst);
    }

    /// The next range lies behind the file's end: its process cannot map it.
    pub fn misplaces_next(&self) {
        self.is_misplaced.store(true, Ordering::SeqCst);
    }

    /// The next range comes without the file's descriptor, as from no daemon of this version.
    pub fn next_comes_without_file(&self) {
        self.is_without_file.store(true, Ordering::SeqCst);
    }

    /// From now on a process that asks for a range waits for it, until
    /// [`answers`](Self::answers).
    pub fn gives_late(&self) {
        self.is_late.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::SeqCst)
    }

    /// How much a process gets that asks for so much.
    fn shortened(&self, bytes: u64) -> u64 {
        bytes.min(self.longest.load(Ordering::SeqCst))
    }

    /// A range, and the file. Unlike a daemon's it is not allocated: a test uses little of it, and
    /// would pay for pages that nothing touches.
    fn give(&self, bytes: u64) -> Option<(u64, Vec<OwnedFd>)> {
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
        self.given.fetch_add(bytes, Ordering::SeqCst);
        let mut ranges = self.ranges.lock().expect("nothing fails there");
        ranges.push(bytes);
        let behind = match self.is_misplaced.swap(false, Ordering::SeqCst) {
            true => SIZE,
            false => 0,
        };
        let mut files = vec![file.try_clone().expect("a descriptor")];
        if self.is_without_file.swap(false, Ordering::SeqCst) {
            files.clear();
        }
        Some((offset + behind, files))
    }

    /// The answer to a process that asks for a range, with the file.
    pub(crate) fn range(&self, bytes: u64) -> (Reply, Vec<OwnedFd>) {
        let bytes = self.shortened(bytes);
        match self.give(bytes) {
            Some((offset, files)) => (Reply::HostRange { offset, bytes }, files),
            None => (Reply::Refused(Refusal::NoMemory), Vec::new()),
        }
    }

    /// A process asks for a range late, or has one stored, or fetched: its bytes are copied at
    /// once. It is not answered.
    pub(crate) fn asked(&self, id: u32, request: &Request) {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        let end = spilled.end;
        let file = spilled.file.get_or_insert_with(|| {
            // No disk: its errors are those of `spill_faults.rs`.
            let file = memfd_create(c"gpushare-spilled", MFdFlags::MFD_CLOEXEC);
            File::from(file.expect("memory"))
        });
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
                (id, Reply::HostStored(stored), vec![OwnedFd::from(file)])
            }
            Request::HostFetch(Stored { at, bytes, .. }) => {
                let (offset, memory) = self.give(bytes).expect("it gives more");
                copy((&file, at), (&self.memory(), offset % SIZE), bytes);
                (id, Reply::HostRange { offset, bytes }, memory)
            }
            Request::HostRange { bytes, .. } => {
                let (reply, files) = self.range(bytes);
                (id, reply, files)
            }
            _ => return,
        };
        match spilled.at_once {
            true => spilled.due.push_back(answer),
            false => spilled.made.push(answer),
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

    /// Such questions are answered now, in their order.
    pub fn answers(&self) {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        let made = std::mem::take(&mut spilled.made);
        assert!(!made.is_empty(), "a question");
        spilled.due.extend(made);
    }

    /// The answer that is to be sent.
    pub(crate) fn due(&self) -> Option<Answer> {
        let mut spilled = self.spilled.lock().expect("nothing fails there");
        spilled.due.pop_front()
    }
}

/// Copies a part at a time: fresh memory for all bytes costs the system more than the copies.
fn copy((from, at): (&File, u64), (to, there): (&File, u64), bytes: u64) {
    const PART: u64 = 256 << 10;
    let mut part = vec![0; usize::try_from(PART.min(bytes)).expect("a small number")];
    for done in (0..bytes).step_by(part.len()) {
        let left = usize::try_from(bytes - done).expect("a small number");
        let length = part.len().min(left);
        let part = &mut part[..length];
        from.read_exact_at(part, at + done).expect("its bytes");
        to.write_all_at(part, there + done).expect("room for them");
    }
}
