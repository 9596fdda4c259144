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
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

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
                // What the daemon holds can be changed while the program runs; a copy in its environment would be a ceiling.
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

/// Longest to wait for the daemon's last words once the program has ended. It says them within microseconds; this is for
/// one that is stopped.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Hears, while the program runs, what the daemon says of it: passes an end it decides on to the program, and says why.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: UnixStream,
    ended: Arc<AtomicBool>,
    silence: Receiver<()>,
}

impl Listener {
    /// Listens from now on.
    pub(crate) fn start(mut talk: Talk, program: Pid) -> Result<Self, Failure> {
        let socket = talk.socket().map_err(Failure::ours)?;
        let ended = Arc::new(AtomicBool::new(false));
        let (speaks, silence) = channel::<()>();
        let has_ended = Arc::clone(&ended);
        std::thread::spawn(move || {
            while let Ok((_, reply)) = talk.next() {
                if let ControlReply::End { signal, why } = reply {
                    output::note(&format!("the program is ended: {why}"));
                    // Once it has ended, its pid may be another's.
                    if let (false, Ok(signal)) =
                        (has_ended.load(Ordering::Acquire), Signal::try_from(signal))
                    {
                        let _ = kill(program, signal);
                    }
                }
            }
            drop(speaks);
        });
        Ok(Self {
            socket,
            ended,
            silence,
        })
    }

    /// The program has ended. The daemon ends processes by itself and tells us then, so its word may come after their end:
    /// we hang up, and hear it out.
    pub(crate) fn finish(self) {
        self.ended.store(true, Ordering::Release);
        // It may have hung up first.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.silence.recv_timeout(LAST_WORDS);
    }
}

/// A program that is inside a registered container already stays in it.
pub(crate) fn inherited(environment: &Environment) -> bool {
    environment.contains_key(std::ffi::OsStr::new(SOCKET))
}
