//! The only file that prints: data to standard output, talk to standard error.
#![allow(clippy::print_stdout, reason = "this is where the command line prints")]

use crate::failure::Failure;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Prints one line on standard error. It is no failure if that is closed.
pub(crate) fn note(message: &str) {
    let _ = writeln!(stderr(), "gpushare: {message}");
}

/// Clears the terminal that standard output is.
pub(crate) fn clear() -> Result<(), Failure> {
    let cleared = write!(stdout(), "\x1b[H\x1b[2J").and_then(|()| stdout().flush());
    cleared.map_err(|error| Failure::ours(format!("cannot write to standard output: {error}")))
}

/// Data. A reader that has gone away has read enough.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::ours(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}
