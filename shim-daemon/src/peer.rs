//! The process at the other end of a socket, according to the kernel, never according to the peer.
//!
//! # Safety
//! System calls that nix does not wrap (`SO_PEERPIDFD`, pidfds, `NS_GET_OWNER_UID`); descriptors
//! are those that the kernel made for us.
#![allow(
    unsafe_code,
    reason = "SO_PEERPIDFD and pidfd_open have no safe wrapper"
)]

mod maker;

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::cgroup;
use crate::groups::Groups;
use crate::small_file;
pub use maker::Maker;

/// `SO_PEERPIDFD` of `asm-generic/socket.h`, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// A process as the kernel knows it.
#[derive(Debug)]
pub struct Peer {
    /// Its pid in the daemon's pid namespace; 0 if it is not visible there.
    pub pid: i32,
    /// Its effective user when it connected.
    pub uid: u32,
    /// The pidfd: reports the death of this very process and signals it, even if its pid is reused.
    pub pidfd: OwnedFd,
    /// Its cgroup, as `/proc/<pid>/cgroup` has it.
    pub cgroup: String,
    /// Its place in every hierarchy.
    pub groups: Groups,
}

/// Said where `/proc` shows this process no others.
const HIDDEN: &str = "the daemon is not shown that process, because /proc is mounted with hidepid: let its unit have \
     SupplementaryGroups= with the group of the mount's option gid=, or the capability CAP_SYS_PTRACE";

/// Whether a file of a process that lives cannot be read, as the kernel says it of those it hides.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

/// Why this process is not shown others, if so: the first one is always there.
#[must_use]
pub fn sees_no_others() -> Option<&'static str> {
    let first = small_file::text("/proc/1/cgroup");
    first
        .is_err_and(|error| is_refused(&error))
        .then_some(HIDDEN)
}

/// Identifies the process that connected `socket`, the `maker` that was taken at its accept.
///
/// # Errors
/// If it is already gone, or lives outside the daemon's pid namespace so that its death could not
/// be seen.
pub fn identify(socket: BorrowedFd<'_>, maker: &Maker) -> io::Result<Peer> {
    identify_by(Path::new("/proc"), socket, maker)
}

/// As [`identify`], where the kernel tells about processes in `proc`: `/proc`, but for tests.
fn identify_by(proc: &Path, socket: BorrowedFd<'_>, maker: &Maker) -> io::Result<Peer> {
    let credentials = getsockopt(&socket, PeerCredentials)?;
    if credentials.pid() <= 0 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the daemon does not see that process: it must run in the machine's own pid namespace (hostPID: true, --pid=host)",
        ));
    }
    let pidfd = maker.pidfd(socket)?;
    let cgroup = small_file::text(proc.join(format!("{}/cgroup", credentials.pid())));
    // Read before this: a pid that was reused in between would have left the pidfd dead.
    if is_dead(&pidfd)? {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let cgroup = cgroup.map_err(|error| match is_refused(&error) {
        true => io::Error::new(io::ErrorKind::Unsupported, HIDDEN),
        false => error,
    })?;
    Ok(Peer {
        pid: credentials.pid(),
        uid: credentials.uid(),
        pidfd,
        cgroup: own_cgroup(&cgroup).to_owned(),
        groups: Groups::parse(&cgroup),
    })
}

/// A process that has not connected.
#[derive(Debug)]
pub struct Stranger {
    /// Signals this very process, even if its pid is reused.
    pub pidfd: OwnedFd,
    /// Its real, effective, saved and file-system user.
    pub uids: Vec<u32>,
    /// Its cgroup, as `/proc/<pid>/cgroup` has it.
    pub cgroup: String,
    /// Its place in every hierarchy.
    pub groups: Groups,
}

/// The kernel's facts about the process that has this pid now.
///
/// # Errors
/// If it is gone or may not be looked at.
pub fn inspect(pid: u32) -> io::Result<Stranger> {
    inspect_by(Path::new("/proc"), pid)
}

/// As [`inspect`], where the kernel tells about processes in `proc`: `/proc`, but for tests.
pub(crate) fn inspect_by(proc: &Path, pid: u32) -> io::Result<Stranger> {
    let pidfd = open(i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?)?;
    let own = proc.join(pid.to_string());
    let status = small_file::with_a_name(own.join("status"))?;
    let cgroup = fs::read_to_string(own.join("cgroup"))?;
    // Read before this: a pid that was reused in between would have left the pidfd dead.
    if is_dead(&pidfd)? {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(Stranger {
        pidfd,
        uids: uids(&status),
        cgroup: own_cgroup(&cgroup).to_owned(),
        groups: Groups::parse(&cgroup),
    })
}

/// The cgroup of the process that has this pid now.
///
/// # Errors
/// If it is gone.
pub fn cgroup_of(pid: u32) -> io::Result<String> {
    Ok(own_cgroup(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?).to_owned())
}

/// The users of a `/proc/<pid>/status`, or `None` if it does not name all four.
fn uids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let all: Option<Vec<u32>> = line.and_then(|line| {
        line.split_whitespace()
            .map(|uid| uid.parse().ok())
            .collect()
    });
    all.filter(|all| all.len() == 4).unwrap_or_default()
}

/// The path that names the tenant: the unified hierarchy's, else the first that is not the root of
/// its hierarchy. If a container runtime made another path in the table, that path (a runtime need
/// not put its containers into every hierarchy).
fn own_cgroup(table: &str) -> &str {
    fn path(line: &str) -> &str {
        line.splitn(3, ':').nth(2).unwrap_or("")
    }
    let unified = table.lines().find(|line| line.starts_with("0::"));
    let unified = unified.filter(|line| *line != "0::/");
    let others = table.lines().filter(|line| !line.starts_with("0::"));
    let others = others.filter(|line| path(line) != "/");
    let mut all = unified.into_iter().chain(others).map(path);
    let made = all.clone().find(|path| cgroup::of_machine(path).is_some());
    made.or_else(|| all.next()).unwrap_or("/")
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length: libc::socklen_t = 4;
    // SAFETY: the result is one int of four bytes, as `length` says.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pidfd of the process that has this pid now.
pub(crate) fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `NS_GET_OWNER_UID` of the kernel's `linux/nsfs.h`: `_IO(0xb7, 0x4)`.
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// The user to whom the process of this pid belongs: the user that made its user namespace, or its
/// own user where that namespace is this process's, or is not shown to this process.
///
/// # Errors
/// If it is gone, may not be looked at, or has several users.
pub(crate) fn owner_of(pid: u32) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    // To be shown another user's namespace takes a capability that the daemon's unit does not have.
    let theirs = match fs::File::open(format!("/proc/{pid}/ns/user")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        theirs => Some(theirs?),
    };
    let own = fs::metadata("/proc/self/ns/user")?;
    let apart = |theirs: &fs::File| {
        let found = theirs.metadata();
        found.is_ok_and(|found| (own.dev(), own.ino()) != (found.dev(), found.ino()))
    };
    let Some(theirs) = theirs.filter(apart) else {
        let mut users = uids(&small_file::with_a_name(format!("/proc/{pid}/status"))?);
        users.dedup();
        return match users[..] {
            [user] => Ok(user),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
    };
    let mut user: libc::uid_t = 0;
    // SAFETY: the kernel writes one user id, which `user` has room for.
    let answer = unsafe { libc::ioctl(theirs.as_raw_fd(), NS_GET_OWNER_UID, &raw mut user) };
    match answer {
        0 => Ok(user),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the process of a pidfd has ended.
///
/// # Errors
/// If the descriptor cannot be polled.
pub fn is_dead(pidfd: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

/// Whether this user may end the process with this pid, as the kernel says it: the user is its real
/// or saved one. Not so once it has become another user's, by a set-user-ID program. A process in
/// another user namespace than this daemon's has what its user may give it there, and no more. One
/// that cannot be looked at has mostly ended.
pub(crate) fn may_end(pid: u32, user: u32) -> bool {
    let status = small_file::with_a_name(format!("/proc/{pid}/status"));
    let [map, ours] = [&*pid.to_string(), "self"]
        .map(|pid| small_file::text(format!("/proc/{pid}/uid_map")).unwrap_or_default());
    is_of(&status.unwrap_or_default(), map == ours, user)
}

fn is_of(status: &str, is_in_our_namespace: bool, user: u32) -> bool {
    match &*uids(status) {
        [real, _, saved, _] => !is_in_our_namespace || [real, saved].contains(&&user),
        _ => true,
    }
}

/// Sends `signal` to the process of a pidfd.
///
/// # Errors
/// `ESRCH` if it is gone.
pub fn signal(pidfd: &OwnedFd, signal: nix::sys::signal::Signal) -> io::Result<()> {
    // SAFETY: no pointers but a null one, which means "as kill(2) would".
    let answer = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal as libc::c_int,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    #[test]
    fn a_peer_is_who_the_kernel_says() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = identify(ours.as_fd(), &Maker::InSocket).unwrap();
        assert_eq!(peer.pid.unsigned_abs(), std::process::id());
        assert!(!is_dead(&peer.pidfd).unwrap());
        assert!(peer.cgroup.starts_with('/'));
    }

    /// Another user's process is not there under `hidepid`.
    #[test]
    fn a_peer_that_proc_does_not_show_is_refused_with_the_reason() {
        let hidden = tempfile::tempdir().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = identify_by(hidden.path(), ours.as_fd(), &Maker::InSocket).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("hidepid"), "{error}");
        assert_eq!(sees_no_others(), None);
        let own = hidden.path().join(std::process::id().to_string());
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup"), "0::/one\n").unwrap();
        let peer = identify_by(hidden.path(), ours.as_fd(), &Maker::InSocket).unwrap();
        assert_eq!(peer.cgroup, "/one");
    }

    #[test]
    fn a_signal_reaches_the_very_process_and_its_death_shows() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pidfd = open(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!is_dead(&pidfd).unwrap());
        signal(&pidfd, nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(is_dead(&pidfd).unwrap());
        let late = signal(&pidfd, nix::sys::signal::Signal::SIGKILL).unwrap_err();
        assert_eq!(late.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_process_has_four_users_and_an_unreadable_one_has_none() {
        let own = inspect(std::process::id()).unwrap();
        assert!(own.uids.contains(&nix::unistd::geteuid().as_raw()));
        assert_eq!(uids("Name:\ta\nUid:\t1\t0\t2\t3\n"), [1, 0, 2, 3]);
        assert!(uids("Uid:\t1\t0\t2\n").is_empty());
        assert!(uids("Uid:\t1\tx\t2\t3\n").is_empty());
    }

    #[test]
    fn a_user_may_end_what_the_kernel_lets_that_user_end() {
        let status = "Name:\tsudo\nUid:\t7\t0\t8\t0\n";
        for (user, here, may) in [
            (7, true, true),
            (8, true, true),
            (0, true, false),
            (9, true, false),
            (9, false, true),
        ] {
            assert_eq!(is_of(status, here, user), may, "{user} {here}");
        }
        assert!(is_of("", true, 9), "it has ended");
        let (pid, own) = (std::process::id(), nix::unistd::getuid().as_raw());
        assert!(may_end(pid, own) && !may_end(pid, own + 1));
        assert!(uids("").is_empty());
    }

    #[test]
    fn the_unified_cgroup_or_else_the_first_names_the_tenant() {
        assert_eq!(own_cgroup("0::/kubepods/pod1/abc\n"), "/kubepods/pod1/abc");
        assert_eq!(own_cgroup("12:memory:/docker/abc\n0::/\n"), "/docker/abc");
        assert_eq!(own_cgroup("0::/\n"), "/");
        let first_is_root = "9:name=systemd:/\n4:memory:/vm/1/t1\n0::/\n";
        assert_eq!(own_cgroup(first_is_root), "/vm/1/t1");
        assert_eq!(own_cgroup(""), "/");
        let id = "0123456789abcdef".repeat(4);
        let hybrid = format!(
            "9:name=systemd:/\n4:memory:/docker/{id}\n0::/system.slice/containerd.service\n"
        );
        assert_eq!(own_cgroup(&hybrid), format!("/docker/{id}"));
        let session = "9:memory:/user.slice\n0::/user.slice/user-1000.slice/session-3.scope\n";
        assert_eq!(
            own_cgroup(session),
            "/user.slice/user-1000.slice/session-3.scope"
        );
    }
}
