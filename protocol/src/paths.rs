//! Where a container's shared files live without a daemon.
//!
//! `$XDG_RUNTIME_DIR/gpushare/c/<container>/` if that runtime folder is ours alone, else
//! `/dev/shm/gpushare-<uid>/c/<container>/`. Every folder we make or use is a real directory (no link), owned by
//! the user and closed to others; anything else is refused, because another user could have put it there.

use crate::limits::LimitError;
use std::fmt;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable that names the container.
pub const CONTAINER: &str = "GPUSHARE_CONTAINER";
/// The usage page's file name in a container's folder.
pub const USAGE: &str = "usage";
/// Longest container name, in bytes.
pub const MAX_NAME: usize = 64;

/// The name of a container: 1 to 64 of `A-Z a-z 0-9 . _ -`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName(String);

impl ContainerName {
    /// Checks a name; `variable` is what to blame in the error (`GPUSHARE_CONTAINER`, `--name`).
    ///
    /// # Errors
    /// If it is no such name.
    pub fn parse(variable: &str, name: &str) -> Result<Self, LimitError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty()
            || name.len() > MAX_NAME
            || name.starts_with('.')
            || !name.bytes().all(allowed)
        {
            let accepted =
                "1 to 64 letters, digits, dots, underscores and dashes, not beginning with a dot";
            return Err(LimitError::new(
                variable,
                name,
                "it is no container name",
                accepted,
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name of a container founded by a process without one: its pid and start time (`/proc/<pid>/stat`, field 22).
    pub fn of_process(pid: u32, start_time: u64) -> Self {
        Self(format!("p{pid}-{start_time}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The folder all of one user's containers are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// Finds the root and makes it where it is missing. `runtime_dir` is `XDG_RUNTIME_DIR`, `uid` the effective user.
    ///
    /// # Errors
    /// If a folder cannot be made or is not ours alone; the message names it.
    pub fn open(runtime_dir: Option<&Path>, uid: u32) -> io::Result<Self> {
        Self::under(runtime_dir, Path::new("/dev/shm"), uid)
    }

    fn under(runtime_dir: Option<&Path>, shm: &Path, uid: u32) -> io::Result<Self> {
        let private = runtime_dir.filter(|dir| dir.is_absolute()).filter(|dir| {
            fs::symlink_metadata(dir).is_ok_and(|found| fault(&found, uid).is_none())
        });
        let base = private.map_or_else(
            || shm.join(format!("gpushare-{uid}")),
            |dir| dir.join("gpushare"),
        );
        make_private(&base, uid)?;
        let root = base.join("c");
        make_private(&root, uid)?;
        Ok(Self(root))
    }

    /// The folder of one container, made if it is missing.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn create(&self, name: &ContainerName, uid: u32) -> io::Result<PathBuf> {
        let folder = self.0.join(&name.0);
        make_private(&folder, uid).map(|()| folder)
    }

    /// Where a container's folder is or would be.
    pub fn folder(&self, name: &ContainerName) -> PathBuf {
        self.0.join(&name.0)
    }

    /// The root itself.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Makes a folder only its owner can enter, or accepts one that is already so.
fn make_private(folder: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io::Error::new(
                error.kind(),
                format!("cannot make {}: {error}", folder.display()),
            ));
        }
        _ => {}
    }
    match fault(&fs::symlink_metadata(folder)?, uid) {
        None => Ok(()),
        Some(fault) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} {fault}; remove it, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700",
                folder.display()
            ),
        )),
    }
}

fn fault(found: &Metadata, uid: u32) -> Option<String> {
    if !found.is_dir() {
        Some("is not a folder".to_owned())
    } else if found.uid() != uid {
        Some(format!("belongs to user {}, not to {uid}", found.uid()))
    } else if found.mode() & 0o077 != 0 {
        Some(format!(
            "has mode {:04o}, which lets others in",
            found.mode() & 0o7777
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct World {
        dir: tempfile::TempDir,
        uid: u32,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let uid = fs::metadata(dir.path()).unwrap().uid();
            Self { dir, uid }
        }

        fn folder(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    #[test]
    fn a_private_runtime_folder_is_used() {
        let world = World::new();
        let (run, shm) = (world.folder("run", 0o700), world.folder("shm", 0o777));
        let root = Root::under(Some(&run), &shm, world.uid).unwrap();
        assert_eq!(root.path(), run.join("gpushare/c"));
        let name = ContainerName::parse(CONTAINER, "a.b_c-1").unwrap();
        let made = root.create(&name, world.uid).unwrap();
        assert_eq!(
            (made.clone(), fs::metadata(&made).unwrap().mode() & 0o7777),
            (root.folder(&name), 0o700)
        );
        assert_eq!(
            root.create(&name, world.uid).unwrap(),
            made,
            "joining finds the same folder"
        );
    }

    #[test]
    fn an_open_missing_foreign_or_linked_runtime_folder_is_passed_over() {
        let world = World::new();
        let (open, shm) = (world.folder("open", 0o755), world.folder("shm", 0o777));
        let link = world.dir.path().join("link");
        symlink(world.folder("private", 0o700), &link).unwrap();
        for run in [
            Some(open.as_path()),
            Some(Path::new("/nonexistent")),
            Some(Path::new("relative")),
            Some(&link),
            None,
        ] {
            let root = Root::under(run, &shm, world.uid).unwrap();
            assert_eq!(
                root.path(),
                shm.join(format!("gpushare-{}/c", world.uid)),
                "{run:?}"
            );
        }
    }

    #[test]
    fn a_folder_others_could_have_made_is_refused_by_name() {
        let world = World::new();
        let shm = world.folder("shm", 0o777);
        let ours = format!("shm/gpushare-{}", world.uid);
        let elsewhere = world.folder("elsewhere", 0o700);
        symlink(&elsewhere, world.dir.path().join(&ours)).unwrap();
        let refused = |what: &str| {
            let error = Root::under(None, &shm, world.uid).unwrap_err().to_string();
            assert!(error.contains(&ours) && error.contains(what), "{error}");
        };
        refused("is not a folder");
        fs::remove_file(world.dir.path().join(&ours)).unwrap();
        world.folder(&ours, 0o770);
        refused("mode 0770");
        fs::set_permissions(world.dir.path().join(&ours), Permissions::from_mode(0o700)).unwrap();
        Root::under(None, &shm, world.uid).unwrap();
        let error = Root::under(None, &world.dir.path().join("missing"), world.uid)
            .unwrap_err()
            .to_string();
        assert!(error.contains("missing/gpushare-"), "{error}");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let world = World::new();
        let found = fs::metadata(world.folder("own", 0o700)).unwrap();
        assert_eq!(fault(&found, world.uid), None);
        assert!(fault(&found, world.uid + 1).unwrap().contains("belongs to"));
    }

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for name in [
            "",
            ".",
            "..",
            ".a",
            "a/b",
            "../a",
            "a b",
            "ä",
            "a\n",
            "a\0",
            &"a".repeat(65),
        ] {
            assert_eq!(
                ContainerName::parse("--name", name).unwrap_err().variable,
                "--name",
                "{name:?}"
            );
        }
        for name in [
            "a",
            "A-1_.x",
            &"a".repeat(64),
            ContainerName::of_process(12, 345).as_str(),
        ] {
            assert!(ContainerName::parse(CONTAINER, name).is_ok(), "{name:?}");
        }
    }
}
