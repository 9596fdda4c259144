//! The counts and measurements as rows, for metrics, `top` and the report page.

use gpushare_core::{DeviceId, Nanos, State, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{
    DeviceMetrics, ExcessRow, HealthRow, Identity, MetricsRow, NodeMetrics, QueuedTenant, Refusals,
    TenantMetrics,
};

use super::Node;
use super::history::{self, Key};
use super::tally::DeviceTally;
use super::tenant::{Tenant, index};

impl Node {
    /// The rows before those of tenants: the daemon and its devices.
    pub(super) fn own_metrics(&self, now: Nanos) -> Vec<MetricsRow> {
        let counted = &self.counted;
        let queued = self.tenants.values().filter(|known| !known.is_admitted());
        let node = NodeMetrics {
            version: gpushare_protocol::build!().to_owned(),
            driver: counted.driver().to_owned(),
            up_ms: millis(now - counted.started()),
            queued: u32::try_from(queued.count()).unwrap_or(u32::MAX),
            admissions: counted.admissions(),
            ended_collision: counted.ends().collision,
            ended_idle: counted.ends().idle,
            ended_run_limit: counted.ends().run_limit,
            ended_unmanaged: counted.ends().unmanaged,
            ended_command: counted.ends().command,
        };
        let devices = self.devices.iter().enumerate().map(|(at, device)| {
            // A lost device has none, and its last list of processes is out of date.
            let id = DeviceId(at as u64);
            let tally = self.world.tally(id).unwrap_or_default();
            let is_lost = self.looks.is_lost(at);
            MetricsRow::Device(DeviceMetrics {
                device: device.uuid,
                handoffs: tally.handoffs,
                idle_capped_ns: tally.capped.0,
                idle_held_ns: tally.held.0,
                unmanaged: if is_lost { 0 } else { self.unmanaged_on(at) },
                look_failures: counted.look_failures(at),
                moving_ns: self.world.moving(id).0,
                refused: self.refusals_on(id),
            })
        });
        std::iter::once(MetricsRow::Node(node))
            .chain(devices)
            .collect()
    }

    /// Refusals on a device, of tenants that are here and that have ended.
    fn refusals_on(&self, id: DeviceId) -> Refusals {
        let mut all = self.counted.refusals(id);
        let of_tenants = self.tenants.values().flat_map(Tenant::refusals);
        for (_, refusals) in of_tenants.filter(|(of, _)| *of == id) {
            all.add(*refusals);
        }
        Refusals {
            limit: all.over_limit,
            wait_timeout: all.timed_out,
            no_room: all.without_room(),
            driver: all.driver,
            host_full: self.counted.host_full(id),
        }
    }

    /// What a tenant holds beyond what it may on the device of an index, if anything.
    pub(super) fn excess_row(&self, id: TenantId, device_index: usize) -> Option<ExcessRow> {
        let known = self.tenants.get(&id)?;
        let device = *known.device_ids().get(device_index)?;
        let bytes = self.world.account(id, device)?.excess;
        (!bytes.is_zero()).then_some(ExcessRow {
            name: known.name().to_owned(),
            device: index(device).and_then(|at| self.devices.get(at))?.uuid,
            bytes: bytes.0,
        })
    }

    /// Whether NVML tells how long the kernels of an admitted tenant run on the device of an index:
    /// not of a MIG instance or where it has no samples, nor in a pid namespace whose pids it does
    /// not list.
    pub(super) fn is_sampled(&self, known: &Tenant, device_index: usize) -> bool {
        let at = known
            .device_ids()
            .get(device_index)
            .copied()
            .and_then(index);
        let is_sampled = |at: usize| {
            let device = self.devices.get(at);
            device.is_some_and(|device| !device.capabilities.mig) && self.counted.is_sampled(at)
        };
        known.is_admitted() && at.is_some_and(is_sampled) && self.pids.are_ours()
    }

    /// The devices as the last looks showed them.
    pub(super) fn health_rows(&self) -> Vec<HealthRow> {
        let all = self.devices.iter().enumerate();
        let there = all.filter(|(at, _)| !self.looks.is_lost(*at));
        let rows = there.filter_map(|(at, device)| {
            let health = self.counted.health(at)?;
            Some(HealthRow {
                device: device.uuid,
                busy: health.busy,
                watts: health.watts,
                celsius: health.celsius,
            })
        });
        rows.collect()
    }

    /// A tenant's rows at the place of one of its devices: with the first, whose it is.
    pub(super) fn tenant_metrics(
        &self,
        now: Nanos,
        (id, known): (TenantId, &Tenant),
        device_index: usize,
    ) -> Vec<MetricsRow> {
        if !known.is_admitted() {
            let queued = (device_index == 0).then(|| self.queued_row(now, (id, known)));
            return queued.flatten().into_iter().collect();
        }
        let identity = (device_index == 0).then(|| {
            let began = known.registration().began.map_or(now, Nanos);
            MetricsRow::Identity(Identity {
                name: known.name().to_owned(),
                owner: self.users.told(known.registration().owner),
                cgroup: known.registration().cgroup.clone(),
                age_ms: millis(now - began),
            })
        });
        let measured = self.measured_row(known, device_index);
        identity.into_iter().chain(measured).collect()
    }

    fn measured_row(&self, known: &Tenant, device_index: usize) -> Option<MetricsRow> {
        let device = known.device_ids().get(device_index)?;
        let measures = known.measures().get(device_index)?;
        let tally = known.tally().device(device_index)?;
        let refused = tally.refusals();
        Some(MetricsRow::Tenant(TenantMetrics {
            name: known.name().to_owned(),
            device: index(*device).and_then(|at| self.devices.get(at))?.uuid,
            peak: tally.peak().0,
            refused_limit: refused.over_limit,
            refused_wait_timeout: refused.timed_out,
            refused_no_room: refused.without_room(),
            refused_driver: refused.driver,
            allocation_waits: measures.allocation_waits(),
            gpu_ns: measures.gpu(),
            gate_waits: measures.gate_waits(),
            waiting_ns: measures.waiting().0,
            turns: measures.turns(),
            overruns: measures.overruns(),
            busy_ns: self.is_sampled(known, device_index).then(|| tally.busy()),
        }))
    }

    fn queued_row(&self, now: Nanos, (id, known): (TenantId, &Tenant)) -> Option<MetricsRow> {
        let State::Queued { since } = self.world.tenant(id)?.state else {
            return None;
        };
        let quotas = &self.world.spec(id)?.quotas;
        let most = |of: fn(&gpushare_core::Quota) -> Bytes| {
            let amounts = quotas.iter().map(|(_, quota)| of(quota).0);
            amounts.max().unwrap_or(0)
        };
        let short = quotas.iter().map(|(device, quota)| {
            let left = self.world.device(*device)?;
            let needs = quota.request + self.world.context_cost(*device);
            Some((needs - (left.usable - left.firm)).0)
        });
        let short = short.flatten().max().filter(|_| !self.is_recovering());
        Some(MetricsRow::Queued(QueuedTenant {
            name: known.name().to_owned(),
            owner: self.users.told(known.registration().owner),
            for_ms: millis(now - since),
            limit: most(|quota| quota.limit),
            request: most(|quota| quota.request),
            short: short.unwrap_or(0),
        }))
    }

    /// Once a second: takes a step of the history if one is due.
    pub(super) fn note_history(&mut self, now: Nanos) {
        if !self.history.begin(now) {
            return;
        }
        for (id, known) in &self.tenants {
            for (device_index, measures) in known.measures().iter().enumerate() {
                let device = known
                    .device_ids()
                    .get(device_index)
                    .copied()
                    .and_then(index);
                let Some(device) = device.and_then(|at| self.devices.get(at)) else {
                    continue;
                };
                if !known.is_admitted() {
                    continue;
                }
                let of = (known.name(), device.uuid);
                let waited = measures.gate_waits().sum_ns + measures.waiting().0;
                let id_of_device = known.device_ids()[device_index];
                let account = self.world.account(*id, id_of_device);
                let tally = known.tally().device(device_index);
                let values = history::Now {
                    charged: known.charged(device_index).0,
                    granted: account.map_or(0, |account| account.grant.0),
                    away: self.off_device(*id, device_index).0,
                    held: measures.gpu(),
                    waited,
                    alone: tally.map_or(0, DeviceTally::alone),
                };
                let key: Key = (*id, device_index);
                self.history.note(key, of, values);
            }
        }
    }
}

fn millis(span: Nanos) -> u64 {
    span.0 / 1_000_000
}
