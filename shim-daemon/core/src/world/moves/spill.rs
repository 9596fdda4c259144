//! The tenants whose memory is away as a whole, for the tier below the host.

use crate::ids::TenantId;
use crate::residency::Place;
use crate::residency::spill::{Candidate, order};
use crate::world::World;
use gpushare_protocol::units::Bytes;

impl World {
    /// Tenants whose memory is away on every device, in the order in which it should go from the
    /// host to files.
    pub fn spill_order(&self) -> Vec<TenantId> {
        let mut tenants: Vec<TenantId> = self
            .residency
            .devices()
            .flat_map(|(_, rotation)| rotation.all().map(|(tenant, _)| tenant))
            .collect();
        tenants.sort_unstable();
        tenants.dedup();
        let all = tenants.into_iter();
        order(all.filter_map(|tenant| self.spilling(tenant)).collect())
    }

    /// A tenant's memory takes no room of the node's any more: others may leave instead.
    pub(in crate::world) fn is_elsewhere(&mut self, tenant: TenantId) {
        for device in self.devices_of(tenant) {
            let resident = self.residency.get_mut(device, tenant);
            if let Some(resident) = resident.filter(|one| one.place() == Place::Out) {
                resident.is_elsewhere();
                self.residency.reserve(device, tenant, Bytes::ZERO);
                self.settle(device);
            }
        }
    }

    fn spilling(&self, tenant: TenantId) -> Option<Candidate> {
        let (mut since, mut returns) = (None, None);
        for device in self.devices_of(tenant) {
            let Some(resident) = self.residency.get(device, tenant) else {
                continue;
            };
            match resident.place() {
                Place::Out => {
                    since = since.max(Some(resident.since()));
                    let own = resident.returns();
                    let own = own.map(|at| self.rank_of_return((tenant, at), device));
                    returns = returns.into_iter().chain(own).min();
                }
                Place::In if self.in_use(tenant, device).is_zero() => (),
                _ => return None,
            }
        }
        let known = self.tenants.get(tenant)?;
        Some(Candidate {
            tenant,
            priority: known.spec().priority,
            since: since?,
            returns,
        })
    }
}
