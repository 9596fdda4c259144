//! Names and sizes of the journal's files.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// Files that a journal consists of.
const FILES: u32 = 4;

/// How large a journal may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of all files together.
    pub bytes: u64,
}

impl Default for Bounds {
    /// 16 MiB: about 60,000 events.
    fn default() -> Self {
        Self { bytes: 16 << 20 }
    }
}

impl Bounds {
    /// Most bytes of one file, unless one write is longer.
    pub(crate) fn of_a_file(self) -> u64 {
        self.bytes / u64::from(FILES)
    }
}

/// The journal's files, the newest first. Not each of them needs to be there.
pub(crate) fn all(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (0..FILES).map(|age| of_age(folder, age))
}

/// The file that is written.
pub(crate) fn current(folder: &Path) -> PathBuf {
    of_age(folder, 0)
}

/// The renames when a new file begins, from and to, in the order in which they are done.
pub(crate) fn renames(folder: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let older = (1..FILES).rev();
    older.map(|age| (of_age(folder, age - 1), of_age(folder, age)))
}

/// When the journal in a folder was last written to, as far as that is known.
///
/// # Errors
/// If there is no such folder.
pub fn last_written(folder: &Path) -> io::Result<SystemTime> {
    // Without the newest file, the folder changed when that was renamed.
    let newest = fs::symlink_metadata(current(folder));
    newest.or_else(|_| fs::symlink_metadata(folder))?.modified()
}

/// Removes a journal, and its folder if nothing else is in there.
///
/// # Errors
/// If the folder is still there.
pub fn remove(folder: &Path) -> io::Result<()> {
    for file in all(folder).chain([lock(folder)]) {
        let _ = fs::remove_file(file);
    }
    fs::remove_dir(folder)
}

/// What is locked while a new file begins.
pub(crate) fn lock(folder: &Path) -> PathBuf {
    folder.join("lock")
}

fn of_age(folder: &Path, age: u32) -> PathBuf {
    match age {
        0 => folder.join("journal.jsonl"),
        _ => folder.join(format!("journal.{age}.jsonl")),
    }
}
