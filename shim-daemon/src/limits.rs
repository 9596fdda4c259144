//! Resource limits that the kernel sets for this process.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the number of descriptors to the most allowed: each client takes three, and the usual
/// limit is 1,024.
///
/// # Errors
/// If the kernel refuses; the limit is then as it was.
pub fn raise_descriptors() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
