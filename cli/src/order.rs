//! Orders for a running tenant: to the daemon that has it.

use crate::daemon::Has;
use crate::failure::Failure;
use crate::{daemon, output, ps};
use gpushare_client::{Talk, TalkError};
use std::process::ExitCode;

/// Gives an order to the daemon that has the tenant. With `json` it is asked for the tenant's rows
/// then, which are printed as `ps --json` prints them.
pub(crate) fn give(
    (tenant, json): (&str, bool),
    ask: impl FnOnce(&mut Talk) -> Result<(), TalkError>,
) -> Result<ExitCode, Failure> {
    let mut daemon = daemon_of(tenant)?;
    ask(&mut daemon)?;
    match json {
        true => shown(tenant, &mut daemon),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// The daemon that has the tenant. Where several have one of that name, it is the one whose tenant
/// takes this user's orders; if that is so of several, there is none, because only one of them was
/// meant.
pub(crate) fn daemon_of(tenant: &str) -> Result<Talk, Failure> {
    let (mut ours, mut others, mut lost) = (Vec::new(), Vec::new(), None);
    let daemons = daemon::some().map_err(|failure| explained(tenant, failure))?;
    for mut daemon in daemons {
        match daemon::has(&mut daemon, tenant) {
            Ok(Has::Ours) => ours.push(daemon),
            Ok(Has::AnotherUsers) => others.push(daemon),
            Ok(Has::Nothing) => {}
            Err(error) => lost = Some(error.into()),
        }
    }
    if ours.len() > 1 {
        let folders = ours.iter().map(|daemon| daemon.folder().display());
        let folders: Vec<String> = folders.map(|folder| folder.to_string()).collect();
        return Err(Failure::ours(format!(
            "several tenants are named {tenant}, and nothing is done because one of them is meant: the daemons at {} have one each; \
             end all of them but one, or name the next ones otherwise",
            folders.join(" and ")
        )));
    }
    // The daemon of another user's says why it refuses.
    let found = ours.into_iter().chain(others).next();
    found.ok_or_else(|| {
        let unknown = format!("no tenant is named {tenant}; `gpushare ps` lists them");
        explained(tenant, lost.unwrap_or_else(|| Failure::ours(unknown)))
    })
}

fn shown(tenant: &str, daemon: &mut Talk) -> Result<ExitCode, Failure> {
    let printed = ps::json_of(tenant, daemon).and_then(|text| output::data(&text));
    printed.map_err(|failure| {
        let message = format!("it is done, and cannot be shown: {}", failure.message);
        Failure { message, ..failure }
    })?;
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
