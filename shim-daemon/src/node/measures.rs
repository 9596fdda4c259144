//! What is counted and measured of tenants and of the node, for metrics. Nothing is decided by it.
//!
//! The brain counts what its schedules see, and forgets it when a tenant's last process leaves a
//! device. Here such counts go on: they are read once a second, when they are asked for, and before
//! a process leaves.

use std::collections::BTreeMap;

use gpushare_core::{Answer, Denial, DeviceId, Event, Nanos, TenantId, Why};
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::units::Bytes;

use super::Node;
use super::asks::Asked;
use super::tenant::Tenant;

/// A count that begins anew when its source does; what was counted before is kept.
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

    pub(super) fn all(self) -> u64 {
        self.before.saturating_add(self.last)
    }
}

/// Of a tenant on a device, since its registration at this daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Measures {
    /// The most bytes that were charged at once.
    pub(super) peak: Bytes,
    pub(super) gpu: Grown,
    pub(super) turns: Grown,
    pub(super) overruns: Grown,
    gates_before: Histogram,
    gates: Histogram,
    /// For how long its gate is closed now while it wants the device.
    pub(super) waiting: Nanos,
    pub(super) allocation_waits: Histogram,
    /// Refusals that its living and dead processes have counted in the usage page, for whatever
    /// reason.
    refused: Grown,
    refused_dead: u64,
    pub(super) timed_out: u64,
    pub(super) no_room: u64,
    pub(super) driver: u64,
    /// The most refusals for its own limit that were found: what this daemon refused may be counted
    /// in the page a moment later.
    pub(super) limit: u64,
}

impl Measures {
    /// How long its gate was closed while it wanted the device, each time.
    pub(super) fn gate_waits(&self) -> Histogram {
        self.gates_before.plus(&self.gates)
    }

    /// A process that counted so many refusals leaves.
    pub(super) fn bury(&mut self, refused: u64) {
        self.refused_dead = self.refused_dead.saturating_add(refused);
    }

    fn note_gates(&mut self, gates: Histogram) {
        if gates.count() < self.gates.count() {
            self.gates_before = self.gates_before.plus(&self.gates);
        }
        self.gates = gates;
    }

    /// Its processes have counted so many refusals.
    fn note_refused(&mut self, living: u64) {
        self.refused.read(self.refused_dead.saturating_add(living));
        let ours = self.timed_out.saturating_add(self.no_room);
        self.limit = self.limit.max(self.refused.all().saturating_sub(ours));
    }

    fn charged(&mut self, bytes: Bytes) {
        self.peak = self.peak.max(bytes);
    }

    fn answered(&mut self, waited: Nanos, asked: &Asked, answer: Answer) {
        if waited > Nanos::ZERO && asked.bytes.is_some() {
            self.allocation_waits.record(waited.0);
        }
        match answer {
            // The claim of a tenant about its charges is bounded by its grant.
            Answer::Granted { grant } => {
                self.charged(asked.bytes.unwrap_or(Bytes::ZERO).min(grant));
            }
            Answer::Denied(_) if asked.driver_refused => self.driver += 1,
            Answer::Denied(Denial::TimedOut { .. }) => self.timed_out += 1,
            Answer::Denied(Denial::OverLimit { .. }) => {}
            Answer::Denied(_) => self.no_room += u64::from(asked.bytes.is_some()),
        }
    }
}

/// Of the node, since the daemon's start.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) started: Nanos,
    /// The driver's version.
    pub(super) driver: String,
    /// How long new tenants waited for admission.
    pub(super) admissions: Histogram,
    pub(super) ended_collision: u64,
    pub(super) ended_idle: u64,
    pub(super) ended_run_limit: u64,
    pub(super) ended_unmanaged: u64,
    /// Looks that failed, by device.
    pub(super) look_failures: BTreeMap<usize, u64>,
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
            Why::Collision { .. } => &mut self.ended_collision,
            Why::Idle => &mut self.ended_idle,
            Why::RunLimit => &mut self.ended_run_limit,
        } += 1;
    }

    /// A look at a device failed.
    pub(super) fn look_failed(&mut self, device: usize) {
        *self.look_failures.entry(device).or_default() += 1;
    }
}

impl Node {
    /// The driver's version, for metrics.
    pub fn set_driver_version(&mut self, version: String) {
        self.counted.driver = version;
    }

    /// Reads a tenant's counts.
    pub(super) fn note_measures(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let now = self.world.now();
        for (column, device) in known.columns.clone().into_iter().enumerate() {
            let (charged, refused) = (known.charged(column), known.refused(column));
            let Some(measures) = known.measures.get_mut(column) else {
                continue;
            };
            measures.charged(charged);
            measures.note_refused(refused);
            let share = self.world.share(tenant, device);
            measures.waiting = Nanos::ZERO;
            if let Some(share) = share {
                measures.gpu.read(share.held.0);
                measures.turns.read(share.turns);
                measures.overruns.read(share.overruns);
                measures.note_gates(share.waits);
                measures.waiting = share.waiting.map_or(Nanos::ZERO, |since| now - since);
            }
        }
    }

    /// Reads all counts, before they are told.
    pub(super) fn note_all_measures(&mut self) {
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.note_measures(tenant);
        }
    }

    /// An ask is answered.
    pub(super) fn note_answer(&mut self, now: Nanos, asked: &Asked, answer: Answer) {
        let known = self.tenants.get_mut(&asked.tenant);
        if let Some(measures) = known.and_then(|known| known.measured(asked.device)) {
            measures.answered(now - asked.since, asked, answer);
        }
    }
}

impl Tenant {
    fn measured(&mut self, device: DeviceId) -> Option<&mut Measures> {
        let column = self.column(device)?;
        self.measures.get_mut(column)
    }
}

/// The bytes that a tenant has charged once an ask is granted, and whether the driver refused them.
pub(super) fn wanted(event: &Event) -> (Option<Bytes>, bool) {
    match event {
        Event::Ask { held, bytes, .. } => (Some(*held + *bytes), false),
        Event::DriverRefused { held, .. } => (Some(*held), true),
        _ => (None, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_on_when_its_source_begins_anew() {
        let mut count = Grown::default();
        for (value, all) in [(5, 5), (7, 7), (1, 8), (3, 10)] {
            count.read(value);
            assert_eq!(count.all(), all);
        }
    }

    #[test]
    fn what_the_daemon_refused_is_not_counted_as_the_tenants_own_limit() {
        let mut measures = Measures::default();
        measures.note_refused(2);
        assert_eq!(measures.limit, 2);
        // The daemon refuses; the process counts it a moment later.
        measures.timed_out += 1;
        measures.note_refused(2);
        assert_eq!(measures.limit, 2);
        measures.note_refused(3);
        assert_eq!(measures.limit, 2);
        measures.bury(3);
        measures.note_refused(1);
        assert_eq!(measures.limit, 3);
    }
}
