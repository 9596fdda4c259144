//! The books of all devices of a node.

use super::{Account, Device, Lowering};
use crate::ids::{DeviceId, ReclaimId, TenantId};
use crate::spec::DeviceSpec;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    devices: BTreeMap<DeviceId, Device>,
    /// How many reclaims were begun: each is named by its number.
    reclaims_begun: u64,
}

impl Ledger {
    /// Opens the books of a device, if it is new.
    pub(crate) fn add(&mut self, device: DeviceId, spec: DeviceSpec) {
        let books = self.devices.entry(device);
        books.or_insert_with(|| Device::new(spec));
    }

    /// Forgets a device. Says whether it was known.
    pub(crate) fn remove(&mut self, device: DeviceId) -> bool {
        self.devices.remove(&device).is_some()
    }

    pub(crate) fn get(&self, device: DeviceId) -> Option<&Device> {
        self.devices.get(&device)
    }

    pub(crate) fn get_mut(&mut self, device: DeviceId) -> Option<&mut Device> {
        self.devices.get_mut(&device)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (DeviceId, &Device)> {
        let all = self.devices.iter();
        all.map(|(device, books)| (*device, books))
    }

    pub(crate) fn devices(&self) -> Vec<DeviceId> {
        self.devices.keys().copied().collect()
    }

    pub(crate) fn account(&self, device: DeviceId, tenant: TenantId) -> Option<&Account> {
        self.devices.get(&device)?.account(tenant)
    }

    /// [`Device::change`] of an account on a device.
    pub(crate) fn change<R>(
        &mut self,
        device: DeviceId,
        tenant: TenantId,
        change: impl FnOnce(&mut Account) -> R,
    ) -> Option<R> {
        let books = self.devices.get_mut(&device)?;
        books.change(tenant, change)
    }

    /// Begins a reclaim: a grant is lowered `to` this. Returns its id and the grant to show in
    /// the control page.
    pub(crate) fn lower(
        &mut self,
        device: DeviceId,
        tenant: TenantId,
        to: Bytes,
    ) -> Option<(ReclaimId, Bytes)> {
        self.reclaims_begun += 1;
        let reclaim_id = ReclaimId(self.reclaims_begun);
        let page = self.change(device, tenant, |account| {
            account.lowering = Some(Lowering { reclaim_id, to });
            account.page = account.page_due();
            account.page
        })?;
        Some((reclaim_id, page))
    }
}
