//! Where sockets lie and what a next daemon needs to know: `control.sock`, and a folder a container with its socket
//! (mounted into it) and its registration (not mounted).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::node::Registration;

/// The control socket's name.
pub const CONTROL: &str = "control.sock";
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
        let mode = if private { 0o700 } else { 0o755 };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(mode);
        for folder in [root.clone(), root.join("sockets"), root.join("registered")] {
            make(&builder, &folder)?;
        }
        fs::set_permissions(root.join("registered"), Permissions::from_mode(0o700))?;
        Ok(Self { root, private })
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

    /// Listens for commands, as the only daemon of this folder for as long as the returned lock is kept.
    pub(super) fn listen_control(&self) -> io::Result<(UnixListener, File)> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root.join("lock"))?;
        if lock.try_lock().is_err() {
            let text = format!("another daemon serves {}", self.root.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        Ok((bind(&self.control(), 0o600)?, lock))
    }

    pub(super) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let folder = self.of(name);
        let mode = if self.private { 0o700 } else { 0o755 };
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&folder)?;
        bind(
            &folder.join(SOCKET),
            if self.private { 0o600 } else { 0o666 },
        )
    }

    /// Writes a registration down, whole or not at all.
    pub(super) fn remember(&self, registration: &Registration) -> io::Result<()> {
        let path = self.registered(&registration.name);
        let whole = path.with_extension("new");
        fs::write(&whole, serde_json::to_vec(registration)?)?;
        fs::rename(whole, path)
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

fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
