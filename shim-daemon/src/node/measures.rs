//! The counts and measurements of tenants and of the node, for metrics; beside a tenant's tally,
//! which has its peak and its refusals. Nothing is decided by them.
//!
//! The brain counts what its schedules see, and forgets it when a tenant's last process leaves a
//! device. Here such counts go on: they are read once a second, when they are asked for, and before
//! and after a process leaves.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::{DeviceId, Nanos, ShareView, TenantId, Why};
use gpushare_protocol::histogram::Histogram;

use super::Node;
use super::refusals::Refusals;
use super::swaps::Swaps;
use super::tenant::Tenant;
use crate::devices::Health;

/// A count that begins anew with each source; what was counted before is kept. Where the end of a
/// source is not told, a smaller value shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grown {
    before: u64,
    last: u64,
}

impl Grown {
    fn read(&mut self, value: u64) {
        if value < self.last {
            self.before = self.before.saturating_add(self.last);
        }
        self.last = value;
    }

    /// The source is no more.
    fn ended(&mut self) {
        self.before = self.all();
        self.last = 0;
    }

    fn all(self) -> u64 {
        self.before.saturating_add(self.last)
    }
}

/// Of a tenant on a device, since its registration at this daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Measures {
    gpu: Grown,
    turns: Grown,
    overruns: Grown,
    gates_before: Histogram,
    gates: Histogram,
    waiting: Nanos,
    allocation_waits: Histogram,
    swaps: Swaps,
}

impl Measures {
    /// Moves of its memory to the host and back.
    pub(super) fn swaps(&self) -> &Swaps {
        &self.swaps
    }

    pub(super) fn swaps_mut(&mut self) -> &mut Swaps {
        &mut self.swaps
    }

    /// How long its gate was closed while it wanted the device, each time.
    pub(super) fn gate_waits(&self) -> Histogram {
        self.gates_before.plus(&self.gates)
    }

    /// Nanoseconds of the device's time that it held.
    pub(super) fn gpu(&self) -> u64 {
        self.gpu.all()
    }

    /// Turns that it was given.
    pub(super) fn turns(&self) -> u64 {
        self.turns.all()
    }

    /// Times that it had not drained in time.
    pub(super) fn overruns(&self) -> u64 {
        self.overruns.all()
    }

    /// For how long its gate is closed now while it wants the device.
    pub(super) fn waiting(&self) -> Nanos {
        self.waiting
    }

    /// How long its allocations waited, each time.
    pub(super) fn allocation_waits(&self) -> Histogram {
        self.allocation_waits
    }

    /// An allocation has waited for so long.
    pub(super) fn allocation_waited(&mut self, waited: Nanos) {
        self.allocation_waits.record(waited.0);
    }

    /// Reads what the brain counts of it now; `None` where it has no process, and nothing is
    /// counted.
    fn read(&mut self, now: Nanos, share: Option<&ShareView>) {
        let Some(share) = share else {
            return self.process_less();
        };
        self.gpu.read(share.held.0);
        self.turns.read(share.turns);
        self.overruns.read(share.overruns);
        self.note_gates(share.waits);
        self.waiting = share.waiting.map_or(Nanos::ZERO, |since| now - since);
    }

    /// The brain has forgotten its counts: those of its next process begin at 0. A wait at a closed
    /// gate has ended with the process that waited.
    fn process_less(&mut self) {
        for count in [&mut self.gpu, &mut self.turns, &mut self.overruns] {
            count.ended();
        }
        self.gates_before = self.gate_waits();
        self.gates = Histogram::default();
        let waited = std::mem::take(&mut self.waiting);
        if waited > Nanos::ZERO {
            self.gates_before.record(waited.0);
        }
        self.swaps.ended();
    }

    fn note_gates(&mut self, gates: Histogram) {
        if gates.count() < self.gates.count() {
            self.gates_before = self.gates_before.plus(&self.gates);
        }
        self.gates = gates;
    }
}

/// Tenants and processes that were ended, by the reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) collision: u64,
    pub(super) idle: u64,
    pub(super) run_limit: u64,
    pub(super) unmanaged: u64,
    pub(super) command: u64,
}

/// Of the node, since the daemon's start.
#[derive(Debug, Default)]
pub(super) struct Counted {
    started: Nanos,
    driver: String,
    admissions: Histogram,
    ends: Ends,
    look_failures: BTreeMap<usize, u64>,
    health: BTreeMap<usize, Health>,
    /// Devices of which NVML does not sample what computes.
    without_samples: BTreeSet<usize>,
    /// Refused allocations of tenants that have ended.
    refusals: BTreeMap<DeviceId, Refusals>,
    host_full: BTreeMap<DeviceId, u64>,
}

impl Counted {
    pub(super) fn since(started: Nanos) -> Self {
        Self {
            started,
            ..Self::default()
        }
    }

    /// A tenant is ended.
    pub(super) fn ended(&mut self, why: &Why) {
        *match why {
            Why::Collision { .. } => &mut self.ends.collision,
            Why::Idle => &mut self.ends.idle,
            Why::RunLimit => &mut self.ends.run_limit,
        } += 1;
    }

    /// A tenant is ended by a command.
    pub(super) fn ended_by_command(&mut self) {
        self.ends.command += 1;
    }

    /// A process of no tenant is ended.
    pub(super) fn stranger_ended(&mut self) {
        self.ends.unmanaged += 1;
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// A new tenant is admitted after so long.
    pub(super) fn admitted(&mut self, queued: Nanos) {
        self.admissions.record(queued.0);
    }

    /// How long new tenants waited for admission.
    pub(super) fn admissions(&self) -> Histogram {
        self.admissions
    }

    /// When the daemon started.
    pub(super) fn started(&self) -> Nanos {
        self.started
    }

    /// The driver's version.
    pub(super) fn driver(&self) -> &str {
        &self.driver
    }

    /// How many looks at a device failed.
    pub(super) fn look_failures(&self, device: usize) -> u64 {
        self.look_failures.get(&device).copied().unwrap_or(0)
    }

    /// A look showed a device like this.
    pub(super) fn saw(&mut self, device: usize, health: Health) {
        self.health.insert(device, health);
    }

    /// Whether NVML samples what computes on a device.
    pub(super) fn samples(&mut self, device: usize, does: bool) {
        match does {
            true => self.without_samples.remove(&device),
            false => self.without_samples.insert(device),
        };
    }

    /// Whether it does, as far as is known.
    pub(super) fn is_sampled(&self, device: usize) -> bool {
        !self.without_samples.contains(&device)
    }

    /// A device as the last look showed it.
    pub(super) fn health(&self, device: usize) -> Option<Health> {
        self.health.get(&device).copied()
    }

    /// A tenant has ended: its refusals go on counting. A program that is refused mostly ends, and
    /// its tenant with it.
    pub(super) fn keep_refusals(&mut self, ended: &Tenant) {
        for (device, refusals) in ended.refusals() {
            self.refusals.entry(device).or_default().add(*refusals);
        }
    }

    /// Refused allocations of tenants that have ended.
    pub(super) fn refusals(&self, device: DeviceId) -> Refusals {
        self.refusals.get(&device).copied().unwrap_or_default()
    }

    /// No tenant could be moved from a device because the host had no room.
    pub(super) fn host_was_full(&mut self, device: DeviceId) {
        *self.host_full.entry(device).or_default() += 1;
    }

    /// How often that was told.
    pub(super) fn host_full(&self, device: DeviceId) -> u64 {
        self.host_full.get(&device).copied().unwrap_or(0)
    }

    /// A look at a device failed.
    pub(super) fn look_failed(&mut self, device: usize) {
        *self.look_failures.entry(device).or_default() += 1;
        self.is_out_of_date(device);
    }

    /// What the last look showed of a device holds no more.
    pub(super) fn is_out_of_date(&mut self, device: usize) {
        self.health.remove(&device);
    }
}

impl Node {
    /// The driver's version, for metrics.
    pub(super) fn set_driver_version(&mut self, version: String) {
        self.counted.driver = version;
    }

    /// Reads a tenant's counts.
    pub(super) fn note_measures(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let now = self.world.now();
        for (device_index, device) in known.device_ids().to_vec().into_iter().enumerate() {
            let Some(measures) = known.measures_mut(device_index) else {
                continue;
            };
            measures.read(now, self.world.share(tenant, device).as_ref());
        }
    }

    /// Reads all counts, before they are told.
    pub(super) fn note_all_measures(&mut self) {
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.read_all_counters(tenant);
            self.note_measures(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_core::ShareState;

    #[test]
    fn a_count_goes_on_when_its_source_begins_anew() {
        let mut count = Grown::default();
        for (value, all) in [(5, 5), (7, 7), (1, 8), (3, 10)] {
            count.read(value);
            assert_eq!(count.all(), all);
        }
    }

    fn share(held: u64, waits: Histogram, waiting: Option<Nanos>) -> ShareView {
        ShareView {
            weight: 1000,
            held: Nanos(held),
            state: ShareState::Idle,
            since: Nanos::ZERO,
            turns: held,
            overruns: held,
            ungated: 0,
            waits,
            waiting,
            steered: None,
        }
    }

    #[test]
    fn counts_go_on_when_a_tenants_next_process_counts_more_than_its_last() {
        let mut measures = Measures::default();
        let mut waits = Histogram::default();
        waits.record(5_000);
        measures.read(Nanos(50), Some(&share(5, waits, None)));
        measures.read(Nanos(60), None);
        assert_eq!(measures.gpu(), 5);
        waits.record(1_000_000);
        measures.read(Nanos(70), Some(&share(6, waits, None)));
        let counts = (measures.gpu(), measures.turns(), measures.overruns());
        assert_eq!(counts, (11, 11, 11));
        let all = measures.gate_waits();
        assert_eq!((all.count(), all.sum_ns), (3, 1_010_000));
        // The same source: nothing twice.
        measures.read(Nanos(80), Some(&share(8, waits, None)));
        assert_eq!((measures.gpu(), measures.gate_waits()), (13, all));
    }

    #[test]
    fn a_wait_that_ends_with_the_last_process_is_counted_once() {
        let mut measures = Measures::default();
        let waiting = share(0, Histogram::default(), Some(Nanos(100)));
        measures.read(Nanos(700), Some(&waiting));
        assert_eq!(measures.waiting(), Nanos(600));
        for _ in 0..2 {
            measures.read(Nanos(800), None);
            assert_eq!(measures.waiting(), Nanos::ZERO);
            let waits = measures.gate_waits();
            assert_eq!((waits.count(), waits.sum_ns), (1, 600));
        }
    }
}
