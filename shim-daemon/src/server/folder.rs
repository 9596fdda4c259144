//! The folder of sockets and stored state: `control.sock`, and per tenant a folder with its socket
//! (mounted into a container) and its registration (not mounted).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use gpushare_protocol::injection::SOCKETS;
use gpushare_protocol::injection::{ALLOW, MANDATORY, REMOVED};
pub use gpushare_protocol::injection::{CONTROL, SOCKET};
use gpushare_protocol::sockets;
use nix::unistd::geteuid;

use super::{allowed, furnish, starts};
use crate::node::{Registration, aside};

/// The file that a daemon locks for as long as it serves.
const LOCK: &str = "lock";

/// The daemon's runtime folder.
#[derive(Debug)]
pub struct Folder {
    pub(super) root: PathBuf,
    private: bool,
    claim: Option<Claim>,
    /// Whether this start made it.
    is_new: bool,
    /// Whether no daemon has served it: systemd makes it before the first.
    is_unserved: bool,
}

/// The lock and the listening socket that make a folder this daemon's own.
#[derive(Debug)]
pub(super) struct Claim {
    /// Kept for as long as the daemon serves.
    pub(super) lock: File,
    /// The socket for commands.
    pub(super) control: UnixListener,
}

/// A runtime folder that a start has made.
#[derive(Debug)]
pub struct Made {
    folder: Option<Folder>,
    /// Until it is removed no next daemon begins there.
    _lock: Option<File>,
}

impl Made {
    /// Removes it: a daemon that has never served is none of the machine's.
    pub fn undo(self) {
        if let Some(folder) = &self.folder {
            folder.undo();
        }
    }
}

/// Names of files, and why each cannot be read.
type Unreadable = Vec<(String, String)>;

impl Folder {
    /// Uses (and makes, if need be) `root`. A `private` one is for one user, any other for the
    /// whole node.
    ///
    /// # Errors
    /// If it cannot be made, or other users could change its content.
    pub fn open(root: PathBuf, private: bool) -> io::Result<Self> {
        let folder = Self {
            root,
            private,
            claim: None,
            is_new: false,
            is_unserved: false,
        };
        let is_new = fs::symlink_metadata(&folder.root).is_err();
        let is_unserved = !folder.was_served();
        folder.make()?;
        Ok(Self {
            is_new,
            is_unserved,
            ..folder
        })
    }

    /// Whether a previous daemon left its count of starts or a registration.
    fn was_served(&self) -> bool {
        let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let registered = fs::read_dir(self.root.join("registered"));
        is_there(&self.root.join(starts::FILE))
            || registered.is_ok_and(|mut entries| entries.next().is_some())
    }

    /// What this start has made, to be undone if it fails. A folder that was there stays, with what
    /// a previous daemon left in it.
    #[must_use]
    pub fn made(&self) -> Made {
        let lock = self.claim.as_ref().map(|claim| claim.lock.try_clone());
        let folder = self.is_unserved.then(|| Self {
            root: self.root.clone(),
            private: self.private,
            claim: None,
            is_new: self.is_new,
            is_unserved: true,
        });
        Made {
            folder,
            _lock: lock.and_then(Result::ok),
        }
    }

    /// Makes this the only daemon of the folder, and listens for commands before the devices are
    /// known. NVML may take seconds to start; a client that connects meanwhile must find a starting
    /// daemon.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another daemon has the folder.
    pub fn claim(&mut self) -> io::Result<()> {
        if self.claim.is_none() {
            let lock = self.lock().map_err(|error| match error.kind() {
                // A daemon that exits is removing the folder.
                io::ErrorKind::NotFound => self.is_taken(),
                _ => error,
            })?;
            // The previous daemon may have removed files until it released the lock.
            let control = self.make().and_then(|()| self.listen_control());
            if control.is_err() && self.is_unserved {
                self.undo();
            }
            let control = control?;
            // The package is back, and the machine has a daemon again.
            let _ = fs::remove_file(self.root.join(REMOVED));
            self.claim = Some(Claim { lock, control });
        }
        Ok(())
    }

    /// Takes the claim that [`Folder::claim`] made; makes it first where that is still to be done.
    pub(super) fn take_claim(&mut self) -> io::Result<Claim> {
        self.claim()?;
        self.claim
            .take()
            .ok_or_else(|| io::ErrorKind::AddrInUse.into())
    }

    /// Makes the missing folders.
    pub(super) fn make(&self) -> io::Result<()> {
        let mode = if self.private { 0o700 } else { 0o755 };
        let (sockets, registered) = (self.root.join(SOCKETS), self.root.join("registered"));
        for folder in [&self.root, &sockets, &registered] {
            // An administrator may have closed one that is there.
            let is_new = fs::symlink_metadata(folder).is_err();
            make(folder, mode)?;
            if self.private {
                close(folder)?;
            }
            trust(folder)?;
            if is_new {
                fs::set_permissions(folder, Permissions::from_mode(mode))?;
            }
        }
        fs::set_permissions(sockets, Permissions::from_mode(mode))?;
        fs::set_permissions(registered, Permissions::from_mode(0o700))
    }

    /// Why the daemon of a folder ends that it can neither use nor make.
    pub(super) fn removed_for_good(&self) -> String {
        let folder = self.root.display();
        format!("the runtime folder {folder} was removed, and this daemon may not make it anew")
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

    /// The folder with a tenant's socket.
    #[must_use]
    pub fn of(&self, name: &str) -> PathBuf {
        self.root.join(SOCKETS).join(name)
    }

    /// Makes this the only daemon of this folder for as long as the returned lock is kept.
    ///
    /// No other user can open the file. A user who has it open could lock it, and would keep every
    /// next daemon from starting.
    ///
    /// # Errors
    /// `AddrInUse` where another daemon has it; `NotFound` where the folder is being removed.
    pub(super) fn lock(&self) -> io::Result<File> {
        let path = self.root.join(LOCK);
        // Two daemons that start at once take this lock one after the other. The folder is closed
        // to other users.
        let turn = File::open(self.root.join("registered"))?;
        turn.lock()?;
        let found = fs::symlink_metadata(&path);
        if found.is_ok_and(|found| !is_ours_alone(&found)) {
            // One of an earlier version: only its daemon, if it serves, says anything by it.
            if UnixStream::connect(self.control()).is_ok() {
                return Err(self.is_taken());
            }
            tracing::warn!(file = %path.display(), "the lock file was open to other users and is recreated");
            fs::remove_file(&path)?;
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        lock.try_lock().map_err(|_| self.is_taken())?;
        Ok(lock)
    }

    /// Removes all that belongs to a daemon that leaves, its log too. Other files stay.
    pub(super) fn sweep(&self) {
        let kept = [starts::FILE, MANDATORY, allowed::FILE];
        self.clear(&[&[CONTROL, "log", "log.1"], &kept[..]].concat());
        let _ = fs::remove_dir(&self.root);
    }

    /// Removes what a start that failed has made where no daemon has served. A folder that was
    /// there stays, and a log in it: an empty one is no daemon's. What hooks were told stays too:
    /// container engines start whether this start failed or not.
    fn undo(&self) {
        match self.is_new {
            true => {
                self.clear(&[CONTROL, "log", "log.1", starts::FILE]);
                let _ = fs::remove_dir(&self.root);
            }
            false => self.clear(&[CONTROL, starts::FILE]),
        }
    }

    fn clear(&self, files: &[&str]) {
        for file in files {
            let _ = fs::remove_file(self.root.join(file));
        }
        for folder in [SOCKETS, "registered"] {
            let _ = fs::remove_dir(self.root.join(folder));
        }
        // Until then no next daemon begins here.
        let _ = fs::remove_file(self.root.join(LOCK));
    }

    /// The number of this start: a higher one than any daemon of this folder has had. To be called
    /// by the daemon that has the folder's lock.
    pub(super) fn count_start(&self, unique: u64) -> u64 {
        starts::next(&self.root, unique)
    }

    fn is_taken(&self) -> io::Error {
        let text = format!("another daemon serves {}", self.root.display());
        io::Error::new(io::ErrorKind::AddrInUse, text)
    }

    /// Whether the lock that is kept is still the folder's.
    pub(super) fn is_locked_by(&self, lock: &File) -> bool {
        let named = fs::metadata(self.root.join(LOCK));
        match (named, lock.metadata()) {
            (Ok(named), Ok(kept)) => (named.dev(), named.ino()) == (kept.dev(), kept.ino()),
            _ => false,
        }
    }

    /// Listens for commands: from every user, if the daemon serves the whole machine.
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

    /// Whether a tenant's socket is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).join(SOCKET).exists()
    }

    pub(super) fn listen(&self, name: &str) -> io::Result<UnixListener> {
        let folder = self.of(name);
        let mode = if self.private { 0o700 } else { 0o755 };
        make(&folder, mode)?;
        // A program that cannot look into its container's folder would not know of it: whatever
        // our umask is, a container's users can.
        fs::set_permissions(&folder, Permissions::from_mode(mode))?;
        bind(&folder, SOCKET, if self.private { 0o600 } else { 0o666 })
    }

    /// Writes a registration down, whole or not at all.
    pub(super) fn remember(&self, registration: &Registration) -> io::Result<()> {
        let path = self.registered(&registration.name);
        replace(&path, &serde_json::to_vec(registration)?)
    }

    /// Whether a registration of this name is there.
    pub(super) fn remembers(&self, name: &str) -> bool {
        self.registered(name).exists()
    }

    pub(super) fn forget(&self, name: &str) {
        // Each may be missing; then it is forgotten already.
        let _ = fs::remove_file(self.registered(name));
        for file in [SOCKET].iter().chain(&furnish::FILES) {
            let _ = fs::remove_file(self.of(name).join(file));
        }
        let _ = fs::remove_dir(self.of(name));
    }

    /// Forgets a registration whose container runs on. Its folder keeps the mark by which programs
    /// there know that they are not without limits, under a name that no tenant has: the name is
    /// free for another one.
    pub(super) fn set_aside(&self, name: &str) {
        let aside = aside(name);
        // Of a container of this name that was set aside before, and has ended since.
        self.forget(&aside);
        self.take_leave(name);
        let _ = fs::rename(self.of(name), self.of(&aside));
        let _ = fs::remove_file(self.registered(name));
    }

    /// Takes back, from a container that is no tenant of this daemon's, that its programs may start
    /// without a daemon. No daemon is lost there: one serves, and refuses them.
    pub(super) fn take_leave(&self, name: &str) {
        let _ = fs::remove_file(self.of(name).join(ALLOW));
    }

    /// The registrations that the previous daemon left, and those of its files that do not parse,
    /// with the reason.
    pub(super) fn remembered(&self) -> Result<(Vec<Registration>, Unreadable), String> {
        let folder = self.root.join("registered");
        let entries = fs::read_dir(&folder)
            .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let (mut all, mut unreadable) = (Vec::new(), Unreadable::new());
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let read = fs::read(&path).map_err(|error| error.to_string());
            match read
                .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))
            {
                Ok(registration) => all.push(registration),
                Err(error) => {
                    tracing::error!(file = %path.display(), error, "skipped");
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    unreadable.push((name.into_owned(), error));
                }
            }
        }
        Ok((all, unreadable))
    }

    fn registered(&self, name: &str) -> PathBuf {
        self.root.join("registered").join(format!("{name}.json"))
    }
}

/// Writes a file, whole or not at all.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let whole = path.with_extension("new");
    let written = fs::write(&whole, text);
    let written = written.and_then(|()| fs::rename(&whole, path));
    if written.is_err() {
        // A partial file takes space that other files may need.
        let _ = fs::remove_file(whole);
    }
    written
}

/// Makes a folder, and those it is in. The umask takes bits off this mode.
pub(super) fn make(folder: &Path, mode: u32) -> io::Result<()> {
    let error =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let mut builder = DirBuilder::new();
    let builder = builder.recursive(true).mode(mode);
    builder.create(folder).map_err(error)
}

/// Closes a folder of ours that a lax umask left open.
fn close(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Refuses a folder that other users own or may write into: the daemon would use files they put
/// there.
fn trust(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let own = geteuid().as_raw();
    let fault = if !found.is_dir() {
        "is not a folder".to_owned()
    } else if found.uid() != own {
        format!("belongs to user {}, not to {own}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!(
            "has mode {:04o}, which lets other users write",
            found.mode() & 0o7777
        )
    } else {
        return Ok(());
    };
    let text = format!("{} {fault}", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether a lock's file cannot be opened by other users.
fn is_ours_alone(found: &fs::Metadata) -> bool {
    found.is_file()
        && found.uid() == geteuid().as_raw()
        && found.mode() & 0o077 == 0
        && found.nlink() == 1
}

pub(super) fn bind(folder: &Path, name: &str, mode: u32) -> io::Result<UnixListener> {
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
mod tests;
