//! Resource limits that the kernel sets for this process.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};

/// Raises the number of descriptors to the most allowed: each client takes three, and the usual
/// limit is 1,024.
///
/// # Errors
/// If the kernel refuses; the limit is then as it was.
pub fn raise_descriptors() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// The most descriptors that this process may have at a time. Where the kernel does not say, there
/// is no end.
#[must_use]
pub fn descriptors() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(most, _)| most)
}

/// Has files grow to the most allowed: a private daemon has the limits of the program that needs
/// it. A file that may not grow further is an error for this thread, and for those that it starts,
/// like a full disk; it would be the daemon's end.
///
/// # Errors
/// If the kernel refuses.
pub fn outlive_file_sizes() -> io::Result<()> {
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE)?;
    Ok(setrlimit(Resource::RLIMIT_FSIZE, most, most)?)
}
