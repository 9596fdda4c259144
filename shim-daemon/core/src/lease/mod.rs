//! Compute leases: whose turn it is on a device, for how long, and what a turn costs.
//!
//! The daemon stores each container's [`Lease`] in its control page; the clients' gates obey it. A
//! device is shared: all work at the same time and the daemon steers (`shared`). Or it is dealt in
//! exclusive turns, where the settings say so ([`DeviceTime`]): then a container works only inside
//! its lease, its gates report when they have drained, and [`Schedule`] deals the turns:
//!
//! * A turn costs all the time from its grant until the last process has drained: what was denied to others, whatever
//!   was done with it. Who takes more than its turn owes it (`clock`, `billing`).
//! * Higher classes of priority go first, always; an explicit request is kept against them (`promise`).
//! * A cap is kept in every window, also alone (`bucket`).
//! * A holder that has nothing to do gives way at once when somebody wants, and keeps the device while nobody does.
//! * A holder that does not drain holds nobody up for longer than a bound: the next works beside it.

mod band;
mod billing;
mod bucket;
mod check;
mod clock;
mod entity;
mod gang;
mod gangs;
mod index;
mod members;
mod promise;
mod regime;
mod reports;
mod schedule;
mod shared;
mod terms;
mod turns;
mod view;
mod word;

pub(crate) use band::{Band, Bands};
pub use gangs::Gangs;
pub use regime::DeviceTime;
pub use schedule::{Input, Output, Schedule};
pub use shared::{Mode, Work};
pub use terms::{Compute, LeasePolicy, Profile, Sharing};
pub use view::{ShareState, ShareView, SharingView};
pub use word::{Lease, LeaseKind};
