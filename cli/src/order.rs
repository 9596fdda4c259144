//! Orders for a running tenant: to the daemon that has it.

use crate::failure::Failure;
use crate::{daemon, output, ps};
use gpushare_client::{Talk, TalkError};
use std::process::ExitCode;

/// Asks each daemon until one has the tenant. With `json` that one is asked for the tenant's rows
/// then, which are printed as `ps --json` prints them.
pub(crate) fn give(
    (tenant, json): (&str, bool),
    ask: impl Fn(&mut Talk) -> Result<(), TalkError>,
) -> Result<ExitCode, Failure> {
    let daemons = daemon::some().map_err(|failure| explained(tenant, failure))?;
    let mut last = None;
    for mut daemon in daemons {
        match ask(&mut daemon) {
            Ok(()) if json => return shown(tenant, &mut daemon),
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

fn shown(tenant: &str, daemon: &mut Talk) -> Result<ExitCode, Failure> {
    let text = ps::json_of(tenant, daemon).map_err(|failure| {
        let message = format!("it is done, and cannot be shown: {}", failure.message);
        Failure { message, ..failure }
    })?;
    output::data(&text)?;
    Ok(ExitCode::SUCCESS)
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
