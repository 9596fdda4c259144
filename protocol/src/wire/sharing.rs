//! How the time of devices is shared.

use serde::{Deserialize, Serialize};

/// How a device's time is shared now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingRow {
    /// The device's UUID.
    pub device: [u8; 16],
    /// The state of its tenants now.
    pub regime: Regime,
    /// How often that changed since the device is shared.
    pub changes: u64,
    /// The same in the last minute.
    pub lately: u32,
    /// By how many thousandths of the time the service that all tenants were billed for is above
    /// it, lately and while work was pending all the time; negative if below. `None` while that was
    /// for less than a second.
    pub off: Option<i32>,
}

/// The state of a device's tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Regime {
    /// They have it one after the other.
    Turns,
    /// All work at the same time, unrestricted.
    Together,
    /// Tenants ahead of one that is behind its share submit in slices.
    Yielding,
    /// Those ahead are closed until it has been repaid.
    Held,
}
