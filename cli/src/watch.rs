//! `gpushare ps --watch`: the same table again and again.

use crate::args::Ps;
use crate::failure::Failure;
use crate::{output, ps};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

/// Lists tenants, once or until it fails or is interrupted. A terminal is cleared before each time.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let Some(every) = arguments.watch else {
        return ps::ps(arguments);
    };
    loop {
        if stdout().is_terminal() {
            output::clear()?;
        }
        ps::ps(arguments)?;
        std::thread::sleep(every);
    }
}
