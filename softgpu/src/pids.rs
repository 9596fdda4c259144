//! Pids as a monitor sees them: the driver reports pids of the caller's own pid namespace.
//!
//! A process reports its pid in its own namespace, and that namespace. A monitor in another
//! namespace finds the process in `/proc` by these two values: `NSpid` lists a process's pids from
//! the namespace in which `/proc` was mounted down to its own.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::inspect::ProcessTruth;

/// Pids found so far, by namespace, pid in it, and process number.
type Found = HashMap<(u64, i32, u32), u32>;

/// The inode of this process's pid namespace; 0 without `/proc`.
pub(crate) fn namespace() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| inode("self").unwrap_or(0))
}

fn inode(process: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/pid")).ok()?.ino())
}

/// The pid of `process` in the caller's namespace. `None` if its namespace is not visible from
/// here, or if it died before its first look-up.
pub fn seen(process: &ProcessTruth) -> Option<u32> {
    static FOUND: Mutex<Option<Found>> = Mutex::new(None);
    if process.namespace == namespace() {
        return u32::try_from(process.pid).ok();
    }
    let key = (process.namespace, process.pid, process.number);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default();
    if let Some(known) = found.get(&key) {
        return Some(*known);
    }
    let pid = process.alive.then(|| search(process)).flatten()?;
    found.insert(key, pid);
    Some(pid)
}

fn search(process: &ProcessTruth) -> Option<u32> {
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.parse::<u32>().ok()
    });
    pids.into_iter().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        innermost(&status) == Some(process.pid)
            && inode(&pid.to_string()) == Some(process.namespace)
    })
}

/// The pid of a process in its own namespace, from its `/proc/<pid>/status`.
fn innermost(status: &str) -> Option<i32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pid_of_nspid_is_the_pid_in_the_own_namespace() {
        assert_eq!(innermost("Name:\ta\nNSpid:\t812\t7\t1\n"), Some(1));
        assert_eq!(innermost("NSpid:\t812\n"), Some(812));
        assert_eq!(innermost("Name:\ta\n"), None);
    }

    #[test]
    fn the_status_of_this_process_gives_its_own_pid() {
        let own = i32::try_from(std::process::id()).unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(innermost(&status), Some(own));
        assert_ne!(namespace(), 0);
    }
}
