//! Registering as a new process, to use the tenant or to look at it.
//!
//! A daemon knows a process by one registration: a later one takes the place of an earlier one, and
//! a process that has lost its place gets no memory any more. So the threads of a process register
//! one after the other, and none once the process has joined ([ADR
//! 195](../../../docs/adr/0195-a-process-registers-once-it-has-joined-no-more.md)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpushare_protocol::injection::{SOCKET, is_covered, is_unmarked};
use gpushare_protocol::page::Page;
use gpushare_protocol::page::residency::Movability;

use super::register::{self, Failed, Welcome};
use super::socket::Connection;
use super::{AT_ONCE, PAUSES, SESSION, SOCKET as INHERITED, START_PATIENCE, pages};
use crate::guest::background::Uncancelled;
use crate::guest::clock;
use crate::guest::fork::ForkLocal;
use crate::guest::frames::Undisturbed;
use crate::guest::timed_lock::{TimedLock, TimedLockGuard};

/// Why a process does not join where [`turn`] gives none.
pub(super) const BUSY: &str = "another thread of this process has been registering for too long";

/// A thread's turn at registering this process, within `patience`. No thread must leave it by a
/// jump or a cancellation.
pub(super) fn turn(patience: Duration) -> Option<TimedLockGuard<'static>> {
    static TURNS: ForkLocal<TimedLock> = ForkLocal::new();
    TURNS.get_or(TimedLock::default).take(patience)
}

/// The last page of a process that only reads, and where it came from.
#[derive(Debug)]
struct Seen {
    page: &'static Page,
    /// Never changes for a tenant.
    movability: Movability,
    /// Which file the page is.
    file: (u64, u64),
    /// The socket through which it came.
    socket: Place,
}

/// Which file lies at a socket's path: its device, its inode, and when it was made. File systems
/// give a freed inode to the next file.
type Place = (u64, u64, i64, i64);

/// The usage page of the tenant whose socket lies in `folder`, and whether and how the tenant's
/// memory may be moved, for a process that only reads. Where
/// another socket lies there than the one that gave the page, a next daemon has come, and is asked
/// for its page; until it gives one, the last page stands ([ADR
/// 203](../../../docs/adr/0203-a-monitor-outlives-its-daemon.md)). One attempt within a second; a
/// process that joins meanwhile goes first. `None` where there never was a page.
pub(crate) fn look(folder: &Path, capabilities: u64) -> Option<(&'static Page, Movability)> {
    static SEEN: ForkLocal<Seen> = ForkLocal::new();
    let told = |seen: &Seen| (seen.page, seen.movability);
    let last = || SEEN.get().map(told);
    let place = place(folder);
    let is_current = || SEEN.get().filter(|seen| place == Some(seen.socket));
    if let Some(seen) = is_current() {
        return Some(told(seen));
    }
    let (Some(place), false) = (place, is_too_soon()) else {
        return last();
    };
    let end = Instant::now() + AT_ONCE;
    let _uncancelled = Uncancelled::begin();
    let _undisturbed = Undisturbed::begin();
    // A thread that has a page to show does not wait for the thread that looks for the next.
    let patience = last().map_or(AT_ONCE, |_| Duration::ZERO);
    let Some(_turn) = turn(patience) else {
        return last();
    };
    if let Some(session) = SESSION.get() {
        return Some((session.page, session.movability()));
    }
    if is_current().is_some() || is_too_soon() {
        return last();
    }
    let began = clock::now();
    let seen = attempt(folder, capabilities, end).ok().and_then(|reached| {
        let file = reached.1.usage.identity();
        let known = SEEN.get().filter(|seen| seen.file == file);
        let (page, movability) = match known {
            Some(seen) => told(seen),
            None => {
                let control = pages::control(&reached.1.control).ok()?;
                (pages::usage(&reached.1.usage).ok()?, control.movability())
            }
        };
        Some(Seen {
            page,
            movability,
            file,
            socket: place,
        })
    });
    match seen {
        Some(seen) => Some(told(SEEN.set(seen))),
        None => {
            put_off(began);
            last()
        }
    }
}

fn place(folder: &Path) -> Option<Place> {
    let socket = fs::metadata(folder.join(SOCKET)).ok()?;
    let made = (socket.ctime(), socket.ctime_nsec());
    Some((socket.dev(), socket.ino(), made.0, made.1))
}

/// When a look that failed is to be followed by the next one at the earliest.
fn next_look() -> &'static AtomicU64 {
    static NEXT: ForkLocal<AtomicU64> = ForkLocal::new();
    NEXT.get_or(|| AtomicU64::new(0))
}

fn is_too_soon() -> bool {
    clock::now() < next_look().load(Ordering::Relaxed)
}

/// Looks that fail take no more than a tenth of the time.
fn put_off(began: u64) {
    let now = clock::now();
    let least = u64::try_from(PAUSES.1.as_nanos()).unwrap_or(u64::MAX);
    let pause = now.saturating_sub(began).saturating_mul(9).max(least);
    next_look().store(now.saturating_add(pause), Ordering::Relaxed);
}

fn attempt(
    folder: &Path,
    capabilities: u64,
    end: Instant,
) -> Result<(Connection, Welcome), Failed> {
    let mut connection = Connection::open(folder)?;
    // A child that another thread forks meanwhile must not keep its parent's connection.
    INHERITED.is(connection.socket());
    let hello = register::greet(&mut connection, capabilities, end)?;
    let welcome = register::register(&mut connection, &hello, None, end)?;
    Ok((connection, welcome))
}

/// Connects and registers as a new process. The error says why not, and whether no daemon answered.
pub(super) fn reach(
    folder: &Path,
    capabilities: u64,
) -> Result<(Connection, Welcome), (String, bool)> {
    let end = Instant::now() + START_PATIENCE;
    let mut pause = PAUSES.0;
    loop {
        match attempt(folder, capabilities, end) {
            Ok(reached) => return Ok(reached),
            Err(Failed::Refused(why)) => return Err((why, false)),
            Err(Failed::Away(error)) if Instant::now() + pause > end => {
                // An error that a daemon reports about itself has the kind `Other`; the system's
                // errors have other kinds.
                let away = error.kind() != io::ErrorKind::Other;
                let why = format!(
                    "the daemon did not answer for {} s ({error}); {}",
                    START_PATIENCE.as_secs(),
                    remedy(folder)
                );
                return Err((why, away));
            }
            Err(Failed::Away(_)) => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// What the user of a process that reaches no daemon can look at.
fn remedy(folder: &Path) -> String {
    let place = folder.display();
    if is_covered(folder) {
        format!(
            "{place} is covered in this container by a later mount, as systemd makes one at /run: start the container with a tmpfs there (--tmpfs /run)"
        )
    } else if is_unmarked(folder) {
        format!("what {place} is in this container was removed on the host: restart the container")
    } else if is_no_more(folder) {
        "there is no such tenant on this node: it has ended, or is another node's; unset GPUSHARE_SOCKET GPUSHARE_TENANT, or open a new shell".to_owned()
    } else {
        "is gpushared running?".to_owned()
    }
}

/// Whether the tenant is not there: its folder lies there as long as it lives, whether its daemon
/// serves or not. In a container that folder is a mount, which stays.
fn is_no_more(folder: &Path) -> bool {
    let absent = fs::symlink_metadata(folder).err();
    absent.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_tenant_whose_folder_is_gone_has_ended_and_another_has_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(remedy(folder.path()), "is gpushared running?");
        let gone = remedy(&folder.path().join("job"));
        assert!(gone.contains("unset GPUSHARE_SOCKET"), "{gone}");
    }

    /// A child's fork handler closes what it finds noted.
    #[test]
    fn a_child_forked_while_its_parent_registers_closes_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        std::thread::scope(|scope| {
            let end = Instant::now() + START_PATIENCE;
            let registers = scope.spawn(move || attempt(folder.path(), 0, end).is_err());
            let (mut daemon, _) = listener.accept().unwrap();
            // Its greeting: it waits for an answer now.
            assert!(daemon.read(&mut [0; 1]).unwrap() > 0);
            INHERITED.close();
            // A thread that waits for it has it open as long: it is woken by a part of an answer,
            // unless it does not wait yet.
            let _ = daemon.write(&[1]);
            daemon.set_read_timeout(Some(START_PATIENCE / 2)).unwrap();
            let rest = io::copy(&mut daemon, &mut io::sink());
            assert!(
                !rest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
                "it is open still"
            );
            drop(daemon);
            assert!(registers.join().unwrap());
        });
    }
}
