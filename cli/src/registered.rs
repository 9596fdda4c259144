//! A program's registration with a daemon.

use crate::args::{Run, UseDaemon};
use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::output;
use crate::plan::Plan;
use crate::settings::{self, Environment};
use gpushare_protocol::paths::TENANT;
use gpushare_protocol::wire::{Control, ControlReply};
use std::ffi::OsStr;
use std::path::Path;

/// The variable that names the folder of the tenant's socket.
const SOCKET: &str = "GPUSHARE_SOCKET";

/// Registers the tenant of `plan` where it is to be, and tells the program where its socket is.
pub(crate) fn register(plan: &mut Plan, when: UseDaemon) -> Result<Option<Talk>, Failure> {
    let Some(mut talk) = daemon::for_plan(plan, when)? else {
        return Ok(None);
    };
    let request = Control::Create {
        name: Some(plan.tenant.name.to_string()),
        environment: settings::of_limits(&plan.environment),
        devices: plan.devices.iter().map(|device| device.uuid).collect(),
    };
    let id = talk.ask(&request)?;
    loop {
        match talk.reply(id)? {
            ControlReply::Queued { why } => output::note(&format!("{}: {why}", plan.tenant.name)),
            ControlReply::Created { folder, .. } => {
                // The daemon's limits can be changed while the program runs; a copy in its
                // environment would be a ceiling.
                settings::forget_limits(&mut plan.environment);
                plan.environment.insert(SOCKET.into(), folder.into());
                return Ok(Some(talk));
            }
            _ => {
                return Err(Failure::ours(
                    "the daemon gave an answer this version does not know",
                ));
            }
        }
    }
}

/// Refuses arguments of a `run` inside a registered tenant that it cannot have: another tenant,
/// other terms, no daemon.
pub(crate) fn check_nested(arguments: &Run, plan: &Plan) -> Result<(), Failure> {
    let outer = outer_name(&plan.environment);
    let refuse = |what: &str| {
        Err(Failure::ours(format!(
            "{what} is refused: this runs inside tenant {outer}, whose limits are the daemon's and hold for all it starts; \
             leave it out, or change the tenant with `gpushare set {outer}`"
        )))
    };
    if let Some(name) = arguments
        .share
        .name
        .as_deref()
        .filter(|name| *name != outer)
    {
        return refuse(&format!("--name {name}"));
    }
    if let Some((flag, _, value)) = arguments.share.terms.given().next() {
        return refuse(&format!("{flag} {value}"));
    }
    match arguments.daemon {
        UseDaemon::Off => refuse("--daemon off"),
        UseDaemon::Auto | UseDaemon::On => Ok(()),
    }
}

/// The name of the tenant we run in: as `run` said it, else that of its socket's folder.
fn outer_name(environment: &Environment) -> String {
    if let Some(name) = std::env::var_os(TENANT) {
        return name.to_string_lossy().into_owned();
    }
    let folder = environment.get(OsStr::new(SOCKET)).map(Path::new);
    let name = folder.and_then(Path::file_name);
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// A program that is inside a registered tenant already stays in it.
pub(crate) fn inherited(environment: &Environment) -> bool {
    environment.contains_key(OsStr::new(SOCKET))
}
