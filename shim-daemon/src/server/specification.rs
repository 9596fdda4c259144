//! The CDI specification of the node's classes: where the settings say, and nowhere else.
//!
//! An engine knows a class by this file alone. One that stays behind offers classes that are no
//! more, and folders that will be gone.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use gpushare_protocol::injection::{LIBRARY_NAME, installed_library, is_loadable, version_in};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::folder::Folder;
use super::furnish::{class_folder, write_anew, write_whole};
use crate::containers::Containers;

/// The name of a file in the runtime folder, with the path of each specification that a daemon of
/// this folder wrote, a line each. The scripts that remove gpushare read it, too.
const RECORD: &str = "cdi";

/// The specifications that this daemon and those before it wrote.
#[derive(Debug, Default)]
pub(super) struct Specification {
    /// Their paths; `None` until the record of the previous daemon was read.
    written: Option<Vec<PathBuf>>,
}

impl Specification {
    /// Ensures that the specification is current, and that no other is there.
    ///
    /// # Errors
    /// What keeps it from that.
    pub(super) fn follow(
        &mut self,
        containers: &Containers,
        folder: &Folder,
    ) -> Result<(), String> {
        let record = folder.root.join(RECORD);
        let written = self.written.get_or_insert_with(|| read(&record));
        // Engines refuse one without a device, and say so at each look.
        let has_classes = !containers.classes.is_empty();
        let wanted = containers.cdi.as_ref().filter(|_| has_classes);
        let mut stays = Ok(());
        written.retain(|path| {
            if Some(path) == wanted {
                return true;
            }
            match fs::remove_file(path) {
                Ok(()) => {
                    tracing::info!(path = %path.display(), "the CDI specification is removed: no setting names it, or there is no class");
                    false
                }
                // Nothing that a daemon wrote.
                Err(error) if is_no_file(error.kind()) => false,
                Err(error) => {
                    stays = Err(at(path)(error));
                    true
                }
            }
        });
        let published = wanted.map_or(Ok(()), |path| {
            let is_known = written.contains(path);
            let is_ours = publish(path, is_known, containers, folder)?;
            if is_ours && !is_known {
                written.push(path.clone());
            }
            Ok(())
        });
        // Each time: it compares, and what could not be written the last time is missing still.
        let recorded = write(&record, written).map_err(at(&record));
        published.and(recorded).and(stays)
    }
}

fn is_no_file(kind: ErrorKind) -> bool {
    use ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | IsADirectory | NotADirectory)
}

fn read(record: &Path) -> Vec<PathBuf> {
    let text = fs::read(record).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let path = |line: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()));
    lines.map(path).collect()
}

fn write(record: &Path, paths: &[PathBuf]) -> io::Result<()> {
    if paths.is_empty() {
        return match fs::remove_file(record) {
            Err(error) if !is_no_file(error.kind()) => Err(error),
            _ => Ok(()),
        };
    }
    let mut text = Vec::new();
    for path in paths {
        text.extend(path.as_os_str().as_bytes());
        text.push(b'\n');
    }
    write_whole(record, &text)
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| {
        let advice = match error.kind() {
            ErrorKind::ReadOnlyFilesystem => {
                "; the unit lets the daemon write in /run/cdi: name another folder in a drop-in \
                 (ReadWritePaths=), and restart it, also where /run/cdi was made anew"
            }
            _ => "",
        };
        format!("{}: {error}{advice}", path.display())
    }
}

/// Ensures that the specification is current. Whether a daemon wrote it: one that is not known to
/// be a daemon's is written anew, and is the operator's where that fails and it is current.
fn publish(
    path: &Path,
    is_known: bool,
    containers: &Containers,
    folder: &Folder,
) -> Result<bool, String> {
    let text = cdi(containers, &folder.root).inspect_err(|_| {
        // The one of before may name the same library, without which a container has no limits. No
        // engine starts a container with a device that no specification has.
        let _ = fs::remove_file(path);
    })? + "\n";
    let write = if is_known { write_whole } else { write_anew };
    let above = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = above.and_then(|()| write(path, text.as_bytes()));
    let is_current = || fs::read(path).is_ok_and(|found| found == text.as_bytes());
    match written {
        Ok(()) => Ok(true),
        Err(_) if !is_known && is_current() => Ok(false),
        Err(error) => Err(at(path)(error)),
    }
}

/// The CDI specification of the node's classes, whose sockets lie below the runtime folder `root`.
///
/// # Errors
/// If no library is installed that every program of a container could load.
pub fn cdi(containers: &Containers, root: &Path) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let named = containers.library.as_deref().map(version_in);
    let library = named.or_else(|| installed_library(&own));
    let library =
        library.ok_or("no libgpushare.so is installed; say where it is: [containers] library")?;
    is_loadable(&library)?;
    may_be_mapped(&library)?;
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

/// Whether programs may map the library executable. Nothing is said of a folder that this process
/// cannot see, as by [`is_loadable`].
///
/// # Errors
/// If its file system is mounted with `noexec`, as a sentence.
fn may_be_mapped(library: &Path) -> Result<(), String> {
    let flags = statvfs(&library.join(LIBRARY_NAME)).map(|found| found.flags());
    match flags.is_ok_and(|flags| flags.contains(FsFlags::ST_NOEXEC)) {
        true => Err(format!(
            "{} is on a file system that is mounted with noexec: programs could not load {LIBRARY_NAME} and would run without limits",
            library.display()
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_the_unit_hides_is_told_with_what_helps() {
        let said = |kind: ErrorKind| at(Path::new("/etc/cdi/a.json"))(kind.into());
        let hidden = said(ErrorKind::ReadOnlyFilesystem);
        assert!(hidden.contains("/etc/cdi/a.json: "), "{hidden}");
        assert!(hidden.contains("ReadWritePaths="), "{hidden}");
        let other = said(ErrorKind::PermissionDenied);
        assert!(!other.contains("ReadWritePaths="), "{other}");
    }
}
