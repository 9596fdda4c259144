//! How many daemons have served a runtime folder ([ADR
//! 182](../../../docs/adr/0182-a-daemons-places-follow-from-a-count-of-starts.md)).
//!
//! Each daemon has places of its own in the memory files that processes keep across daemons, by the
//! number of its start. Two daemons with one number would have two ranges share bytes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The file with the number of the last start.
pub(super) const FILE: &str = "starts";

/// The number of this start: one more than that of the last. It is stored before it is used, so the
/// next daemon has another one, however this one ends.
///
/// `unique` is a number that no other daemon has had. The count begins there if the last number is
/// not known: no file (the first start, or the first of this version), or one that cannot be read.
/// A start that cannot be stored has that number, and not the one after the last, which the next
/// daemon takes.
pub(super) fn next(root: &Path, unique: u64) -> u64 {
    let number = match last(root) {
        Ok(last) => last.map_or(unique, |last| last.wrapping_add(1)),
        Err(error) => {
            tracing::warn!(%error, "the count of starts cannot be read and begins anew at {unique}");
            unique
        }
    };
    match store(root, number) {
        Ok(()) => number,
        Err(error) => {
            tracing::error!(%error, "this start cannot be counted, and has the number {unique}");
            unique
        }
    }
}

fn last(root: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(root.join(FILE)) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, also if the machine stops meanwhile.
fn store(root: &Path, number: u64) -> io::Result<()> {
    let (path, whole) = (root.join(FILE), root.join("starts.new"));
    let write = || {
        let mut file = File::create(&whole)?;
        writeln!(file, "{number}")?;
        file.sync_all()?;
        fs::rename(&whole, &path)
    };
    let written = write();
    if written.is_err() {
        // A partial file takes space that other files may need.
        let _ = fs::remove_file(&whole);
    }
    written
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_the_number_after_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut numbers = (0..3).map(|of| next(folder.path(), 1000 * of + 7));
        assert_eq!(numbers.next(), Some(7), "the count begins");
        assert_eq!((numbers.next(), numbers.next()), (Some(8), Some(9)));
        let kept = fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(kept.trim(), "9", "before it is used");
        fs::write(folder.path().join(FILE), u64::MAX.to_string()).unwrap();
        assert_eq!(next(folder.path(), 1), 0);
    }

    #[test]
    fn a_count_that_cannot_be_read_begins_at_a_number_of_its_own() {
        for text in ["", "-1", "nine", "99999999999999999999"] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(next(folder.path(), 1234), 1234, "{text}");
            assert_eq!(next(folder.path(), 99), 1235);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), [0xff, 0xfe]).unwrap();
        assert_eq!(next(folder.path(), 1234), 1234);
    }

    /// A folder is where the file is to be written.
    #[test]
    fn a_start_that_cannot_be_counted_has_a_number_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(next(folder.path(), 7), 7);
        fs::create_dir(folder.path().join("starts.new")).unwrap();
        assert_eq!(next(folder.path(), 500), 500);
        assert_eq!(next(folder.path(), 600), 600);
        fs::remove_dir(folder.path().join("starts.new")).unwrap();
        assert_eq!(next(folder.path(), 700), 8, "which no daemon has had");
    }
}
