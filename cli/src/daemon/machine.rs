//! The machine's own daemon: whether there is one, and whether it serves.
//!
//! There is one where its folder is, or where its unit is enabled though it has not made the folder
//! yet. While it does not serve, `gpushare` starts no other: two daemons would each guarantee the
//! whole of one GPU ([ADR 51](../../../docs/adr/0051-one-daemon-for-a-gpu.md)).
//!
//! In a container that gpushare was injected into, the folder is that of the container's tenant:
//! its daemon is on the host, and takes no commands from here.

use super::start::is_absent;
use super::{NODE, Patience, Talk, is_container};
use crate::failure::Failure;
use crate::output;
use gpushare_protocol::injection::REMOVED;
use nix::unistd::geteuid;
use std::fmt;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where systemd says that it runs.
const SYSTEMD: &str = "/run/systemd/system";
/// The folders of enabled units, a folder per target.
const ENABLED: [&str; 2] = ["/etc/systemd/system", "/run/systemd/system"];
/// The daemon's unit.
const UNIT: &str = "gpushared.service";
/// The uid that a user namespace shows for users it does not map: root's folder, seen from inside
/// one.
const NOBODY: u32 = 65_534;
/// The most connections that the daemon takes of a user, and of all users but root (`crowd.rs` of
/// the daemon).
const MOST_OF_A_USER: u32 = 512;
const MOST: u32 = 1024;
/// So many connections in a row that are closed before a greeting say that no more is taken. A
/// daemon that leaves closes one.
const CLOSED: u32 = 3;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// State of the machine's daemon, as this user sees it.
pub(super) enum Machine {
    /// The machine has none.
    None,
    /// It serves.
    Serves(Talk),
    /// It does not serve this user, or its protocol differs.
    Refuses(Error),
    /// There is one, and it does not serve now.
    Silent(Silence),
    /// This is a container, and its tenant's daemon is on the host.
    Outside,
}

/// How it does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// No process listens on its socket.
    Stopped,
    /// It listens and does not greet: it looks for the devices, or hangs.
    Starting,
    /// It is to be started with the machine and has not been.
    Enabled,
    /// It closes each connection at once: it has as many as it takes.
    Crowded,
}

impl Silence {
    /// How long to wait for it. A starting daemon asks NVML, which may take seconds for each GPU; a
    /// stopped one is restarted within a second by its unit, or not before its operator has mended
    /// its settings or the driver.
    fn patience(self, given: Patience) -> Duration {
        match (given, self) {
            (Patience::UpTo(most), _) => most,
            (Patience::Usual, Self::Starting | Self::Crowded) => Duration::from_secs(30),
            (Patience::Usual, Self::Stopped | Self::Enabled) => Duration::from_secs(10),
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => write!(out, "the machine's daemon at {NODE} is stopped"),
            Self::Starting => write!(
                out,
                "the machine's daemon at {NODE} is starting, or does not answer"
            ),
            Self::Enabled => write!(
                out,
                "the machine's daemon is enabled ({UNIT}) and has not started"
            ),
            Self::Crowded => write!(
                out,
                "the machine's daemon at {NODE} closes each connection of this user at once: it takes {MOST_OF_A_USER} of a user, and {MOST} of \
                 all"
            ),
        }
    }
}

/// The message to a command that runs in a container.
pub(super) const OUTSIDE: &str = "this container is a tenant of the daemon on its host, which takes no commands from here: \
     use `gpushare` on the host; `gpushare run` here stays in the tenant";

/// Looks once. A daemon that is starting is given the time of one greeting.
pub(super) fn look() -> Machine {
    if is_container() {
        return Machine::Outside;
    }
    look_at(Path::new(NODE))
}

fn look_at(folder: &Path) -> Machine {
    for _ in 0..CLOSED {
        let error = match Talk::connect(folder) {
            Ok(talk) => return Machine::Serves(talk),
            Err(error) => error,
        };
        return match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::InvalidData => Machine::Refuses(error),
            _ if is_absent(&error) => absent().map_or(Machine::None, Machine::Silent),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                continue;
            }
            _ => Machine::Silent(Silence::Starting),
        };
    }
    Machine::Silent(Silence::Crowded)
}

/// Whether there is one.
pub(super) fn has_daemon() -> bool {
    absent().is_some()
}

/// How one is there of which no process listens; `None` where the machine has none.
fn absent() -> Option<Silence> {
    if has_folder(Path::new(NODE)) {
        return Some(Silence::Stopped);
    }
    let is_enabled = is_enabled(Path::new(SYSTEMD), &ENABLED.map(Path::new));
    is_enabled.then_some(Silence::Enabled)
}

/// Waits until it serves, if there is one; `None` where the machine has none.
pub(super) fn wait(given: Patience) -> Result<Option<Talk>, Failure> {
    let (began, mut told) = (Instant::now(), None);
    loop {
        let silence = match look() {
            Machine::None => return Ok(None),
            Machine::Serves(talk) => return Ok(Some(talk)),
            Machine::Refuses(error) => return Err(refused(&error)),
            Machine::Outside => return Err(Failure::ours(OUTSIDE)),
            Machine::Silent(silence) => silence,
        };
        let waited = began.elapsed();
        let patience = silence.patience(given);
        if waited >= patience && silence == Silence::Crowded {
            return Err(Failure::ours(format!(
                "{silence} (waited {} s): each `run` and each command that follows has one; end some",
                waited.as_secs()
            )));
        }
        if waited >= patience {
            return Err(Failure::ours(format!(
                "{silence} (waited {} s): start it (systemctl start gpushared), or give --daemon off to run without guarantees; \
                 on a machine that is to have none: systemctl disable --now gpushared, and remove {NODE}",
                waited.as_secs()
            )));
        }
        if told != Some(silence) {
            told = Some(silence);
            output::note(&match patience {
                Duration::MAX => format!("{silence}: waiting for it"),
                _ => format!("{silence}: waiting up to {} s for it", patience.as_secs()),
            });
        }
        sleep(PAUSE);
    }
}

fn refused(error: &Error) -> Failure {
    if error.kind() == ErrorKind::PermissionDenied {
        return Failure::ours(format!(
            "the machine's daemon at {NODE} does not take requests of this user ({error}): ask its administrator, or give --daemon off"
        ));
    }
    Failure::ours(format!("the machine's daemon is not to be used: {error}"))
}

/// Whether root or this user made the folder, and no removal of the package left it behind. An
/// empty one is what systemd makes for a daemon that could not start.
fn has_folder(folder: &Path) -> bool {
    let theirs = [0, geteuid().as_raw(), NOBODY];
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && theirs.contains(&found.uid()))
        && !is_there(&folder.join(REMOVED))
        && !fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether the unit is started with the machine: what `systemctl is-enabled` looks at, without
/// asking systemd. A removed package leaves its links, which lead to nothing, and `systemctl mask`
/// leaves those of a unit that nothing starts any more.
fn is_enabled(systemd: &Path, enabled: &[&Path]) -> bool {
    if !systemd.is_dir() || is_masked(enabled) {
        return false;
    }
    let targets = enabled
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()));
    let wants = |target: &Path| {
        let kind = target.extension();
        kind.is_some_and(|kind| kind == "wants" || kind == "requires")
    };
    let mut targets = targets.filter(|target| wants(target));
    let leads = |link: &Path| {
        let nowhere = |error: Error| error.kind() == ErrorKind::NotFound;
        !fs::metadata(link).is_err_and(nowhere)
    };
    targets.any(|target| leads(&target.join(UNIT)))
}

/// Whether the first of these folders that has the unit has it as `/dev/null`, or as an empty file.
fn is_masked(folders: &[&Path]) -> bool {
    let units = folders.iter().map(|folder| folder.join(UNIT));
    let mut units = units.filter(|unit| fs::symlink_metadata(unit).is_ok());
    let found = units.next().and_then(|unit| fs::metadata(unit).ok());
    found.is_some_and(|found| !found.is_dir() && found.len() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_client::CONTROL;
    use gpushare_protocol::wire::{Hello, encode};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn a_daemon_that_closes_each_connection_is_not_taken_for_a_starting_one() {
        for (closed, serves) in [(CLOSED - 1, true), (CLOSED, false)] {
            let dir = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(dir.path().join(CONTROL)).unwrap();
            let daemon = thread::spawn(move || {
                for _ in 0..closed {
                    drop(listener.accept().unwrap());
                }
                serves.then(|| {
                    let mut hello = Vec::new();
                    encode(0, &Hello::of_this_build(7), &mut hello).unwrap();
                    let mut socket = listener.accept().unwrap().0;
                    socket.write_all(&hello).unwrap();
                    socket
                })
            });
            match look_at(dir.path()) {
                Machine::Serves(_) => assert!(serves),
                Machine::Silent(silence) => {
                    assert_eq!((silence, serves), (Silence::Crowded, false))
                }
                _ => panic!("it is there"),
            }
            daemon.join().unwrap();
        }
    }

    #[test]
    fn a_program_that_queued_waits_longer_than_one_that_begins() {
        let [short, long] = [1, 28_800].map(Duration::from_secs);
        for (silence, usual) in [
            (Silence::Starting, 30),
            (Silence::Stopped, 10),
            (Silence::Enabled, 10),
        ] {
            let usual = Duration::from_secs(usual);
            assert_eq!(silence.patience(Patience::Usual), usual);
            for most in [short, long, Duration::MAX] {
                assert_eq!(silence.patience(Patience::UpTo(most)), most);
            }
        }
    }

    #[test]
    fn a_unit_is_enabled_where_a_target_wants_it_and_systemd_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (systemd, etc) = (dir.path().join("run"), dir.path().join("etc"));
        let wants = etc.join("multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        let enabled = || is_enabled(&systemd, &[&etc, Path::new("/nonexistent")]);
        fs::create_dir(&systemd).unwrap();
        assert!(!enabled(), "no target wants it");
        let unit = dir.path().join(UNIT);
        symlink(&unit, wants.join(UNIT)).unwrap();
        assert!(!enabled(), "the unit was removed with its package");
        fs::write(&unit, "").unwrap();
        assert!(enabled());
        fs::remove_dir(&systemd).unwrap();
        assert!(!enabled(), "systemd does not run, as in a container");
    }

    #[test]
    fn a_masked_unit_is_not_enabled_whatever_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let [etc, run, packaged] = ["etc", "run", "lib"].map(|name| dir.path().join(name));
        let wants = etc.join("multi-user.target.wants");
        for folder in [&wants, &run, &packaged] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(packaged.join(UNIT), "[Service]").unwrap();
        symlink(packaged.join(UNIT), wants.join(UNIT)).unwrap();
        let enabled = || is_enabled(&run, &[&etc, &run]);
        assert!(enabled());
        symlink("/dev/null", run.join(UNIT)).unwrap();
        assert!(!enabled(), "until the next boot");
        fs::write(etc.join(UNIT), "[Service]").unwrap();
        assert!(enabled(), "the operator's own hides that");
        fs::write(etc.join(UNIT), "").unwrap();
        assert!(!enabled(), "an empty file masks, too");
        fs::remove_file(etc.join(UNIT)).unwrap();
        symlink("/dev/null", etc.join(UNIT)).unwrap();
        fs::remove_file(run.join(UNIT)).unwrap();
        assert!(!enabled());
        fs::remove_file(etc.join(UNIT)).unwrap();
        symlink(packaged.join(UNIT), etc.join(UNIT)).unwrap();
        assert!(enabled(), "a link to a unit");
    }

    #[test]
    fn a_folder_says_that_there_is_a_daemon_and_a_file_or_a_link_does_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_folder(dir.path()), "its daemon could not start");
        fs::write(dir.path().join("starts"), "1").unwrap();
        assert!(has_folder(dir.path()));
        let left = dir.path().join(REMOVED);
        fs::write(&left, "").unwrap();
        assert!(!has_folder(dir.path()), "its package was removed");
        fs::remove_file(left).unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        symlink(dir.path(), &link).unwrap();
        for other in [file, link, dir.path().join("missing")] {
            assert!(!has_folder(&other), "{}", other.display());
        }
    }
}
