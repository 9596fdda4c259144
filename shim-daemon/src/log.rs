//! A log file of bounded size. When it is full it is renamed to `<name>.1` and a new file begins.
//! Standard error is redirected there too, for output that bypasses the log.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::dup2_stderr;

/// Most bytes of a log, unless one message is longer.
const MOST: u64 = 1 << 20;

/// See the module's page.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    written: u64,
    most: u64,
}

impl Log {
    /// Goes on with the log at `path`, or begins it; standard error leads there from now on.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let log = Self::of(path, MOST)?;
        dup2_stderr(&log.file)?;
        Ok(log)
    }

    fn of(path: &Path, most: u64) -> io::Result<Self> {
        let file = appending(path)?;
        Ok(Self {
            path: path.to_owned(),
            written: file.metadata()?.len(),
            file,
            most,
        })
    }

    /// Begins a new file. Where the old one cannot be moved away, it is emptied: the log stays
    /// bounded.
    fn turn(&mut self) -> io::Result<()> {
        let old = self.path.with_added_extension("1");
        if fs::rename(&self.path, old).is_ok() {
            self.file = appending(&self.path)?;
        } else {
            self.file.set_len(0)?;
        }
        self.written = 0;
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let more = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.written > 0 && self.written.saturating_add(more) > self.most {
            self.turn()?;
            if self.most == MOST {
                dup2_stderr(&self.file)?;
            }
        }
        self.file.write_all(text)?;
        self.written += more;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn appending(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut files: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_log_keeps_its_last_lines_and_never_more_than_twice_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::of(&path, 100).unwrap();
        for line in 0..1000 {
            writeln!(log, "line {line}").unwrap();
            let size: usize = all(folder.path()).iter().map(|(_, text)| text.len()).sum();
            assert!(size <= 200, "{size}");
        }
        let files = all(folder.path());
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["log", "log.1"]);
        let last = format!("{}{}", files[1].1, files[0].1);
        assert!(last.ends_with("line 998\nline 999\n"), "{last}");
        assert!(last.lines().count() > 10, "{last}");
    }

    #[test]
    fn the_next_daemon_goes_on_with_the_log_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        writeln!(Log::of(&path, 100).unwrap(), "first").unwrap();
        let mut next = Log::of(&path, 100).unwrap();
        writeln!(next, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\n");
        drop(next);
        fs::write(&path, "x".repeat(1000)).unwrap();
        writeln!(Log::of(&path, 100).unwrap(), "third").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
    }

    #[test]
    fn a_log_that_cannot_be_moved_away_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::create_dir_all(folder.path().join("log.1/in the way")).unwrap();
        let mut log = Log::of(&path, 10).unwrap();
        for line in 0..100 {
            writeln!(log, "line {line}").unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() <= 10);
    }
}
