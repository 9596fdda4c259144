//! Removes the folders that unnamed tenants leave behind when their last process is gone.

use std::fs;
use std::path::{Path, PathBuf};

use gpushare_protocol::paths::Root;

use super::file::UsageFile;
use super::lock_file::LockFile;
use super::process::{self, Identity};

/// Folders removed in one go: the rest are the next founder's.
pub(super) const AT_MOST: usize = 64;

/// Folders opened in one go.
const OPENED: usize = 1024;

/// Removes tenants named after a process that is gone, if they have no live process.
pub(crate) fn remove(root: &Root) {
    let Ok(entries) = fs::read_dir(root.path()) else {
        return;
    };
    let is_left = |entry: &fs::DirEntry| {
        let founder = entry.file_name().to_str().and_then(Founder::of);
        founder.is_some_and(|founder| !founder.lives_here())
    };
    let left = entries.flatten().filter(is_left);
    let mut left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
    // Folders that stay would be the first ones each time.
    let first = process::this().pid as usize % left.len().max(1);
    left.rotate_left(first);
    let removed = left.iter().take(OPENED).filter(|one| remove_if_empty(one));
    let _ = removed.take(AT_MOST).count();
}

/// What a name `p<pid>-<start>` or `p<pid>-<start>-<namespace>` says.
#[derive(Debug, PartialEq, Eq)]
struct Founder {
    identity: Identity,
    /// The pid namespace in which that is its pid; `None` for the machine's first one.
    namespace: Option<u64>,
}

impl Founder {
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix('p')?.split('-');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let namespace = match parts.next() {
            Some(namespace) => Some(namespace.parse().ok()?),
            None => None,
        };
        parts.next().is_none().then_some(Self {
            identity: Identity { pid, start },
            namespace,
        })
    }

    /// Whether this process sees it alive. One of another namespace it does not see.
    fn lives_here(&self) -> bool {
        let here = process::namespace();
        let is_here = match self.namespace {
            Some(namespace) => namespace == here,
            None => process::is_first(here),
        };
        let found = process::look_up(self.identity.pid);
        is_here && found.is_some_and(|(found, _)| found.started(self.identity.start))
    }
}

/// Deletes under the tenant lock. A process that joins meanwhile sees that the file has no name any
/// more, and looks again. Whether the folder is gone.
fn remove_if_empty(folder: &Path) -> bool {
    let Ok(file) = UsageFile::open(folder, false) else {
        // A folder whose founder died before it made the file.
        return fs::remove_dir(folder).is_ok();
    };
    let mut lock = LockFile::once();
    if !lock.try_lock(&file).unwrap_or(false) || file.has_company() {
        return false;
    }
    let _ = fs::remove_file(folder.join("usage"));
    fs::remove_dir(folder).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_made_from_a_process_are_taken_for_one() {
        let identity = Identity {
            pid: 12,
            start: 345,
        };
        for (name, namespace) in [("p12-345", None), ("p12-345-6", Some(6))] {
            let expected = Founder {
                identity,
                namespace,
            };
            assert_eq!(Founder::of(name), Some(expected), "{name}");
        }
        for name in [
            "train", "p12", "p-1", "p12-345x", "q12-345", "p1-2-x", "p1-2-3-4",
        ] {
            assert_eq!(Founder::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_founder_is_looked_for_in_its_own_namespace() {
        let name = |identity: Identity, namespace| Founder {
            identity,
            namespace: Some(namespace),
        };
        let (me, here) = (process::this(), process::namespace());
        assert!(name(me, here).lives_here());
        assert!(!name(me, here + 1).lives_here());
    }
}
