//! Registering as a new process, to use the tenant or to look at it.
//!
//! A daemon knows a process by one registration: a later one takes the place of an earlier one, and
//! a process that has lost its place gets no memory any more. So the threads of a process register
//! one after the other, and none once the process has joined ([ADR
//! 195](../../../docs/adr/0195-a-process-registers-once-it-has-joined-no-more.md)).

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use gpushare_protocol::page::Page;

use super::register::{self, Failed, Welcome};
use super::socket::Connection;
use super::{AT_ONCE, PAUSES, SESSION, START_PATIENCE, pages};
use crate::guest::background::Uncancelled;
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

/// The usage page of the tenant whose socket lies in `folder`, for a process that only reads. One
/// attempt within a second; a process that joins meanwhile goes first.
pub(crate) fn look(folder: &Path, capabilities: u64) -> Option<&'static Page> {
    static SEEN: ForkLocal<&'static Page> = ForkLocal::new();
    if let Some(page) = SEEN.get() {
        return Some(page);
    }
    let end = Instant::now() + AT_ONCE;
    let _uncancelled = Uncancelled::begin();
    let _undisturbed = Undisturbed::begin();
    let _turn = turn(AT_ONCE)?;
    if let Some(session) = SESSION.get() {
        return Some(session.page);
    }
    let (_, welcome) = attempt(folder, capabilities, end).ok()?;
    Some(SEEN.set(pages::usage(&welcome.usage).ok()?))
}

fn attempt(
    folder: &Path,
    capabilities: u64,
    end: Instant,
) -> Result<(Connection, Welcome), Failed> {
    let mut connection = Connection::open(folder)?;
    let hello = register::greet(&mut connection, 0, capabilities, end)?;
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
                    "the daemon did not answer for {} s ({error}); is gpushared running?",
                    START_PATIENCE.as_secs()
                );
                return Err((why, away));
            }
            Err(Failed::Away(_)) => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}
