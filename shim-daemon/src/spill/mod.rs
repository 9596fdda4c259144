//! Files for tenants' memory that the host has no room for: where they are made, and the copies to
//! and from them, with a checksum for each range.
//!
//! A file has no name. It lives as long as the daemon or the process whose bytes it holds has it
//! open, so nothing is ever left behind, and the bytes outlive the daemon.
//!
//! All that touches a file, or the memory that a process shares, is done on the lane of its tenant.

mod copy;
mod folder;
mod inspect;

use std::io;
use std::sync::Arc;

use gpushare_core::ProcessId;
use gpushare_protocol::wire::Stored;

use crate::foreign::Foreign;
use crate::host_file::HostFile;
use crate::host_room::{HostRoom, Purpose};
use crate::node::ConnId;
pub(crate) use copy::forget;
pub use copy::{Failed, fetch, store};
pub use folder::{SpillFolder, are_one, is_stored_file};
pub use inspect::{Facts, Inspected, Inspection, What};

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

/// What is to be done with a range of a process's part of the host store.
#[derive(Clone, Debug)]
pub enum Task {
    /// Copy it to this file.
    Store {
        /// To write.
        file: Arc<Foreign>,
        /// It lies in the node's folder. In another one it takes nothing of what the disk keeps for
        /// root.
        is_nodes: bool,
    },
    /// Allocate it, and copy it from this file.
    Fetch(Arc<Foreign>),
    /// Allocate it, all zero, if so many bytes of the host are left beside it.
    Allocate {
        /// They are for bytes that come back from files.
        spare: u64,
    },
}

/// Work on a range of a process's part of the host store. `stored.sum` is what a copy is compared
/// with on the way back, and of no meaning otherwise.
#[derive(Clone, Debug)]
pub struct Job {
    /// The request.
    pub key: Key,
    /// What is done.
    pub task: Task,
    /// The length, and the place in the file if there is one.
    pub stored: Stored,
    /// The process's memory.
    pub host: Arc<HostFile>,
    /// The place in it.
    pub offset: u64,
    /// What bounds the host memory of this daemon.
    pub room: Arc<HostRoom>,
}

/// A job that has ended. `Ok` has the checksum of a copy.
#[derive(Debug)]
pub struct Done {
    /// The job.
    pub job: Job,
    /// Its outcome.
    pub outcome: Result<u64, Failed>,
}

impl Job {
    /// Does it, on the lane of `host`. It may take as long as the disk does, and as the process
    /// likes.
    #[must_use]
    pub fn carry_out(self) -> Done {
        let host = (self.host.file(), self.offset);
        let outcome = match &self.task {
            Task::Store { file, is_nodes } => {
                let (file, bytes) = (file.file(), self.stored.bytes);
                let room = match is_nodes {
                    true => Ok(()),
                    false => copy::fits_users(file, bytes),
                };
                room.and_then(|()| store(host, (file, self.stored.at), bytes))
            }
            Task::Fetch(file) => self
                .allocate(Purpose::Return)
                .and_then(|()| fetch(file.file(), self.stored, host)),
            Task::Allocate { spare } => self.allocate(Purpose::Advance(*spare)).map(|()| 0),
        };
        Done { job: self, outcome }
    }

    fn allocate(&self, purpose: Purpose) -> Result<(), Failed> {
        let _taking = self.room.take(self.stored.bytes, purpose);
        let _taking = _taking.map_err(Failed::NoRoom)?;
        let allocated = self.host.allocate(self.offset, self.stored.bytes);
        allocated.map_err(|error| Failed::Host(io::Error::other(error)))
    }
}
