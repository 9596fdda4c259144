//! A program's registration with a daemon.

use crate::args::{Run, Share, UseDaemon};
use crate::daemon::{self, NODE, Patience, Talk};
use crate::failure::Failure;
use crate::in_files;
use crate::mps;
use crate::output;
use crate::plan::Plan;
use crate::settings::{self, Environment};
use gpushare_protocol::limits::Limits;
use gpushare_protocol::mps::ACTIVE_THREADS;
use gpushare_protocol::paths::{IN_FILES, TENANT};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, WireError};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable that names the folder of the tenant's socket.
const SOCKET: &str = "GPUSHARE_SOCKET";

/// Variables that a process in a tenant keeps by itself, each also for one device. The last one the
/// driver keeps for an MPS client, and `run` leaves it there.
const KEPT_INSIDE: [&str; 6] = [
    "GPUSHARE_MEM_LIMIT",
    "GPUSHARE_MEM_VIEW",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "NVIDIA_GPU_MEMORY_LIMIT",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    ACTIVE_THREADS,
];
/// Those that `run` has MPS keep for its client.
const KEPT_BY_MPS: [&str; 2] = ["GPUSHARE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT"];

/// Least time for the daemon's first answer, however short the wait may be. It answers within
/// microseconds; this is for a stopped one.
const FIRST_WORDS: Duration = Duration::from_secs(5);
/// Why the wait for that was too long.
const UNANSWERED: &str = "has had no answer from the daemon";
/// The daemon's words for a device that it does not see. For a lost device it has other words.
const NO_DEVICE: &str = "this node has no device";
/// Pause after a daemon that was lost before it said that the tenant queues.
const PAUSE: Duration = Duration::from_millis(250);

/// A tenant that a daemon has registered.
#[derive(Debug)]
pub(crate) struct Registered {
    /// The connection for which the daemon keeps it.
    pub(crate) talk: Talk,
    /// The request that registered it.
    pub(crate) request: Control,
}

/// Registers the tenant of `plan` where it is to be, and tells the program where its socket is.
pub(crate) fn register(plan: &mut Plan, arguments: &Run) -> Result<Option<Registered>, Failure> {
    if arguments.daemon == UseDaemon::Off {
        check_terms(arguments, plan)?;
    }
    let Some(mut talk) = daemon::for_plan(plan, arguments.daemon, Patience::Usual)? else {
        in_files::check(plan)?;
        plan.tenant.mark(&mut plan.environment);
        return Ok(None);
    };
    let since = Instant::now();
    let left = || {
        let most = arguments.start_timeout?;
        Some(most.saturating_sub(since.elapsed()))
    };
    let mut queued: Option<String> = None;
    let mut is_lost = false;
    let request = Control::Create {
        name: Some(plan.tenant.name.to_string()),
        environment: settings::of_limits(&plan.environment),
        devices: plan.devices.iter().map(|device| device.uuid).collect(),
    };
    let ask = |talk: &mut Talk| {
        bound(talk, left().map(|left| left.max(FIRST_WORDS)))?;
        Ok::<_, Failure>(talk.ask(&request)?)
    };
    let mut asked = Some(ask(&mut talk)?);
    loop {
        let heard = match asked {
            Some(_) => talk.next(),
            None => Err(ErrorKind::BrokenPipe.into()),
        };
        let reply = match heard {
            Err(error) => {
                let late = error.kind() == ErrorKind::WouldBlock;
                if late || left().is_some_and(|left| left.is_zero()) {
                    let why = queued.as_deref().unwrap_or(UNANSWERED);
                    return Err(too_late(plan, arguments, why));
                }
                let lost = format!("lost the daemon at {}: {error}", talk.folder().display());
                let Some(why) = queued.clone() else {
                    return Err(Failure::ours(lost));
                };
                // No daemon stores what queues. The place in the queue is lost.
                match is_lost {
                    true => sleep(PAUSE),
                    false => output::note(&format!(
                        "{lost}; {} is registered again with the next one",
                        plan.tenant.name
                    )),
                }
                is_lost = true;
                let most = Patience::UpTo(left().unwrap_or(Duration::MAX));
                let next = daemon::for_plan(plan, arguments.daemon, most);
                if left().is_some_and(|left| left.is_zero()) {
                    return Err(too_late(plan, arguments, &why));
                }
                talk = next?.ok_or_else(|| Failure::ours(lost))?;
                asked = ask(&mut talk).ok();
                continue;
            }
            Ok((of, reply)) if Some(of) == asked => reply,
            // It was ended while it queued.
            Ok((_, ControlReply::End { why, .. })) => {
                let name = &plan.tenant.name;
                return Err(Failure::ours(format!("{name} was not started: {why}")));
            }
            Ok(_) => continue,
        };
        match reply {
            ControlReply::Error(error) => {
                let Share { amounts, terms, .. } = &arguments.share;
                let mut message = refused(&error, &talk);
                settings::blame_flags(amounts, terms, &mut message);
                settings::blame_view(&arguments.share, &mut message);
                return Err(Failure::ours(message));
            }
            ControlReply::Queued { why } => {
                output::note(&format!("{}: {why}", plan.tenant.name));
                queued = Some(why);
                is_lost = false;
                // A wait that is over before it begins still has to end by itself.
                let left = left().map(|left| left.max(Duration::from_millis(1)));
                bound(&talk, left)?;
            }
            ControlReply::Created { folder, .. } => {
                // The daemon's limits can be changed while the program runs; a copy in its
                // environment would be a ceiling.
                bound(&talk, None)?;
                settings::forget_limits(&mut plan.environment);
                plan.environment.insert(SOCKET.into(), folder.into());
                plan.environment.remove(OsStr::new(IN_FILES));
                return Ok(Some(Registered { talk, request }));
            }
            _ => {
                return Err(Failure::ours(
                    "the daemon gave an answer this version does not know",
                ));
            }
        }
    }
}

/// A refusal in the daemon's words. A private daemon has the GPUs that its first program saw, which
/// in a batch job are those of that job.
fn refused(error: &WireError, talk: &Talk) -> String {
    let folder = talk.folder();
    let is_unseen = error.code == ErrorCode::NotFound && error.message.contains(NO_DEVICE);
    if !is_unseen || folder == Path::new(NODE) {
        return error.to_string();
    }
    let process = Talk::listener(folder).map(|pid| format!(", process {pid}"));
    format!(
        "{error}: your own daemon at {}{} serves the GPUs that there were for its first program, as in another batch job; set XDG_RUNTIME_DIR to a folder of this job alone (of mode 0700), and a daemon starts there, or end those programs first",
        folder.display(),
        process.unwrap_or_default()
    )
}

/// Bounds how long the daemon's next words are waited for.
fn bound(talk: &Talk, most: Option<Duration>) -> Result<(), Failure> {
    let bounded = talk
        .socket()
        .and_then(|socket| socket.set_read_timeout(most));
    bounded.map_err(|error| Failure::ours(format!("the daemon's socket: {error}")))
}

fn too_late(plan: &Plan, arguments: &Run, why: &str) -> Failure {
    let most = arguments.start_timeout.unwrap_or_default();
    let (name, command) = (&plan.tenant.name, arguments.command.first());
    let command = command.map(|command| command.to_string_lossy().into_owned());
    Failure::ours(format!(
        "{} was not started: --start-timeout of {most:?} is over, and tenant {name} {why}",
        command.unwrap_or_default()
    ))
}

/// Refuses what only a daemon can keep, by the flag that asked for it, where there is to be none.
fn check_terms(arguments: &Run, plan: &Plan) -> Result<(), Failure> {
    let why = "--daemon off runs without one; leave one of the two out";
    check_without_daemon(&arguments.share, &plan.limits, why)
}

/// Refuses limits that only a daemon can keep, by the flag that asked for one; `why` there is none,
/// and what to do.
pub(crate) fn check_without_daemon(
    share: &Share,
    limits: &Limits,
    why: &str,
) -> Result<(), Failure> {
    let Err(error) = limits.clone().without_daemon() else {
        return Ok(());
    };
    let request = share.amounts.sm_request.first();
    let request = request.map(|value| ("--sm-request", "GPUSHARE_SM_REQUEST", value.as_str()));
    let mut given = share.terms.given().chain(request);
    let is_blamed = |variable: &str| {
        let device = error.variable.strip_prefix(variable);
        device.is_some_and(|device| device.is_empty() || device.starts_with('_'))
    };
    match given.find(|(_, variable, _)| is_blamed(variable)) {
        None => {
            let mut failure = Failure::from(error);
            settings::blame_view(share, &mut failure.message);
            Err(failure)
        }
        Some((flag, _, value)) => Err(Failure::usage(format!(
            "{flag}={value:?} is refused: only a daemon can keep it, and {why}"
        ))),
    }
}

/// Refuses what a `run` inside a registered tenant asks for and cannot have: another tenant,
/// another part of the device than less memory, other terms, no daemon.
pub(crate) fn check_nested(arguments: &Run, plan: &Plan) -> Result<(), Failure> {
    // The plan's environment has the name of the tenant that this `run` would have made.
    if let Some(ended) = ended_outer(&plan.environment, std::env::var_os(TENANT)) {
        return Err(Failure::ours(ended));
    }
    let outer = outer_name(&plan.environment);
    let (inside, change) = match &outer {
        Some(name) => (format!("tenant {name}"), format!("`gpushare set {name}`")),
        None => (
            "the tenant of a container".to_owned(),
            "`gpushare set` on the host".to_owned(),
        ),
    };
    let refuse = |what: &str| {
        Err(Failure::ours(format!(
            "{what} is refused: this runs inside {inside}, whose limits are the daemon's and hold for all it starts; \
             leave it out, or change the tenant with {change}"
        )))
    };
    let name = arguments.share.name.as_deref();
    if let Some(name) = name.filter(|name| Some(*name) != outer.as_deref()) {
        return refuse(&format!("--name {name}"));
    }
    let by_mps = mps::daemon(&plan.environment).is_some();
    if let Some((flag, value)) = flag_of_tenant(&arguments.share, by_mps) {
        return refuse(&format!("{flag} {value}"));
    }
    if arguments.daemon == UseDaemon::Off {
        return refuse("--daemon off");
    }
    if let Some(stranger) = stranger(&outer, plan) {
        return Err(Failure::ours(format!(
            "{} is refused: this runs inside {inside}, which was not given that device; leave it out of --gpu and CUDA_VISIBLE_DEVICES, or \
             register the tenant with it",
            Uuid(stranger)
        )));
    }
    // A container's own variables are what it was registered with: they ask for nothing more.
    let said = variable_of_tenant(&plan.environment, by_mps);
    match said.filter(|_| outer.is_some()) {
        Some((variable, value)) => refuse(&format!("{variable}={value}")),
        None => Ok(()),
    }
}

/// A device of the plan that the tenant we run in was not given, by what its daemon says: the
/// library would refuse CUDA for it.
fn stranger(outer: &Option<String>, plan: &Plan) -> Option<[u8; 16]> {
    let socket = Path::new(plan.environment.get(OsStr::new(SOCKET))?);
    let folder = socket.parent()?.parent()?;
    let status = Talk::connect(folder).ok()?.status().ok()?;
    let row = status
        .iter()
        .find(|row| Some(&row.name) == outer.as_ref())?;
    let is_given = |uuid| row.asks.is_empty() || row.asks.iter().any(|ask| ask.device == uuid);
    let mut devices = plan.devices.iter().map(|device| device.uuid);
    devices.find(|uuid| !is_given(*uuid))
}

/// The first flag, and its value, of what is the whole tenant's: all but the ceiling and the view
/// of memory, which a process keeps by itself, and a cap that MPS keeps for it (`by_mps`).
fn flag_of_tenant(share: &Share, by_mps: bool) -> Option<(&'static str, &str)> {
    let amounts = [
        ("--mem-request", &share.amounts.mem_request),
        ("--sm-request", &share.amounts.sm_request),
        ("--sm-limit", &share.amounts.sm_limit),
    ];
    let amounts = amounts.into_iter().take(if by_mps { 2 } else { 3 });
    let amounts = amounts.filter_map(|(flag, values)| Some((flag, values.first()?.as_str())));
    let terms = share.terms.given().map(|(flag, _, value)| (flag, value));
    terms.chain(amounts).next()
}

/// The same of the variables. An outer `run` has taken those of its tenant out, so one that is
/// there was set inside. An alias that says "none" asks for nothing.
fn variable_of_tenant(environment: &Environment, by_mps: bool) -> Option<(String, String)> {
    let caps = KEPT_BY_MPS.iter().filter(|_| by_mps);
    let kept: Vec<_> = KEPT_INSIDE.iter().chain(caps).collect();
    let is_kept = |name: &str| {
        kept.iter().any(|kept| {
            let device = name.strip_prefix(**kept);
            device.is_some_and(|device| device.is_empty() || device.starts_with('_'))
        })
    };
    let says_none = |name: &str, value: &str| {
        let alone = Limits::from_env([(name.into(), value.into())]);
        let none = Limits::default().to_string();
        !name.starts_with("GPUSHARE_") && alone.is_ok_and(|alone| alone.to_string() == none)
    };
    let said = settings::of_limits(environment).into_iter();
    let mut said = said.filter(|(name, value)| !is_kept(name) && !says_none(name, value));
    said.next()
}

/// That the tenant of this environment has ended, so that no program in it can use CUDA; `None`
/// where it has not, or there is none. `name` is the one that the environment gave it.
pub(crate) fn ended_outer(environment: &Environment, name: Option<OsString>) -> Option<String> {
    let folder = Path::new(environment.get(OsStr::new(SOCKET))?);
    // The folder of a tenant lies there as long as it lives, whether its daemon serves or not.
    let error = fs::symlink_metadata(folder).err()?;
    if daemon::is_container() || error.kind() != ErrorKind::NotFound {
        return None;
    }
    let name = name.as_deref().or_else(|| folder.file_name());
    let name = name.unwrap_or_default();
    Some(format!(
        "tenant {}, in which this shell was started, has ended: {SOCKET}={} is not there, and CUDA is refused in all that is started here; unset {SOCKET} {TENANT}, or open a new shell",
        name.display(),
        folder.display()
    ))
}

/// The name of the tenant we run in: as `run` said it, else that of its socket's folder. A
/// container does not know its own.
fn outer_name(environment: &Environment) -> Option<String> {
    if daemon::is_container() {
        return None;
    }
    if let Some(name) = std::env::var_os(TENANT) {
        return Some(name.to_string_lossy().into_owned());
    }
    let folder = environment.get(OsStr::new(SOCKET)).map(Path::new);
    let name = folder.and_then(Path::file_name);
    Some(name.unwrap_or_default().to_string_lossy().into_owned())
}

/// A program that is inside a registered tenant already stays in it: in that of a `run`, or in a
/// container's.
pub(crate) fn inherited(environment: &Environment) -> bool {
    daemon::is_container() || environment.contains_key(OsStr::new(SOCKET))
}

#[cfg(test)]
mod tests;
