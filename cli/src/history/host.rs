//! Where this user's daemons keep their journal, where several machines may share the home.
//!
//! Names of tenants and numbers of GPUs are a machine's own, and a network file system does not
//! append. So on a file system that is not certainly this machine's, each machine has a folder.

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC,
    XFS_SUPER_MAGIC, statfs,
};
use std::path::{Path, PathBuf};

/// How the name of a machine's folder begins.
pub(super) const OF_HOST: &str = "on-";

/// File systems that no other machine writes to. ext2, ext3 and ext4 have one number; an overlay
/// is a container's own.
const LOCAL: [FsType; 8] = [
    EXT4_SUPER_MAGIC,
    XFS_SUPER_MAGIC,
    BTRFS_SUPER_MAGIC,
    TMPFS_MAGIC,
    OVERLAYFS_SUPER_MAGIC,
    // f2fs, zfs, bcachefs.
    FsType(0xf2f5_2010),
    FsType(0x2fc1_2fc1),
    FsType(0xca45_1a4e),
];

/// The journal's folder in the user's folder for state, and those to read: the second is that of
/// versions which did not tell machines apart, and of all of them.
pub(super) fn journals(state: PathBuf) -> (PathBuf, Vec<PathBuf>) {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    of_host(state.clone(), (!is_local(&state)).then_some(host.trim()))
}

fn of_host(state: PathBuf, shared: Option<&str>) -> (PathBuf, Vec<PathBuf>) {
    match shared {
        None => (state.clone(), vec![state]),
        Some(host) => {
            let own = state.join(format!("{OF_HOST}{}", host.replace('/', "_")));
            (own.clone(), vec![own, state])
        }
    }
}

/// Whether what is there, or will be, is certainly on a file system of this machine.
fn is_local(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists());
    // A file system that cannot be asked is not written to either.
    let system = there.and_then(|there| statfs(there).ok());
    system.is_none_or(|system| LOCAL.contains(&system.filesystem_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_shared_home_each_machine_has_a_journal_of_its_own() {
        let state = || PathBuf::from("/home/a/.local/state/gpushare");
        let (own, read) = of_host(state(), Some("node-a"));
        assert_eq!(own, state().join("on-node-a"));
        assert_eq!(read, [own, state()]);
        let (other, read) = of_host(state(), Some("node-b"));
        assert!(!read.contains(&state().join("on-node-a")) && read.contains(&other));
        let (odd, _) = of_host(state(), Some("../x"));
        assert_eq!(odd.parent(), Some(&*state()));
    }

    #[test]
    fn on_a_local_home_the_journal_stays_where_it_was() {
        let state = PathBuf::from("/home/a/.local/state/gpushare");
        let (own, read) = of_host(state.clone(), None);
        assert_eq!((&own, &*read), (&state, &[state.clone()][..]));
    }

    #[test]
    fn a_file_system_that_is_not_known_counts_as_shared() {
        assert!(is_local(Path::new("/dev/shm/not/there/yet")), "tmpfs");
        assert!(!is_local(Path::new("/proc/self")));
    }
}
