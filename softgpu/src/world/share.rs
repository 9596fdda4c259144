//! Pages that several processes hold: IPC memory and exported handles.
//!
//! A share is a file in the machine's folder that lists its pages. A process that holds the share
//! has the file open with a lock. The lock lasts until the last copy of the descriptor is closed:
//! in a forked child, in another process, or in a message in transit. When no lock is left, the
//! pages return.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::device::{Device, PageRun};
use super::process::Process;
use super::sys::{self, Hold};
use super::{folder, layout};
use crate::error::Result;

/// The maximum length of a share's tag.
pub const MAX_TAG: usize = 256;

/// A hold on shared pages. Dropping it releases the hold.
#[derive(Debug)]
pub struct Share {
    device: Arc<Device>,
    id: u64,
    runs: Vec<PageRun>,
    tag: Vec<u8>,
    /// The file description whose lock is the hold; `None` only while dropping.
    held: Option<File>,
}

impl Share {
    pub(super) fn make(device: &Arc<Device>, runs: &[PageRun], tag: &[u8]) -> Result<Self> {
        if tag.len() > MAX_TAG {
            return Err(CUresult::INVALID_VALUE);
        }
        let machine = device.machine();
        let slot = machine.slot()?;
        let (id, held) = machine.locked(|view, _| {
            // The file comes first: a share without a file counts as released.
            let id = view.header.next_share + 1;
            let record = Record {
                id,
                device: device.index(),
                runs: runs.to_vec(),
                tag: tag.to_vec(),
            };
            let path = machine.folder().join(format!("share-{id}"));
            let file = folder::open(&path, true)
                .ok()
                .filter(|file| file.write_all_at(&record.encode(), 0).is_ok());
            let file = file.filter(hold).ok_or(CUresult::OPERATING_SYSTEM)?;
            Result::Ok((view.share(slot, device.index() as usize, runs), file))
        })??;
        Ok(Self {
            device: Arc::clone(device),
            id,
            runs: runs.to_vec(),
            tag: tag.to_vec(),
            held: Some(held),
        })
    }

    pub(super) fn join(device: &Arc<Device>, id: u64) -> Result<Self> {
        let (held, record) = open(device, id)?;
        if record.device != device.index() {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self {
            device: Arc::clone(device),
            id,
            runs: record.runs,
            tag: record.tag,
            held: Some(held),
        })
    }

    /// The number with which other processes [`join`](Device::join) it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The device of the pages.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The pages.
    pub fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    /// The tag that the maker attached.
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// A descriptor that holds the pages by itself until its last copy is closed. It can be sent to
    /// other processes (`SCM_RIGHTS`).
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the descriptor limit is reached.
    pub fn export(&self) -> Result<OwnedFd> {
        Ok(open(&self.device, self.id)?.0.into())
    }

    /// The hold of a descriptor that [`export`](Self::export) made in any process.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the descriptor is not an exported share, or its device is not visible to
    /// this process.
    pub fn import(process: &Process, descriptor: BorrowedFd<'_>) -> Result<Self> {
        let file = File::from(
            descriptor
                .try_clone_to_owned()
                .map_err(|_| CUresult::INVALID_VALUE)?,
        );
        let record = Record::read(&file).ok_or(CUresult::INVALID_VALUE)?;
        let seen = process
            .devices()
            .iter()
            .find(|device| device.index() == record.device);
        let device = seen.ok_or(CUresult::INVALID_VALUE)?;
        let path = device
            .machine()
            .folder()
            .join(format!("share-{}", record.id));
        let same = |other: fs::Metadata| {
            file.metadata()
                .is_ok_and(|ours| (ours.dev(), ours.ino()) == (other.dev(), other.ino()))
        };
        if !fs::metadata(path).is_ok_and(same) {
            return Err(CUresult::INVALID_VALUE);
        }
        Self::join(device, record.id)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.held.take());
        // Pages that cannot return now return when another process looks.
        let _ = self
            .device
            .machine()
            .locked(|view, facts| view.end_shares(facts));
    }
}

/// Opens the file of a live share with a hold of its own.
fn open(device: &Device, id: u64) -> Result<(File, Record)> {
    let machine = device.machine();
    // Under the lock, so that the last holder cannot release the share between the check and the
    // new hold.
    machine.locked(|_, facts| {
        if !facts.share_lives(id) {
            return Err(CUresult::INVALID_VALUE);
        }
        let path = machine.folder().join(format!("share-{id}"));
        let file = folder::open(&path, false).map_err(|_| CUresult::OPERATING_SYSTEM)?;
        let record = Record::read(&file).ok_or(CUresult::INVALID_VALUE)?;
        if hold(&file) {
            Ok((file, record))
        } else {
            Err(CUresult::OPERATING_SYSTEM)
        }
    })?
}

fn hold(file: &File) -> bool {
    sys::try_lock(file.as_fd(), 0, 1, Hold::Shared).unwrap_or(false)
}

/// The content of a share's file.
#[derive(Debug)]
struct Record {
    id: u64,
    device: u32,
    runs: Vec<PageRun>,
    tag: Vec<u8>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let count = |len: usize| {
            u32::try_from(len)
                .expect("runs and tags are short")
                .to_ne_bytes()
        };
        let mut bytes = Vec::new();
        bytes.extend(layout::MAGIC.to_ne_bytes());
        bytes.extend(self.id.to_ne_bytes());
        bytes.extend(self.device.to_ne_bytes());
        bytes.extend(count(self.runs.len()));
        bytes.extend(count(self.tag.len()));
        for run in &self.runs {
            bytes.extend(run.first.to_ne_bytes());
            bytes.extend(run.pages.to_ne_bytes());
        }
        bytes.extend(&self.tag);
        bytes
    }

    fn read(file: &File) -> Option<Self> {
        let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
        let mut bytes = vec![0; len.min(64 << 20)];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if long(0)? != layout::MAGIC {
            return None;
        }
        let (runs, tag) = (short(20)? as usize, short(24)? as usize);
        let run = |index: usize| {
            Some(PageRun {
                first: short(28 + 8 * index)?,
                pages: short(32 + 8 * index)?,
            })
        };
        Some(Self {
            id: long(8)?,
            device: short(16)?,
            runs: (0..runs).map(run).collect::<Option<_>>()?,
            tag: bytes.get(28 + 8 * runs..28 + 8 * runs + tag)?.to_vec(),
        })
    }
}
