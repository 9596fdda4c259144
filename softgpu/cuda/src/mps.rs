//! Whether the process would be a client of an MPS control daemon: at `cuInit` a driver connects to
//! the socket `control` in the folder that `CUDA_MPS_PIPE_DIRECTORY` names, or in
//! `/tmp/nvidia-mps`. Here it is only seen whether a process has that socket, and told as the
//! attribute; nothing is shared by MPS.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable that names the folder, and the folder without it.
const VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const FOLDER: &str = "/tmp/nvidia-mps";

static SHARED: AtomicBool = AtomicBool::new(false);

/// Looks for the daemon. What was found by the last `cuInit` counts.
pub(crate) fn look() {
    let folder = std::env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into());
    let control = Path::new(&folder).join("control");
    // The socket is no datagram socket: one that a process has refuses for that reason, one that
    // was left behind for another.
    let refused = UnixDatagram::unbound().and_then(|socket| socket.connect(control));
    let number = refused.err().and_then(|error| error.raw_os_error());
    SHARED.store(number == Some(libc::EPROTOTYPE), Ordering::Relaxed);
}

/// Whether contexts are shared by MPS.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}
