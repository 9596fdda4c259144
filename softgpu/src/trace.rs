//! `SOFTGPU_TRACE=file`: one line per call of a driver function, `pid tid function result`,
//! appended as it returns.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;

/// The variable the file's path is read from.
pub const VARIABLE: &str = "SOFTGPU_TRACE";

/// Notes that `symbol` answered `result`. Lines of one process and of several do not tear: each is
/// one append.
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
        // A trace that cannot be written must not change what the traced program sees.
        let _ = file.write_all(line.as_bytes());
    }
}
