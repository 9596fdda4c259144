//! Which GPUs this daemon has to itself: those of its containers.

use std::collections::BTreeSet;

use gpushare_core::DeviceId;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::container::index;

impl Node {
    /// Takes the devices of a container that comes.
    pub(super) fn claim(&mut self, columns: &[DeviceId]) -> Result<(), WireError> {
        let claimed = self.try_claim(columns);
        if claimed.is_err() {
            self.let_go();
        }
        claimed.map_err(|other| WireError::retry(ErrorCode::Full, other))
    }

    /// The same for a container of the previous daemon, which is there whoever else has the device by now.
    pub(super) fn claim_again(&mut self, columns: &[DeviceId]) {
        if let Err(other) = self.try_claim(columns) {
            tracing::error!("{other}; containers of the previous daemon here are served");
            self.event("shared", None, None, other);
        }
    }

    fn try_claim(&mut self, columns: &[DeviceId]) -> Result<(), String> {
        let uuids = self.uuids_of(columns);
        match &mut self.guard {
            Some(guard) => uuids.into_iter().try_for_each(|uuid| guard.claim(uuid)),
            None => Ok(()),
        }
    }

    /// Gives up the devices that no container has any more.
    pub(super) fn let_go(&mut self) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        let columns = self.containers.values().flat_map(|known| &known.columns);
        let used = columns.filter_map(|column| self.devices.get(index(*column)?));
        let used: BTreeSet<[u8; 16]> = used.map(|device| device.uuid).collect();
        guard.keep(&used);
    }

    /// Once a second.
    pub(super) fn tend_guard(&self) {
        if let Some(guard) = &self.guard {
            guard.tend();
        }
    }
}
