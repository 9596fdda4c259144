//! Looks at files and processes that others present. A look may wait for the file's server, or for
//! the process, for as long as that likes, so it is done on the lane of the party that presents it.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use super::folder::{are_one, is_memory, is_stored_file};
use crate::foreign::{Foreign, Lane};
use crate::init::Init;

/// The permissions of a command's file that could else be taken for one of the node's.
const GIVEN: u32 = 0o400;
/// A permission that the node's files have.
const OWN: u32 = 0o200;

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
    /// It lies in memory of the host: in a tmpfs, or it is a memfd, which has no other file system.
    pub is_memory: bool,
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
        let is_memory = file.is_some_and(is_memory);
        let own = folder.and_then(|folder| std::fs::metadata(folder).ok());
        let place = |of: &Metadata| (of.dev(), of.uid());
        let looks_own =
            |found: &Metadata| own.as_ref().is_some_and(|own| place(own) == place(found));
        if let (What::Given(write, _), Some(_)) =
            (&self.what, found.as_ref().filter(|one| looks_own(one)))
        {
            mark_given(write.file());
        }
        let facts = found.map(|found| Facts {
            bytes: found.blocks().saturating_mul(512),
            // Other files are of folders that commands named.
            is_nodes: looks_own(&found) && found.mode() & OWN != 0,
            is_memory,
        });
        Inspected {
            ticket: self.ticket,
            what: self.what,
            facts,
        }
    }
}

/// The next daemon is shown this file by a process, and has to know it from one of the node's.
fn mark_given(file: &File) {
    if let Err(error) = file.set_permissions(Permissions::from_mode(GIVEN)) {
        tracing::warn!(%error, "the next daemon will count a command's file as the node's");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::foreign::Lanes;
    use crate::spill::SpillFolder;

    /// A folder of the node's, and beside it one of a command.
    struct Scene {
        _place: tempfile::TempDir,
        own: SpillFolder,
        other: PathBuf,
    }

    impl Scene {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let other = place.path().to_owned();
            Self {
                own: SpillFolder::open(&other.join("spill")).unwrap(),
                other,
                _place: place,
            }
        }

        fn look(&self, what: impl FnOnce(&Lane) -> What) -> Option<Facts> {
            let look = Inspection {
                ticket: 1,
                what: what(&Lanes::default().own()),
                folder: Some(self.own.path().to_owned()),
            };
            look.carry_out().facts
        }

        /// What the next daemon sees of a file that a process shows it.
        fn is_nodes(&self, file: File) -> bool {
            let facts = self.look(|lane| What::Kept(Foreign::new(file.into(), lane)));
            facts.unwrap().is_nodes
        }
    }

    #[test]
    fn a_commands_file_on_the_disk_of_the_nodes_folder_is_not_the_nodes() {
        let scene = Scene::new();
        let write = tempfile::tempfile_in(&scene.other).unwrap();
        let read = File::open(format!("/proc/self/fd/{}", write.as_raw_fd())).unwrap();
        let kept = read.try_clone().unwrap();
        let facts = scene.look(|lane| {
            let foreign = |file: File| Foreign::new(file.into(), lane);
            What::Given(foreign(write), foreign(read))
        });
        assert!(facts.is_some());
        assert!(!scene.is_nodes(kept));
    }

    #[test]
    fn a_file_that_the_daemon_made_is_the_nodes_for_the_next_one() {
        let scene = Scene::new();
        let made = scene.own.make().unwrap();
        assert!(scene.is_nodes(made.read));
    }
}
