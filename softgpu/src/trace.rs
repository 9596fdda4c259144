//! `SOFTGPU_TRACE=file`: one line per driver call, `pid tid function result`, appended when the
//! call returns.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;

/// The environment variable that holds the file's path.
pub const VARIABLE: &str = "SOFTGPU_TRACE";

/// Writes one line: `symbol` returned `result`. Each line is one append, so lines of threads and
/// processes do not interleave.
pub fn note(symbol: &str, result: u32) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = std::env::var_os(VARIABLE)?;
        OpenOptions::new().create(true).append(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let line = format!(
            "{} {} {symbol} {result}\n",
            std::process::id(),
            crate::world::sys::thread_id()
        );
        // A failed write must not change what the traced program sees.
        let _ = file.write_all(line.as_bytes());
    }
}
