//! A container's first process, identified so that the next daemon finds it again.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clocks;
use crate::groups::Groups;
use crate::peer::{is_dead, open};
use crate::small_file;

/// The identity of a process across daemons: a pid with its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// In the daemon's pid namespace.
    pub pid: u32,
    /// Clock ticks since boot.
    pub start: u64,
}

/// A container's first process, as long as it lives.
#[derive(Debug)]
pub struct Init {
    /// Becomes readable at its end.
    pub pidfd: OwnedFd,
    /// See [`Identity`].
    pub identity: Identity,
    /// The user to whom it belonged when it was looked at, if that is one.
    owner: Option<u32>,
    /// Where the kernel tells about processes: `/proc`, but for tests.
    proc: PathBuf,
}

impl Init {
    /// The process of this pidfd. To look at it may wait for as long as it stays within `exec`.
    ///
    /// # Errors
    /// If the descriptor is none, or the process has ended or is not visible here.
    pub fn of(pidfd: OwnedFd) -> io::Result<Self> {
        let info = small_file::text(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        let pid: Option<i64> = pid.and_then(|pid| pid.trim().parse().ok());
        let pid = pid
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(Self::is_none)?;
        Self::alive(pidfd, pid, Path::new("/proc"))
    }

    /// Why a descriptor is refused.
    pub(crate) fn is_none() -> io::Error {
        let no = "the descriptor is no pidfd of a running process that this daemon sees";
        io::Error::new(io::ErrorKind::InvalidInput, no)
    }

    /// As [`Init::of`], where `proc` tells its cgroups.
    ///
    /// # Errors
    /// As there.
    pub fn recorded(pidfd: OwnedFd, pid: u32, proc: &Path) -> io::Result<Self> {
        Self::alive(pidfd, pid, proc)
    }

    fn alive(pidfd: OwnedFd, pid: u32, proc: &Path) -> io::Result<Self> {
        let start = started(pid).ok_or(io::ErrorKind::NotFound)?;
        let owner = crate::peer::owner_of(pid).ok();
        // Read before this: a pid that was reused in between would have left the pidfd dead.
        if is_dead(&pidfd)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let identity = Identity { pid, start };
        let proc = proc.to_owned();
        Ok(Self {
            pidfd,
            identity,
            owner,
            proc,
        })
    }

    /// The process that a previous daemon knew, if it still runs.
    #[must_use]
    pub fn again(identity: Identity) -> Option<Self> {
        let pidfd = open(i32::try_from(identity.pid).ok()?).ok()?;
        let found = Self::alive(pidfd, identity.pid, Path::new("/proc")).ok()?;
        (found.identity == identity).then_some(found)
    }

    /// Its cgroups now.
    ///
    /// # Errors
    /// If it has ended.
    pub fn groups(&self) -> io::Result<Groups> {
        let table = small_file::text(self.proc.join(self.identity.pid.to_string()).join("cgroup"));
        // A pid is another's only once this is dead.
        if is_dead(&self.pidfd)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Groups::parse(&table?))
    }

    /// The user to whom it belongs: the owner of its user namespace, or its own user where that is
    /// the daemon's.
    ///
    /// # Errors
    /// If it has ended, or belongs to several.
    pub fn owner(&self) -> io::Result<u32> {
        if is_dead(&self.pidfd)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.owner
            .ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

/// Whether no process has this pid now, as far as a pidfd tells: `false` where there is none to be
/// had. It waits for nothing.
pub(crate) fn is_free(pid: u32) -> bool {
    let Ok(number @ 1..) = i32::try_from(pid) else {
        return true;
    };
    match open(number) {
        Err(error) => error.raw_os_error() == Some(libc::ESRCH),
        Ok(pidfd) => is_dead(&pidfd).unwrap_or(false),
    }
}

/// Whether a process has this pid now, and, where `start` is given, has started then. One that has
/// ended and was not waited for has its pid and its `stat` still: its pidfd tells. (Its state does
/// not: the first thread of a process whose other threads run on is a zombie, too.)
///
/// A process that cannot be held by a pidfd counts as running as long as it has its `stat`.
pub(crate) fn runs(pid: u32, start: Option<u64>) -> bool {
    let Ok(number) = i32::try_from(pid) else {
        return false;
    };
    let pidfd = match open(number) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return false,
        other => other.ok(),
    };
    // First, so that no `stat` is read of a process that has ended.
    if pidfd
        .as_ref()
        .is_some_and(|fd| is_dead(fd).unwrap_or(false))
    {
        return false;
    }
    if start.is_none() && pidfd.is_some() {
        // It may stay in `exec`, and reading its `stat` would wait for that (ADR 168).
        return true;
    }
    let same = started(pid).is_some_and(|now| start.is_none_or(|start| now == start));
    // Again: what was read is another's if it ended meanwhile.
    same && !pidfd.is_some_and(|fd| is_dead(&fd).unwrap_or(false))
}

/// When a process started, in clock ticks since boot by the machine's clock: field 22 of its
/// `stat`, the 20th behind its name.
pub(crate) fn started(pid: u32) -> Option<u64> {
    start_of(&small_file::with_a_name(format!("/proc/{pid}/stat")).ok()?)
}

/// The same of the text of that file.
pub(crate) fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let start = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(clocks::here().machines_start(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Seen;
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_whose_name_is_no_text_is_found_again() {
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'a\320' > /proc/$$/comm; echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        // It has its name once it says something.
        let read = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        assert_eq!(read, 1);
        assert!(small_file::text(format!("/proc/{pid}/comm")).is_err());
        let init = Init::of(open(pid.cast_signed()).unwrap()).unwrap();
        assert_eq!(init.owner().unwrap(), nix::unistd::geteuid().as_raw());
        assert!(Init::again(init.identity).is_some());
        let seen = Seen::of(pid.cast_signed());
        assert!(seen.is_some_and(|seen| seen.program().is_some()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_found_again_as_long_as_it_lives() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = open(child.id().cast_signed()).unwrap();
        let init = Init::of(pidfd).unwrap();
        assert_eq!(init.identity.pid, child.id());
        assert!(!init.groups().unwrap().is_empty());
        assert_eq!(init.owner().unwrap(), nix::unistd::geteuid().as_raw());
        let again = Init::again(init.identity).unwrap();
        let other = Identity {
            start: init.identity.start + 1,
            ..init.identity
        };
        assert!(Init::again(other).is_none(), "that pid was another's");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Init::again(init.identity).is_none());
        assert!(again.groups().is_err() && Init::of(again.pidfd).is_err());
    }

    #[test]
    fn a_process_that_nothing_waited_for_runs_no_more() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (pid, start) = (child.id(), started(child.id()).unwrap());
        assert!(runs(pid, None) && runs(pid, Some(start)));
        assert!(!runs(pid, Some(start + 1)), "that pid was another's");
        let pidfd = open(pid.cast_signed()).unwrap();
        child.kill().unwrap();
        while !is_dead(&pidfd).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(started(pid), Some(start), "it is a zombie");
        assert!(!runs(pid, None) && !runs(pid, Some(start)));
        child.wait().unwrap();
        assert!(!runs(pid, None) && !runs(pid, Some(start)));
        // Above the highest pid that Linux gives.
        assert!(!runs(1 << 30, None) && !runs(u32::MAX, None));
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs_on() {
        // The call ends the thread that makes it, and no other.
        let script = format!(
            "import ctypes, sys, threading; \
             threading.Thread(target=sys.stdin.read).start(); \
             ctypes.CDLL(None).syscall({}, 0)",
            libc::SYS_exit
        );
        let mut child = Command::new("python3")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let stat = || small_file::text(format!("/proc/{}/stat", child.id())).unwrap();
        while !stat().contains(") Z ") {
            std::thread::yield_now();
        }
        assert!(runs(child.id(), None), "its second thread reads");
        assert!(runs(child.id(), started(child.id())));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!runs(child.id(), None));
    }

    #[test]
    fn what_is_no_pidfd_is_no_process() {
        let file = File::open("/dev/null").unwrap();
        assert!(Init::of(file.into()).is_err());
    }
}
