//! Copies of tenants' memory to files and back, on a thread of their own.

use std::io;

use nix::sys::signal::{SigSet, Signal};

use super::worker::Worker;
use crate::spill::{Done, Job};

/// The thread of the files.
pub(super) type Storer = Worker<Job, Done>;

/// Starts the thread of the files.
///
/// # Errors
/// As [`Worker::start`].
pub(super) fn start() -> io::Result<Storer> {
    Worker::start("storer", block_long_files, Job::carry_out)
}

/// A file that may not grow further is an error like a full disk, not the daemon's end.
fn block_long_files() {
    let mut too_long = SigSet::empty();
    too_long.add(Signal::SIGXFSZ);
    let _ = too_long.thread_block();
}
