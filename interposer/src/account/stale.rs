//! Removes the folders that unnamed tenants leave behind when their last process is gone.

use std::fs;
use std::path::Path;

use gpushare_protocol::paths::Root;

use super::file::UsageFile;
use super::lock_file::LockFile;
use super::process;

/// Folders looked at in one go: the rest is the next founder's.
const AT_MOST: usize = 64;

/// Removes tenants named after a process that is gone, if they have no live process.
pub(crate) fn remove(root: &Root) {
    let Ok(entries) = fs::read_dir(root.path()) else {
        return;
    };
    for entry in entries.flatten().take(AT_MOST) {
        if entry
            .file_name()
            .to_str()
            .and_then(founder)
            .is_some_and(|(pid, start)| !lives(pid, start))
        {
            remove_if_empty(&entry.path());
        }
    }
}

/// The pid and start time in a name `p<pid>-<start>`.
fn founder(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix('p')?.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

fn lives(pid: u32, start: u64) -> bool {
    process::look_up(pid).is_some_and(|(found, _)| found.started(start))
}

/// Deletes under the tenant lock. A process that joins meanwhile sees that the file has no name any
/// more, and looks again.
fn remove_if_empty(folder: &Path) {
    let Ok(file) = UsageFile::open(folder, false) else {
        // A folder whose founder died before it made the file.
        let _ = fs::remove_dir(folder);
        return;
    };
    let mut lock = LockFile::once();
    if lock.try_lock(&file).unwrap_or(false) && !file.has_company() {
        let _ = fs::remove_file(folder.join("usage"));
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_made_from_a_process_are_taken_for_one() {
        assert_eq!(founder("p12-345"), Some((12, 345)));
        for name in ["train", "p12", "p-1", "p12-345x", "q12-345"] {
            assert_eq!(founder(name), None, "{name}");
        }
    }
}
