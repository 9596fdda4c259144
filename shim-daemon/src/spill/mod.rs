//! Files for tenants' memory that the host has no room for: where they are made, and the copies to
//! and from them, with a checksum for each range.
//!
//! A file has no name. It lives as long as the daemon or the process whose bytes it holds has it
//! open, so nothing is ever left behind, and the bytes outlive the daemon.

mod copy;
mod folder;

use std::fs::File;
use std::sync::Arc;

use gpushare_core::ProcessId;
use gpushare_protocol::wire::Stored;

use crate::host_file::HostFile;
use crate::node::ConnId;
pub(crate) use copy::forget;
pub use copy::{Failed, fetch, store};
pub use folder::{SpillFolder, are_one, is_stored_file};

/// The request for which bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The process whose bytes they are.
    pub process: ProcessId,
    /// Its connection.
    pub connection: ConnId,
    /// The request's id.
    pub id: u32,
}

/// A copy between a process's part of the host store and a file. `stored.sum` is what the copy is
/// compared with on the way back, and of no meaning on the way out.
#[derive(Clone, Debug)]
pub struct Job {
    /// The request.
    pub key: Key,
    /// To the file, or from it.
    pub out: bool,
    /// The file.
    pub file: Arc<File>,
    /// The place in the file.
    pub stored: Stored,
    /// The process's memory.
    pub host: Arc<HostFile>,
    /// The place in it.
    pub offset: u64,
}

/// A copy that has ended. `Ok` has the checksum.
#[derive(Debug)]
pub struct Done {
    /// The copy.
    pub job: Job,
    /// Its outcome.
    pub outcome: Result<u64, Failed>,
}

impl Job {
    /// Makes the copy. It may take as long as the disk does.
    #[must_use]
    pub fn carry_out(self) -> Done {
        let host = self.host.file();
        let outcome = match self.out {
            true => store(
                (host, self.offset),
                (&self.file, self.stored.at),
                self.stored.bytes,
            ),
            false => fetch(&self.file, self.stored, (host, self.offset)),
        };
        Done { job: self, outcome }
    }
}
