//! What the brain is told of a tenant: its limits on each device, its owner and its gang.

use gpushare_core::{Compute, DeviceId, Gang, Implied, Quota, TenantId, TenantSpec};
use gpushare_protocol::limits::{self, ComputeLimits, DeviceLimits, Limits};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::tenant::{Tenant, index};
use super::{Node, pods};

/// Whose a tenant is: among whose names its gang's is one.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    owner: Option<u32>,
    /// The namespace of its pod.
    namespace: Option<String>,
}

impl Whose {
    /// A user's or the machine's own, in the pod with these labels.
    pub(super) fn of(owner: Option<u32>, pod: &[(String, String)]) -> Self {
        let namespace = pods::namespace(pod);
        Self { owner, namespace }
    }
}

impl Tenant {
    /// The labels that name its pod; none where it is no container of one.
    pub(super) fn pod(&self) -> &[(String, String)] {
        self.registration().pod()
    }
}

impl super::tenant::Registration {
    /// See [`Tenant::pod`].
    pub(super) fn pod(&self) -> &[(String, String)] {
        let container = self.container.as_ref();
        container.map_or(&[], |container| &container.pod)
    }
}

impl Node {
    /// Refuses a value for a device that the tenant's programs do not see, of the variables that
    /// are `meant`.
    pub(super) fn are_seen(
        &self,
        limits: &Limits,
        device_ids: &[DeviceId],
        meant: impl Fn(&str) -> bool,
    ) -> Result<(), WireError> {
        match limits.unseen(&self.uuids_of(device_ids), meant) {
            Some(error) => Err(WireError::new(ErrorCode::BadLimits, error.to_string())),
            None => Ok(()),
        }
    }

    /// The brain's description of a tenant: its limits and whose it is.
    ///
    /// # Errors
    /// If this node cannot hold to it.
    pub(super) fn spec(
        &self,
        limits: &Limits,
        device_ids: &[DeviceId],
        whose: &Whose,
    ) -> Result<TenantSpec, WireError> {
        self.may_move(limits)?;
        self.spec_of_running(limits, device_ids, whose)
    }

    /// The same of a tenant that runs already.
    pub(super) fn spec_of_running(
        &self,
        limits: &Limits,
        device_ids: &[DeviceId],
        whose: &Whose,
    ) -> Result<TenantSpec, WireError> {
        let (mut quotas, mut shares, mut implied) = (Vec::new(), Vec::new(), Vec::new());
        for (ordinal, device) in (0..).zip(device_ids) {
            let Some(known) = index(*device).and_then(|at| self.devices.get(at)) else {
                continue;
            };
            let capacity = known.capacity_under(self.capacity).0;
            let held = limits
                .for_device(ordinal, &known.uuid, capacity)
                .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?;
            quotas.push((*device, quota(&held, capacity, limits)));
            shares.push((*device, share(&held)));
            let part = limits.implied(ordinal, &known.uuid, capacity);
            let part =
                part.map(|part| Implied::new(part.part, part.most.map_or(Bytes::MAX, Bytes)));
            let by_default = || {
                let request = Bytes(held.request);
                let most = self.world.most_guaranteed(*device)?;
                let guarantor = limits.guarantor(ordinal, &known.uuid)?;
                // Nobody has asked for more than the device can guarantee.
                (guarantor.is_default && request > most).then(|| Implied::whole(request))
            };
            implied.extend(part.or_else(by_default).map(|part| (*device, part)));
        }
        let mut spec = crate::config::spec_of(limits, quotas, shares);
        spec.implied = implied;
        let gang = limits.policy().gang.clone();
        spec.gang = gang.map(|name| Gang {
            owner: whose.owner,
            namespace: whose.namespace.clone(),
            name,
        });
        self.world.fill_in(None, &mut spec);
        Ok(spec)
    }

    /// The gang that a tenant names.
    pub fn gang(&self, tenant: TenantId) -> Option<&Gang> {
        self.world.spec(tenant)?.gang.as_ref()
    }

    /// Those of these devices that are not lost.
    pub(super) fn there(&self, device_ids: &[DeviceId]) -> Vec<DeviceId> {
        let is_there =
            |device: &&DeviceId| index(**device).is_some_and(|at| !self.looks.is_lost(at));
        device_ids.iter().filter(is_there).copied().collect()
    }
}

fn quota(held: &DeviceLimits, capacity: u64, limits: &Limits) -> Quota {
    let limit = held.limit.unwrap_or(capacity);
    let most = match limits.policy().oversubscribe {
        limits::Oversubscribe::Uvm => limit,
        limits::Oversubscribe::Off | limits::Oversubscribe::Swap => limit.min(capacity),
    };
    Quota {
        request: Bytes(held.request),
        limit: Bytes(most),
    }
}

fn share(held: &DeviceLimits) -> Compute {
    let ComputeLimits { request, limit } = held.compute;
    Compute { request, limit }
}
