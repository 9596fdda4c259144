//! The folder in which a program finds the software GPU's libraries under the names it looks for.
//!
//! It lies in the user's own runtime folder, one for each place the libraries are in, and stays:
//! the next `run` uses it again, so a `run` that is killed leaves nothing behind. Only where there
//! is no such folder a temporary one is made.

use crate::artefacts::{SOFT_CUDA, SOFT_NVML, find};
use crate::failure::Failure;
use gpushare_protocol::paths::Root;
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The links a program may look for, and what each leads to.
const LINKS: [(&str, &str); 4] = [
    ("libcuda.so.1", SOFT_CUDA),
    ("libcuda.so", SOFT_CUDA),
    ("libnvidia-ml.so.1", SOFT_NVML),
    ("libnvidia-ml.so", SOFT_NVML),
];

/// See the module's page.
#[derive(Debug)]
pub(crate) enum Links {
    /// In the user's runtime folder.
    Lasting(PathBuf),
    /// Gone when dropped.
    Temporary(TempDir),
}

impl Links {
    /// Makes the links, or finds them made.
    pub(crate) fn make(runtime_dir: Option<&Path>) -> Result<Self, Failure> {
        let targets = targets()?;
        if let Ok(root) = Root::open(runtime_dir, geteuid().as_raw())
            && let Some(base) = root.path().parent()
            && let Ok(folder) = lasting(base, &targets)
        {
            return Ok(Self::Lasting(folder));
        }
        // No other user may write there, whatever the umask: programs load the targets of these
        // links.
        let folder = tempfile::Builder::new()
            .prefix("gpushare-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| {
                Failure::ours(format!(
                    "cannot make a temporary folder: {error}; set TMPDIR to one you can write"
                ))
            })?;
        fill(folder.path(), &targets).map_err(|error| {
            let folder = folder.path().display();
            Failure::ours(format!("cannot make links in {folder}: {error}"))
        })?;
        Ok(Self::Temporary(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Lasting(folder) => folder,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// Leaves a temporary folder there for good. Its path, if it is one.
    pub(crate) fn keep(self) -> Option<PathBuf> {
        match self {
            Self::Lasting(_) => None,
            Self::Temporary(folder) => Some(folder.keep()),
        }
    }
}

fn targets() -> Result<[(&'static str, PathBuf); 4], Failure> {
    let [a, b, c, d] = LINKS.map(|(name, library)| find(library).map(|target| (name, target)));
    Ok([a?, b?, c?, d?])
}

fn lasting(base: &Path, targets: &[(&str, PathBuf)]) -> io::Result<PathBuf> {
    let mut hash = DefaultHasher::new();
    targets.hash(&mut hash);
    let folder = base.join("soft").join(format!("{:016x}", hash.finish()));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    fill(&folder, targets)?;
    Ok(folder)
}

/// Makes the links that are not there as they shall be. Another `run` may do the same at the same
/// time.
fn fill(folder: &Path, targets: &[(&str, PathBuf)]) -> io::Result<()> {
    for (name, target) in targets {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|found| found == *target) {
            continue;
        }
        let fresh = folder.join(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        symlink(target, &fresh)?;
        fs::rename(&fresh, &link)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_one_place_are_made_once_and_mended() {
        let base = tempfile::tempdir().unwrap();
        let of = |place: &str| LINKS.map(|(name, library)| (name, Path::new(place).join(library)));
        let one = lasting(base.path(), &of("/one")).unwrap();
        assert_eq!(lasting(base.path(), &of("/one")).unwrap(), one);
        assert_ne!(lasting(base.path(), &of("/other")).unwrap(), one);
        let link = one.join("libcuda.so.1");
        assert_eq!(
            fs::read_link(&link).unwrap(),
            Path::new("/one").join(SOFT_CUDA)
        );
        fs::remove_file(&link).unwrap();
        symlink("/elsewhere", &link).unwrap();
        lasting(base.path(), &of("/one")).unwrap();
        assert_eq!(
            fs::read_link(&link).unwrap(),
            Path::new("/one").join(SOFT_CUDA)
        );
        assert_eq!(fs::read_dir(&one).unwrap().count(), LINKS.len());
    }
}
