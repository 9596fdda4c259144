//! The files beside the socket in a container's socket folder, and the folders of classes.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use gpushare_protocol::injection;

use super::folder::{Folder, SOCKET, bind, make};
use crate::containers::{Class, Containers};
use crate::node::Container;

/// All files that may be beside a socket.
pub(super) const FILES: [&str; 3] = [injection::PRELOAD, injection::MARK, injection::ALLOW];

/// The folder with the socket of a class, below the runtime folder.
pub(super) fn class_folder(root: &Path, name: &str) -> PathBuf {
    root.join(injection::CLASSES).join(name)
}

impl Folder {
    /// Writes the files beside a container's socket: the mark that makes the registration the law
    /// there, the preload file, ours first, and, where that is allowed, the file that lets programs
    /// start without a daemon.
    pub(super) fn furnish(
        &self,
        name: &str,
        container: &Container,
        allow_without_daemon: bool,
    ) -> io::Result<()> {
        furnish(&self.of(name), container, allow_without_daemon)
    }

    /// Has hooks ask about containers that ask for nothing, and tells them the rules for the time
    /// in which nobody answers; or has them not ask. The daemon says so as soon as it knows: a
    /// driver may not be there, and container engines start all the same.
    ///
    /// # Errors
    /// If the file cannot be written, or removed.
    pub fn tell_hooks(&self, containers: &Containers) -> io::Result<()> {
        let file = self.root.join(injection::MANDATORY);
        match containers.told() {
            Some(rules) => write(&file, rules.as_bytes()),
            None => remove(&file),
        }
    }

    /// The folder with the socket of a class.
    pub(super) fn of_class(&self, name: &str) -> PathBuf {
        class_folder(&self.root, name)
    }

    /// Writes the files beside the socket of a class.
    pub(super) fn furnish_class(&self, name: &str, allow_without_daemon: bool) -> io::Result<()> {
        let folder = self.of_class(name);
        make(&folder, 0o755)?;
        // As that of a container: open to its users whatever our umask is.
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        let container = Container {
            id: name.to_owned(),
            ..Container::default()
        };
        furnish(&folder, &container, allow_without_daemon)
    }

    /// Takes back, from the folders of all classes but these, that programs may start without a
    /// daemon: a container of a class that is no more would have no limits. The folders stay, for
    /// the containers that have them mounted.
    pub(super) fn close_other_classes(&self, classes: &[Class]) {
        let found = fs::read_dir(self.root.join(injection::CLASSES))
            .into_iter()
            .flatten();
        for folder in found.flatten() {
            let is = |class: &Class| folder.file_name() == class.name.as_str();
            if !classes.iter().any(is) {
                let _ = fs::remove_file(folder.path().join(injection::ALLOW));
            }
        }
    }

    /// Whether the socket of a class is there.
    pub(super) fn has_class(&self, name: &str) -> bool {
        self.of_class(name).join(SOCKET).exists()
    }

    /// Listens for the containers of a class.
    pub(super) fn listen_class(&self, name: &str) -> io::Result<UnixListener> {
        bind(&self.of_class(name), SOCKET, 0o666)
    }
}

fn furnish(folder: &Path, container: &Container, allow_without_daemon: bool) -> io::Result<()> {
    let mut preload = format!("{}\n", injection::LIBRARY);
    for line in &container.preload {
        preload.push_str(line);
        preload.push('\n');
    }
    let files = [
        (injection::PRELOAD, preload.as_bytes()),
        (injection::MARK, container.id.as_bytes()),
    ];
    for (name, text) in files {
        write(&folder.join(name), text).map_err(|error| of(name, &error))?;
    }
    let allow = folder.join(injection::ALLOW);
    let done = match allow_without_daemon {
        true => write(&allow, b""),
        false => remove(&allow),
    };
    done.map_err(|error| of(injection::ALLOW, &error))
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// An error of a file, with its name.
fn of(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// As [`write_whole`]. A file that is not there yet is in no container: it is written in place. The
/// next daemon writes what this one leaves unfinished, and where there is no room nothing stays.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = File::options().write(true).create_new(true).open(path);
    match new {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => write_whole(path, text),
        new => {
            let mut new = new?;
            let written = new.write_all(text);
            let written = written.and_then(|()| new.set_permissions(Permissions::from_mode(0o644)));
            written.inspect_err(|_| {
                let _ = fs::remove_file(path);
            })
        }
    }
}

/// Writes a file that everybody may read, whole or not at all. One that is there with this content
/// stays: a container may have it mounted.
pub(super) fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    write_anew(path, text)
}

/// The same whatever the file has.
pub(super) fn write_anew(path: &Path, text: &[u8]) -> io::Result<()> {
    let whole = path.with_extension("new");
    let written = fs::write(&whole, text)
        .and_then(|()| fs::set_permissions(&whole, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&whole, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&whole);
    })
}
