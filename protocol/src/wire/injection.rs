//! A container as a tenant: the request of its hook or runtime wrapper to the daemon.

use serde::{Deserialize, Serialize};

/// A container that asks for a share, told before its first program runs. The pidfd of its init
/// travels with this message as a descriptor.
///
/// The tenant lives until that process ends, whatever connects. A container that does not fit now
/// is refused with the numbers, because a container runtime cannot wait for room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// The container's id, 1 to 128 of `A-Z a-z 0-9 _ . + -`.
    pub id: String,
    /// The variables that say its limits, as `(name, value)`.
    pub environment: Vec<(String, String)>,
    /// The devices by index, UUID, file (`/dev/nvidia0`) or `all`; a set. Empty means the node's
    /// only device.
    pub devices: Vec<String>,
    /// Facts about it, as `(kind, value)`: for the node's rules `namespace`, `image` and `user`;
    /// for people also `pod` and `pod_container`; `given` for each device that its pod was given,
    /// empty for none.
    pub labels: Vec<(String, String)>,
    /// The lines of the image's own `/etc/ld.so.preload`.
    pub preload: Vec<String>,
    /// How the first program is linked.
    pub linkage: Linkage,
}

/// Whether a program can have a library preloaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Linkage {
    /// Not found out.
    #[default]
    Unknown,
    /// By glibc's dynamic linker, which reads `/etc/ld.so.preload`.
    Glibc,
    /// By musl's, which does not.
    Musl,
    /// By none: the program is static.
    Static,
}

/// A container's id that may be part of a path: 1 to 128 of `A-Z a-z 0-9 _ . + -`, not beginning
/// with a dot.
pub fn is_container_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    (1..=128).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(allowed)
}
