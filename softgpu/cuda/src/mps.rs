//! Whether the process would be a client of an MPS control daemon. At `cuInit` a real driver
//! connects to the socket `control` in the folder that `CUDA_MPS_PIPE_DIRECTORY` names, or in
//! `/tmp/nvidia-mps`. softgpu only checks whether a process listens on that socket, and reports the
//! result as the attribute `MPS_ENABLED`; MPS shares nothing here.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that names the folder, and the default folder.
const VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const FOLDER: &str = "/tmp/nvidia-mps";

static SHARED: AtomicBool = AtomicBool::new(false);

/// Looks for the daemon. The result of the last `cuInit` counts.
pub(crate) fn look() {
    let folder = std::env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into());
    let control = Path::new(&folder).join("control");
    // The socket is not a datagram socket. If a process listens on it, the connection fails for
    // this reason; if the socket is stale, it fails for another reason.
    let refused = UnixDatagram::unbound().and_then(|socket| socket.connect(control));
    let number = refused.err().and_then(|error| error.raw_os_error());
    SHARED.store(number == Some(libc::EPROTOTYPE), Ordering::Relaxed);
}

/// Whether MPS is reported as enabled.
pub(crate) fn is_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}
