//! The process that has a daemon's folder and does not answer.

use super::Talk;
use super::start::is_absent;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

/// A process that listens and does not answer, as far as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its number, if this pid namespace shows it.
    pid: Option<i32>,
    /// Whether it is stopped, by a signal or a debugger.
    is_stopped: bool,
}

impl Holder {
    /// That of the daemon in `folder`, with which this error kept us from talking. `None` if none
    /// listens there, or one that answers what we do not take. A daemon that leaves closes what it
    /// has taken, and listens no more.
    pub(super) fn of(folder: &Path, error: &Error) -> Option<Self> {
        if is_absent(error) || error.kind() == ErrorKind::InvalidData {
            return None;
        }
        let pid = Talk::listener(folder);
        if pid.is_none() && is_closed(error) {
            return None;
        }
        let stat = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        Some(Self {
            pid,
            is_stopped: stat.is_some_and(|stat| is_stopped(&stat)),
        })
    }
}

impl Display for Holder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("its process")?,
        }
        match self.is_stopped {
            true => f.write_str(" (which is stopped)"),
            false => Ok(()),
        }
    }
}

/// Whether a daemon closed the connection.
fn is_closed(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Whether a process is stopped, by its `/proc/PID/stat`. Its name may have any letters.
fn is_stopped(stat: &str) -> bool {
    let after = stat.rsplit_once(')').map(|(_, after)| after.trim_start());
    after.is_some_and(|after| after.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_is_stopped_by_its_state_and_not_by_its_name() {
        assert!(is_stopped("7 (gpushared) T 1 7"));
        assert!(is_stopped("7 (a) S) t 1 7"));
        assert!(!is_stopped("7 (x) T) S 1 7"));
        assert!(!is_stopped(""));
    }

    #[test]
    fn a_daemon_that_has_gone_has_no_holder_and_a_silent_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let of = |kind| Holder::of(folder.path(), &Error::from(kind));
        for kind in [
            ErrorKind::ConnectionRefused,
            ErrorKind::NotFound,
            ErrorKind::InvalidData,
        ] {
            assert_eq!(of(kind), None, "{kind}");
        }
        assert!(of(ErrorKind::WouldBlock).is_some());
    }

    #[test]
    fn a_daemon_that_closed_the_connection_has_a_holder_while_it_listens() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let of = |kind| Holder::of(folder.path(), &Error::from(kind));
        let closed = [
            ErrorKind::UnexpectedEof,
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
        ];
        for kind in closed {
            assert!(of(kind).is_some(), "{kind}");
        }
        drop(listener);
        for kind in closed {
            assert_eq!(of(kind), None, "{kind}");
        }
    }

    #[test]
    fn a_holder_is_named_by_its_process_and_its_state() {
        let said = |pid, is_stopped| Holder { pid, is_stopped }.to_string();
        assert_eq!(said(Some(7), true), "process 7 (which is stopped)");
        assert_eq!(said(Some(7), false), "process 7");
        assert_eq!(said(None, false), "its process");
    }
}
