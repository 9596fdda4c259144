//! A program's registration with a daemon: kept open while it runs, and listened to.

use crate::args::UseDaemon;
use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::output;
use crate::plan::Plan;
use crate::settings::{self, Environment};
use gpushare_protocol::wire::{Control, ControlReply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that names the folder of the container's socket.
const SOCKET: &str = "GPUSHARE_SOCKET";

/// Registers the container of `plan` where it is to be, and tells the program where its socket is.
pub(crate) fn register(plan: &mut Plan, when: UseDaemon) -> Result<Option<Talk>, Failure> {
    let wanted = match when {
        UseDaemon::Off if daemon::is_needed(&plan.limits) => {
            plan.limits.clone().without_daemon()?;
            false
        }
        UseDaemon::Off => false,
        UseDaemon::On => true,
        UseDaemon::Auto => {
            daemon::is_needed(&plan.limits)
                || daemon::serves(&plan.gpu, &plan.environment, plan.container.name.as_str())
        }
    };
    if !wanted {
        return Ok(None);
    }
    let mut talk = daemon::for_program(&plan.gpu, &plan.environment, plan.container.name.as_str())?;
    let request = Control::Create {
        name: Some(plan.container.name.to_string()),
        environment: settings::of_limits(&plan.environment),
        devices: plan.devices.iter().map(|device| device.uuid).collect(),
    };
    let id = talk.ask(&request)?;
    loop {
        match talk.reply(id)? {
            ControlReply::Queued { why } => {
                output::note(&format!("{}: {why}", plan.container.name))
            }
            ControlReply::Created { folder, .. } => {
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

/// Listens while the program runs: passes an end the daemon decides on to it, and says why. Returns when the daemon leaves.
pub(crate) fn listen(mut talk: Talk, program: Pid) {
    while let Ok((_, reply)) = talk.next() {
        if let ControlReply::End { signal, why } = reply {
            output::note(&format!("the program is ended: {why}"));
            if let Ok(signal) = Signal::try_from(signal) {
                // It may have ended by itself.
                let _ = kill(program, signal);
            }
        }
    }
}

/// A program that is inside a registered container already stays in it.
pub(crate) fn inherited(environment: &Environment) -> bool {
    environment.contains_key(std::ffi::OsStr::new(SOCKET))
}
