//! The GPUs that this daemon serves exclusively: those of its tenants.

use std::collections::BTreeSet;

use gpushare_core::DeviceId;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::tenant::index;

impl Node {
    /// Claims the devices of a new tenant.
    pub(super) fn claim(&mut self, device_ids: &[DeviceId]) -> Result<(), WireError> {
        let claimed = self.try_claim(device_ids);
        if claimed.is_err() {
            self.let_go();
        }
        claimed.map_err(|other| WireError::retry(ErrorCode::Full, other))
    }

    /// The same for a tenant of the previous daemon. It keeps its devices even if another daemon
    /// claimed them meanwhile.
    pub(super) fn claim_again(&mut self, device_ids: &[DeviceId]) {
        if let Err(other) = self.try_claim(device_ids) {
            tracing::error!("{other}; tenants of the previous daemon here are served");
            self.event("shared", None, None, other);
        }
    }

    fn try_claim(&mut self, device_ids: &[DeviceId]) -> Result<(), String> {
        let uuids = self.uuids_of(device_ids);
        match &mut self.guard {
            Some(guard) => uuids.into_iter().try_for_each(|uuid| guard.claim(uuid)),
            None => Ok(()),
        }
    }

    /// Releases the devices without a tenant.
    pub(super) fn let_go(&mut self) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        let device_ids = self.tenants.values().flat_map(|known| known.device_ids());
        let used = device_ids.filter_map(|device_index| self.devices.get(index(*device_index)?));
        let used: BTreeSet<[u8; 16]> = used.map(|device| device.uuid).collect();
        guard.keep(&used, &self.lanes.own());
    }

    /// Once a second.
    pub(super) fn tend_guard(&self) {
        if let Some(guard) = &self.guard {
            guard.tend(&self.lanes.own());
        }
    }
}
