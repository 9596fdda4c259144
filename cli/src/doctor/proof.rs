//! The live proof: a program under a small limit tries to take more than that, by every way.

use super::child;
use super::facts::{Outcome, Way};
use crate::artefacts::{DAEMON, find, own_executable};
use crate::child::Group;
use crate::daemon;
use crate::settings::Environment;
use gpushare_protocol::units::{Bytes, MIB};
use gpushare_sys::proof::{Answer, Program};
use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// The limit of the trial.
const LIMIT: u64 = 256 * MIB;
/// An allocation that fits in the limit, and one that does not.
const WITHIN: u64 = 16 * MIB;
const BEYOND: u64 = 512 * MIB;
/// Two processes that hold this much each are above it together.
const HALF: u64 = 160 * MIB;
/// Longest for all ways. A context takes a second or two on a real GPU, and `run` waits for 10 s
/// for a machine's daemon that is stopped, before it says so.
const PATIENCE: Duration = Duration::from_secs(12);
/// Longest for the second process.
const SECOND: Duration = Duration::from_secs(4);
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Answer = 2;

/// Runs the trial under `gpushare run`, as any program runs on this node.
pub(super) fn make(gpu: &str, environment: &Environment) -> Result<Vec<Way>, String> {
    let executable = own_executable().map_err(|failure| failure.message)?;
    // The user's own limits and tenant are not tried here.
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("GPUSHARE_");
    let kept = |name: &OsStr| !ours(name) || name == "GPUSHARE_DAEMON_CONFIG";
    let plain = environment.iter().filter(|(name, _)| kept(name));
    let plain = plain.map(|(name, value)| (name.clone(), value.clone()));
    let limit = Bytes(LIMIT).to_string();
    let run = ["run", "--gpu", gpu, "--mem-limit", &limit];
    // Nothing is guaranteed, all is lent, and what is not free is refused: the trial never waits,
    // and no tenant waits for it. Where there is no daemon no program waits; in a container these
    // are its tenant's terms.
    let has_terms = !daemon::is_container() && (find(DAEMON).is_ok() || daemon::some().is_ok());
    let rest = match has_terms {
        true => "--mem-request 0 --preemptible kill --on-collision fail --",
        false => "--",
    };
    // By this name the daemon does not count its refusals for the GPU, and no alert tells of them.
    let name = format!("doctor-{}", std::process::id());
    let named = ["--name", &name].into_iter().filter(|_| has_terms);
    let words = run.into_iter().chain(named).chain(rest.split(' '));
    let mut arguments: Vec<OsString> = words.map(OsString::from).collect();
    arguments.extend([executable.into(), "doctor".into(), "--proof".into()]);
    child::ask(&arguments, &plain.collect(), PATIENCE, Group::Own)
}

/// The trial's own part.
pub(super) fn all_ways() -> Result<Vec<Way>, String> {
    let program = Program::start()?;
    type Try = fn(&Program, usize) -> Result<Answer, String>;
    let tries: [(&str, Try); 5] = [
        ("a linked function", Program::linked),
        ("dlsym", Program::by_dlsym),
        ("cuGetProcAddress", Program::by_proc_address),
        ("cuMemAllocAsync", Program::in_stream_order),
        ("a graph", Program::in_a_graph),
    ];
    let mut ways: Vec<Way> = tries
        .iter()
        .map(|(by, take)| way(by, &|bytes| take(&program, size(bytes))))
        .collect();
    ways.push(Way {
        by: "cuMemGetInfo".to_owned(),
        outcome: told(program.told_by_the_driver()),
    });
    ways.push(Way {
        by: "NVML's memory".to_owned(),
        outcome: told(program.told_by_nvml()),
    });
    // Last: it keeps what it takes.
    ways.push(Way {
        by: "a second process".to_owned(),
        outcome: two(&program),
    });
    Ok(ways)
}

/// The second process's answers: to what fits beside the first, and to what does not.
pub(super) fn second() -> Result<(Answer, Answer), String> {
    let program = Program::start()?;
    Ok((
        program.by_dlsym(size(WITHIN))?,
        program.by_dlsym(size(HALF))?,
    ))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// One way: what fits is given, what does not is refused.
fn way(by: &str, take: &dyn Fn(u64) -> Result<Answer, String>) -> Way {
    let outcome = take(WITHIN).and_then(|within| Ok(judged(within, take(BEYOND)?, BEYOND)));
    Way {
        by: by.to_owned(),
        outcome: outcome.unwrap_or_else(Outcome::Untried),
    }
}

fn judged(within: Answer, beyond: Answer, bytes: u64) -> Outcome {
    match (within, beyond) {
        (0, OUT_OF_MEMORY) => Outcome::Held,
        (_, 0) => Outcome::Passed(format!(
            "{} were given under a limit of {}",
            Bytes(bytes).human(),
            Bytes(LIMIT).human()
        )),
        (0, other) => Outcome::Untried(format!("CUDA error {other}")),
        (OUT_OF_MEMORY, _) => Outcome::Untried("the GPU has too little free memory".to_owned()),
        (other, _) => Outcome::Untried(format!("below the limit: CUDA error {other}")),
    }
}

/// The program is to be told its limit as the device's memory.
fn told(total: Result<u64, String>) -> Outcome {
    match total {
        Ok(LIMIT) => Outcome::Held,
        Ok(total) => Outcome::Passed(format!(
            "the program is told {} and not its limit of {}",
            Bytes(total).human(),
            Bytes(LIMIT).human()
        )),
        Err(why) => Outcome::Untried(why),
    }
}

fn two(program: &Program) -> Outcome {
    let tried = program.hold(size(HALF)).and_then(|held| match held {
        0 => child::ask::<(Answer, Answer)>(
            &["doctor".into(), "--second".into()],
            &std::env::vars_os().collect(),
            SECOND,
            // Where the trial is killed, this one is too.
            Group::Ours,
        ),
        OUT_OF_MEMORY => Err("the GPU has too little free memory".to_owned()),
        other => Err(format!("below the limit: CUDA error {other}")),
    });
    match tried {
        Ok((within, beyond)) => judged(within, beyond, 2 * HALF),
        Err(why) => Outcome::Untried(why),
    }
}
