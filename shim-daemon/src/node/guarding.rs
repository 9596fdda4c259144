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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use gpushare_core::Nanos;
    use gpushare_protocol::units::{Bytes, GIB};
    use gpushare_protocol::wire::{Control, ControlReply};

    use super::*;
    use crate::devices::{Capabilities, Device};
    use crate::guard::{Among, Guard};
    use crate::node::{ConnId, Effect, Settings};

    const NOW: Nanos = Nanos::secs(100);
    /// A request that no tenant can have: there is no room for a context beside it.
    const WHOLE: &str = "16GiB";

    /// A GPU that no other test has.
    fn gpu(mark: u8) -> [u8; 16] {
        let mut uuid = [mark; 16];
        uuid[..4].copy_from_slice(&std::process::id().to_be_bytes());
        uuid
    }

    /// A private daemon's node with a tenant on the first of two GPUs.
    fn node(uuids: [[u8; 16]; 2]) -> Node {
        let device = |uuid| Device {
            uuid,
            minor: None,
            name: "a GPU".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        };
        let settings = Settings {
            guard: Some(Among::OwnOnly),
            ..Settings::default()
        };
        let mut node = Node::new(&settings, uuids.map(device).into(), 1, NOW, false);
        assert!(create(&mut node, 1, uuids[0], "1GiB"));
        node
    }

    /// Whether a command's tenant with this request is admitted.
    fn create(node: &mut Node, from: u64, uuid: [u8; 16], request: &str) -> bool {
        let environment = [("GPUSHARE_MEM_REQUEST", request)];
        let create = Control::Create {
            name: Some(format!("tenant-{from}")),
            environment: environment.map(|(a, b)| (a.into(), b.into())).into(),
            devices: vec![uuid],
        };
        node.command(NOW, ConnId(from), 1, &create);
        let mut effects = std::iter::from_fn(|| node.poll_effect());
        let reply = effects.find_map(|effect| match effect {
            Effect::Command { to, reply, .. } if to == ConnId(from) => Some(reply),
            _ => None,
        });
        matches!(reply, Some(ControlReply::Created { .. }))
    }

    #[test]
    fn a_tenant_that_is_refused_leaves_its_gpu_to_other_daemons() {
        let uuids = [gpu(11), gpu(12)];
        let mut node = node(uuids);
        assert!(!create(&mut node, 2, uuids[1], WHOLE));
        let mut other = Guard::new(Among::OwnOnly);
        other.claim(uuids[1]).unwrap();
        assert!(other.claim(uuids[0]).is_err(), "one has a tenant there");
    }

    #[test]
    fn a_tenant_that_was_not_restored_is_forgotten_for_one_that_begins_only() {
        let uuids = [gpu(15), gpu(16)];
        let mut node = node(uuids);
        let mut before = node.tenants.values().next().unwrap().registration().clone();
        before.name = "tenant-2".to_owned();
        before.devices = vec![[7; 16]];
        node.restore(NOW, &before).unwrap_err();
        let mut other = Guard::new(Among::OwnOnly);
        other.claim(uuids[1]).unwrap();
        assert!(!create(&mut node, 2, uuids[1], "1GiB"));
        assert!(node.is_unrestored("tenant-2"));
        drop(other);
        assert!(create(&mut node, 2, uuids[1], "1GiB"));
        assert!(!node.is_unrestored("tenant-2"));
    }

    #[test]
    fn a_tenant_that_is_refused_beside_another_leaves_that_one_its_gpu() {
        let uuids = [gpu(13), gpu(14)];
        let mut node = node(uuids);
        assert!(!create(&mut node, 2, uuids[0], WHOLE));
        assert!(create(&mut node, 3, uuids[1], "1GiB"));
        let mut other = Guard::new(Among::OwnOnly);
        assert!(
            uuids
                .map(|uuid| other.claim(uuid))
                .iter()
                .all(Result::is_err)
        );
        node.command_ended(NOW, ConnId(3));
        other.claim(uuids[1]).unwrap();
    }
}
