//! Compute leases: whose turn it is on a device, for how long, and what a turn costs.
//!
//! A container works on a device only inside its lease. The daemon stores each [`Lease`] in the container's control
//! page; the clients' gates obey it and report when they have drained. [`Schedule`] deals the turns of one device:
//!
//! * A turn costs all the time from its grant until the last process has drained: what was denied to others, whatever
//!   was done with it. Who takes more than its turn owes it (`clock`, `billing`).
//! * Higher classes of priority go first, always; an explicit request is kept against them (`promise`).
//! * A cap is kept in every window, also alone (`bucket`).
//! * A holder that has nothing to do gives way at once when somebody wants, and keeps the device while nobody does.
//! * A holder that does not drain holds nobody up for longer than a bound: the next works beside it.

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
mod reports;
mod schedule;
mod terms;
mod turns;
mod view;
mod word;

pub use gangs::Gangs;
pub use schedule::{Input, Output, Schedule};
pub use terms::{Compute, LeasePolicy, Profile};
pub use view::{ShareState, ShareView};
pub use word::{Lease, LeaseKind};
