//! The container's file system, which its image filled as it liked: every step below it is made
//! from a held descriptor, within it, and never through a magic link.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use gpushare_inject::preload;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, mkdirat,
    open, openat, openat2, statx,
};
use rustix::io::Errno;

use crate::host::{HostDevices, Mounted};
use crate::mounts::as_user;
use crate::{Failure, cannot};

/// The root of a container's file system.
#[derive(Debug)]
pub struct Rootfs {
    root: OwnedFd,
    mount: u64,
    mounted: Mounted,
    host: HostDevices,
}

const HELD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Rootfs {
    /// The file system at `path`, in the container's mount namespace. `host` are the devices of
    /// the host.
    ///
    /// # Errors
    /// If nothing is mounted there: the runtime has not made its mounts yet.
    pub fn open(path: &Path, host: HostDevices) -> Result<Self, Failure> {
        let name = path.display();
        let flags = HELD | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let root = open(path, flags, Mode::empty())
            .map_err(cannot(&format!("open the container's root {name}")))?;
        let found = look(&root, &format!("the container's root {name}"))?;
        if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(Failure(format!(
                "the container's root {name} is not mounted yet: this runtime calls createRuntime hooks too early; use CDI"
            )));
        }
        Ok(Self {
            mount: found.stx_mnt_id,
            root,
            mounted: Mounted::here(),
            host,
        })
    }

    fn beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(
            &self.root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }

    /// A folder's mount point in the container, made if it is missing.
    ///
    /// # Errors
    /// If it is something else, or would be made in a volume.
    pub fn folder(&self, path: &str) -> Result<OwnedFd, Failure> {
        let (above, name) = split(path)?;
        let above = self.folders(above)?;
        make(&above, path, || {
            mkdirat(&above, name, Mode::from_raw_mode(0o755))
        })?;
        self.last(&above, name, path, FileType::Directory)
    }

    /// A file's mount point in the container, made if it is missing.
    ///
    /// # Errors
    /// If it is something else, or would be made in a volume.
    pub fn file(&self, path: &str) -> Result<OwnedFd, Failure> {
        let (above, name) = split(path)?;
        let above = self.folders(above)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        make(&above, path, || {
            openat(&above, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        })?;
        self.last(&above, name, path, FileType::RegularFile)
    }

    /// The content of a small file of the container, or `None` if it has none.
    ///
    /// # Errors
    /// If it is no file, is in a volume, or is longer than what is read.
    pub fn small_file(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        let held = match self.beneath(path, HELD | OFlags::NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            held => held.map_err(cannot(&format!("open {path} in the container")))?,
        };
        self.suits(&held, path, FileType::RegularFile)?;
        let mut text = Vec::new();
        let most = preload::MOST as u64 + 1;
        reopened(&held)
            .and_then(|file| file.take(most).read_to_end(&mut text))
            .map_err(cannot(&format!("read {path} in the container")))?;
        Ok(Some(text))
    }

    /// Whether a program of the container would find a folder under this path.
    #[must_use]
    pub fn has_folder(&self, path: &str) -> bool {
        self.beneath(path, HELD | OFlags::DIRECTORY).is_ok()
    }

    /// The beginning of a regular file that a program of the container would find under this path.
    #[must_use]
    pub fn head(&self, path: &str, bytes: u64) -> Option<Vec<u8>> {
        let held = self.beneath(path, HELD).ok()?;
        let found = look(&held, path).ok()?;
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
            return None;
        }
        let mut head = Vec::with_capacity(usize::try_from(bytes).ok()?);
        reopened(&held)
            .ok()?
            .take(bytes)
            .read_to_end(&mut head)
            .ok()?;
        Some(head)
    }

    /// A folder that is followed through links within the container, made where it is missing.
    fn folders(&self, path: &str) -> Result<OwnedFd, Failure> {
        let open = |path: &str| match path {
            "" => self.beneath("/", HELD | OFlags::DIRECTORY),
            _ => self.beneath(path, HELD | OFlags::DIRECTORY),
        };
        let held = match open(path) {
            Err(Errno::NOENT) if !path.is_empty() => {
                let (above, name) = split(path)?;
                let above = self.folders(above)?;
                make(&above, path, || {
                    mkdirat(&above, name, Mode::from_raw_mode(0o755))
                })?;
                open(path)
            }
            held => held,
        };
        let held = held.map_err(|error| {
            Failure(format!(
                "cannot open {path} in the container: {error}; accepted: a folder, or a link to one in the container"
            ))
        })?;
        self.suits(&held, path, FileType::Directory)?;
        Ok(held)
    }

    /// The last part of a path: never a link.
    fn last(
        &self,
        above: &OwnedFd,
        name: &str,
        path: &str,
        kind: FileType,
    ) -> Result<OwnedFd, Failure> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = HELD | OFlags::NOFOLLOW;
        let held = openat2(above, name, flags, Mode::empty(), resolve)
            .map_err(cannot(&format!("open {path} in the container")))?;
        self.suits(&held, path, kind)?;
        Ok(held)
    }

    /// Refuses what is of another kind, and what is not the container's own: a volume may be the
    /// host's.
    fn suits(&self, held: &OwnedFd, path: &str, kind: FileType) -> Result<(), Failure> {
        let found = look(held, path)?;
        if FileType::from_raw_mode(found.stx_mode.into()) != kind {
            let kind = match kind {
                FileType::Directory => "a folder",
                _ => "a regular file",
            };
            return Err(Failure(format!("{path} in the container is not {kind}")));
        }
        if found.stx_mnt_id == self.mount {
            return Ok(());
        }
        let seen = (found.stx_dev_major, found.stx_dev_minor);
        let device = self.mounted.device(found.stx_mnt_id)?.unwrap_or(seen);
        // A file system that the host does not have was made for this container.
        if self.host.contains(device)? {
            return Err(Failure(format!(
                "{path} in the container is in a volume, which gpushare does not write into; mount that volume elsewhere"
            )));
        }
        Ok(())
    }
}

/// Makes a mount point, unless something is there. A file system that was mounted in a user
/// namespace has no place for a file of the host's root: there it is made as the owner of the
/// folder.
fn make(above: &OwnedFd, path: &str, step: impl Fn() -> Result<(), Errno>) -> Result<(), Failure> {
    let made = match step() {
        Err(Errno::OVERFLOW) => {
            let folder = look(above, path)?;
            as_user(folder.stx_uid, folder.stx_gid, step)
        }
        made => made,
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(cannot(&format!("make {path} in the container"))(error)),
    }
}

fn look(held: impl AsFd, path: &str) -> Result<Statx, Failure> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let found =
        statx(held, "", AtFlags::EMPTY_PATH, wanted).map_err(cannot(&format!("look at {path}")))?;
    match found.stx_mask & StatxFlags::MNT_ID.bits() {
        0 => Err(Failure(
            "this kernel does not tell which mount a file is in (statx, since Linux 5.8)"
                .to_owned(),
        )),
        _ => Ok(found),
    }
}

/// The mount that a file is in.
#[cfg(test)]
pub(crate) fn mount_of(held: &File) -> u64 {
    look(held, "it").map_or(0, |found| found.stx_mnt_id)
}

/// The same file, to be read.
fn reopened(held: &OwnedFd) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

fn split(path: &str) -> Result<(&str, &str), Failure> {
    path.rsplit_once('/')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| Failure(format!("{path:?} is no path in a container")))
}
