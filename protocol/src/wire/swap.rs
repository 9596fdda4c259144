//! Moves between the devices and the host, for metrics and commands.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// One row of [`super::Listing::Swaps`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "all rows of a list but the first are the large one"
)]
pub enum SwapRow {
    /// The node's room for memory that is away: the first row, where it has any.
    Room(SwapRoom),
    /// A tenant whose memory can move, on one of its devices.
    Tenant(TenantSwaps),
}

/// The node's room for memory that is away. Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapRoom {
    /// Host memory that tenants may have together.
    pub host: u64,
    /// The part of it that they have.
    pub host_used: u64,
    /// Bytes that may lie in files of the node's folder; 0 without one.
    pub files: u64,
    /// Bytes that lie there.
    pub files_used: u64,
}

/// A tenant's moves on a device since its registration at this daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSwaps {
    /// The tenant's name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// Bytes that left the device.
    pub out_bytes: u64,
    /// Bytes that came back to it.
    pub in_bytes: u64,
    /// How long the moves took that left it, each from the order until the device showed the
    /// memory free.
    pub out_times: Histogram,
    /// How long those took that came back, each from the order until all processes ran.
    pub in_times: Histogram,
    /// Bytes of the tenant that lie in files, of all its devices together: a file holds memory of
    /// any of them.
    pub in_files: u64,
}
