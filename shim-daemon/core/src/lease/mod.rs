//! Compute leases: which tenant may work on a device, for how long, and at which cost.
//!
//! The daemon stores each tenant's [`Lease`] in its control page; the clients' gates obey it. A
//! device is shared: all work at the same time and the daemon steers (`shared`). Or it is dealt in
//! exclusive turns, where the settings say so (`turns`): then a tenant works only inside its lease,
//! and its gates report when they have drained. [`DeviceTime`] is one device in either regime;
//! `bands` closes and opens gangs on all their devices at once.

mod account;
mod arithmetic;
mod bands;
mod debts;
mod device;
mod input;
mod members;
mod page;
mod promise;
mod roster;
mod seat;
mod shared;
mod terms;
mod turns;
mod view;
mod work;

pub(crate) use bands::{Band, Bands};
pub use device::DeviceTime;
pub use input::{Input, Output, Report};
pub use page::{Lease, LeaseKind};
pub use terms::{Compute, LeasePolicy, Sharing};
pub use view::{Cause, DeviceTally, Mode, ShareState, ShareView, SharingView, Steered};
pub use work::Work;
