//! Inputs and outputs of a device's compute scheduling.

use super::page::Lease;
use super::terms::Compute;
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
pub use gpushare_protocol::report::Report;

/// An event on a device. An impossible event is ignored: reports come from clients, late, doubled
/// or forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process has a context here. Said again it changes whether the process is gated.
    Joined {
        /// Its tenant.
        tenant: TenantId,
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
    /// A process is sealed, so that its memory moves: it has no demand and is not waited for. Or it
    /// is not any more.
    Sealed {
        /// Which.
        process: ProcessId,
        /// Whether it is.
        sealed: bool,
    },
    /// A process is dead.
    Left {
        /// Which.
        process: ProcessId,
    },
    /// A tenant's terms changed.
    Set {
        /// The tenant.
        tenant: TenantId,
        /// Its priority.
        class: u16,
        /// Its share.
        compute: Compute,
    },
    /// A process reports.
    Reported {
        /// Which.
        process: ProcessId,
        /// The turn it reports on.
        epoch: u64,
        /// The report.
        report: Report,
    },
}

/// An action or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store this lease.
    Lease {
        /// The tenant.
        tenant: TenantId,
        /// The lease to write into its page.
        lease: Lease,
    },
    /// See [`crate::Notice::Overrun`].
    Overrun {
        /// Which tenant.
        tenant: TenantId,
        /// How long ago its gate was closed.
        after: Nanos,
    },
    /// See [`crate::Notice::Ungated`].
    Ungated {
        /// Which tenant.
        tenant: TenantId,
    },
}

/// Leases in the order in which they are stored: what closes first.
pub(super) fn closed_first(mut leases: Vec<(TenantId, Lease)>) -> impl Iterator<Item = Output> {
    leases.sort_by_key(|(_, lease)| !lease.kind.is_closed());
    let store = |(id, lease)| Output::Lease { tenant: id, lease };
    leases.into_iter().map(store)
}
