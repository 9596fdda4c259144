//! `SOFTGPU_LOCK=file`: while the file exists the process is locked, as by cuda-checkpoint. Every
//! driver call waits at its entry, and work submitted before completes.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The environment variable that holds the file's path.
pub const VARIABLE: &str = "SOFTGPU_LOCK";

/// How often a waiting call looks for the file.
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
