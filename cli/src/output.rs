//! The only file that prints: data to standard output, talk to standard error.
#![allow(clippy::print_stdout, reason = "this is where the command line prints")]

use crate::failure::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::Permissions;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Prints one line on standard error. It is no failure if that is closed.
pub(crate) fn note(message: &str) {
    let _ = writeln!(stderr(), "gpushare: {message}");
}

/// The version of what [`failed`] prints.
const SCHEMA: u32 = 1;

/// Prints a failure as one line of JSON on standard error, the last one (docs/schema/error.json).
pub(crate) fn failed(status: u8, message: &str) {
    let error = serde_json::json!({"schema": SCHEMA, "status": status, "error": message});
    let _ = writeln!(stderr(), "{error}");
}

/// Clears the terminal that standard output is.
pub(crate) fn clear() -> Result<(), Failure> {
    let cleared = write!(stdout(), "\x1b[H\x1b[2J").and_then(|()| stdout().flush());
    cleared.map_err(|error| Failure::ours(format!("cannot write to standard output: {error}")))
}

/// Data. A reader that has gone away has read enough.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::ours(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// A whole file, in place of what was there. It is written beside and renamed: what reads it has
/// the old one or the new one. A path that is no plain file (a pipe) is written to, and so is what
/// an open descriptor leads to (`/dev/stdout`), behind what is there already.
pub(crate) fn file(path: &Path, text: &str) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::ours(format!("cannot write {}: {error}", path.display()));
    if let Some(number) = descriptor(path) {
        return to_descriptor(number, text).map_err(failed);
    }
    // A link stays, and the file that it leads to is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let known = std::fs::metadata(&target).ok();
    if known.as_ref().is_some_and(|known| !known.is_file()) {
        return std::fs::write(&target, text).map_err(failed);
    }
    let folder = target.parent().filter(|folder| *folder != Path::new(""));
    let made = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")));
    let Ok(mut beside) = made else {
        // A file that may be written in a folder where none may be made.
        return std::fs::write(&target, text).map_err(failed);
    };
    beside.write_all(text.as_bytes()).map_err(failed)?;
    if let Some(known) = known {
        // Another owner's stays as it is where that cannot be kept.
        let mode = known.permissions();
        beside.as_file().set_permissions(mode).map_err(failed)?;
        let made = beside.as_file().metadata().map_err(failed)?;
        if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
            return std::fs::write(&target, text).map_err(failed);
        }
    }
    let kept = beside.persist(&target);
    kept.map(drop).map_err(|error| failed(error.error))
}

/// Whether [`file`] leaves nothing of what was there before, as of all but a pipe or a descriptor.
pub(crate) fn is_replaced(path: &Path) -> bool {
    descriptor(path).is_none() && (path.is_file() || !path.exists())
}

/// The descriptor of ours that a path names.
fn descriptor(path: &Path) -> Option<i32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let mut folders = ["/dev/fd/", "/proc/self/fd/"].into_iter();
    let number = folders.find_map(|folder| path.strip_prefix(folder))?;
    number.parse().ok()
}

/// Another program writes on where this one ends, so that the descriptor itself is written to, as
/// far as it can be had.
fn to_descriptor(number: i32, text: &str) -> io::Result<()> {
    match number {
        1 => stdout()
            .write_all(text.as_bytes())
            .and_then(|()| stdout().flush()),
        2 => stderr().write_all(text.as_bytes()),
        number => {
            let path = format!("/proc/self/fd/{number}");
            let mut end = std::fs::OpenOptions::new().append(true).open(path)?;
            end.write_all(text.as_bytes())
        }
    }
}

/// Waits until nothing can read standard output any more, as behind `| head`: [`data`] would see it
/// with the next line only. Never returns where that cannot be told, as of a file.
pub(crate) fn wait_until_unread() {
    while !is_unread_within(Duration::from_secs(86_400)) {}
}

/// The same for this time at most. Returns whether nothing can read it any more.
pub(crate) fn is_unread_within(time: Duration) -> bool {
    let end = Instant::now() + time;
    let out = stdout();
    let mut waits = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut waits, timeout) {
            Ok(_) if waits[0].revents().is_some_and(|now| now.intersects(gone)) => return true,
            Ok(_) | Err(Errno::EINTR) if left.is_zero() => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => {
                std::thread::sleep(left);
                return false;
            }
        }
    }
}

/// The width of the terminal that data goes to; `None` if it goes elsewhere.
pub(crate) fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    // A terminal that does not say it, as a serial line, has at least that.
    Some(columns.filter(|columns| *columns > 0).unwrap_or(80))
}

/// Text in lines of at most so many characters, but for words that are longer.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_meanwhile_is_the_old_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        file(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut reader = std::fs::File::open(&path).unwrap();
        let link = dir.path().join("link.html");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        file(&link, "new").unwrap();
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).unwrap();
        assert_eq!(read, "old");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing is left"
        );
        // A path that is no plain file is written to.
        file(Path::new("/dev/null"), "x").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        let told = file(&dir.path().join("no/page.html"), "x")
            .unwrap_err()
            .message;
        assert!(told.contains("cannot write"), "{told}");
    }

    #[test]
    fn what_a_descriptor_leads_to_is_written_to_and_not_replaced() {
        for (path, number) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/7", Some(7)),
            ("/proc/self/fd/1", Some(1)),
            ("/dev/shm/1", None),
            ("stdout", None),
            ("/dev/fd/x", None),
        ] {
            assert_eq!(descriptor(Path::new(path)), number, "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let open = std::fs::OpenOptions::new().append(true).open(&path);
        let mut open = open.unwrap();
        let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        file(Path::new(&name), "page\n").unwrap();
        open.write_all(b"done\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "before\npage\ndone\n");
    }
}
