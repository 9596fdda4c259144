//! One daemon for a GPU, even among the daemons of several users on a machine without a daemon of
//! its own ([ADR 51](../../docs/adr/0051-one-daemon-for-a-gpu.md)).
//!
//! A daemon that shares a GPU listens on an abstract socket named by the GPU's UUID. Within a
//! network namespace, the kernel gives such a name to one socket at a time. It frees the name with
//! the process and reports the owner.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use gpushare_protocol::uuid::Uuid;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};
use nix::unistd::geteuid;

use crate::foreign::{Accepted, Lane, part_with};

/// Connections closed at a time. Each only asked for the owner.
const ASKERS: usize = 256;

/// The set of daemons among which only one may serve a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All users': GPUs of the machine.
    AllUsers,
    /// This user's: software GPUs, of which each user has their own.
    OwnOnly,
}

/// The GPUs that this daemon has to itself.
#[derive(Debug)]
pub struct Guard {
    among: Among,
    held: BTreeMap<[u8; 16], UnixListener>,
}

impl Guard {
    /// None yet.
    #[must_use]
    pub fn new(among: Among) -> Self {
        Self {
            among,
            held: BTreeMap::new(),
        }
    }

    /// Takes a GPU, unless another daemon has it. Where abstract names are unavailable, the GPU is
    /// served without one.
    ///
    /// # Errors
    /// A sentence that names the other daemon.
    pub fn claim(&mut self, uuid: [u8; 16]) -> Result<(), String> {
        if self.held.contains_key(&uuid) {
            return Ok(());
        }
        let name = self.name(uuid);
        match listen(&name) {
            Ok(listener) => {
                self.held.insert(uuid, listener);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(format!("{} {}", Uuid(uuid), whose(&name)))
            }
            Err(error) => {
                tracing::warn!(%error, name, "another daemon for the same GPU would not be noticed");
                Ok(())
            }
        }
    }

    /// Gives up all but these.
    pub fn keep(&mut self, used: &BTreeSet<[u8; 16]>, lane: &Lane) {
        let given_up = self.held.extract_if(.., |uuid, _| !used.contains(uuid));
        for (_, listener) in given_up {
            part_with(listener, lane);
        }
    }

    /// Closes the connections of daemons that asked for the owner.
    pub fn tend(&self, lane: &Lane) {
        let accept = |listener: &UnixListener| Accepted::new(listener.accept()?.0, lane).map(drop);
        for listener in self.held.values() {
            let _ = (0..ASKERS).try_for_each(|_| accept(listener));
        }
    }

    fn name(&self, uuid: [u8; 16]) -> String {
        match self.among {
            Among::AllUsers => format!("gpushare/{}", Uuid(uuid)),
            Among::OwnOnly => format!("gpushare/{}/{}", geteuid(), Uuid(uuid)),
        }
    }
}

fn listen(name: &str) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Describes the owner of a name.
fn whose(name: &str) -> String {
    let Ok(credentials) = ask(name) else {
        return "is taken by a process that does not identify itself".to_owned();
    };
    let (user, pid) = (credentials.uid(), credentials.pid());
    let next = "two would each promise all of its memory";
    if user == geteuid().as_raw() {
        let folder = folder_of(pid).map_or_else(String::new, |folder| format!(" ({folder})"));
        return format!(
            "is served by another daemon of yours, process {pid}, from another runtime folder{folder}: {next}; \
             use the same XDG_RUNTIME_DIR, or wait until its programs have ended"
        );
    }
    format!(
        "is served by the daemon of user {user}, process {pid}: {next}; wait until that user's programs have ended, \
         or have root start the machine's daemon, which serves all users"
    )
}

/// The folder that a daemon was started for, from its command line.
fn folder_of(pid: i32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == b"--runtime-dir")?;
    Some(String::from_utf8_lossy(words.next()?).into_owned())
}

/// Does not wait: a listener that does not accept may have a full backlog.
fn ask(name: &str) -> nix::Result<nix::sys::socket::UnixCredentials> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let asker = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(asker.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    getsockopt(&asker, PeerCredentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Lanes;

    /// A GPU that no other test has.
    fn gpu(mark: u8) -> [u8; 16] {
        let mut uuid = [mark; 16];
        uuid[..4].copy_from_slice(&std::process::id().to_be_bytes());
        uuid
    }

    #[test]
    fn the_second_daemon_for_a_gpu_is_told_who_has_it() {
        let (one, other) = (gpu(1), gpu(2));
        let mut first = Guard::new(Among::AllUsers);
        let mut second = Guard::new(Among::AllUsers);
        first.claim(one).unwrap();
        first.claim(one).unwrap();
        let refused = second.claim(one).unwrap_err();
        let own = format!("process {}", std::process::id());
        for word in [own.as_str(), "of yours", &Uuid(one).to_string()] {
            assert!(refused.contains(word), "{refused}");
        }
        second.claim(other).unwrap();
        assert!(first.claim(other).is_err(), "and the reverse");
        first.keep(&BTreeSet::new(), &Lanes::default().own());
        second.claim(one).unwrap();
    }

    #[test]
    fn a_gpu_of_one_user_alone_is_another_one_than_the_machines() {
        let own = gpu(3);
        let (mut mine, mut machines) = (Guard::new(Among::OwnOnly), Guard::new(Among::AllUsers));
        mine.claim(own).unwrap();
        machines.claim(own).unwrap();
        assert!(Guard::new(Among::OwnOnly).claim(own).is_err());
    }

    #[test]
    fn askers_never_fill_it_and_one_that_is_full_is_refused_without_a_name() {
        let own = gpu(4);
        let mut first = Guard::new(Among::AllUsers);
        first.claim(own).unwrap();
        let mut second = Guard::new(Among::AllUsers);
        let named = |refused: String| refused.contains("process");
        for _ in 0..10_000 {
            assert!(named(second.claim(own).unwrap_err()));
            first.tend(&Lanes::default().own());
        }
        let name = first.name(own);
        while ask(&name).is_ok() {}
        let refused = second.claim(own).unwrap_err();
        assert!(refused.contains("does not identify itself"), "{refused}");
        first.tend(&Lanes::default().own());
        assert!(named(second.claim(own).unwrap_err()));
    }
}
