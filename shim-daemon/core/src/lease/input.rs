//! What a device's time is told, and what it says is to be done.

use super::page::{Lease, LeaseKind};
use super::terms::Compute;
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;

/// What a process reports of its gate on one device. A report names the turn it speaks of; about any
/// other turn it is old news, or a lie, and ignored.
///
/// What a lie can do: cut one's own turn short, have turns one does not use and pays for, or not
/// drain, which others wait for once and no longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A call waits at its closed gate; said once per closed epoch.
    Wanted,
    /// Its gate is closed and all it submitted before is complete. Also when it closed by itself at
    /// its deadline: then it does not open again under that epoch.
    Drained,
    /// Its gate is open, nothing is un-drained, and nothing was submitted for the idle threshold.
    Idle,
    /// After `Idle` it submitted again. Believed whatever turn it speaks of: it takes nothing from
    /// anybody but its own tenant.
    Busy,
}

/// What happens on a device. What cannot be, is ignored: reports come from clients, late, doubled or
/// forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process has a context here. Said again it changes whether the process is gated.
    Joined {
        /// Its tenant.
        container: ContainerId,
        /// Which.
        process: ProcessId,
        /// Whether its gate can be closed.
        gated: bool,
        /// The tenant's priority.
        class: u16,
        /// The tenant's share.
        compute: Compute,
    },
    /// See [`crate::Event::Away`].
    Away {
        /// Which.
        process: ProcessId,
        /// Whether it is.
        away: bool,
    },
    /// A process is dead.
    Left {
        /// Which.
        process: ProcessId,
    },
    /// A tenant's terms changed.
    Set {
        /// Whose.
        container: ContainerId,
        /// Its priority.
        class: u16,
        /// Its share.
        compute: Compute,
    },
    /// A process reports.
    Reported {
        /// Which.
        process: ProcessId,
        /// The turn it speaks of.
        epoch: u64,
        /// What it says.
        report: Report,
    },
}

/// What is to be done or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store this lease.
    Lease {
        /// Whose.
        container: ContainerId,
        /// What its page must say.
        lease: Lease,
    },
    /// See [`crate::Notice::Overrun`].
    Overrun {
        /// Which tenant.
        container: ContainerId,
        /// How long ago its gate was closed.
        after: Nanos,
    },
    /// See [`crate::Notice::Ungated`].
    Ungated {
        /// Which tenant.
        container: ContainerId,
    },
}

/// Leases in the order in which they are stored: what closes first.
pub(super) fn closed_first(mut leases: Vec<(ContainerId, Lease)>) -> impl Iterator<Item = Output> {
    leases.sort_by_key(|(_, lease)| lease.kind != LeaseKind::Closed);
    let store = |(container, lease)| Output::Lease { container, lease };
    leases.into_iter().map(store)
}
