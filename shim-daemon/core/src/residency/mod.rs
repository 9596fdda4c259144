//! Whether the memory of a tenant is on the card: one state per tenant and device.
//!
//! A tenant that may swap is *in*, *leaving*, *out* or *entering*. All its processes move together
//! or none does. Leaving has three steps: all processes are sealed, they copy their memory to the
//! host, and a look at the device shows the memory free. This module holds the states, the measured
//! cost of moves, the host budget, and the rules of the rotation. The world decides who moves.

mod drain;
mod host;
mod link;
mod moving;
mod order;
mod resident;
mod rest;
mod rotation;
pub(crate) mod spill;
mod stay;
mod terms;
mod thrash;

pub use host::{Held, HostView};
pub(crate) use host::{Host, STORED};
pub use order::{Order, Place, Shown, Told};
pub(crate) use resident::{Parts, Resident, Stays, Turned, residency};
pub(crate) use rotation::{Load, Rotation, Round};
pub use terms::SwapPolicy;
pub(crate) use thrash::Verdict as Thrash;

use self::moving::Moving;
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The rotations of all devices, and the host memory that they share.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    devices: BTreeMap<DeviceId, Rotation>,
    /// Kept when no tenant of a device may swap any more.
    moving: BTreeMap<DeviceId, Moving>,
    pub(crate) host: Host,
}

impl Residency {
    pub(crate) fn new(policy: &SwapPolicy) -> Self {
        Self {
            devices: BTreeMap::new(),
            moving: BTreeMap::new(),
            host: Host::new(policy.host, policy.spill),
        }
    }

    /// Whether no tenant of the node may swap.
    pub(crate) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceId, &Rotation)> {
        let all = self.devices.iter();
        all.map(|(device, rotation)| (*device, rotation))
    }

    pub(crate) fn on(&self, device: DeviceId) -> Option<&Rotation> {
        self.devices.get(&device)
    }

    pub(crate) fn on_mut(&mut self, device: DeviceId) -> Option<&mut Rotation> {
        self.devices.get_mut(&device)
    }

    pub(crate) fn get(&self, device: DeviceId, tenant: TenantId) -> Option<&Resident> {
        self.devices.get(&device)?.get(tenant)
    }

    pub(crate) fn get_mut(&mut self, device: DeviceId, tenant: TenantId) -> Option<&mut Resident> {
        self.devices.get_mut(&device)?.get_mut(tenant)
    }

    /// A tenant may swap on this device from now on.
    pub(crate) fn add(&mut self, device: DeviceId, tenant: TenantId) {
        self.devices.entry(device).or_default().add(tenant);
    }

    /// It is gone, with what was reserved for it on the host.
    pub(crate) fn remove(&mut self, device: DeviceId, tenant: TenantId) {
        let Some(rotation) = self.devices.get_mut(&device) else {
            return;
        };
        if let Some(resident) = rotation.remove(tenant) {
            self.host.exchange(tenant, resident.host(), Bytes::ZERO);
        }
        if rotation.is_empty() {
            self.devices.remove(&device);
        }
    }

    /// A device is lost.
    pub(crate) fn forget(&mut self, device: DeviceId) {
        for (tenant, resident) in self.devices.remove(&device).iter().flat_map(Rotation::all) {
            self.host.exchange(tenant, resident.host(), Bytes::ZERO);
        }
    }

    /// A move on a device has begun, or is over.
    pub(crate) fn note_moves(&mut self, now: Nanos, device: DeviceId) {
        let rotation = self.devices.get(&device);
        let is = rotation.is_some_and(|rotation| rotation.all().any(|(_, one)| one.is_moving()));
        if is || self.moving.contains_key(&device) {
            self.moving.entry(device).or_default().note(now, is);
        }
    }

    /// The time in which memory was on its way to or from a device, of all tenants together.
    pub(crate) fn moving(&self, now: Nanos, device: DeviceId) -> Nanos {
        let known = self.moving.get(&device);
        known.map_or(Nanos::ZERO, |moving| moving.total(now))
    }

    /// Whether a tenant's memory is on the card as far as orders go: `true` for tenants that do not
    /// swap.
    pub(crate) fn is_in(&self, device: DeviceId, tenant: TenantId) -> bool {
        let resident = self.get(device, tenant);
        resident.is_none_or(|resident| resident.place() == Place::In)
    }

    /// Whether a tenant is sealed and nothing of it runs any more.
    pub(crate) fn is_still(&self, device: DeviceId, tenant: TenantId) -> bool {
        let resident = self.get(device, tenant);
        let place = resident.map_or(Place::In, Resident::place);
        !matches!(place, Place::In | Place::Sealing)
    }

    /// The processes of a tenant that have contexts on other devices alone, and answer orders.
    pub(crate) fn beside(&self, device: DeviceId, tenant: TenantId) -> BTreeSet<ProcessId> {
        let Some(here) = self.get(device, tenant) else {
            return BTreeSet::new();
        };
        let others = self.devices.values().filter_map(|one| one.get(tenant));
        let all = others.flat_map(Resident::answering);
        all.filter(|process| !here.has(*process)).collect()
    }

    /// Whether it was there already when the device was looked at, at `taken`.
    pub(crate) fn is_in_since(&self, device: DeviceId, tenant: TenantId, taken: Nanos) -> bool {
        let resident = self.get(device, tenant);
        resident.is_none_or(|one| one.place() == Place::In && one.since() <= taken)
    }

    /// Whether a tenant that is out waits to return to this device.
    pub(crate) fn is_waited(&self, device: DeviceId) -> bool {
        let rotation = self.devices.get(&device);
        rotation.is_some_and(|rotation| rotation.all().any(|(_, one)| one.returns().is_some()))
    }

    /// Reserves host memory for one move, instead of what was reserved before. `false`: the host is
    /// full, and nothing changed.
    pub(crate) fn reserve(&mut self, device: DeviceId, tenant: TenantId, bytes: Bytes) -> bool {
        let rotation = self.devices.get_mut(&device);
        let Some(resident) = rotation.and_then(|rotation| rotation.get_mut(tenant)) else {
            return false;
        };
        if !self.host.exchange(tenant, resident.host(), bytes) {
            return false;
        }
        resident.set_host(bytes);
        true
    }

    /// How much more a tenant would count with on the host if `bytes` were reserved for its move
    /// off this device.
    pub(crate) fn more(&self, device: DeviceId, tenant: TenantId, bytes: Bytes) -> Bytes {
        let resident = self.get(device, tenant);
        let before = resident.map_or(Bytes::ZERO, |resident| resident.host());
        self.host.more(tenant, before, bytes.max(before))
    }

    /// The same for its moves off several devices, for which `before` is reserved together.
    pub(crate) fn more_in_all(&self, tenant: TenantId, before: Bytes, bytes: Bytes) -> Bytes {
        self.host.more(tenant, before, bytes.max(before))
    }

    /// A tenant of the previous daemon has so much on the host, whatever the budget.
    pub(crate) fn found(&mut self, device: DeviceId, tenant: TenantId, bytes: Bytes) {
        let rotation = self.devices.get_mut(&device);
        if let Some(resident) = rotation.and_then(|rotation| rotation.get_mut(tenant)) {
            self.host.found(tenant, resident.host(), bytes);
            resident.set_host(bytes);
        }
    }

    /// Recomputes what is kept. `Err` describes a difference.
    pub(crate) fn check(&self) -> Result<(), String> {
        let all = self.devices.values().flat_map(Rotation::all);
        let reserved: Bytes = all.map(|(_, resident)| resident.host()).sum();
        self.host.check(reserved)
    }
}
