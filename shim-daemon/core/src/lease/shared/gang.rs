//! A gang's tenant on a shared device: never ordered to submit in slices, and closed only where its
//! gang is closed.
//!
//! A tenant in slices waits until all its streams are empty, and the streams of a gang may be empty
//! only after a peer on another device has run. So what this device alone would do with such a
//! tenant is a *wish*, which [`Bands`] weighs against the wishes of its other devices.
//!
//! [`Bands`]: super::super::bands::Bands

use super::Shared;
use super::bond::Wish;
use super::gate::Gate;
use crate::ids::TenantId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// How a gang's tenant stands on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The gate that this device would choose.
    pub(crate) wish: Option<Wish>,
    /// Other tenants want the device, and its lead there is less than the lag at which others are
    /// helped.
    pub(crate) behind: bool,
}

impl Shared {
    /// A tenant belongs to a gang that is open or closed (`Some(true)`), or to no gang.
    pub(crate) fn bind(&mut self, now: Nanos, id: TenantId, shut: Option<bool>) {
        self.now = self.now.max(now);
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        if tenant.bind(shut) {
            self.settle();
        }
    }

    /// The state of a gang's tenant. `None` if it is in no gang, or not here.
    pub(crate) fn gang_part(&self, id: TenantId) -> Option<Part> {
        let tenant = self.roster.get(id)?;
        let wish = tenant.bond()?.wish;
        let others = self.roster.iter().any(|(other, tenant)| {
            other != id && tenant.is_active() && tenant.is_pending(self.now)
        });
        Some(Part {
            wish,
            behind: others && tenant.lag() >= -self.rules.yield_at(),
        })
    }

    /// Records the gates that gangs' tenants would have, and sets those that their gangs have.
    pub(super) fn keep_gangs(&mut self, gates: &mut BTreeMap<TenantId, Gate>) {
        for (id, tenant) in self.roster.iter_mut() {
            if let Some(gate) = gates.get_mut(&id) {
                *gate = tenant.keep_bond(*gate);
            }
        }
    }
}
