//! Small files that the kernel makes up when they are read, as those of `/proc`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of most of them.
const USUAL: usize = 4096;

/// The whole text of a file. Such a file has no size to ask for, and [`std::fs::read_to_string`]
/// would read it in pieces that begin at 32 bytes.
///
/// # Errors
/// If it cannot be read, or is no text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL);
    File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The same of a file with a process's name in it: bytes of that process's choice, which the kernel
/// cuts off after 15, be that within a letter. What is no text reads as `U+FFFD`.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn with_a_name(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(USUAL);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for bytes in [0, 1, USUAL - 1, USUAL, USUAL + 1, 10 * USUAL] {
            std::fs::write(&path, "a".repeat(bytes)).unwrap();
            assert_eq!(text(&path).unwrap().len(), bytes);
        }
        assert!(text("/proc/self/stat").unwrap().contains('('));
        assert!(text(folder.path().join("none")).is_err());
    }
    #[test]
    fn a_name_that_is_no_text_leaves_the_rest_of_its_file_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        std::fs::write(&path, b"Name:\ta\xd0\nUid:\t0\n").unwrap();
        assert_eq!(with_a_name(&path).unwrap(), "Name:\ta\u{fffd}\nUid:\t0\n");
        assert!(text(&path).is_err());
    }
}
