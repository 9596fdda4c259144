//! A tenant's dead processes, across restarts of the daemon. The memory they still hold counts
//! against the tenant's limit, whichever daemon saw them die.
//!
//! Dead processes that the brain knows are stored with the tenant's registration, once a round and
//! only when the set changed; most have vanished before that. A process that dies while no daemon
//! runs leaves a row in the usage page.

use std::collections::BTreeMap;

use gpushare_core::{DeviceId, Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;
use serde::{Deserialize, Serialize};

use super::Node;
use super::tenant::index;
use crate::init::runs;

/// A dead process that still held memory when it was written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// Its pid in the daemon's namespace: what NVML lists it by.
    pub pid: u32,
    /// The device's UUID.
    pub device: [u8; 16],
    /// The memory it held there, in bytes.
    pub bytes: u64,
    /// The part of that which was charged.
    pub charged: u64,
}

/// A row of a usage page whose process died while no daemon ran: its pid, and its charges by
/// device.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    pub(super) pid: u64,
    pub(super) charged: Vec<u32>,
}

impl Node {
    /// Stores the dead processes of all tenants whose set changed.
    pub(super) fn write_down_dead(&mut self) {
        let pids: BTreeMap<ProcessId, u32> = self.processes.dead().collect();
        let mut reaped: BTreeMap<TenantId, Vec<Reaped>> = BTreeMap::new();
        for dead in self.world.dead() {
            let device = index(dead.device).and_then(|at| self.devices.get(at));
            if let (Some(tenant), Some(pid), Some(device)) =
                (dead.tenant, pids.get(&dead.process), device)
            {
                reaped.entry(tenant).or_default().push(Reaped {
                    pid: *pid,
                    device: device.uuid,
                    bytes: dead.bytes.0,
                    charged: dead.charged.0,
                });
            }
        }
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            let now = reaped.remove(&tenant).unwrap_or_default();
            let Some(known) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            if known.note_dead(now) && known.is_admitted() {
                self.write_down(tenant);
            }
        }
    }

    /// Counts a tenant's dead processes that a previous daemon stored, until a look at the device
    /// shows otherwise.
    pub(super) fn inherit_dead(&mut self, now: Nanos, tenant: TenantId, dead: &[Reaped]) {
        for reaped in dead {
            let device = self
                .devices
                .iter()
                .position(|device| device.uuid == reaped.device);
            if let Some(device) = device {
                let (bytes, charged) = (Bytes(reaped.bytes), Bytes(reaped.charged));
                self.remember(now, (reaped.pid, device), bytes, |process| {
                    Event::Remembered {
                        process,
                        tenant,
                        device: DeviceId(device as u64),
                        bytes,
                        charged,
                    }
                });
            }
        }
    }

    /// A process died while there was no daemon. The brain believes no more of its row than its
    /// tenant could have held.
    pub(super) fn reap_unseen(&mut self, now: Nanos, tenant: TenantId, unseen: &Unseen) {
        let device_ids = self.tenants.get(&tenant).map(|known| known.device_ids());
        let devices: Vec<Option<usize>> = device_ids
            .into_iter()
            .flatten()
            .map(|device| index(*device))
            .collect();
        let Ok(pid) = u32::try_from(unseen.pid) else {
            return;
        };
        for (device, charged) in devices.into_iter().zip(&unseen.charged) {
            if let Some(device) = device.filter(|_| *charged > 0) {
                let charged = Bytes(u64::from(*charged) * UNIT);
                self.remember(now, (pid, device), charged, |process| Event::Unseen {
                    process,
                    tenant,
                    device: DeviceId(device as u64),
                    charged,
                });
            }
        }
    }

    /// The pid may be a tenant's lie. It is believed only while no process with that pid runs, so
    /// no other process's memory is attributed to it. Memory that the device does not show is
    /// dropped at the next look.
    fn remember(
        &mut self,
        now: Nanos,
        (pid, device): (u32, usize),
        bytes: Bytes,
        event: impl FnOnce(ProcessId) -> Event,
    ) {
        if pid == 0 || runs(pid, None) {
            return;
        }
        let fresh = ProcessId(self.fresh_id());
        let process = self.processes.reaped_as(pid, fresh);
        self.looks.remember(device, process, bytes);
        self.happened(now, event(process));
    }
}
