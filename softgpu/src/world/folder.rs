//! Where machines lie: `/dev/shm/softgpu-<uid>/<machine>/`, one folder each, and how they are made
//! and removed. Where `/dev/shm` is too small to hold what programs write into device memory
//! (tenants often get 64 MiB), `/tmp` takes its place. `SOFTGPU_FOLDER` names another folder above,
//! whose machines every user who reaches it may share: containers have users of their own.
//!
//! Opening, founding and removing happen under one lock, the *gate*, a file in the folder above. A
//! machine whose processes are all gone is taken over by the next that asks for its name, or swept
//! by the next that opens any.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::SLOTS;
use super::sys;
use crate::spec::Spec;

/// Names a private machine, so that several programs of one run share it.
pub const PRIVATE: &str = "SOFTGPU_PRIVATE";
/// Names a folder whose machines all users share. It has to be there.
const SHARED: &str = "SOFTGPU_FOLDER";
/// The smallest `/dev/shm` that is used.
const LEAST_ROOM: u64 = 1 << 30;
/// The longest wait for the gate; it is held for microseconds.
const GATE_WAIT: Duration = Duration::from_secs(10);

/// The folder of the machine that `spec` and the environment name. Every library of a process must
/// come to the same answer.
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

/// The folder that all users share, where the environment names one.
fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os(SHARED).map(PathBuf::from)?;
    folder.is_absolute().then_some(folder)
}

fn root() -> PathBuf {
    if let Some(folder) = shared() {
        return folder;
    }
    // Every process must come to the same answer: it depends on the file system's size, not on what
    // is free in it.
    let roomy = sys::file_system_size("/dev/shm").is_some_and(|bytes| bytes >= LEAST_ROOM);
    let above = if roomy { "/dev/shm" } else { "/tmp" };
    PathBuf::from(format!("{above}/softgpu-{}", sys::user()))
}

/// A token as a file name: anything unusual is written as its hexadecimal bytes.
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

/// When this process started, in clock ticks after boot: with the pid, its identity.
fn start_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// The right to make and remove machines; the lock goes when it is dropped.
#[derive(Debug)]
pub(super) struct Gate(#[allow(dead_code, reason = "holds the lock by being open")] File);

/// Waits for the gate.
pub(super) fn gate() -> io::Result<Gate> {
    let root = root();
    if shared().is_none() {
        make_own(&root)?;
    }
    let file = open(&root.join(".gate"), true)?;
    let until = Instant::now() + GATE_WAIT;
    while !sys::try_lock(file.as_fd(), 0, 1, sys::Hold::Exclusive)? {
        if Instant::now() > until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "another process holds the gate",
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Gate(file))
}

/// Makes a user's folder, or accepts one that is this user's alone.
fn make_own(root: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(root)?;
    if !found.is_dir() || found.uid() != sys::user() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not ours alone", root.display()),
        ));
    }
    Ok(())
}

/// Makes an empty folder for a machine.
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
        // Only its owner may; another user's was opened by its maker already.
        let _ = file.set_permissions(Permissions::from_mode(0o666));
    }
    Ok(file)
}

/// Whether a living process holds a slot of the machine.
pub(super) fn inhabited(folder: &Path) -> bool {
    open(&folder.join("locks"), false).is_ok_and(|locks| sys::is_held(&locks, 0, SLOTS as u64))
}

/// Removes a machine that no process holds.
pub(super) fn remove(_gate: &Gate, folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// Removes every machine that no process holds any more, but `keep`.
pub(super) fn sweep(gate: &Gate, keep: &Path) {
    let Ok(entries) = fs::read_dir(root()) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        if folder != keep && folder.is_dir() && !inhabited(&folder) {
            // Only room is at stake: the next one tries again.
            let _ = remove(gate, &folder);
        }
    }
}
