//! Messages between a client or a command and the daemon: frames, the greeting, requests and
//! replies.
//!
//! Rules that keep a library of last spring working under a daemon of today (and the reverse): a
//! variant, once released, keeps its place and its fields for the life of the major version; new
//! needs are new variants at the end. Both sides learn the other's minor from [`Hello`] and never
//! send a variant the other lacks. A request that is not understood is answered with
//! [`ErrorCode::UnknownRequest`]; the connection goes on. [`Hello`] is the
//! same in all majors: a peer of another one is refused, and [`Hello::check`] says what to do.

mod control;
mod error;
mod frame;
mod injection;
mod kinds;
mod message;
mod metrics;
mod page;
mod record;
mod report;
mod residency;
mod sharing;
mod swap;

pub use control::{
    Alone, Control, ControlReply, DeviceRow, EndRow, EndsBy, GangRow, ProcessRow, ProcessState,
    ShareRow, ShareState, Steered, SteeredBy, TenantRow, Want,
};
pub use error::{ErrorCode, WireError};
pub use frame::{Decoder, FrameError, MAX_FRAME, decode, encode};
pub use injection::{Injection, Linkage, is_container_id};
pub use message::{Ask, Hello, Refusal, Register, Registered, Reply, Request, Spot, Stored};
pub use metrics::{
    DeviceMetrics, EventCountRow, ExcessRow, HealthRow, Identity, LeaseChange, LeaseWas, LeasesRow,
    MetricsRow, NodeMetrics, PodRow, QueuedTenant, Refusals, SeriesRow, TenantMetrics,
};
pub use page::{Cursor, Listing, Rows};
pub use record::{AskedRow, EventDevice, EventRecord, Fact, TenantStatusRow};
pub use residency::{Obstacle, Place, Residency, ResidencyRow, Residue};
pub use sharing::{Regime, SharingRow};
pub use swap::{SwapRoom, SwapRow, TenantSwaps};

/// The major protocol version: peers of another major do not talk. Builds before the first release
/// had 1 ([ADR 269](../../../../docs/adr/0269-the-first-released-protocol-is-2-0.md)).
pub const MAJOR: u16 = 2;

/// The minor protocol version of this build. It grows whenever a variant is added.
pub const MINOR: u16 = 0;

/// The greeting that opens every connection, so that a foreign peer is recognised before anything
/// is decoded.
pub const MAGIC: u32 = u32::from_le_bytes(*b"gpsh");

#[cfg(test)]
mod tests;
