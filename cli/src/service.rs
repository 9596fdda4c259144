//! CMD as the program of a service of systemd, which takes `run` for its main process.

use crate::settings::Environment;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::parent_id;
use std::process::id;

/// Variables that name the process for which others are meant (`sd_listen_fds(3)`,
/// `sd_watchdog_enabled(3)`, `systemd.exec(5)`).
const OF_PID: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", EXEC];
const EXEC: &str = "SYSTEMD_EXEC_PID";
/// The number of the pidfd of the process that `LISTEN_PID` names; that alone is asked without it.
const LISTEN_PIDFD: &str = "LISTEN_PIDFDID";
/// The socket by which a service tells of itself.
const NOTIFY: &str = "NOTIFY_SOCKET";

/// The variables that are meant for us, and so for CMD: they are to have its process id.
pub(crate) fn hand_on(environment: &mut Environment) -> Vec<&'static str> {
    let ours = id().to_string();
    let is_ours = |name: &str| {
        environment
            .get(OsStr::new(name))
            .is_some_and(|pid| *pid == *ours)
    };
    let named: Vec<_> = OF_PID.into_iter().filter(|name| is_ours(name)).collect();
    if named.contains(&OF_PID[0]) {
        environment.remove(OsStr::new(LISTEN_PIDFD));
    }
    named
}

/// That systemd may drop the messages of CMD, where it starts us and listens to some.
pub(crate) fn note(environment: &Environment) -> Option<&'static str> {
    environment.get(OsStr::new(NOTIFY))?;
    let started = environment.get(OsStr::new(EXEC));
    let is_main = match started {
        Some(pid) => *pid == *id().to_string(),
        // Before version 248 it does not say so.
        None => {
            fs::read(format!("/proc/{}/comm", parent_id())).is_ok_and(|name| name == b"systemd\n")
        }
    };
    is_main.then_some(
        "note: systemd takes messages (READY=1, WATCHDOG=1) of this process alone and not of the program, unless its unit has \
         NotifyAccess=all (OPERATIONS, Services of systemd)",
    )
}
