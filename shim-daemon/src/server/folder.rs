//! Where sockets lie and what a next daemon needs to know: `control.sock`, and a folder a container with its socket
//! (mounted into it) and its registration (not mounted).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use gpushare_protocol::sockets;

use crate::node::Registration;

/// The control socket's name.
pub const CONTROL: &str = "control.sock";
/// What a daemon locks for as long as it serves.
const LOCK: &str = "lock";
/// A container's socket in its folder.
pub const SOCKET: &str = "gpushare.sock";

/// The daemon's runtime folder.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    private: bool,
}

impl Folder {
    /// Uses (and makes, if need be) `root`. A `private` one is for one user, any other for the whole node.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(root: PathBuf, private: bool) -> io::Result<Self> {
        let folder = Self { root, private };
        folder.make()?;
        Ok(folder)
    }

    /// Makes what is not there yet of the folders.
    pub(super) fn make(&self) -> io::Result<()> {
        let mode = if self.private { 0o700 } else { 0o755 };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(mode);
        let (sockets, registered) = (self.root.join("sockets"), self.root.join("registered"));
        for folder in [&self.root, &sockets, &registered] {
            make(&builder, folder)?;
        }
        fs::set_permissions(registered, Permissions::from_mode(0o700))
    }

    /// Whether it serves one user only.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// The control socket's path.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.root.join(CONTROL)
    }

    /// The folder with a container's socket.
    #[must_use]
    pub fn of(&self, name: &str) -> PathBuf {
        self.root.join("sockets").join(name)
    }

    /// Makes this the only daemon of this folder for as long as the returned lock is kept.
    pub(super) fn lock(&self) -> io::Result<File> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root.join(LOCK))?;
        if lock.try_lock().is_err() {
            let text = format!("another daemon serves {}", self.root.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        Ok(lock)
    }

    /// Whether the lock that is kept is still the folder's.
    pub(super) fn is_locked_by(&self, lock: &File) -> bool {
        let named = fs::metadata(self.root.join(LOCK));
        match (named, lock.metadata()) {
            (Ok(named), Ok(kept)) => (named.dev(), named.ino()) == (kept.dev(), kept.ino()),
            _ => false,
        }
    }

    /// Listens for commands: of everybody, where the daemon is the whole machine's.
    pub(super) fn listen_control(&self) -> io::Result<UnixListener> {
        bind(
            &self.root,
            CONTROL,
            if self.private { 0o600 } else { 0o666 },
        )
    }

    /// Whether the control socket is there.
    pub(super) fn has_control(&self) -> bool {
        self.control().exists()
    }

    /// Whether a container's socket is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).join(SOCKET).exists()
    }

    pub(super) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let folder = self.of(name);
        let mode = if self.private { 0o700 } else { 0o755 };
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&folder)?;
        bind(&folder, SOCKET, if self.private { 0o600 } else { 0o666 })
    }

    /// Writes a registration down, whole or not at all.
    pub(super) fn remember(&self, registration: &Registration) -> io::Result<()> {
        let path = self.registered(&registration.name);
        let whole = path.with_extension("new");
        let written = fs::write(&whole, serde_json::to_vec(registration)?);
        let written = written.and_then(|()| fs::rename(&whole, path));
        if written.is_err() {
            // What there is of it takes room that others may need.
            let _ = fs::remove_file(whole);
        }
        written
    }

    pub(super) fn forget(&self, name: &str) {
        // Each may be missing; then it is forgotten already.
        let _ = fs::remove_file(self.registered(name));
        let _ = fs::remove_file(self.of(name).join(SOCKET));
        let _ = fs::remove_dir(self.of(name));
    }

    /// What the previous daemon left. A file that does not parse is skipped and said so: nobody else's is lost for it.
    pub(super) fn remembered(&self) -> Result<Vec<Registration>, String> {
        let folder = self.root.join("registered");
        let entries = fs::read_dir(&folder)
            .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let mut all = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let read = fs::read(&path).map_err(|error| error.to_string());
            match read
                .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
            {
                Ok(registration) => all.push(registration),
                Err(error) => tracing::error!(file = %path.display(), error, "skipped"),
            }
        }
        Ok(all)
    }

    fn registered(&self, name: &str) -> PathBuf {
        self.root.join("registered").join(format!("{name}.json"))
    }
}

fn make(builder: &DirBuilder, folder: &Path) -> io::Result<()> {
    let error =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    builder.create(folder).map_err(error)
}

fn bind(folder: &Path, name: &str, mode: u32) -> io::Result<UnixListener> {
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = sockets::at(folder, name, |path| UnixListener::bind(path))?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn only_a_machines_daemon_hears_other_users() {
        for (private, mode) in [(true, 0o600), (false, 0o666)] {
            let place = tempfile::tempdir().unwrap();
            let folder = Folder::open(place.path().join("run"), private).unwrap();
            let _control = folder.listen_control().unwrap();
            let found = fs::metadata(folder.control()).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode);
        }
    }
}
