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
    let daemons = daemon::some().map_err(|failure| without_daemon(tenant).unwrap_or(failure))?;
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
    Err(without_daemon(tenant).unwrap_or(unknown))
}

/// Why a tenant that `gpushare ps` lists cannot be given orders.
fn without_daemon(tenant: &str) -> Option<Failure> {
    ps::has_files_only(tenant).then(|| {
        Failure::ours(format!(
            "{tenant} runs without a daemon: its limits and its memory stay as they are until its programs end"
        ))
    })
}
