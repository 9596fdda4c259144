//! Orders for a running tenant: to the daemon that has it.

use crate::failure::Failure;
use crate::{daemon, ps};
use gpushare_client::{Talk, TalkError};
use std::process::ExitCode;

/// Asks each daemon until one has the tenant.
pub(crate) fn give(
    tenant: &str,
    ask: impl Fn(&mut Talk) -> Result<(), TalkError>,
) -> Result<ExitCode, Failure> {
    let daemons = daemon::some().map_err(|failure| explained(tenant, failure))?;
    let mut last = None;
    for mut daemon in daemons {
        match ask(&mut daemon) {
            Ok(()) => return Ok(ExitCode::SUCCESS),
            // Another daemon may have the tenant; the daemon that has it gives the reason of a
            // refusal.
            Err(failure) if failure.message.starts_with("no tenant is named") => {
                last = Some(failure.into());
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    let unknown = last.unwrap_or_else(|| Failure::ours("no daemon is running"));
    Err(explained(tenant, unknown))
}

/// The failure, in words for a tenant that `gpushare ps` lists and that cannot be given orders.
fn explained(tenant: &str, failure: Failure) -> Failure {
    if !ps::has_files_only(tenant) {
        return failure;
    }
    let message = format!(
        "{tenant} runs without a daemon: its limits and its memory stay as they are until its programs end"
    );
    Failure { message, ..failure }
}
