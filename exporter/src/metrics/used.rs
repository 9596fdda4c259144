//! The devices that tenants have used. By default a tenant may use all of a node's, and mostly uses
//! one: of the others all would be 0, some fifty series each.

use std::collections::BTreeSet;

use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::{ProcessState, TenantMetrics, TenantRow};

use crate::snapshot::Snapshot;

/// Names of tenants with the devices on which they hold something, or something was counted. What
/// was counted stays, so a series of a counter does not come and go.
#[derive(Debug)]
pub struct Used<'a>(BTreeSet<(&'a str, [u8; 16])>);

impl<'a> Used<'a> {
    /// Those of a snapshot.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let holding = snapshot.tenants.iter().filter(|row| holds(row));
        let holding = holding.map(|row| (&*row.name, row.device));
        let measures = snapshot.measures.iter().filter(|row| counted(row));
        let measures = measures.map(|row| (&*row.name, row.device));
        let movable = snapshot.residency.iter();
        let movable = movable.filter(|row| (row.movable, row.away, row.moved) != (0, 0, 0));
        let movable = movable.map(|row| (&*row.name, row.device));
        let all = holding.chain(measures).chain(movable);
        Self(all.collect())
    }

    /// Whether a tenant has used a device.
    #[must_use]
    pub fn has(&self, name: &str, device: [u8; 16]) -> bool {
        self.0.contains(&(name, device))
    }
}

fn holds(row: &TenantRow) -> bool {
    let mut states = row.processes.iter().map(|process| &process.state);
    let waits = states.any(|state| matches!(state, ProcessState::Waiting(_)));
    // Each process of a tenant is in the rows of all its devices.
    waits || (row.charged, row.overhead, row.limbo) != (0, 0, 0)
}

fn counted(row: &TenantMetrics) -> bool {
    let times = |times: &Histogram| times.counts.iter().any(|count| *count > 0);
    let counts = [
        row.peak,
        row.refused_limit,
        row.refused_wait_timeout,
        row.refused_no_room,
        row.refused_driver,
        row.gpu_ns,
        row.waiting_ns,
        row.turns,
        row.overruns,
        row.busy_ns.unwrap_or(0),
    ];
    counts.iter().any(|count| *count > 0) || times(&row.allocation_waits) || times(&row.gate_waits)
}
