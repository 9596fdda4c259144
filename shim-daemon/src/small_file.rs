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
}
