//! `gpushare suspend` and `gpushare resume`: a tenant's memory leaves the device by command. Both
//! return once that is done.

use crate::args::Named;
use crate::daemon;
use crate::failure::Failure;
use gpushare_protocol::wire::Control;
use std::process::ExitCode;

/// Moves a tenant's memory to the host.
pub(crate) fn suspend(named: &Named) -> Result<ExitCode, Failure> {
    let tenant = named.tenant.clone();
    order(&Control::Suspend { tenant })
}

/// Brings it back.
pub(crate) fn resume(named: &Named) -> Result<ExitCode, Failure> {
    let tenant = named.tenant.clone();
    order(&Control::Resume { tenant })
}

fn order(request: &Control) -> Result<ExitCode, Failure> {
    let mut last = None;
    for mut daemon in daemon::some()? {
        match daemon.call(request) {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            // Another daemon may have the tenant.
            Err(failure) if failure.message.starts_with("no tenant is named") => {
                last = Some(failure.into());
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(last.unwrap_or_else(|| Failure::ours("no daemon is running")))
}
