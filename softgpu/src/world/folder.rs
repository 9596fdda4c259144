//! The folders of machines: `/dev/shm/softgpu-<uid>/<machine>/`, and how they are created and
//! removed. `/tmp` is used if `/dev/shm` is too small for what programs write into device memory
//! (containers often get 64 MiB). `SOFTGPU_FOLDER` names another parent folder. All users with
//! access to it share its machines: the users of containers may differ from the host's.
//!
//! A file in the folder above holds one lock. Machines are opened, created and removed under this
//! lock. A machine without processes is replaced when a process asks for its name, and removed when
//! a process opens another machine.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::SLOTS;
use super::sys;
use crate::spec::Spec;

/// Names a private machine, so that the processes of one run share it.
pub const PRIVATE: &str = "SOFTGPU_PRIVATE";
/// Names a folder whose machines all users share. It must exist.
const SHARED: &str = "SOFTGPU_FOLDER";
/// The smallest `/dev/shm` that is used.
const LEAST_ROOM: u64 = 1 << 30;
/// The longest wait for the lock; it is held for microseconds.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The folder of the machine that `spec` and the environment name. All libraries of a process must
/// get the same answer.
pub(super) fn of(spec: &Spec) -> PathBuf {
    let machine = match (&spec.name, std::env::var(PRIVATE)) {
        (Some(name), _) => format!("name-{name}"),
        (None, Ok(token)) if !token.is_empty() => format!("private-{}", plain(&token)),
        (None, _) => format!(
            "process-{}-{}",
            std::process::id(),
            start_time().unwrap_or(0)
        ),
    };
    root().join(machine)
}

/// The folder of a named machine.
pub(super) fn of_name(name: &str) -> PathBuf {
    root().join(format!("name-{name}"))
}

/// The folder that all users share, if the environment names one.
fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os(SHARED).map(PathBuf::from)?;
    folder.is_absolute().then_some(folder)
}

fn root() -> PathBuf {
    if let Some(folder) = shared() {
        return folder;
    }
    // Every process must get the same answer. So it depends on the size of the file system, not on
    // its free space.
    let roomy = sys::file_system_size("/dev/shm").is_some_and(|bytes| bytes >= LEAST_ROOM);
    let above = if roomy { "/dev/shm" } else { "/tmp" };
    PathBuf::from(format!("{above}/softgpu-{}", sys::user()))
}

/// A token as a file name. A token that is too long or has unusual characters is replaced by its
/// hash.
fn plain(token: &str) -> String {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if token.len() <= 64 && token.bytes().all(usual) {
        return token.to_owned();
    }
    let hash = token
        .bytes()
        .fold(0, |hash, byte| super::state::mix(hash ^ u64::from(byte)));
    format!("{hash:016x}")
}

/// The start time of this process, in clock ticks after boot: the process's identity together with
/// the pid.
fn start_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// The lock for creating and removing machines; released on drop.
#[derive(Debug)]
pub(super) struct FolderLock(#[allow(dead_code, reason = "holds the lock by being open")] File);

/// Waits for the lock.
pub(super) fn lock() -> io::Result<FolderLock> {
    let root = root();
    if shared().is_none() {
        make_own(&root)?;
    }
    let file = open(&root.join(".gate"), true)?;
    let until = Instant::now() + LOCK_WAIT;
    while !sys::try_lock(file.as_fd(), 0, 1, sys::Hold::Exclusive)? {
        if Instant::now() > until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "timed out waiting for the lock on the machines' folder",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(FolderLock(file))
}

/// Creates the user's folder, or accepts an existing one that only this user can access.
fn make_own(root: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(root)?;
    if !found.is_dir() || found.uid() != sys::user() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} must be a folder that only this user can access",
                root.display()
            ),
        ));
    }
    Ok(())
}

/// Creates an empty folder for a machine.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    match shared() {
        Some(_) => fs::set_permissions(folder, Permissions::from_mode(0o777)),
        None => Ok(()),
    }
}

/// Opens a file of a machine for reading and writing.
pub(super) fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    if create && shared().is_some() {
        // Only the owner can set the mode. A file of another user has it already.
        let _ = file.set_permissions(Permissions::from_mode(0o666));
    }
    Ok(file)
}

/// Whether a live process holds a slot of the machine.
pub(super) fn inhabited(folder: &Path) -> bool {
    open(&folder.join("locks"), false).is_ok_and(|locks| sys::is_held(&locks, 0, SLOTS as u64))
}

/// Removes a machine that no process holds.
pub(super) fn remove(_lock: &FolderLock, folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// Removes every machine that no process holds, except `keep`.
pub(super) fn sweep(lock: &FolderLock, keep: &Path) {
    let Ok(entries) = fs::read_dir(root()) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        if folder != keep && folder.is_dir() && !inhabited(&folder) {
            // A failure only wastes space: the next process tries again.
            let _ = remove(lock, &folder);
        }
    }
}
