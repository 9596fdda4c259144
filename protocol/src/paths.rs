//! Where a tenant's shared files live without a daemon.
//!
//! `$XDG_RUNTIME_DIR/gpushare/c/<tenant>/` if that runtime folder is ours alone, else
//! `/dev/shm/gpushare-<uid>/c/<tenant>/`. Every folder we make or use is a real directory (no
//! link), owned by the user and closed to others; anything else is refused, because another user
//! could have put it there.
//!
//! Every user may write into `/dev/shm`, so another user may be first to take that name. Then
//! another folder is used, which no other user can make: `/run/gpushare-0` for root,
//! `/run/user/<uid>/gpushare-shm` for others. Once that is there it is used also when the other one
//! is free again, so that the other user cannot split a tenant's processes.

use crate::limits::LimitError;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable that names the tenant.
pub const TENANT: &str = "GPUSHARE_TENANT";
/// The variable that names the folder of a tenant whose books are in files, in a program that was
/// started so: `<root>/<tenant>`. Its last part is the tenant's name.
pub const IN_FILES: &str = "GPUSHARE_IN_FILES";
/// The usage page's file name in a tenant's folder.
pub const USAGE: &str = "usage";
/// Longest tenant name, in bytes.
pub const MAX_NAME: usize = 64;

/// The name of a tenant: 1 to 64 of `A-Z a-z 0-9 . _ -`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName(String);

impl TenantName {
    /// Checks a name; `variable` is what to blame in the error (`GPUSHARE_TENANT`, `--name`).
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
                "it is no tenant name",
                accepted,
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name of a tenant founded by a process without one: its pid and start time
    /// (`/proc/<pid>/stat`, field 22).
    pub fn of_process(pid: u32, start_time: u64) -> Self {
        Self(format!("p{pid}-{start_time}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The folder all of one user's tenants are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    path: PathBuf,
    passed_over: Option<String>,
}

/// The shared folders of a machine.
#[derive(Clone, Copy, Debug)]
struct Places<'a> {
    /// The folder that every user may write into.
    shm: &'a Path,
    /// The folder that only root may write into, with a folder `user/<uid>` for each user who has
    /// logged in.
    run: &'a Path,
}

impl Places<'_> {
    /// The folder that no other user can take, if the machine has a place for it.
    fn untakeable(&self, uid: u32) -> Option<PathBuf> {
        if uid == 0 {
            let found = fs::symlink_metadata(self.run).ok()?;
            let roots = found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
            return roots.then(|| self.run.join("gpushare-0"));
        }
        let own = self.run.join("user").join(uid.to_string());
        let found = fs::symlink_metadata(&own).ok()?;
        fault(&found, uid)
            .is_none()
            .then(|| own.join("gpushare-shm"))
    }
}

impl Root {
    /// Finds the root and makes it where it is missing. `runtime_dir` is `XDG_RUNTIME_DIR`, `uid`
    /// the effective user.
    ///
    /// # Errors
    /// If a folder cannot be made or is not ours alone; the message names it.
    pub fn open(runtime_dir: Option<&Path>, uid: u32) -> io::Result<Self> {
        let places = Places {
            shm: Path::new("/dev/shm"),
            run: Path::new("/run"),
        };
        Self::under(runtime_dir, places, uid)
    }

    /// The root for the books of `name`. In a program that was started in that tenant, whose
    /// [`IN_FILES`] is `mark`, it is the place that its `run` found; the folders of a login come
    /// and go meanwhile. Where that place is not there and cannot be made, and for any other
    /// tenant, it is as [`Root::open`] says.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn of(
        name: &TenantName,
        mark: Option<&OsStr>,
        runtime_dir: Option<&Path>,
        uid: u32,
    ) -> io::Result<Self> {
        let marked = mark.map(Path::new).filter(|_| is_marked(name, mark));
        let Some(path) = marked
            .and_then(Path::parent)
            .filter(|path| path.is_absolute())
        else {
            return Self::open(runtime_dir, uid);
        };
        let made = match path.parent() {
            Some(base) => make_private(base, uid).and_then(|()| make_private(path, uid)),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let Err(lost) = made else {
            let path = path.to_owned();
            return Ok(Self {
                path,
                passed_over: None,
            });
        };
        let mut root = Self::open(runtime_dir, uid)?;
        root.passed_over = Some(format!(
            "the books of tenant {name} can be no longer in {}: {lost}; {} is used instead",
            path.display(),
            root.path.display()
        ));
        Ok(root)
    }

    fn under(runtime_dir: Option<&Path>, places: Places<'_>, uid: u32) -> io::Result<Self> {
        let private = runtime_dir.filter(|dir| dir.is_absolute()).filter(|dir| {
            fs::symlink_metadata(dir).is_ok_and(|found| fault(&found, uid).is_none())
        });
        let (base, passed_over) = match private {
            Some(dir) => {
                let base = dir.join("gpushare");
                make_private(&base, uid)?;
                (base, None)
            }
            None => shared(places, uid)?,
        };
        let path = base.join("c");
        make_private(&path, uid)?;
        Ok(Self { path, passed_over })
    }

    /// A message: another user took the root's place, or it is gone, and that is ignored.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// The folder of one tenant, made if it is missing.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn create(&self, name: &TenantName, uid: u32) -> io::Result<PathBuf> {
        let folder = self.path.join(&name.0);
        make_private(&folder, uid).map(|()| folder)
    }

    /// Where a tenant's folder is or would be.
    pub fn folder(&self, name: &TenantName) -> PathBuf {
        self.path.join(&name.0)
    }

    /// The root itself.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether `mark`, the value of [`IN_FILES`], is of this tenant.
pub fn is_marked(name: &TenantName, mark: Option<&OsStr>) -> bool {
    let marked = mark.and_then(|mark| Path::new(mark).file_name());
    marked.is_some_and(|marked| marked == name.as_str())
}

/// The folder of a user without a runtime folder of their own.
fn shared(places: Places<'_>, uid: u32) -> io::Result<(PathBuf, Option<String>)> {
    let usual = places.shm.join(format!("gpushare-{uid}"));
    let other = places.untakeable(uid);
    if let Some(other) = &other
        && fs::symlink_metadata(other).is_ok()
    {
        make_private(other, uid)?;
        return Ok((other.clone(), None));
    }
    let refused = match make_private(&usual, uid) {
        Ok(()) => return Ok((usual, None)),
        Err(refused) => refused,
    };
    let theirs = fs::symlink_metadata(&usual).is_ok_and(|found| found.uid() != uid);
    match other.filter(|_| theirs) {
        Some(other) => {
            make_private(&other, uid)?;
            let text = format!(
                "{} is another user's and is ignored; {} is used instead",
                usual.display(),
                other.display()
            );
            Ok((other, Some(text)))
        }
        None => Err(refused),
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
            "has mode {:04o}, which lets other users in",
            found.mode() & 0o7777
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
