//! The sockets of classes, and the CDI specification that names them.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use gpushare_protocol::injection::{installed_library, version_in};

use super::folder::Folder;
use super::furnish::class_folder;
use super::poller::{Poller, Source};
use crate::containers::Containers;
use crate::foreign::{Lane, part_with};

/// All sockets of classes that this daemon ever had: their places do not change.
#[derive(Debug, Default)]
pub(super) struct Classes(Vec<(String, Option<UnixListener>)>);

impl Classes {
    /// Opens the sockets of the node's classes that have none, and closes those of classes that
    /// are no more.
    pub(super) fn follow(
        &mut self,
        containers: &Containers,
        folder: &Folder,
        poller: &Poller,
        lane: &Lane,
    ) {
        for (name, listener) in &mut self.0 {
            let stays = containers.classes.iter().any(|class| class.name == *name);
            if let Some(listener) = listener.take_if(|_| !stays) {
                poller.remove(listener.as_fd());
                part_with(listener, lane);
            }
        }
        for class in &containers.classes {
            if let Err(error) = self.open(&class.name, containers, folder, (poller, lane)) {
                tracing::error!(class = class.name, %error, "the class has no socket");
            }
        }
        if let Err(error) = publish(containers, folder) {
            tracing::error!(%error, "the CDI specification could not be written");
        }
    }

    fn open(
        &mut self,
        name: &str,
        containers: &Containers,
        folder: &Folder,
        (poller, lane): (&Poller, &Lane),
    ) -> io::Result<()> {
        let at = self.0.iter().position(|(known, _)| known == name);
        let at = at.unwrap_or_else(|| {
            self.0.push((name.to_owned(), None));
            self.0.len() - 1
        });
        folder.furnish_class(name, containers.allow_without_daemon)?;
        if self.0[at].1.is_some() && folder.has_class(name) {
            return Ok(());
        }
        let listener = folder.listen_class(name)?;
        poller.add(listener.as_fd(), Source::Class(at as u64))?;
        if let Some(old) = self.0[at].1.replace(listener) {
            part_with(old, lane);
        }
        Ok(())
    }

    /// A connection at the socket of a class.
    pub(super) fn accept(&self, at: u64) -> Option<UnixStream> {
        let (_, listener) = self.0.get(usize::try_from(at).ok()?)?;
        // If it cannot be accepted now, the socket stays readable and it is tried again.
        listener.as_ref()?.accept().ok().map(|(socket, _)| socket)
    }

    /// The class of this place.
    pub(super) fn name(&self, at: u64) -> Option<&str> {
        let (name, _) = self.0.get(usize::try_from(at).ok()?)?;
        Some(name)
    }
}

/// The CDI specification of the node's classes, whose sockets lie below the runtime folder `root`.
///
/// # Errors
/// If no library is installed that containers could get.
pub fn cdi(containers: &Containers, root: &Path) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let named = containers.library.as_deref().map(version_in);
    let library = named.or_else(|| installed_library(&own));
    let library =
        library.ok_or("no libgpushare.so is installed; say where it is: [containers] library")?;
    let classes: Vec<(String, String)> = containers
        .classes
        .iter()
        .map(|class| {
            let folder = class_folder(root, &class.name);
            (class.name.clone(), folder.to_string_lossy().into_owned())
        })
        .collect();
    let specification = gpushare_inject::cdi::render(&library.to_string_lossy(), &classes);
    serde_json::to_string_pretty(&specification).map_err(|error| error.to_string())
}

fn publish(containers: &Containers, folder: &Folder) -> Result<(), String> {
    let Some(path) = &containers.cdi else {
        return Ok(());
    };
    let text = cdi(containers, &folder.root)? + "\n";
    let at = |error: io::Error| format!("{}: {error}", path.display());
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).map_err(at)?;
    }
    super::furnish::write_whole(path, text.as_bytes()).map_err(at)
}
