//! A daemon for a program that is about to start: the machine's, this user's, or a new one.

use super::{Holder, Patience, Talk, machine, own_daemons};
use crate::artefacts;
use crate::failure::Failure;
use crate::gpu::Gpu;
use crate::history;
use crate::output;
use crate::settings::Environment;
use gpushare_sys::spawn;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable that names the file of settings a daemon started here reads.
pub(super) const CONFIG: &str = "GPUSHARE_DAEMON_CONFIG";
/// Longest a new daemon may take to serve: NVML's first start on a machine without persistence mode
/// takes seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks for its socket.
const PAUSE: Duration = Duration::from_millis(2);

/// Pause before another try, when another daemon has the folder: it starts, or leaves.
const TURN: Duration = Duration::from_millis(20);
/// A new daemon that lives for longer has the folder: one that finds another there leaves at once.
const ITS_OWN: Duration = Duration::from_secs(5);

/// Exit status of a daemon whose settings are wrong (`EX_CONFIG` of sysexits.h).
const WRONG_SETTINGS: i32 = 78;
/// The same when another one has the folder (`EX_TEMPFAIL`).
const TAKEN: i32 = 75;

/// Why a program has no daemon.
#[derive(Debug)]
pub(super) enum Without {
    /// No daemon can run here, whatever the settings.
    Impossible(Failure),
    /// A user's settings of it are wrong; that is no reason to run without a daemon.
    WrongSettings(Failure),
    /// There is one, and it does not serve: another one would promise the same memory again, and
    /// so would books in files.
    NotNow(Failure),
}

fn own_folder(gpu: &Gpu, environment: &Environment, tenant: &str) -> Result<PathBuf, Failure> {
    let runtime_dir = environment
        .get(OsStr::new("XDG_RUNTIME_DIR"))
        .map(PathBuf::from);
    Ok(own_daemons(runtime_dir.as_deref())?.join(gpu.world(tenant)))
}

/// Connects to the daemon of the program's GPU world. `tenant` names a software GPU that has no
/// name of its own.
pub(super) fn for_program(
    gpu: &Gpu,
    environment: &Environment,
    tenant: &str,
    given: Patience,
) -> Result<Talk, Without> {
    if gpu.is_real()
        && let Some(talk) = machine::wait(given).map_err(Without::NotNow)?
    {
        return Ok(talk);
    }
    let folder = own_folder(gpu, environment, tenant).map_err(Without::Impossible)?;
    let began = Instant::now();
    let patience = match given {
        Patience::Usual => PATIENCE,
        Patience::UpTo(most) => PATIENCE.min(most),
    };
    let mut started: Option<New> = None;
    let (mut taken, mut told) = (false, false);
    loop {
        let error = match Talk::connect(&folder) {
            Ok(talk) => return Ok(talk),
            Err(error) => error,
        };
        let waited = began.elapsed();
        let is_over = waited >= patience || error.kind() == ErrorKind::InvalidData;
        if is_over {
            let is_ours = started.as_mut().is_some_and(|new| new.has(&folder));
            let is_anothers = !is_ours && (taken || !is_absent(&error));
            return Err(match is_anothers {
                true => Without::NotNow(not_answering(&folder, &error, waited)),
                false => Without::Impossible(not_serving(
                    &folder,
                    &format!("{error}; waited {} s", waited.as_secs()),
                )),
            });
        }
        if error.kind() == ErrorKind::WouldBlock && !told {
            told = true;
            let holder = Holder::of(&folder, &error);
            let holder = holder.map_or_else(String::new, |holder| format!(", {holder},"));
            output::note(&format!(
                "your own daemon at {}{holder} is starting, or does not answer: waiting up to {} s for it",
                folder.display(),
                patience.as_secs()
            ));
        }
        let ended = match started.as_mut().map(|new| new.child.try_wait()) {
            None => {
                check_settings(environment).map_err(Without::WrongSettings)?;
                let child = start(gpu, &folder, environment);
                started = Some(New::of(child.map_err(Without::Impossible)?));
                None
            }
            Some(ended) => ended.ok().flatten(),
        };
        match ended.map(|status| (status, status.code())) {
            None => {}
            // It found another one, which starts or leaves. Or it left before we came.
            Some((_, Some(code @ (TAKEN | 0)))) => {
                started = None;
                taken = code == TAKEN;
                sleep(TURN);
            }
            Some((status, Some(WRONG_SETTINGS))) => {
                let failure = not_serving(&folder, &status.to_string());
                return Err(Without::WrongSettings(failure));
            }
            Some((status, _)) => {
                let failure = not_serving(&folder, &status.to_string());
                return Err(Without::Impossible(failure));
            }
        }
        sleep(PAUSE);
    }
}

/// A daemon that was started here. It has registered no tenant, and leaves when we hang up.
struct New {
    child: Child,
    since: Instant,
}

impl New {
    fn of(child: Child) -> Self {
        let since = Instant::now();
        Self { child, since }
    }

    /// Whether it lives and the folder is its own, though it may not serve yet.
    fn has(&mut self, folder: &Path) -> bool {
        let listens = |pid| u32::try_from(pid).is_ok_and(|pid| pid == self.child.id());
        let is_its_own =
            Talk::listener(folder).map_or_else(|| self.since.elapsed() >= ITS_OWN, listens);
        is_its_own && matches!(self.child.try_wait(), Ok(None))
    }
}

/// Whether no process listens there. Whatever else keeps us from talking to a daemon, there is one.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::ConnectionRefused
    )
}

fn not_answering(folder: &Path, error: &Error, waited: Duration) -> Failure {
    let pid = Talk::listener(folder);
    let process = pid.map_or_else(|| "it".to_owned(), |pid| format!("process {pid}"));
    let how = match error.kind() {
        ErrorKind::InvalidData => format!("is not to be used ({error})"),
        _ => format!("does not answer ({error}; waited {} s)", waited.as_secs()),
    };
    Failure::ours(format!(
        "your own daemon at {} {how}, and its tenants may live: continue or end {process}, or give --daemon off and a --name of its own",
        folder.display()
    ))
}

/// Refuses a file of settings that cannot be read, by the variable that names it.
fn check_settings(environment: &Environment) -> Result<(), Failure> {
    let Some(file) = environment.get(OsStr::new(CONFIG)) else {
        return Ok(());
    };
    File::open(file).map(drop).map_err(|error| {
        let file = file.display();
        Failure::ours(format!("{CONFIG}={file} is refused: it cannot be read ({error}); accepted: a file of the daemon's settings"))
    })
}

/// Starts one. It leaves when it is dropped before anything has connected to it.
pub(super) fn start(gpu: &Gpu, folder: &Path, environment: &Environment) -> Result<Child, Failure> {
    let failed =
        |what: &str, error: Error| Failure::ours(format!("cannot {what} the daemon: {error}"));
    // Looked for first: without one there is nothing to make a folder for.
    let program = artefacts::find(artefacts::DAEMON)?;
    let mut closed = DirBuilder::new();
    closed.recursive(true).mode(0o700);
    closed
        .create(folder)
        .map_err(|error| failed(&format!("make {} for", folder.display()), error))?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .map_err(|error| failed("open a log for", error))?;
    // The program's libraries, so that it sees the program's GPUs; not its preloads, limits or
    // injected faults.
    let plain = environment.iter().filter(|(name, _)| {
        let name = name.to_string_lossy();
        name != "LD_PRELOAD"
            && name != "SOFTGPU_FAIL"
            && name != "SOFTGPU_TRACE"
            && !name.starts_with("GPUSHARE_")
    });
    let mut daemon = Command::new(program);
    daemon
        .args(["--private", "--transient", "--runtime-dir"])
        .arg(folder)
        .arg("--log")
        .arg(folder.join("log"));
    if let Some(state) = history::own_journal(environment) {
        history::begin(&state);
        if let Some(why) = history::unwritable(environment) {
            output::note(&format!(
                "note: {why}: `why` and `events` know nothing of it once its daemon has left; set XDG_STATE_HOME to a folder that you can write to"
            ));
        }
        daemon.arg("--state-dir").arg(state);
    }
    if !gpu.is_real() {
        daemon.arg("--own-devices");
    }
    if gpu.is_of_one_run() {
        daemon.arg("--sweep");
    }
    if let Some(config) = environment.get(OsStr::new(CONFIG)) {
        let config =
            std::path::absolute(config).map_err(|error| failed("name the file of", error))?;
        daemon.arg("--config").arg(config);
    }
    daemon
        .env_clear()
        .envs(plain)
        .current_dir("/")
        // Held until we have connected: a daemon whose starter died before that exits.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0);
    let child = spawn::apart(&mut daemon).map_err(|error| failed("start", error))?;
    if let Some(what) = hampered(&child) {
        output::note(&format!(
            "note: the daemon that this command starts for you {what}, also when it serves other programs of yours; start the first of them without"
        ));
    }
    Ok(child)
}

/// How the limits of this command bind the daemon that it started.
fn hampered(daemon: &Child) -> Option<String> {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_CPU)
        && most != RLIM_INFINITY
    {
        return Some(format!(
            "has {most} s of CPU time (ulimit -H -t) and is ended after them"
        ));
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.id())).ok()?;
    let nice = nice_of(&stat).filter(|nice| *nice > 0)?;
    Some(format!(
        "runs at nice {nice}, as this command does (ulimit -e does not let it have more)"
    ))
}

/// The nice value in a process's `/proc/PID/stat`: its field 19 (proc(5)).
fn nice_of(stat: &str) -> Option<i32> {
    // The program's name is in brackets, and may have any byte.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(16)?.parse().ok()
}

fn not_serving(folder: &Path, error: &str) -> Failure {
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    Failure::ours(format!(
        "the daemon does not serve ({error}); its log, {}, ends: {}",
        folder.join("log").display(),
        last_error(&log)
    ))
}

/// The last error in a log, with the lines that belong to it; else the last line.
fn last_error(log: &str) -> &str {
    let of_last_error = log.rfind(" ERROR ").map(|at| log[at..].trim());
    of_last_error
        .or_else(|| log.lines().last())
        .unwrap_or("it is empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_value_is_read_behind_any_name() {
        let stat = "7 (a) 3 b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 39 19 1 0 99";
        assert_eq!(nice_of(stat), Some(19));
        assert_eq!(nice_of("7 (a) S 1 7"), None);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(nice_of(&own).is_some(), "{own}");
    }
}
