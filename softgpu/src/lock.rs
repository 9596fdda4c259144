//! `SOFTGPU_LOCK=file`: while the file is there the process is locked, as by cuda-checkpoint: every
//! call of the driver waits at its entry, and what was submitted before is worked off.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The variable the file's path is read from.
pub const VARIABLE: &str = "SOFTGPU_LOCK";

/// How often a call that waits looks.
const LOOK: Duration = Duration::from_micros(500);

/// Waits while the process is locked.
pub fn pass() {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    let Some(file) = file else { return };
    while file.exists() {
        std::thread::sleep(LOOK);
    }
}
