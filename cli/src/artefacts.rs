//! Where the libraries and the daemon are: beside this executable.

use crate::failure::Failure;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The interposer.
pub(crate) const INTERPOSER: &str = "libgpushare.so";
/// The daemon.
pub(crate) const DAEMON: &str = "gpushared";
/// The software GPU's driver and its NVML.
pub(crate) const SOFT_CUDA: &str = "libsoftgpu_cuda.so";
/// See [`SOFT_CUDA`].
pub(crate) const SOFT_NVML: &str = "libsoftgpu_nvml.so";

/// Folders searched, relative to the executable's own: a build folder, one of `scripts/package.sh`,
/// an installation, an unpacked tarball.
const FOLDERS: [&str; 5] = ["", "lib", "../lib/gpushare", "../lib", "../lib/package"];

/// This executable.
pub(crate) fn own_executable() -> Result<PathBuf, Failure> {
    env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| {
            Failure::ours(format!(
                "cannot find my own executable: {error}; is /proc mounted?"
            ))
        })
}

/// The full path of one library.
pub(crate) fn find(library: &str) -> Result<PathBuf, Failure> {
    find_beside(&own_executable()?, library)
}

fn find_beside(executable: &Path, library: &str) -> Result<PathBuf, Failure> {
    let own = executable.parent().unwrap_or_else(|| Path::new("/"));
    let candidates = FOLDERS.map(|folder| own.join(folder).join(library));
    candidates.iter().find_map(|path| fs::canonicalize(path).ok()).ok_or_else(|| {
        let package = match library {
            INTERPOSER => "gpushare-interposer",
            SOFT_CUDA => "softgpu-cuda",
            SOFT_NVML => "softgpu-nvml",
            program => program,
        };
        let place = match library.ends_with(".so") {
            true => own.parent().unwrap_or(own).join("lib/gpushare"),
            false => own.to_owned(),
        };
        // Never by a copy over an old one: running programs have that mapped.
        let mode = if library.ends_with(".so") { 644 } else { 755 };
        Failure::ours(format!(
            "{library} is neither in {} nor in lib/ there or beside it: the package and the tarball bring it \
             (scripts/package.sh); or build it with `cargo build --release -p {package}` and \
             `install -D -m {mode} target/release/{library} {}/{library}`",
            own.display(),
            place.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_a_build_an_installation_and_a_tarball() {
        for place in [
            "bin/a.so",
            "bin/lib/a.so",
            "lib/gpushare/a.so",
            "lib/a.so",
            "lib/package/a.so",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let library = dir.path().join(place);
            fs::create_dir_all(dir.path().join("bin")).unwrap();
            fs::create_dir_all(library.parent().unwrap()).unwrap();
            fs::write(&library, "").unwrap();
            let found = find_beside(&dir.path().join("bin/gpushare"), "a.so").unwrap();
            assert_eq!(found, fs::canonicalize(library).unwrap());
        }
    }

    #[test]
    fn a_missing_library_is_named_with_where_it_was_sought() {
        let message = find_beside(Path::new("/nonexistent/gpushare"), INTERPOSER)
            .unwrap_err()
            .message;
        for part in [INTERPOSER, "/nonexistent", "cargo build"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn what_is_missing_is_built_by_its_own_package_and_put_in_its_place() {
        let libraries = "/opt/lib/gpushare";
        for (missing, package, place) in [
            (INTERPOSER, "gpushare-interposer", libraries),
            (SOFT_CUDA, "softgpu-cuda", libraries),
            (SOFT_NVML, "softgpu-nvml", libraries),
            (DAEMON, "gpushared", "/opt/bin"),
        ] {
            let message = find_beside(Path::new("/opt/bin/gpushare"), missing)
                .unwrap_err()
                .message;
            let build = format!("`cargo build --release -p {package}`");
            assert!(message.contains(&build), "{message}");
            // A copy over a file that programs map would end them.
            let put = format!("target/release/{missing} {place}/{missing}`");
            assert!(message.contains("`install -D -m "), "{message}");
            assert!(message.ends_with(&put), "{message}");
        }
    }
}
