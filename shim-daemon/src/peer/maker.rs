//! The process that made a connection, kept from the time when the connection is accepted.
//!
//! Since Linux 6.5 the socket leads to the process itself. Before, it tells a pid and no more, and
//! goes on telling it once the process has ended: by the first request any other process may have
//! that pid ([ADR
//! 231](../../../docs/adr/0231-a-connections-maker-is-taken-when-it-is-accepted.md)).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{HIDDEN, is_dead, is_refused, open, peer_pidfd, uids};
use crate::small_file;

/// See the module's page.
#[derive(Debug)]
pub enum Maker {
    /// The socket leads to it, whenever that is asked.
    InSocket,
    /// It was there when the connection was accepted.
    Kept(OwnedFd),
    /// It had ended by then, whatever process has its pid.
    Gone,
    /// `/proc` does not show it.
    Hidden,
}

impl Maker {
    /// To be called when the connection is accepted.
    ///
    /// # Errors
    /// If the socket is no connection, or no descriptor is left.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Self::by(Path::new("/proc"), socket, peer_pidfd(socket))
    }

    /// As [`Maker::of`], where the kernel tells about processes in `proc`, and has told `leads` of
    /// the process to which the socket leads.
    pub(crate) fn by(
        proc: &Path,
        socket: BorrowedFd<'_>,
        leads: io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let is_unknown = |error: io::Error| error.raw_os_error() == Some(libc::ENOPROTOOPT);
        if !leads.is_err_and(is_unknown) {
            return Ok(Self::InSocket);
        }
        let peer = getsockopt(&socket, PeerCredentials)?;
        if peer.pid() <= 0 {
            return Ok(Self::Hidden);
        }
        let pidfd = match open(peer.pid()) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Self::Gone),
            pidfd => pidfd?,
        };
        let status = small_file::with_a_name(proc.join(format!("{}/status", peer.pid())));
        // Between the connection and now the pid may have become another process's. Where that is
        // of the same user, that user has both.
        let is_its = |status: &String| uids(status).get(1) == Some(&peer.uid());
        match status {
            Ok(status) if is_its(&status) => Ok(Self::Kept(pidfd)),
            Ok(_) => Ok(Self::Gone),
            Err(_) if is_dead(&pidfd)? => Ok(Self::Gone),
            Err(error) if is_refused(&error) => Ok(Self::Hidden),
            Err(error) => Err(error),
        }
    }

    /// A pidfd of the process that connected `socket`.
    pub(super) fn pidfd(&self, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::InSocket => peer_pidfd(socket),
            Self::Kept(pidfd) => pidfd.try_clone(),
            Self::Gone => Err(io::ErrorKind::NotConnected.into()),
            Self::Hidden => Err(io::Error::new(io::ErrorKind::Unsupported, HIDDEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::process::Command;

    use nix::errno::Errno;

    use super::super::identify;
    use super::*;

    /// What a kernel before 6.5 tells of the process to which a socket leads.
    fn nothing() -> io::Result<OwnedFd> {
        Err(Errno::ENOPROTOOPT.into())
    }

    /// A `/proc` with a folder for this process, and the path of its status there.
    fn proc() -> (tempfile::TempDir, PathBuf) {
        let proc = tempfile::tempdir().unwrap();
        let own = proc.path().join(std::process::id().to_string());
        fs::create_dir(&own).unwrap();
        (proc, own.join("status"))
    }

    /// The maker of a connection that this process made, where `/proc` has this status of it.
    fn maker(status: impl AsRef<[u8]>) -> (UnixStream, Maker) {
        let (socket, _) = UnixStream::pair().unwrap();
        let (proc, path) = proc();
        fs::write(path, status).unwrap();
        let maker = Maker::by(proc.path(), socket.as_fd(), nothing()).unwrap();
        (socket, maker)
    }

    fn status(effective: u32) -> String {
        format!("Name:\ta\nUid:\t4294967294\t{effective}\t4294967294\t4294967294\n")
    }

    #[test]
    fn a_maker_that_lives_is_identified_where_sockets_lead_nowhere() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let maker = Maker::by(Path::new("/proc"), socket.as_fd(), nothing()).unwrap();
        let peer = identify(socket.as_fd(), &maker).unwrap();
        assert_eq!(peer.pid.unsigned_abs(), std::process::id());
        assert!(!is_dead(&peer.pidfd).unwrap());
        let (socket, maker) = self::maker(status(peer.uid));
        assert!(identify(socket.as_fd(), &maker).is_ok());
    }

    #[test]
    fn a_process_of_another_user_that_has_the_pid_is_not_the_maker() {
        let own = nix::unistd::geteuid().as_raw();
        for text in [status(own + 1), String::new()] {
            let (socket, maker) = maker(&text);
            let error = identify(socket.as_fd(), &maker).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{text}");
        }
    }

    #[test]
    fn a_maker_whose_name_is_cut_within_a_letter_is_kept() {
        let own = status(nix::unistd::geteuid().as_raw());
        // As the kernel cuts `обучение` after 15 bytes.
        let name = "Name:\tобучени".as_bytes();
        let text = [name, b"\xd0\n", own.as_bytes()].concat();
        let (socket, maker) = maker(text);
        assert!(matches!(maker, Maker::Kept(_)), "{maker:?}");
        assert!(identify(socket.as_fd(), &maker).is_ok());
    }

    #[test]
    fn a_maker_that_cannot_be_looked_at_for_now_has_not_ended() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let (proc, path) = proc();
        // Its text cannot be read, and it is there.
        fs::create_dir(path).unwrap();
        let error = Maker::by(proc.path(), socket.as_fd(), nothing()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn a_process_that_has_the_pid_after_the_accept_is_not_the_maker() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let maker = Maker::Kept(open(child.id().cast_signed()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        // The pid that this socket tells is of a process that lives: this one.
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let error = identify(socket.as_fd(), &maker).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(identify(socket.as_fd(), &Maker::Gone).is_err());
    }

    #[test]
    fn a_maker_that_proc_does_not_show_is_refused_with_the_reason() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let hidden = tempfile::tempdir().unwrap();
        let maker = Maker::by(hidden.path(), socket.as_fd(), nothing()).unwrap();
        let error = identify(socket.as_fd(), &maker).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("hidepid"), "{error}");
    }

    #[test]
    fn a_socket_that_leads_to_its_maker_needs_no_descriptor_beside_it() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let no_room = || Err(Errno::EMFILE.into());
        for leads in [open(std::process::id().cast_signed()), no_room()] {
            let maker = Maker::by(Path::new("/proc"), socket.as_fd(), leads).unwrap();
            assert!(matches!(maker, Maker::InSocket), "{maker:?}");
        }
    }
}
