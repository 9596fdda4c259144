//! `gpushare ps --watch`: the same table again and again.

use crate::args::Ps;
use crate::failure::Failure;
use crate::{output, ps};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

/// Lists tenants, once or until it fails, is interrupted, or nothing reads it any more. A terminal
/// is cleared before each time.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let Some(every) = arguments.watch else {
        return ps::ps(arguments);
    };
    loop {
        if stdout().is_terminal() {
            output::clear()?;
        }
        ps::ps(arguments)?;
        if output::is_unread_within(every) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
