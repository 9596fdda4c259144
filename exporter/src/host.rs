//! The node's name.

/// The name of this machine, or nothing. The kernel is asked for it: the exporter's unit hides
/// `/proc/sys`.
#[must_use]
pub fn host() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
