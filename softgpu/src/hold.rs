//! `SOFTGPU_HOLD=function:file`: while the file exists, calls of that function wait before they do
//! anything, as in a driver that takes long. Each writes a line to the file when it begins to wait,
//! so that a test knows that one does.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crate::fail::is_named;
use crate::world::sys::thread_id;

/// The environment variable that holds the function and the file's path.
pub const VARIABLE: &str = "SOFTGPU_HOLD";

/// How often a waiting call looks for the file.
const LOOK: Duration = Duration::from_micros(500);

#[derive(Debug, PartialEq, Eq)]
struct Held {
    function: String,
    file: PathBuf,
}

/// Waits while calls of the exported function `symbol` are held.
pub fn pass(symbol: &str) {
    static HELD: OnceLock<Option<Held>> = OnceLock::new();
    let held = HELD.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?));
    let Some(held) = held
        .as_ref()
        .filter(|held| is_named(&held.function, symbol))
    else {
        return;
    };
    if let Ok(mut file) = OpenOptions::new().append(true).open(&held.file) {
        let _ = writeln!(file, "{}", thread_id());
    }
    while held.file.exists() {
        std::thread::sleep(LOOK);
    }
}

fn parse(text: &str) -> Option<Held> {
    let (function, file) = text.split_once(':')?;
    Some(Held {
        function: function.to_owned(),
        file: PathBuf::from(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_names_a_function_and_a_file() {
        let held = parse("cuCtxDestroy:/tmp/a:b").expect("both are there");
        assert_eq!(held.function, "cuCtxDestroy");
        assert_eq!(held.file, PathBuf::from("/tmp/a:b"));
        assert_eq!(parse("cuCtxDestroy"), None);
    }
}
