//! The paths of gpushare's files in a container that it was injected into.
//!
//! The paths are part of the contract between the library and the programs that mount it: a
//! container keeps its library for months.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of the tenant's socket in a container. It is mounted as a whole, so that nobody in
/// the container can rename, remove or close it. On a host it is the daemon's own folder.
pub const FOLDER: &str = "/run/gpushare";
/// The name of a file in a tenant's socket folder that no daemon's own folder has. Where
/// [`FOLDER`] has it, the daemon's registration is the law whatever the environment says.
pub const MARK: &str = "container";
/// The name of the socket for commands in a daemon's own folder.
pub const CONTROL: &str = "control.sock";
/// The folders of tenants' and of classes' socket folders in a daemon's own folder.
pub const SOCKETS: &str = "sockets";
/// See [`SOCKETS`].
pub const CLASSES: &str = "classes";
/// The name of a tenant's socket in its folder.
pub const SOCKET: &str = "gpushare.sock";
/// The name of a file in a daemon's own folder on a host: the package was removed, so that the
/// folder, which running programs still use, no longer says that the machine has a daemon.
pub const REMOVED: &str = "removed";
/// The name of a file in a daemon's own folder on a host: hooks and runtime wrappers ask the daemon
/// about containers that have a GPU and ask for nothing. It is there where some of them may not run
/// without limits, or where a rule says of some that they may. It stays while no daemon serves, and
/// has the daemon's rules for that time: `{"rules": [{"namespace": "a", "unlimited": "allow"},
/// …]}`, of which the first that fits counts.
pub const MANDATORY: &str = "mandatory";
/// The beginning of a GPU's file in `/dev`, before its minor number: so a hook names a device that
/// a container has and that nothing else names.
pub const DEVICE_FILE: &str = "/dev/nvidia";
/// The folder of the library in a container.
pub const LIBRARY_FOLDER: &str = "/usr/lib/gpushare";
/// The library's name in its folder.
pub const LIBRARY_NAME: &str = "libgpushare.so";
/// The library in a container: what the preload file names.
pub const LIBRARY: &str = "/usr/lib/gpushare/libgpushare.so";
/// The file in a container that names libraries to preload into every program, ld.so(8).
pub const PRELOADED: &str = "/etc/ld.so.preload";
/// The same for programs of the Nix package collection, whose glibc reads this file in its place.
pub const PRELOADED_BY_NIX: &str = "/etc/ld-nix.so.preload";
/// The name of a tenant's preload file in its socket folder on the host: ours first, then the
/// image's own lines.
pub const PRELOAD: &str = "ld.so.preload";
/// The name of an empty file in a tenant's socket folder: programs that find no daemon start
/// without limits.
pub const ALLOW: &str = "allow-without-daemon";

/// Says `1` where SELinux enforces its policy.
pub const SELINUX_ENFORCES: &str = "/sys/fs/selinux/enforce";
/// Types of files that SELinux lets every container read, in container-selinux; the last is an
/// older name of the first.
const CONTAINERS_TYPES: [&str; 4] = [
    "container_file_t",
    "container_ro_file_t",
    "container_share_t",
    "svirt_sandbox_file_t",
];
/// The advice where a file has another type.
pub const RELABEL: &str = "give the library's folder and /run/gpushare the type container_file_t by `semanage fcontext` and `restorecon -R` (CONTAINERS, SELinux)";

/// The type in a label of SELinux, `USER:ROLE:TYPE` and what follows; of a process its domain.
#[must_use]
pub fn selinux_type(label: &str) -> Option<&str> {
    let label = label.trim_end_matches('\0');
    label.split(':').nth(2).filter(|kind| !kind.is_empty())
}

/// Whether SELinux lets every container read a file of this type.
#[must_use]
pub fn is_containers_type(kind: &str) -> bool {
    CONTAINERS_TYPES.contains(&kind)
}

/// Whether `folder` is a container's socket folder, so that its registration is the law for every
/// program here. A folder that is hidden from this process counts: the container's root may have
/// hidden it, or covered it with a mount. So does a mount that this process may not look into, and
/// a socket folder from which the mark was taken on the host
/// ([ADR 226](../../docs/adr/0226-a-socket-folder-without-its-mark-counts.md)).
#[must_use]
pub fn is_injected(folder: &Path) -> bool {
    match fs::symlink_metadata(folder) {
        Ok(_) => match fs::symlink_metadata(folder.join(MARK)) {
            Ok(_) => true,
            Err(error) => match error.kind() {
                // A daemon's own folder on a host may be closed too, but it is no mount.
                ErrorKind::PermissionDenied => is_mounted(folder),
                _ => is_unmarked(folder),
            },
        },
        Err(error) => match error.kind() {
            ErrorKind::NotFound => is_covered(folder),
            kind => kind != ErrorKind::NotADirectory,
        },
    }
}

/// Whether a mount is at `folder` that cannot be reached: another one is above it. So does systemd
/// as a container's first program, which mounts a tmpfs at `/run` where none is. The table of
/// mounts has both ([ADR 220](../../docs/adr/0220-a-covered-socket-folder-counts.md)).
#[must_use]
pub fn is_covered(folder: &Path) -> bool {
    let absent = fs::symlink_metadata(folder);
    let is_absent = absent.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    is_absent && fs::read("/proc/self/mountinfo").is_ok_and(|table| has_mount(&table, folder))
}

/// Whether a tenant's or a class's socket folder is mounted at `folder`, whatever is in it: it was
/// emptied on the host, or removed there.
#[must_use]
pub fn is_unmarked(folder: &Path) -> bool {
    let is_own = folder.join(CONTROL).exists() || folder.join(MARK).exists();
    let table = || fs::read("/proc/self/mountinfo");
    !is_own && table().is_ok_and(|table| has_socket_folder(&table, folder))
}

/// Whether a `/proc/<pid>/mountinfo` has a mount at this place, whose path needs no escapes.
fn has_mount(table: &[u8], place: &Path) -> bool {
    roots_at(table, place).next().is_some()
}

/// Whether the last mount at this place is of a folder `sockets/NAME` or `classes/NAME`.
fn has_socket_folder(table: &[u8], place: &Path) -> bool {
    let root = roots_at(table, place).last();
    root.is_some_and(|root| {
        // As the kernel says of a folder that was removed.
        let root = root.strip_suffix(b"//deleted").unwrap_or(root);
        let kind = root.rsplit(|byte| *byte == b'/').nth(1);
        kind.is_some_and(|kind| [SOCKETS, CLASSES].iter().any(|of| of.as_bytes() == kind))
    })
}

/// What is mounted at this place, as a path of its file system: the first mount comes first.
fn roots_at<'a>(table: &'a [u8], place: &'a Path) -> impl Iterator<Item = &'a [u8]> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (point == place.as_os_str().as_bytes()).then_some(root)
    })
}

/// Whether a folder is of another file system than the folder that it is in.
fn is_mounted(folder: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let above = folder.parent();
    above.is_some_and(|above| device(above) != device(folder))
}

/// Why programs of every user cannot load the library from a folder, if so. In a container the
/// dynamic linker then prints a line and starts the program without the library, and so without
/// limits. Nothing is said of a folder that this process cannot see: it may be hidden from a
/// service (`ProtectHome=`), or on another machine; and no container starts where it is not there.
///
/// # Errors
/// What is missing or closed, as a sentence.
pub fn is_loadable(folder: &Path) -> Result<(), String> {
    let library = folder.join(LIBRARY_NAME);
    for (path, is_folder) in [(folder, true), (&library, false)] {
        let name = path.display();
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(_) if is_folder => return Ok(()),
            Err(error) => return Err(format!("cannot open {name}: {error}")),
        };
        if found.is_dir() != is_folder {
            return Err(format!("{name} is of another kind than it has to be"));
        }
        is_open(&name.to_string(), found.mode(), is_folder)?;
    }
    Ok(())
}

/// Whether this mode lets every user go through the library's folder, or read the library.
///
/// # Errors
/// If not, as a sentence.
pub fn is_open(name: &str, mode: u32, is_folder: bool) -> Result<(), String> {
    let (bits, form) = match is_folder {
        true => (0o005, "o+rx"),
        false => (0o004, "o+r"),
    };
    match mode & bits == bits {
        true => Ok(()),
        false => Err(format!(
            "{name} has mode {:04o}: programs of other users could not load {LIBRARY_NAME} and would run without limits; chmod {form}",
            mode & 0o7777
        )),
    }
}

/// The folder of the installed library's version, as the program at `own` finds it: a container
/// that has that folder mounted keeps its version through an upgrade.
#[must_use]
pub fn installed_library(own: &Path) -> Option<PathBuf> {
    let beside = own.parent()?;
    let installed = [
        beside.join("../lib/gpushare/libgpushare.so"),
        beside.join("lib/libgpushare.so"),
        PathBuf::from("/usr/lib/gpushare/libgpushare.so"),
    ];
    installed.iter().find_map(|path| folder_of(path))
}

/// The folder of the version to which the library in `folder` leads, where that is a link: in a
/// container that has the link's folder mounted, an upgrade would change the library, and a removal
/// take it away with the limits. `folder` itself where there is none.
#[must_use]
pub fn version_in(folder: &Path) -> PathBuf {
    folder_of(&folder.join(LIBRARY_NAME)).unwrap_or_else(|| folder.to_owned())
}

fn folder_of(library: &Path) -> Option<PathBuf> {
    let real = library.canonicalize().ok()?;
    real.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_folder_with_the_mark_is_a_containers() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("gpushare");
        assert!(!is_injected(&folder));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("control.sock"), "").unwrap();
        assert!(!is_injected(&folder), "a daemon's own");
        fs::write(folder.join(MARK), "").unwrap();
        assert!(is_injected(&folder));
        assert!(!is_injected(&folder.join(MARK).join("gpushare")));
    }

    #[test]
    fn a_table_of_mounts_names_a_folder_that_another_mount_covers() {
        let row = |root: &str, point: &str| format!("63 43 0:39 {root} {point} rw - tmpfs a rw\n");
        let covered = row("/gpushare/sockets/a", FOLDER) + &row("/", "/run");
        assert!(has_mount(covered.as_bytes(), Path::new(FOLDER)));
        for other in [
            row("/", "/run"),
            row(FOLDER, "/mnt"),
            row("/", "/run/gpushare-0"),
            row("/", "/x/run/gpushare"),
            String::new(),
        ] {
            assert!(!has_mount(other.as_bytes(), Path::new(FOLDER)), "{other}");
        }
        // This process's own table: what is there is not covered, nor is what never was.
        assert!(!is_covered(Path::new("/proc")));
        assert!(!is_covered(Path::new("/run/gpushare-never")));
    }

    #[test]
    fn a_mounted_socket_folder_is_a_containers_whatever_is_in_it() {
        let row = |root: &str, point: &str| format!("63 43 0:39 {root} {point} ro - tmpfs a rw\n");
        let is = |table: &str| has_socket_folder(table.as_bytes(), Path::new(FOLDER));
        for root in [
            "/gpushare/sockets/a",
            "/gpushare/sockets/a//deleted",
            "/sockets/a//deleted",
            "/var/lib/x/classes/half",
        ] {
            assert!(is(&row(root, FOLDER)), "{root}");
            assert!(!is(&row(root, "/run")), "{root}");
            // Another one is above it.
            assert!(!is(&(row(root, FOLDER) + &row("/", FOLDER))), "{root}");
        }
        for root in ["/", "/gpushare", "/gpushare//deleted", "/sockets", "/a/b"] {
            assert!(!is(&row(root, FOLDER)), "{root}");
        }
        assert!(!is(""));
        assert!(!is_unmarked(Path::new("/proc")));
    }

    #[test]
    fn a_library_is_loadable_only_where_all_users_can_read_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("lib");
        let library = folder.join(LIBRARY_NAME);
        let told = || is_loadable(&folder).unwrap_err();
        is_loadable(&folder).expect("it cannot be seen");
        fs::create_dir(&folder).unwrap();
        assert!(told().contains("cannot open"));
        assert!(told().contains(LIBRARY_NAME));
        fs::create_dir(&library).unwrap();
        assert!(told().contains("kind"));
        fs::remove_dir(&library).unwrap();
        fs::write(&library, "").unwrap();
        for (folder_mode, mode, word) in [
            (0o750, 0o644, "lib has mode 0750"),
            (0o751, 0o644, "o+rx"),
            (0o755, 0o640, "libgpushare.so has mode 0640"),
        ] {
            fs::set_permissions(&folder, Permissions::from_mode(folder_mode)).unwrap();
            fs::set_permissions(&library, Permissions::from_mode(mode)).unwrap();
            assert!(told().contains(word), "{word}");
        }
        fs::set_permissions(&library, Permissions::from_mode(0o444)).unwrap();
        is_loadable(&folder).unwrap();
    }

    #[test]
    fn the_folder_of_the_current_version_is_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let version = root.join("lib/gpushare/versions/1");
        fs::create_dir_all(&version).unwrap();
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(version.join("libgpushare.so"), "").unwrap();
        let link = root.join("lib/gpushare/libgpushare.so");
        std::os::unix::fs::symlink("versions/1/libgpushare.so", link).unwrap();
        let own = root.join("bin/gpushare-oci-hook");
        assert_eq!(installed_library(&own), Some(version.clone()));
        // Named by the folder that has the link, by its own, and one without a library.
        assert_eq!(version_in(&root.join("lib/gpushare")), version);
        assert_eq!(version_in(&version), version);
        assert_eq!(version_in(&root.join("bin")), root.join("bin"));
    }
}
