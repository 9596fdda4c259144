//! The node daemon's brain: how much of which device each tenant may hold, and the resolution of
//! collisions.
//!
//! A pure state machine. [`World::handle`] takes the time and an event, [`World::next_timeout`] is
//! the time of the next call without an event, and [`World::poll_decision`] returns decisions. It
//! has no clock, does no I/O and starts no thread. So a day on a large node is a test of seconds,
//! and every failure repeats from its seed.
//!
//! Invariants:
//! * I1: per device, grants on the card + overhead + excess + limbo + unmanaged are at most
//!   capacity less reserve. If facts alone break it, no memory is granted until it holds again.
//! * I3: only a tenant that uses more than its request is ever ended for a collision, and no tenant
//!   that could be spared.
//!   A tenant that swaps is moved as a whole, and no tenant is ended where moves are enough.
//! * I4: every ask ends in a grant or an out-of-memory, the latter at its timeout at the latest.
//! * I9: a tenant that waits for the rotation is in within its bound, as long as the tenants before
//!   it leave when they are asked.
//!
//! (I2, that charges never exceed the limit, is enforced by the clients: no grant is ever raised
//! above the limit.)
#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::float_arithmetic
)]

mod decision;
mod event;
mod ids;
pub mod lanes;
pub mod lease;
mod ledger;
mod limbo;
mod overhead;
mod part;
mod residency;
mod resolver;
mod room;
mod spec;
mod time;
mod timers;
mod world;

pub use decision::{Answer, Decision, Denial, Notice, Signal, Why};
pub use event::{Event, ProcessSample, Running, Sample};
pub use gpushare_protocol::units::{Bytes, Permille};
pub use ids::{AskId, AskKey, CostClass, DeviceId, Gang, ProcessId, ReclaimId, TenantId};
pub use lease::{
    Cause, Compute, DeviceTally, DeviceTime, Input, Lease, LeaseKind, LeasePolicy, Mode, Output,
    Report, ShareState, ShareView, Sharing, SharingView, Steered, Work,
};
pub use part::Implied;
pub use residency::{Held, HostView, Order, Place, Shown, SwapPolicy, Told};
pub use resolver::Resolver;
pub use spec::{DeviceSpec, Oversubscribe, Policy, Preemptible, Quota, SpecError, TenantSpec};
pub use time::Nanos;
pub use world::World;
pub use world::moves::suspend::NotSuspended;
pub use world::view::{
    AccountView, DeadView, DeviceView, EndView, ResidenceView, State, TenantView, WaitView,
};
