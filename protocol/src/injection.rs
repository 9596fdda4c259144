//! The paths of gpushare's files in a container that it was injected into.
//!
//! The paths are part of the contract between the library and the programs that mount it: a
//! container keeps its library for months.

use std::path::{Path, PathBuf};

/// The folder of the tenant's socket in a container. It is mounted as a whole, so that nobody in
/// the container can rename, remove or close it. On a host it is the daemon's own folder.
pub const FOLDER: &str = "/run/gpushare";
/// The name of a file in a tenant's socket folder that no daemon's own folder has. Where
/// [`FOLDER`] has it, the daemon's registration is the law whatever the environment says.
pub const MARK: &str = "container";
/// The folder of the library in a container.
pub const LIBRARY_FOLDER: &str = "/usr/lib/gpushare";
/// The library in a container: what the preload file names.
pub const LIBRARY: &str = "/usr/lib/gpushare/libgpushare.so";
/// The file in a container that names libraries to preload into every program, ld.so(8).
pub const PRELOADED: &str = "/etc/ld.so.preload";
/// The name of a tenant's preload file in its socket folder on the host: ours first, then the
/// image's own lines.
pub const PRELOAD: &str = "ld.so.preload";
/// The name of an empty file in a tenant's socket folder: programs that find no daemon start
/// without limits.
pub const ALLOW: &str = "allow-without-daemon";

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
    let mut found = installed.iter().filter_map(|path| path.canonicalize().ok());
    found.next()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        assert_eq!(installed_library(&own), Some(version));
    }
}
