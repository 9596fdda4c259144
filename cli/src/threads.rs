//! Threads. The usual way to make one panics where the machine has no more of them for the user
//! (`ulimit -u`, `pids.max`).

use crate::failure::Failure;
use std::thread::Builder;

/// Does this in a thread of its own, which nothing waits for.
pub(crate) fn begin(does: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = Builder::new().spawn(does);
    let failed = |error| Failure::ours(format!("cannot start a thread: {error}"));
    thread.map(drop).map_err(failed)
}
