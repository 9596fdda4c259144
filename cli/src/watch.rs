//! `gpushare ps --watch`: the same table again and again.

use crate::args::Ps;
use crate::failure::Failure;
use crate::{output, ps};
use std::io::{IsTerminal, stderr, stdout};
use std::process::ExitCode;

/// Lists tenants, once or until it is interrupted or nothing reads it any more. Once it has listed
/// some, it goes on where the daemons cannot be asked, and notes why: a daemon may come back, as in
/// each upgrade. A terminal is cleared when the next rows are there; elsewhere a note that has not
/// changed is not repeated.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let first = ps::listed(arguments);
    let Some(every) = arguments.watch else {
        first?.print(&[])?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut next: Result<ps::Listed, Failure> = Ok(first?);
    let (mut told, mut shown) = (None, Vec::new());
    loop {
        match next {
            Ok(listed) => {
                if stdout().is_terminal() {
                    output::clear()?;
                    if stderr().is_terminal() {
                        shown.clear();
                    }
                }
                shown = listed.print(&shown)?;
                told = None;
            }
            // Each reason once: what is above it stays on the screen.
            Err(failure) if told.as_ref() != Some(&failure.message) => {
                output::note(&format!("note: this is old: {}", failure.message));
                told = Some(failure.message);
            }
            Err(_) => {}
        }
        if output::is_unread_within(every) {
            return Ok(ExitCode::SUCCESS);
        }
        next = ps::listed(arguments);
    }
}
