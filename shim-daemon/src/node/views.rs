//! The truth as rows, for `ps` and `devices`.

use gpushare_core::{ContainerView, Nanos, ProcessId, State};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ContainerRow, DeviceRow, ProcessRow, ProcessState, Want};

use super::Node;
use super::container::{Container, index};

impl Node {
    pub(super) fn container_rows(&self, now: Nanos) -> Vec<ContainerRow> {
        let mut rows = Vec::new();
        for (id, known) in &self.containers {
            let Some(view) = self.world.container(*id) else {
                continue;
            };
            for account in &view.accounts {
                let Some((column, device)) = known
                    .column(account.device)
                    .zip(index(account.device).and_then(|at| self.devices.get(at)))
                else {
                    continue;
                };
                rows.push(ContainerRow {
                    name: known.registration.name.clone(),
                    device: device.uuid,
                    request: account.quota.request.0,
                    limit: account.quota.limit.0,
                    grant: account.grant.0,
                    charged: known.charged(column).0,
                    overhead: account.overhead.0,
                    limbo: account.limbo.0,
                    processes: self.process_rows(now, known, &view, column),
                });
            }
        }
        rows
    }

    fn process_rows(
        &self,
        now: Nanos,
        known: &Container,
        view: &ContainerView,
        column: usize,
    ) -> Vec<ProcessRow> {
        let row = |member: &ProcessId| {
            let process = self.processes.get(member)?;
            let line = known.usage.view().line(process.slot, column)?;
            Some(ProcessRow {
                pid: process.peer.pid.unsigned_abs(),
                charged: u64::from(line.word.load().charged) * UNIT,
                overhead: line.overhead.load(std::sync::atomic::Ordering::Relaxed),
                state: state_of(now, view, *member),
            })
        };
        known.members.iter().filter_map(row).collect()
    }

    pub(super) fn device_rows(&self) -> Vec<DeviceRow> {
        let views = self.world.devices();
        let row = |view: gpushare_core::DeviceView| {
            let at = index(view.device)?;
            let device = self.devices.get(at)?;
            let accounts = self
                .containers
                .keys()
                .filter_map(|id| self.world.account(*id, view.device));
            let (granted, overhead) = accounts.fold(
                (Bytes::ZERO, Bytes::ZERO),
                |(grants, overheads), account| {
                    (grants + account.grant, overheads + account.overhead)
                },
            );
            Some(DeviceRow {
                uuid: device.uuid,
                name: device.name.clone(),
                capacity: device.capacity.0,
                reserve: (device.capacity - view.usable).0,
                granted: granted.0,
                overhead: overhead.0,
                limbo: view.limbo.0,
                unmanaged: view.unmanaged.0,
                capabilities: device.capabilities.names(),
            })
        };
        views.filter_map(row).collect()
    }
}

fn state_of(now: Nanos, view: &ContainerView, process: ProcessId) -> ProcessState {
    let millis = |since: Nanos| (now - since).0 / 1_000_000;
    if let Some(wait) = view.waiting.iter().find(|wait| wait.ask.0 == process) {
        return ProcessState::Waiting(Want {
            bytes: wait.bytes.0,
            since_ms: millis(wait.since),
        });
    }
    match view.state {
        State::Idle { since } => ProcessState::Idle {
            for_ms: millis(since),
        },
        _ => ProcessState::Running,
    }
}
