//! A process's work on a device, according to its page.

use crate::time::Nanos;

/// See the module's page: claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Nanoseconds of device time that its completed work takes alone.
    pub service: u64,
    /// Nanoseconds in which it had work pending, without the currently pending work.
    pub busy: u64,
    /// Since when it has work pending.
    pub since: Option<Nanos>,
    /// Whether the service is mostly guessed.
    pub guessed: bool,
}
