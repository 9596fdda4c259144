//! Looks at files and processes that others present. A look may wait for the file's server, or for
//! the process, for as long as that likes, so it is done on the lane of the party that presents it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::folder::{are_one, is_stored_file};
use crate::foreign::{Foreign, Lane};
use crate::init::Init;

/// What is presented.
#[derive(Debug)]
pub enum What {
    /// A file of a previous daemon, by a process that kept it.
    Kept(Foreign),
    /// A file for a suspended tenant, to write and to read, by a command.
    Given(Foreign, Foreign),
    /// A pidfd of a container's first process, by a hook.
    Pidfd(Foreign),
    /// The process, once it was looked at.
    Init(Box<io::Result<Init>>),
}

/// A look that is to be taken.
#[derive(Debug)]
pub struct Inspection {
    /// Names the look.
    pub ticket: u64,
    /// At what.
    pub what: What,
    /// The node's own folder.
    pub folder: Option<PathBuf>,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes that the file takes on its disk.
    pub bytes: u64,
    /// It lies in the node's folder.
    pub is_nodes: bool,
}

/// A look that was taken. `None`: it is no file of that kind.
#[derive(Debug)]
pub struct Inspected {
    /// Names the look.
    pub ticket: u64,
    /// At what.
    pub what: What,
    /// What was seen.
    pub facts: Option<Facts>,
}

impl Inspection {
    /// The lane on which the look is taken. `None`: it was.
    #[must_use]
    pub fn lane(&self) -> Option<&Lane> {
        match &self.what {
            What::Kept(file) | What::Given(file, _) | What::Pidfd(file) => Some(file.lane()),
            What::Init(_) => None,
        }
    }

    /// Takes the look, on its lane.
    #[must_use]
    pub fn carry_out(mut self) -> Inspected {
        self.what = match self.what {
            What::Pidfd(pidfd) => {
                let pidfd = pidfd.into_pidfd().map_err(|_| Init::is_none());
                What::Init(Box::new(pidfd.and_then(Init::of)))
            }
            file => file,
        };
        let folder = self.folder.as_deref();
        let file = match &self.what {
            What::Kept(file) => Some(file.file()).filter(|file| is_stored_file(file, folder)),
            What::Given(write, read) => {
                let is_one = are_one(write.file(), read.file(), folder);
                Some(write.file()).filter(|_| is_one)
            }
            What::Pidfd(_) | What::Init(_) => None,
        };
        let found = file.and_then(|file| file.metadata().ok());
        let own = folder.and_then(|folder| std::fs::metadata(folder).ok());
        let facts = found.map(|found| Facts {
            bytes: found.blocks().saturating_mul(512),
            // Other files are of folders that commands named.
            is_nodes: own.is_some_and(|own| (own.dev(), own.uid()) == (found.dev(), found.uid())),
        });
        Inspected {
            ticket: self.ticket,
            what: self.what,
            facts,
        }
    }
}
