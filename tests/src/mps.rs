//! A double of the folder of an MPS control daemon: the daemon's files, with listening sockets. It
//! does not parse the clients' messages.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// The variable that names the folder.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The folder of a daemon.
#[derive(Debug)]
pub struct Mps {
    folder: tempfile::TempDir,
    sockets: Vec<OwnedFd>,
}

impl Mps {
    /// The folder of a running MPS daemon.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let sockets = ["control", "control_privileged"].map(|name| listener(&at(name)));
        fs::write(at("control_lock"), "").expect("a file");
        let pid = format!("{}\n", process::id());
        fs::write(at("nvidia-cuda-mps-control.pid"), pid).expect("a file");
        mkfifo(&at("log"), Mode::from_bits_truncate(0o777)).expect("a pipe");
        Self {
            sockets: sockets.into(),
            folder,
        }
    }

    /// Its path.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Closes the sockets, as if the daemon were killed. Its files stay.
    pub fn die(&mut self) {
        self.sockets.clear();
    }

    /// The environment variable that makes a program its client.
    pub fn variable(&self) -> (&'static str, &Path) {
        (PIPE_DIRECTORY, self.folder())
    }
}

fn listener(path: &Path) -> OwnedFd {
    let kind = SockType::SeqPacket;
    let made = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None);
    let made = made.expect("a socket");
    let address = UnixAddr::new(path).expect("a short path");
    bind(std::os::fd::AsRawFd::as_raw_fd(&made), &address).expect("a new name");
    listen(&made, Backlog::new(8).expect("a small number")).expect("it listens");
    made
}
