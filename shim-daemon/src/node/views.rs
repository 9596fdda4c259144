//! The truth as rows, for `ps` and `devices`.

use gpushare_core::{
    DeviceId, DeviceView, EndView, Nanos, ProcessId, State, TenantId, TenantView, Why,
};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{
    DeviceRow, EndRow, EndsBy, ProcessRow, ProcessState, TenantRow, Want,
};

use super::Node;
use super::tenant::{Tenant, index};
use crate::devices::Device;

impl Node {
    /// A tenant on the device of an index, without its processes, as the brain describes it.
    pub(super) fn tenant_row(
        &self,
        (id, known): (TenantId, &Tenant),
        device_index: usize,
    ) -> Option<(TenantRow, TenantView)> {
        let view = self.world.tenant(id)?;
        let device = *known.device_ids().get(device_index)?;
        let described = index(device).and_then(|at| self.devices.get(at))?;
        let mut accounts = view.accounts.iter();
        let account = accounts.find(|account| account.device == device)?;
        let row = TenantRow {
            name: known.name().to_owned(),
            device: described.uuid,
            request: account.quota.request.0,
            limit: account.quota.limit.0,
            grant: account.grant.0,
            charged: known.charged(device_index).0,
            overhead: account.overhead.0,
            limbo: account.limbo.0,
            processes: Vec::new(),
        };
        Some((row, view))
    }

    /// When a tenant with an idle end or a run limit will be ended, by the current state, or that
    /// one is being ended.
    pub(super) fn end_row(&self, now: Nanos, id: TenantId) -> Option<EndRow> {
        let EndView { at, why, told } = self.world.tenant(id)?.ends?;
        Some(EndRow {
            name: self.tenants.get(&id)?.name().to_owned(),
            in_ms: (at - now).0 / 1_000_000,
            by: match why {
                Why::RunLimit => EndsBy::RunLimit,
                Why::Idle => EndsBy::IdleEnd,
                Why::Collision { .. } => EndsBy::Collision,
            },
            told,
        })
    }

    pub(super) fn process_row(
        &self,
        now: Nanos,
        known: &Tenant,
        view: &TenantView,
        (member, device_index): (ProcessId, usize),
    ) -> Option<ProcessRow> {
        let process = self.processes.get(member)?;
        let line = known.usage().view().line(process.slot(), device_index)?;
        let device = *known.device_ids().get(device_index)?;
        Some(ProcessRow {
            pid: process.pid(),
            charged: u64::from(line.word.load().charged) * UNIT,
            overhead: line.overhead.load(std::sync::atomic::Ordering::Relaxed),
            state: self.state_of(now, view, (member, device)),
        })
    }

    /// A process's state on one device. It may wait on another device. Of a tenant that works, one
    /// that has done nothing itself for as long as makes a tenant idle is idle.
    fn state_of(
        &self,
        now: Nanos,
        view: &TenantView,
        (process, device): (ProcessId, DeviceId),
    ) -> ProcessState {
        let millis = |span: Nanos| span.0 / 1_000_000;
        let mut waits = view.waiting.iter();
        if let Some(wait) = waits.find(|wait| wait.ask.0 == process && wait.device == device) {
            return ProcessState::Waiting(Want {
                bytes: wait.bytes.0,
                since_ms: millis(now - wait.since),
            });
        }
        let own = self.workers.idle_for(now, process);
        let spec = self.world.spec(view.tenant);
        let is_idle = spec.is_some_and(|spec| own > Nanos::ZERO && own >= spec.idle_after);
        match view.state {
            // Its tenant's last work was its own, or an earlier process's.
            State::Idle { since } => ProcessState::Idle {
                for_ms: millis(own.max(now - since)),
            },
            _ if is_idle => ProcessState::Idle {
                for_ms: millis(own),
            },
            _ => ProcessState::Running,
        }
    }

    /// All devices, each at its place, also one that is lost: then nothing is held there.
    pub(super) fn device_rows(&self) -> Vec<DeviceRow> {
        let row = |(at, device): (usize, &Device)| {
            let id = DeviceId(at as u64);
            let view = self.world.device(id);
            let accounts = self
                .tenants
                .keys()
                .filter_map(|tenant| self.world.account(*tenant, id));
            let (granted, overhead) = accounts.fold(
                (Bytes::ZERO, Bytes::ZERO),
                |(grants, overheads), account| {
                    (grants + account.booked, overheads + account.overhead)
                },
            );
            let lost = view.is_none().then(|| DeviceRow::LOST.to_owned());
            let capacity = device.capacity_under(self.capacity);
            let amount = |of: fn(&DeviceView) -> Bytes| view.as_ref().map_or(Bytes::ZERO, of);
            DeviceRow {
                uuid: device.uuid,
                name: device.name.clone(),
                capacity: capacity.0,
                reserve: (capacity - amount(|view| view.usable)).0,
                granted: granted.0,
                overhead: overhead.0,
                limbo: amount(|view| view.limbo).0,
                unmanaged: amount(|view| view.unmanaged).0,
                capabilities: device
                    .capabilities
                    .names()
                    .into_iter()
                    .chain(lost)
                    .collect(),
            }
        };
        self.devices.iter().enumerate().map(row).collect()
    }
}
