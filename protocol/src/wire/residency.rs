//! Where processes have their memory: their reports, and the rows for commands.
//!
//! The orders are in the control page ([`page::residency`](crate::page::residency)). Each message
//! carries the epoch of the order that it answers. A process's report of its bytes is a claim: the
//! daemon plans with it and shows it, and believes no byte to be free before a look at the device.

use serde::{Deserialize, Serialize};

/// Where a process is with the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Place {
    /// On the device, and open.
    In,
    /// On the device; the process is sealed, or seals.
    Sealed,
    /// Sealed; some is on its way to the host.
    Leaving,
    /// Sealed; all that can move is on the host.
    Out,
    /// Sealed; some is on its way back.
    Entering,
}

/// Why a process could not drain before its deadline, or cannot now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Obstacle {
    /// Submitted work does not end: an endless kernel, a wait for a value, a host function.
    Work,
    /// A stream captures.
    Capture,
    /// A thread stays in a call of the driver.
    Call,
    /// The driver refused what the drain needs.
    Driver,
}

/// Bytes that stay on the device, by the reason for which they cannot move. Bounds, not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Linear allocations below the size from which they are made movable, and those from before
    /// that was so.
    pub small: u64,
    /// Pitched allocations and arrays.
    pub arrays: u64,
    /// Memory pools and graphs' memory.
    pub pools: u64,
    /// The program's own physical allocations (`cuMemCreate`).
    pub handles: u64,
    /// Memory that other processes or devices may have open.
    pub shared: u64,
    /// Managed memory.
    pub managed: u64,
}

impl Residue {
    /// Their sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        [
            self.small,
            self.arrays,
            self.pools,
            self.handles,
            self.shared,
            self.managed,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// A process's whole state on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    /// The device's index in the tenant's pages.
    pub device_index: u8,
    /// The epoch of the last order that the process has seen; 0 for none.
    pub epoch: u32,
    /// Where it is.
    pub place: Place,
    /// Bytes of allocations that can move, wherever they are now.
    pub movable: u64,
    /// How much of that is on the host.
    pub away: u64,
    /// Bytes of the host store that the process holds, in use or not.
    pub host: u64,
    /// Bytes that cannot move, by reason.
    pub residue: Residue,
}

/// A tenant's memory on a device, for commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidencyRow {
    /// The tenant's name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// Where it is.
    pub place: Place,
    /// For how many milliseconds.
    pub for_ms: u64,
    /// Whether a command suspended it.
    pub suspended: bool,
    /// Bytes that can move.
    pub movable: u64,
    /// Bytes on the host.
    pub away: u64,
    /// Bytes of the host store that are set aside for it.
    pub host: u64,
    /// Bytes that cannot move, by reason.
    pub residue: Residue,
    /// Times that it left the device.
    pub left: u64,
    /// Bytes moved since it was registered, both ways.
    pub moved: u64,
}
