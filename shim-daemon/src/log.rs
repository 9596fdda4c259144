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
    /// bounded. Where there can be no new file, the old one is written to once more as much, and
    /// emptied after that.
    fn turn(&mut self) -> io::Result<()> {
        let old = self.path.with_added_extension("1");
        let moved = fs::rename(&self.path, old);
        // It is gone if it was removed, or if the last turn got no new file.
        let is_gone = moved
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let new = (moved.is_ok() || is_gone).then(|| appending(&self.path));
        match new {
            Some(Ok(file)) => self.file = file,
            Some(Err(_)) if moved.is_ok() => {}
            _ => self.file.set_len(0)?,
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
    fn a_log_that_somebody_removed_begins_anew_and_its_history_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::of(&path, 20).unwrap();
        let says = |log: &mut Log, line| log.write_all(format!("line {line}\n").as_bytes());
        for line in 0..4 {
            says(&mut log, line).unwrap();
        }
        let before = vec![
            ("log".to_owned(), "line 2\nline 3\n".to_owned()),
            ("log.1".to_owned(), "line 0\nline 1\n".to_owned()),
        ];
        assert_eq!(all(folder.path()), before);
        // As after a turn for which there was no room for a new file.
        fs::rename(&path, folder.path().join("log.1")).unwrap();
        says(&mut log, 4).unwrap();
        let after = vec![
            ("log".to_owned(), "line 4\n".to_owned()),
            ("log.1".to_owned(), "line 2\nline 3\n".to_owned()),
        ];
        assert_eq!(all(folder.path()), after);
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
