//! Devices by UUID and by the brain's number.

use gpushare_core::DeviceId;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::tenant::index;

impl Node {
    /// The devices a registration names, or all.
    pub(super) fn device_ids(&self, uuids: &[[u8; 16]]) -> Result<Vec<DeviceId>, WireError> {
        let id = |at: usize| DeviceId(at as u64);
        if uuids.is_empty() {
            let there = (0..self.devices.len()).filter(|at| !self.looks.is_lost(*at));
            return Ok(there.map(id).collect());
        }
        let find = |uuid: &[u8; 16]| {
            let at = self.devices.iter().position(|device| device.uuid == *uuid);
            if at.is_some_and(|at| self.looks.is_lost(at)) {
                let text = format!(
                    "device {} is lost: it does not answer any more; use another, or restart the daemon once it is back",
                    Uuid(*uuid)
                );
                return Err(WireError::new(ErrorCode::NotFound, text));
            }
            at.map(id).ok_or_else(|| {
                let text = format!("this node has no device {}", Uuid(*uuid));
                WireError::new(ErrorCode::NotFound, text)
            })
        };
        uuids.iter().map(find).collect()
    }

    /// The UUIDs of devices.
    pub(super) fn uuids_of(&self, device_ids: &[DeviceId]) -> Vec<[u8; 16]> {
        let device = |id: &DeviceId| index(*id).and_then(|at| self.devices.get(at));
        device_ids
            .iter()
            .filter_map(device)
            .map(|device| device.uuid)
            .collect()
    }
}
