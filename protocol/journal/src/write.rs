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
    fn open_after(&self, before: Option<Open>) -> io::Result<Open> {
        if let Some(before) = before {
            // It could not be written again, whatever the error.
            let _ = (self.sync)(&before.file);
        }
        self.open()
    }

    /// Has what was written survive a power failure.
    ///
    /// # Errors
    /// If the file system says so.
    pub fn sync(&self) -> io::Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), |open| (self.sync)(&open.file))
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
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::line::json;
    use crate::read;
    use gpushare_protocol::wire::EventRecord;

    fn line(instance: u64, number: u64) -> Vec<u8> {
        let record = EventRecord {
            instance,
            number,
            at_ms: 1000 + number,
            kind: "k".to_owned(),
            tenant: None,
            device: None,
            text: "x".repeat(50),
            facts: vec![],
        };
        let mut text = json(&record).into_bytes();
        text.push(b'\n');
        text
    }

    fn numbers(folder: &std::path::Path) -> Vec<u64> {
        let past = read(folder, 0).unwrap();
        past.records.iter().map(|record| record.number).collect()
    }

    fn size(folder: &std::path::Path) -> u64 {
        let files = fs::read_dir(folder).unwrap().flatten();
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    #[test]
    fn a_journal_keeps_its_newest_events_within_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 4000 };
        let mut writer = Writer::new(folder.path().join("j"), bounds, Readers::Owner);
        for number in 1..=200 {
            writer.append(&line(1, number)).unwrap();
            assert!(size(&folder.path().join("j")) <= 4000);
        }
        let kept = numbers(&folder.path().join("j"));
        assert!(kept.len() > 10, "{kept:?}");
        let newest: Vec<u64> = (201 - kept.len() as u64..=200).collect();
        assert_eq!(kept, newest, "the newest, in order, none twice");
    }

    /// Lustre without `flock` answers so, or NFS without its lock daemon.
    #[test]
    fn a_journal_keeps_its_bound_where_there_are_no_locks() {
        for error in [Errno::ENOSYS, Errno::ENOLCK] {
            let folder = tempfile::tempdir().unwrap();
            let bounds = Bounds { bytes: 4000 };
            let mut writer = Writer::new(folder.path().to_owned(), bounds, Readers::Owner);
            writer.lock = match error {
                Errno::ENOSYS => |file| Err((file, Errno::ENOSYS)),
                _ => |file| Err((file, Errno::ENOLCK)),
            };
            for number in 1..=200 {
                writer.append(&line(1, number)).unwrap();
                assert!(size(folder.path()) <= 4000, "{error}");
            }
            let told = writer.take_unlocked().unwrap();
            assert_eq!(told.raw_os_error(), Some(error as i32));
            assert_eq!(numbers(folder.path()).last(), Some(&200));
        }
    }

    #[test]
    fn while_another_daemon_has_the_lock_no_file_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 4000 };
        let mut writer = Writer::new(folder.path().to_owned(), bounds, Readers::Owner);
        writer.lock = |file| Err((file, Errno::EWOULDBLOCK));
        for number in 1..=200 {
            writer.append(&line(1, number)).unwrap();
        }
        assert_eq!(numbers(folder.path()).len(), 200);
        assert!(writer.take_unlocked().is_none());
    }

    #[test]
    fn two_daemons_share_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 8000 };
        let mut writers =
            [1, 2].map(|_| Writer::new(folder.path().to_owned(), bounds, Readers::Owner));
        for number in 1..=100 {
            for (writer, instance) in writers.iter_mut().zip(1..) {
                writer.append(&line(instance, number)).unwrap();
            }
        }
        let past = read(folder.path(), 0).unwrap();
        assert_eq!(past.unreadable, 0);
        let last: Vec<_> = past.records[past.records.len() - 2..]
            .iter()
            .map(|record| (record.instance, record.number))
            .collect();
        assert_eq!(last, [(1, 100), (2, 100)]);
        assert!(past.records.len() > 20 && size(folder.path()) <= 8000);
    }

    #[test]
    fn a_torn_line_costs_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
        writer.append(&line(1, 1)).unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(&line(1, 2)[..30]).unwrap();
        let mut next = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
        next.append(&line(2, 3)).unwrap();
        let past = read(folder.path(), 0).unwrap();
        assert_eq!(numbers(folder.path()), [1, 3]);
        assert_eq!(past.unreadable, 1);
    }

    #[test]
    fn a_line_that_one_daemon_tears_costs_another_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut writers = [1, 2]
            .map(|_| Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner));
        let [one, other] = &mut writers;
        one.append(&line(1, 1)).unwrap();
        other.append(&line(2, 2)).unwrap();
        // The disk is full within its line, and has room again.
        let torn = &line(1, 3)[..30];
        one.file.as_mut().unwrap().file.write_all(torn).unwrap();
        other.append(&line(2, 4)).unwrap();
        one.append(&line(1, 5)).unwrap();
        let past = read(folder.path(), 0).unwrap();
        assert_eq!(numbers(folder.path()), [1, 2, 4, 5]);
        assert_eq!(past.unreadable, 1);
    }

    #[test]
    fn where_no_line_is_torn_lines_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut writers = [1, 2]
            .map(|_| Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner));
        for number in 1..=3 {
            for writer in &mut writers {
                writer.append(&line(1, number)).unwrap();
            }
        }
        let text = fs::read_to_string(folder.path().join("journal.jsonl")).unwrap();
        assert!(text.lines().all(|line| !line.is_empty()), "{text}");
        assert_eq!(text.lines().count(), 6);
    }

    thread_local! {
        /// The files that this thread's writers have made to survive.
        static SYNCED: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
    }

    #[test]
    fn a_full_file_survives_a_power_failure_before_another_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 40_000 };
        let mut writers =
            [1, 2].map(|_| Writer::new(folder.path().to_owned(), bounds, Readers::Owner));
        for writer in &mut writers {
            writer.sync = |file| {
                let file = file.metadata()?.ino();
                SYNCED.with_borrow_mut(|synced| synced.insert(file));
                Ok(())
            };
        }
        for number in 1..=120 {
            let writer = &mut writers[usize::from(number % 2 == 0)];
            writer.append(&line(1, number)).unwrap();
        }
        let inodes = |is_current: bool| {
            let files = fs::read_dir(folder.path()).unwrap().flatten();
            let files = files.filter(move |file| {
                let name = file.file_name();
                let name = name.to_string_lossy().into_owned();
                name.ends_with(".jsonl") && (name == "journal.jsonl") == is_current
            });
            files.map(|file| file.metadata().unwrap().ino())
        };
        assert!(inodes(false).count() > 0);
        let is_synced = |inode: u64| SYNCED.with_borrow(|synced| synced.contains(&inode));
        assert!(inodes(false).all(is_synced));
        // That one is told to in its time.
        assert!(!inodes(true).any(is_synced));
        writers.iter().for_each(|writer| writer.sync().unwrap());
        assert!(inodes(true).all(is_synced));
    }

    #[test]
    fn a_journal_that_was_removed_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("j");
        let mut writer = Writer::new(place.clone(), Bounds::default(), Readers::Owner);
        writer.append(&line(1, 1)).unwrap();
        fs::remove_dir_all(&place).unwrap();
        writer.append(&line(1, 2)).unwrap();
        assert_eq!(numbers(&place), [2]);
    }

    #[test]
    fn a_folder_that_others_write_or_a_link_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("j");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
        let mut writer = Writer::new(place.clone(), Bounds::default(), Readers::Owner);
        let refused = writer.append(&line(1, 1)).unwrap_err().to_string();
        assert!(refused.contains("/j lets other users write"), "{refused}");
        fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("/dev/null", place.join("journal.jsonl")).unwrap();
        assert!(writer.append(&line(1, 1)).is_err());
        fs::remove_file(place.join("journal.jsonl")).unwrap();
        writer.append(&line(1, 1)).unwrap();
        assert_eq!(numbers(&place), [1]);
    }

    #[test]
    fn only_events_since_a_time_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
        for number in 1..=3 {
            writer.append(&line(1, number)).unwrap();
        }
        let past = read(folder.path(), 1002).unwrap();
        assert_eq!(past.records.len(), 2);
        // Nothing was written after that.
        let past = read(folder.path(), u64::MAX / 4).unwrap();
        assert!(past.records.is_empty());
        assert!(
            read(&folder.path().join("none"), 0)
                .unwrap()
                .records
                .is_empty()
        );
    }

    #[test]
    fn other_users_read_a_machines_journal_and_no_users_own() {
        let folder = tempfile::tempdir().unwrap();
        for (readers, file, dir) in [
            (Readers::Owner, 0o600, 0o700),
            (Readers::Everybody, 0o644, 0o755),
        ] {
            let place = folder.path().join(format!("{file:o}"));
            DirBuilder::new().mode(0o700).create(&place).unwrap();
            let mut writer = Writer::new(place.clone(), Bounds::default(), readers);
            writer.append(&line(1, 1)).unwrap();
            let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!(mode(place.clone()), dir);
            assert_eq!(mode(place.join("journal.jsonl")), file);
        }
    }
}
