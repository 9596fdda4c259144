//! Appends to a journal, and begins a new file when one is full.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;

use crate::files::{self, Bounds};

/// Users that may read a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner.
    Owner,
    /// Every user, as every user may ask the machine's daemon.
    Everybody,
}

/// Locks a file without waiting.
type Lock = fn(File) -> Result<Flock<File>, (File, Errno)>;
/// Has what is in a file survive a power failure.
type Sync = fn(&File) -> io::Result<()>;

/// One daemon's hold on a journal. Other daemons of the user may have it too: each line is written
/// at once, and a new file begins under a lock.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    bounds: Bounds,
    readers: Readers,
    file: Option<Open>,
    /// How a file is locked: `flock`, but for tests.
    lock: Lock,
    /// How a file is made to survive: `fdatasync`, but for tests.
    sync: Sync,
    /// Why files are begun without a lock.
    unlocked: Option<Errno>,
    /// What was said of a file that is not written any more, when it was to survive.
    lost: Option<io::Error>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode: whether the name still leads to it.
    identity: (u64, u64),
    /// Its size when this writer had written whole lines to it. With any other size another daemon
    /// has written too, and may have ended inside a line; so may this one, where a write failed.
    whole: Option<u64>,
}

impl Writer {
    /// Nothing happens before the first [`Writer::append`].
    #[must_use]
    pub fn new(folder: PathBuf, bounds: Bounds, readers: Readers) -> Self {
        Self {
            folder,
            bounds,
            readers,
            file: None,
            lock: |file| Flock::lock(file, FlockArg::LockExclusiveNonblock),
            sync: File::sync_data,
            unlocked: None,
            lost: None,
        }
    }

    /// Why the last file was begun without a lock, if it was: the file system may have none.
    pub fn take_unlocked(&mut self) -> Option<io::Error> {
        self.unlocked.take().map(io::Error::from)
    }

    /// Appends whole lines, each with its end.
    ///
    /// # Errors
    /// If they could not all be written; the next call tries the folder and the file anew.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut open = match self.file.take() {
            Some(open) if self.is_current(&open) => open,
            before => self.open_after(before)?,
        };
        let mut size = open.file.metadata()?.len();
        let more = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if size > 0 && size.saturating_add(more) > self.bounds.of_a_file() {
            self.turn()?;
            open = self.open_after(Some(open))?;
            size = open.file.metadata()?.len();
        }
        if open.is_torn(size)? {
            open.file.write_all(b"\n")?;
            size += 1;
        }
        let written = open.file.write_all(lines);
        open.whole = written.is_ok().then_some(size.saturating_add(more));
        self.file = Some(open);
        written
    }

    /// Opens the current file. [`Writer::sync`] does not reach the one before any more.
    fn open_after(&mut self, before: Option<Open>) -> io::Result<Open> {
        if let Some(before) = before
            && let Err(error) = (self.sync)(&before.file)
        {
            // It could not be written again. The next `Writer::sync` says so.
            self.lost = Some(error);
        }
        self.open()
    }

    /// Has what was written survive a power failure.
    ///
    /// # Errors
    /// If the file system says so, of this file or of one before it. What was written may be lost:
    /// a network file system tells only here of a full disk or quota, and once. The next call
    /// opens the file anew.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(open) = &self.file
            && let Err(error) = (self.sync)(&open.file)
        {
            self.file = None;
            self.lost = Some(error);
        }
        self.lost.take().map_or(Ok(()), Err)
    }

    /// Whether the name still leads to the open file.
    fn is_current(&self, open: &Open) -> bool {
        let known = fs::symlink_metadata(files::current(&self.folder));
        known.is_ok_and(|known| (known.dev(), known.ino()) == open.identity)
    }

    fn open(&self) -> io::Result<Open> {
        self.make_folder()?;
        let path = files::current(&self.folder);
        let mut options = File::options();
        options
            .read(true)
            .append(true)
            .create(true)
            .mode(self.mode(0o600, 0o644))
            .custom_flags(O_NOFOLLOW);
        let file = options.open(&path)?;
        // Whatever the process's umask.
        file.set_permissions(Permissions::from_mode(self.mode(0o600, 0o644)))?;
        let known = file.metadata()?;
        Ok(Open {
            identity: (known.dev(), known.ino()),
            whole: None,
            file,
        })
    }

    /// Makes the folder, or checks that only we can change what is in it.
    fn make_folder(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(self.mode(0o700, 0o755));
        builder.create(&self.folder)?;
        let known = fs::symlink_metadata(&self.folder)?;
        let refused = |what: &str| {
            let text = format!("{} {what}", self.folder.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        };
        if !known.is_dir() {
            return refused("is not a folder");
        }
        if known.uid() != geteuid().as_raw() {
            return refused(&format!("belongs to user {}", known.uid()));
        }
        if known.mode() & 0o022 != 0 {
            return refused("lets other users write: chmod go-w");
        }
        if self.readers == Readers::Everybody && known.mode() & 0o055 != 0o055 {
            fs::set_permissions(&self.folder, Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Begins a new file, unless another daemon just has.
    fn turn(&mut self) -> io::Result<()> {
        let path = files::lock(&self.folder);
        let mut options = File::options();
        let lock = options
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(O_NOFOLLOW)
            .open(&path)?;
        let _held = match (self.lock)(lock) {
            Ok(held) => Some(held),
            // Another daemon is at it: a few lines above the bound.
            Err((_, Errno::EWOULDBLOCK)) => return Ok(()),
            // There are no locks (Lustre without `flock`, NFS without its lock daemon). The bound
            // counts for more: two daemons that begin a file at once lose one of the older ones.
            Err((_, error)) => {
                self.unlocked = Some(error);
                None
            }
        };
        let size = fs::symlink_metadata(files::current(&self.folder)).map_or(0, |at| at.len());
        if size < self.bounds.of_a_file() / 2 {
            return Ok(());
        }
        for (from, to) in files::renames(&self.folder) {
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn mode(&self, owner: u32, everybody: u32) -> u32 {
        match self.readers {
            Readers::Owner => owner,
            Readers::Everybody => everybody,
        }
    }
}

impl Open {
    /// Whether it ends inside a line, at this size.
    fn is_torn(&self, size: u64) -> io::Result<bool> {
        let end = size.checked_sub(1).filter(|_| self.whole != Some(size));
        let Some(end) = end else {
            return Ok(false);
        };
        let mut last = [0];
        self.file.read_exact_at(&mut last, end)?;
        Ok(last != *b"\n")
    }
}

#[cfg(test)]
mod tests;
