//! The folder in which files for stored memory are made. They have no names: no other program can
//! open one, and a daemon or process that ends leaves nothing.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs, statfs};
use nix::unistd::{AccessFlags, access, geteuid};

/// `FUSE_SUPER_MAGIC` of the kernel's `linux/magic.h`.
const FUSE: i64 = 0x6573_5546;
/// File systems that no other process and no other machine serves, and that are no layer over such
/// a one. By the kernel's `linux/magic.h`, and for the last three by their own sources.
const OF_THE_MACHINE: [i64; 7] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
    0x2FC1_2FC1, // zfs
];
/// How the names begin of files that a file system without unnamed ones makes for a moment.
const NAMED: &str = ".gpushare-spill-";

/// The folder.
#[derive(Debug)]
pub struct SpillFolder {
    path: PathBuf,
}

/// A file to write, and the same file for a process that may only read it.
#[derive(Debug)]
pub(crate) struct Made {
    /// For the daemon.
    pub(crate) write: File,
    /// For the process.
    pub(crate) read: File,
}

impl SpillFolder {
    /// Uses a folder, and makes it if need be. Tries to make a file in it.
    ///
    /// # Errors
    /// A sentence with its path: it cannot be made or written, other users could change what is in
    /// it, or the next daemon would not take its files back.
    pub fn open(path: &Path) -> Result<Self, String> {
        let refused = |why: &str| refused(path, why);
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused(&error.to_string()));
            }
            _ => (),
        }
        is_fit(path)?;
        let folder = Self {
            path: path.to_owned(),
        };
        folder.sweep();
        folder
            .make()
            .map_err(|error| refused(&format!("no file can be made in it: {error}")))?;
        Ok(folder)
    }

    /// Why a start would refuse a folder that is there, found out without a change of it: a daemon
    /// may be using it.
    #[must_use]
    pub fn refusal(path: &Path) -> Option<String> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => is_fit(path).err().or_else(|| {
                let written = access(path, AccessFlags::W_OK | AccessFlags::X_OK);
                let why = |error| refused(path, &format!("no file can be made in it: {error}"));
                written.err().map(why)
            }),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file.
    ///
    /// # Errors
    /// If the folder is gone, full, or can only be read.
    pub(crate) fn make(&self) -> io::Result<Made> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let unnamed = options
            .clone()
            .custom_flags(libc::O_TMPFILE)
            .open(&self.path);
        let write = match unnamed {
            // The file system has no unnamed files.
            Err(error) if is_unsupported(&error) => self.make_named(&mut options)?,
            made => made?,
        };
        let again = format!("/proc/self/fd/{}", write.as_raw_fd());
        let read = File::open(again)?;
        Ok(Made { write, read })
    }

    fn make_named(&self, options: &mut OpenOptions) -> io::Result<File> {
        let own = std::process::id();
        let path = self.path.join(format!("{NAMED}{own}"));
        let _ = fs::remove_file(&path);
        let made = options
            .create_new(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        match fs::remove_file(&path) {
            // Another daemon that begins to use the folder has swept it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(made),
        }
    }

    /// Removes what a daemon left that was killed between two lines of `make_named`.
    fn sweep(&self) {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_string_lossy().starts_with(NAMED) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn refused(path: &Path, why: &str) -> String {
    format!("[swap] spill = {path:?} is refused: {why}")
}

/// Whether it is a folder that only this user changes, on a file system that is fit.
fn is_fit(path: &Path) -> Result<(), String> {
    let refused = |why: &str| refused(path, why);
    let found = fs::symlink_metadata(path).map_err(|error| refused(&error.to_string()))?;
    let own = geteuid().as_raw();
    if !found.is_dir() {
        return Err(refused("it is not a folder"));
    }
    if found.uid() != own {
        let text = format!("it belongs to user {}, not to {own}", found.uid());
        return Err(refused(&text));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        let text = format!("it has mode {mode:04o}, which lets other users write");
        return Err(refused(&text));
    }
    let system = statfs(path).map_err(|error| refused(&error.to_string()))?;
    if let Some(why) = unfit(system.filesystem_type()) {
        return Err(refused(why));
    }
    Ok(())
}

/// Why stored memory may not lie on such a file system. A process could keep a daemon that reads it
/// waiting, so the next daemon would not take the files back, and the memory would be lost.
fn unfit(system: FsType) -> Option<&'static str> {
    let is_fuse = system == FsType(FUSE);
    is_fuse.then_some("it is on a FUSE file system, and after a restart the daemon takes no file there back; accepted: a folder on a local disk")
}

fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL, libc::ENOENT];
    error
        .raw_os_error()
        .is_some_and(|number| unsupported.contains(&number))
}

/// Whether a descriptor that a process presents may be a file that a previous daemon made for it:
/// an ordinary file without a name, on a file system of this machine, or of the kind that the
/// node's own folder is on. To read it never waits for a process. To find that out may.
#[must_use]
pub fn is_stored_file(file: &File, folder: Option<&Path>) -> bool {
    let is_plain = file
        .metadata()
        .is_ok_and(|found| found.is_file() && found.nlink() == 0);
    let Ok(system) = fstatfs(file.as_fd()).map(|system| system.filesystem_type()) else {
        return false;
    };
    let own = || folder.and_then(|folder| statfs(folder).ok());
    let is_own = || own().is_some_and(|own| own.filesystem_type() == system);
    let is_machines = OF_THE_MACHINE.iter().any(|one| FsType(*one) == system);
    is_plain && unfit(system).is_none() && (is_machines || is_own())
}

/// Whether a file's bytes are in memory of the host.
pub(super) fn is_memory(file: &File) -> bool {
    fstatfs(file.as_fd()).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC)
}

/// Whether these are one file without a name, the first to read and write, the second only to read.
#[must_use]
pub fn are_one(write: &File, read: &File, folder: Option<&Path>) -> bool {
    let access = |file: &File| {
        let flags = fcntl(file, FcntlArg::F_GETFL).unwrap_or(0);
        OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE
    };
    let identity = |file: &File| file.metadata().ok().map(|found| (found.dev(), found.ino()));
    is_stored_file(write, folder)
        && identity(write) == identity(read)
        && access(write) == OFlag::O_RDWR
        && access(read) == OFlag::O_RDONLY
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_of_the_folder_has_no_name_and_its_reader_cannot_write() {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill")).unwrap();
        let mut made = folder.make().unwrap();
        made.write.write_all(b"bytes").unwrap();
        assert!(made.read.write_all(b"x").is_err());
        let found = made.write.metadata().unwrap();
        assert_eq!((found.nlink(), found.mode() & 0o777), (0, 0o600));
        assert!(is_stored_file(&made.read, Some(folder.path())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_unnamed_files_a_name_lives_for_a_moment_only() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join(format!("{NAMED}1"));
        fs::write(&left, "").unwrap();
        let folder = SpillFolder::open(place.path()).unwrap();
        assert!(!left.exists(), "left by a daemon that was killed");
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let made = folder.make_named(&mut options).unwrap();
        assert_eq!(made.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_start_would_refuse_is_found_without_a_change_of_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        assert_eq!(SpillFolder::refusal(&own), None, "a start makes it");
        assert!(!own.exists());
        fs::create_dir(&own).unwrap();
        let kept = own.join(format!("{NAMED}1"));
        fs::write(&kept, "").unwrap();
        assert_eq!(SpillFolder::refusal(&own), None);
        assert!(kept.exists());
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        for (path, word) in [
            (&file, "not a folder"),
            (&open, "0777"),
            (&PathBuf::from("/proc/self"), "refused"),
        ] {
            let why = SpillFolder::refusal(path).unwrap();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_folder_that_is_none_or_open_to_others_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let refused = |path: &Path, what: &str| {
            let error = SpillFolder::open(path).unwrap_err();
            let said = error.contains("[swap] spill") && error.contains(what);
            assert!(said && error.contains(&*path.to_string_lossy()), "{error}");
        };
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        refused(&file, "not a folder");
        refused(&place.path().join("no/such"), "No such file");
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        refused(&open, "lets other users write");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        refused(&link, "not a folder");
        refused(Path::new("/proc"), "no file can be made");
    }

    #[test]
    fn what_could_not_be_taken_back_is_refused_for_the_folder_too() {
        let said = unfit(FsType(FUSE)).unwrap();
        assert!(said.contains("FUSE") && said.contains("restart"), "{said}");
        for system in OF_THE_MACHINE {
            assert_eq!(unfit(FsType(system)), None, "{system:#x}");
        }
        // Such as NFS: the node's folder decides.
        assert_eq!(unfit(FsType(0x6969)), None);
    }

    #[test]
    fn a_command_gives_one_unnamed_file_twice_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill")).unwrap();
        let are_one = |write: &File, read: &File| are_one(write, read, Some(folder.path()));
        let [one, other] = [(); 2].map(|()| folder.make().unwrap());
        assert!(are_one(&one.write, &one.read));
        assert!(!are_one(&one.write, &other.read), "another file");
        assert!(!are_one(&one.read, &one.read), "not to write");
        assert!(!are_one(&one.write, &one.write), "its process could write");
        let named = tempfile::NamedTempFile::new().unwrap();
        let read = File::open(named.path()).unwrap();
        assert!(!are_one(named.as_file(), &read), "it has a name");
    }

    #[test]
    fn a_named_file_or_a_folder_is_no_stored_file() {
        let named = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_stored_file(named.as_file(), None));
        assert!(!is_stored_file(&File::open("/proc").unwrap(), None));
        assert!(!is_stored_file(&File::open("/dev/null").unwrap(), None));
    }
}
