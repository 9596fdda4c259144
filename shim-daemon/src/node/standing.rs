//! What the brain knows of a tenant and the next daemon could not find anew: what it holds above a
//! lowered limit, and that a command moves it out.

use gpushare_core::{DeviceId, Nanos, Running, TenantId};
use gpushare_protocol::units::Bytes;
use serde::{Deserialize, Serialize};

use super::Node;

/// See the module's page. Part of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Its grant on each of its devices, in bytes, where that is above its limit; else 0. Empty
    /// where it is above none.
    #[serde(default)]
    pub above: Vec<u64>,
    /// Whether a command has moved it out, or is to, and no call or command has woken it since.
    #[serde(default)]
    pub suspended: bool,
}

impl Standing {
    /// What the brain is told of a tenant with these devices that runs since then.
    pub(super) fn running(&self, since: Nanos, devices: &[DeviceId]) -> Running {
        let above = devices.iter().zip(&self.above);
        let above = above.map(|(device, grant)| (*device, Bytes(*grant)));
        Running {
            since,
            above: above.filter(|(_, grant)| !grant.is_zero()).collect(),
            suspended: self.suspended,
        }
    }
}

impl Node {
    /// Stores this of all tenants of which it changed: in the tick, and when the daemon leaves.
    pub(super) fn write_down_standings(&mut self) {
        for tenant in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.write_down_standing(tenant);
        }
    }

    /// The same of one tenant.
    pub(super) fn write_down_standing(&mut self, tenant: TenantId) {
        let is_new = self.note_standing(tenant);
        let known = self.tenants.get(&tenant).filter(|_| is_new);
        if known.is_some_and(|known| known.is_admitted()) {
            self.write_down(tenant);
        }
    }

    /// Notes it in a tenant's registration. `false` if it is the same as before.
    pub(super) fn note_standing(&mut self, tenant: TenantId) -> bool {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return false;
        };
        let devices = known.device_ids().iter();
        let above = devices.map(|device| self.world.above(tenant, *device).0);
        let mut above: Vec<u64> = above.collect();
        if above.iter().all(|bytes| *bytes == 0) {
            above.clear();
        }
        let suspended = self.world.is_suspended(tenant);
        known.stands(Standing { above, suspended })
    }
}
