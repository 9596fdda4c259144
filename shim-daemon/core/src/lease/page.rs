//! The lease of one device in a tenant's control page.

use crate::time::Nanos;

/// A tenant's lease on one device, as its clients must obey it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies the turn. It rises with every grant and whenever a deadline moves to a later
    /// time, so that a report about an earlier turn can be recognised. A deadline that moves to an
    /// earlier time keeps it.
    pub epoch: u64,
    /// The permission.
    pub kind: LeaseKind,
}

/// The permission that a lease gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Work without bounds: no other tenant is on the device and no cap binds.
    Free,
    /// The tenant holds the device, or shares it.
    Open {
        /// When its clients stop launching by themselves. `None`: when they are ordered to.
        deadline: Option<Nanos>,
        /// The most un-drained work by estimate.
        window: Nanos,
        /// In turns: whether another tenant waits for the device. Shared: whether another's work
        /// may run there now.
        contended: bool,
        /// Shared: the most that is submitted before all of it is complete, zero for no such bound.
        /// `None` in turns.
        slice: Option<Nanos>,
    },
    /// Stop launching, drain, and say so under this epoch.
    Closed {
        /// In turns: whether another tenant is on the device. Shared: whether another's work may
        /// run now beside what this one has submitted.
        contended: bool,
    },
}

impl LeaseKind {
    /// Whether it lets nothing go.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

impl Lease {
    /// The lease in a control page of zeroes, and of a tenant before the first decision about it.
    pub const FREE: Self = Self {
        epoch: 0,
        kind: LeaseKind::Free,
    };
}
