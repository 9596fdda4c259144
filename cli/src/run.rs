//! `gpushare run`: plan, start, supervise, clean up.

use crate::args::Run;
use crate::failure::{Failure, NOT_FOUND, NOT_STARTED};
use crate::listener::Listener;
use crate::plan::Plan;
use crate::program::{Container, OutOfReach};
use crate::registered::Registered;
use crate::service;
use crate::settings::Environment;
use crate::supervise::{End, Supervisor};
use crate::{output, plan, program, registered};
use nix::unistd::Pid;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};
use std::process::{Command, ExitCode};

/// Runs CMD and returns its status.
pub(crate) fn run(arguments: Run) -> Result<ExitCode, Failure> {
    let mut plan = plan::make(&arguments.share, env::vars_os().collect())?;
    let Some((command, rest)) = arguments.command.split_first() else {
        return Err(Failure::ours("there is no command to run"));
    };
    // A name that is mistyped would else wait for the device first, for hours.
    program::look_for(command, &plan.environment)
        .map_err(|errno| not_started(command, &plan.environment, &errno.into()))?;
    let reach = program::out_of_reach(command, &plan.environment);
    if let Some(reach) = reach {
        output::note(&uncovered(command, reach));
    }
    let is_told = matches!(reach, Some(OutOfReach::WithItsChildren(_)));
    if !is_told && program::starts_apart(command, rest) {
        output::note(&apart(command));
    }
    if let Some(container) = program::container(command) {
        output::note(&contained(command, container));
    }
    if program::starts_elsewhere(command) {
        output::note(&elsewhere(command));
    }
    if let Some(note) = &plan.note {
        output::note(note);
    }
    if let Some(note) = service::note(&plan.environment) {
        output::note(note);
    }
    let registered = if registered::inherited(&plan.environment) {
        registered::check_nested(&arguments, &plan)?;
        None
    } else {
        registered::register(&mut plan, &arguments)?
    };
    let end = start(command, rest, &plan, registered);
    plan.tenant.clean_up(&plan.environment);
    // With its links.
    drop(plan);
    let end = end?;
    end.share();
    Ok(ExitCode::from(end.status()))
}

fn uncovered(command: &OsStr, reach: OutOfReach) -> String {
    let command = command.display();
    match reach {
        OutOfReach::Alone(why) => format!(
            "note: {command} {why}, so the library is not loaded into it and no limit holds there; programs it starts are covered"
        ),
        OutOfReach::WithItsChildren(why) => format!(
            "note: {command} {why}, so the library is loaded neither into it nor into programs it starts, and no limit holds there; have it start gpushare, as in `sudo gpushare run -- CMD`"
        ),
    }
}

fn contained(command: &OsStr, container: Container) -> String {
    let command = command.display();
    match container {
        Container::OfItsOwn => format!(
            "note: the library is loaded into no program in a root that {command} makes, and no limit holds there, unless /usr/lib/gpushare and /run/gpushare are bound in it and LD_PRELOAD is passed on (OPERATIONS, Batch systems)"
        ),
        Container::OfAnEngine => format!(
            "note: the containers of {command} are none of this run's, and its limits hold in none of them: give a container limits of its own (CONTAINERS)"
        ),
    }
}

fn elsewhere(command: &OsStr) -> String {
    let command = command.display();
    format!(
        "note: this run's tenant is on this node, and has no program that {command} starts on another one: put gpushare behind it, \
         as in `{command} … gpushare run -- CMD` (OPERATIONS, Batch systems)"
    )
}

fn apart(command: &OsStr) -> String {
    let command = command.display();
    format!(
        "note: {command} starts programs that this run's environment need not reach, and no limit holds in one that it does not: \
         put gpushare behind it, as in `{command} … gpushare run -- CMD`"
    )
}

fn start(
    command: &OsStr,
    arguments: &[OsString],
    plan: &Plan,
    registered: Option<Registered>,
) -> Result<End, Failure> {
    let environment = &plan.environment;
    let supervisor = Supervisor::new()?;
    // Where no thread can be made, no program is begun.
    let listener = registered.map(|registered| Listener::start(registered, plan));
    let listener = listener.transpose()?;
    let mut handed = environment.clone();
    let of_pid = service::hand_on(&mut handed);
    let mut start = Command::new(command);
    start.args(arguments).env_clear().envs(&handed);
    let child = supervisor
        .start(&mut start, &of_pid)
        .map_err(|error| not_started(command, environment, &error))?;
    if let (Some(listener), Ok(program)) = (&listener, i32::try_from(child.id())) {
        listener.follow(Pid::from_raw(program));
    }
    let end = supervisor.wait(&child);
    if let Some(listener) = listener {
        listener.finish(end.as_ref().ok().map(|end| end.status()));
    }
    end
}

/// As the shell answers: 127 for a command that does not exist, 126 for one that does not start.
fn not_started(command: &OsStr, environment: &Environment, error: &Error) -> Failure {
    let missing =
        error.kind() == ErrorKind::NotFound && program::resolve(command, environment).is_none();
    let interpreter = || match error.kind() {
        ErrorKind::NotFound => program::missing_interpreter(command, environment),
        _ => None,
    };
    let (status, what) = if missing {
        (NOT_FOUND, "command not found".to_owned())
    } else if let Some(lost) = interpreter() {
        let what = format!("its interpreter {} is not there", lost.display());
        (NOT_STARTED, what)
    } else {
        (NOT_STARTED, error.to_string())
    };
    Failure {
        status,
        message: format!("{}: {what}", command.display()),
    }
}
