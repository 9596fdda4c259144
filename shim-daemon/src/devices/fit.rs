//! Whether the driver's library fits the module that the kernel has loaded. After an upgrade of the
//! driver it does not before the next boot, and NVML refuses to start. The module is not asked: it
//! may hang.
//!
//! # Safety
//! The library's initialisers are those that each start of the daemon runs.
#![allow(unsafe_code, reason = "loads NVML to see which file the linker takes")]

use std::fs;
use std::path::Path;

use libloading::Library;

/// NVML's file, whose name ends in the driver's version.
const NAME: &str = "libnvidia-ml.so";

/// The file that has the version of the kernel's module.
pub const MODULE: &str = "/sys/module/nvidia/version";

/// Why a daemon that starts now finds no driver: the versions of library and module, where both are
/// known and differ. `module` is a file like [`MODULE`].
#[must_use]
pub fn misfit(module: &Path) -> Option<String> {
    let module = fs::read_to_string(module).ok()?;
    let module = version(module.trim())?;
    // SAFETY: see the module's comment. It stays loaded while its path is looked for.
    let _library = unsafe { Library::new(format!("{NAME}.1")) }.ok()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps.lines().find_map(of_library)?;
    (library != module).then(|| {
        format!(
            "the driver's library is of {library}, and the kernel has the module of {module}: the \
             driver was upgraded, and works again after a reboot"
        )
    })
}

/// The version in the name of a library's file, from a line of `/proc/self/maps`.
fn of_library(line: &str) -> Option<&str> {
    let (_, name) = line.rsplit_once('/')?;
    version(name.strip_prefix(NAME)?.strip_prefix('.')?)
}

/// A driver's version, such as 550.54.14.
fn version(text: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (text.contains('.') && text.split('.').all(is_number)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_library_is_in_the_name_of_its_file() {
        let folder = "7f00-7f01 r-xp 00000000 08:01 17    /usr/lib/x86_64-linux-gnu";
        for (name, version) in [
            ("libnvidia-ml.so.550.54.14", Some("550.54.14")),
            ("libnvidia-ml.so.615.71", Some("615.71")),
            ("libnvidia-ml.so.1", None),
            ("libnvidia-ml.so.550.54.14 (deleted)", None),
            ("libnvidia-ml.so.550.", None),
            ("libcuda.so.550.54.14", None),
        ] {
            assert_eq!(of_library(&format!("{folder}/{name}")), version, "{name}");
        }
        assert_eq!(of_library("7f00-7f01 rw-p 00000000 00:00 0"), None);
    }
}
