//! How many machines' journals there may be in a home that several machines share.
//!
//! The names of containers and of nodes that come and go do not return, and each has left a folder.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::host::OF_HOST;

/// How many there may be, with that of this machine: 512 MiB, if each is as large as it may be.
const MOST: usize = 32;

/// One beyond that number goes if it was last written to so long before the newest: its machine has
/// not been used for as long.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Removes the journals of other machines beside this machine's `own` but those that were written
/// to last. A daemon whose journal was removed so begins another one. A folder that cannot be
/// removed stays, and the next start tries again.
pub(super) fn bound(own: &Path) {
    let is_hosts = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(OF_HOST.as_bytes())
    };
    let Some(state) = own.parent().filter(|_| is_hosts(own)) else {
        return;
    };
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let others = folders.map(|entry| entry.path());
    let others = others.filter(|path| path != own && is_hosts(path));
    let mut known: Vec<_> = others
        .filter_map(|path| Some((gpushare_journal::last_written(&path).ok()?, path)))
        .collect();
    known.sort_by_key(|(written, _)| Reverse(*written));
    let newest = known.first().map(|(written, _)| *written);
    let newest = newest.max(gpushare_journal::last_written(own).ok());
    let is_unused = |written: SystemTime| newest.is_some_and(|newest| written + UNUSED <= newest);
    for (written, path) in known.iter().skip(MOST - 1) {
        if is_unused(*written) {
            let _ = gpushare_journal::remove(path);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    /// A folder with a journal that was last written to in that hour.
    fn journal(state: &Path, name: &str, hour: u64) -> PathBuf {
        let folder = state.join(name);
        fs::create_dir_all(&folder).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(3600 * hour);
        for name in ["journal.1.jsonl", "journal.jsonl", "lock"] {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(at).unwrap();
        }
        folder
    }

    /// A state folder with as many machines' journals as there may be, and this machine's old one.
    fn full() -> (tempfile::TempDir, PathBuf) {
        let state = tempfile::tempdir().unwrap();
        for at in 1..MOST {
            journal(state.path(), &format!("on-{at}"), 1_000);
        }
        let own = journal(state.path(), "on-this", 1);
        (state, own)
    }

    #[test]
    fn journals_of_names_that_do_not_return_are_bounded() {
        let (state, own) = full();
        let old: Vec<PathBuf> = (0..100)
            .map(|at| journal(state.path(), &format!("on-old-{at}"), 100 + at))
            .collect();
        bound(&own);
        assert!(!old.iter().any(|folder| folder.exists()) && own.exists());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), MOST);
        bound(&own);
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), MOST);
    }

    #[test]
    fn what_is_no_machines_journal_is_left_alone() {
        let (state, own) = full();
        let [other, with_more] = ["of-b", "on-c"].map(|name| journal(state.path(), name, 100));
        fs::write(with_more.join("notes"), "").unwrap();
        let link = state.path().join("on-d");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        bound(&own);
        assert!(other.join("journal.jsonl").exists() && link.exists());
        assert!(with_more.join("notes").exists());
        assert!(!with_more.join("journal.jsonl").exists());
    }

    #[test]
    fn a_machine_that_was_in_use_this_week_keeps_its_journal() {
        let (state, own) = full();
        let week = 7 * 24;
        let kept = journal(state.path(), "on-kept", 1_000 - week + 1);
        let gone = journal(state.path(), "on-gone", 1_000 - week);
        bound(&own);
        assert!(kept.exists() && !gone.exists());
    }

    #[test]
    fn a_home_of_one_machine_loses_no_folder() {
        let (state, _) = full();
        journal(state.path(), "on-e", 1);
        bound(&state.path().join("gpushare"));
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), MOST + 1);
    }
}
