//! The workspace's build products, built before the first use.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set by a caller that has just built everything, such as `scripts/test.sh`. Tests then skip the
/// build.
const BUILT: &str = "GPUTEST_BUILT";
const PACKAGES: [&str; 7] = [
    "gpushare",
    "gpushare-exporter",
    "gpushared",
    "gpushare-interposer",
    "gpushare-oci-hook",
    "softgpu-cuda",
    "softgpu-nvml",
];

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder of this test's build profile, such as `target/debug`. Cargo does not rebuild
/// libraries that a test loads at run time, so the first call builds them. A test never uses stale
/// libraries.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = env::current_exe().expect("/proc is mounted");
        let folder = test
            .parent()
            .and_then(Path::parent)
            .expect("cargo puts tests into <profile>/deps")
            .to_owned();
        build(&folder);
        folder
    })
}

/// Builds the packages in the profile of a folder, unless the caller has.
fn build(folder: &Path) {
    if env::var_os(BUILT).is_some() {
        return;
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(repository())
        .args(["build", "--quiet", "--locked"]);
    cargo.args(PACKAGES.iter().flat_map(|package| ["-p", *package]));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.env(
        "CARGO_TARGET_DIR",
        folder.parent().expect("a profile is in a target folder"),
    );
    assert!(
        cargo.status().expect("cargo runs").success(),
        "the libraries under test do not build"
    );
}

/// The command line.
pub fn gpushare() -> PathBuf {
    folder().join("gpushare")
}

/// The daemon, or the one that `GPUTEST_DAEMON` names, to measure a packaged one.
pub fn gpushared() -> PathBuf {
    env::var_os("GPUTEST_DAEMON").map_or_else(|| folder().join("gpushared"), PathBuf::from)
}

/// The exporter.
pub fn exporter() -> PathBuf {
    folder().join("gpushare-exporter")
}

/// The library under test.
pub fn interposer() -> PathBuf {
    folder().join("libgpushare.so")
}

/// The software GPU's driver.
pub fn soft_cuda() -> PathBuf {
    folder().join("libsoftgpu_cuda.so")
}

/// The software GPU's NVML.
pub fn soft_nvml() -> PathBuf {
    folder().join("libsoftgpu_nvml.so")
}

/// A folder for files that tests create and keep: compiled clients, Python environments, unpacked
/// systems.
pub fn cache() -> PathBuf {
    let cache = folder().join("gpushare-tests");
    std::fs::create_dir_all(&cache).expect("the target folder is writable");
    cache
}
