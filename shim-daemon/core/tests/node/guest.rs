//! A tenant of the node in virtual time.

use super::swap;
use gpushare_core::{Bytes, DeviceId, Lease, Signal, SpecError, TenantSpec};
use std::collections::BTreeMap;

/// How a tenant reacts to the order to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Goes at SIGTERM.
    Polite,
    /// Goes at SIGKILL.
    Stubborn,
    /// Stays, as a process stuck in the driver does.
    Unkillable,
}

/// A tenant as the node's runtime knows it.
#[derive(Debug)]
pub struct Guest {
    pub spec: TenantSpec,
    pub admitted: bool,
    pub refused: Option<SpecError>,
    pub manners: Manners,
    /// Its control page: the grant its clients obey.
    pub page: BTreeMap<DeviceId, Bytes>,
    /// The leases that the page shows.
    pub leases: BTreeMap<DeviceId, Lease>,
    pub signals: Vec<Signal>,
    /// Its pages show work since the daemon last read them.
    pub worked: bool,
    /// How its processes move, where they can.
    pub moves: swap::Moves,
}
