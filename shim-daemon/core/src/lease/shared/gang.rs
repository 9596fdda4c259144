//! A gang's tenant on a shared device: never told to submit in slices, and closed only where its
//! gang is closed.
//!
//! A tenant in slices waits until all its streams are empty, and the streams of a gang may be empty
//! only after a peer on another device has run. So what this device alone would do with such a
//! tenant is a *wish*, which [`Bands`] weighs against what its other devices say. [`Bands`]:
//! super::super::band::Bands

use super::Shared;
use super::tenant::Gate;
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// Why a device would close a gang's tenant, the weakest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// It has had more than its share.
    Ahead,
    /// A higher class, or a guarantee that is due, is behind.
    Rank,
    /// Its cap allows nothing now.
    Throttled,
}

/// A tenant's membership of a gang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bond {
    /// Its gang is closed.
    pub(super) shut: bool,
    pub(super) wish: Option<Wish>,
}

/// How a gang's tenant stands on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What the device would do with it.
    pub(crate) wish: Option<Wish>,
    /// Others ask for the device, and it is not ahead there by as much as others have to be behind
    /// to be helped.
    pub(crate) behind: bool,
}

impl Shared {
    /// A tenant belongs to a gang that is open or closed (`Some(true)`), or to none.
    pub(crate) fn bind(&mut self, now: Nanos, container: ContainerId, shut: Option<bool>) {
        self.now = self.now.max(now);
        let Some(tenant) = self.roster.get_mut(container) else {
            return;
        };
        if tenant.bind(shut) {
            self.settle();
        }
    }

    /// How a gang's tenant stands. `None` if it belongs to none, or is not here.
    pub(crate) fn gang_part(&self, container: ContainerId) -> Option<Part> {
        let tenant = self.roster.get(container)?;
        let wish = tenant.bond()?.wish;
        let others = self.roster.iter().any(|(other, tenant)| {
            other != container && tenant.is_active() && tenant.is_pending(self.now)
        });
        Some(Part {
            wish,
            behind: others && tenant.lag() >= -self.rules.yield_at(),
        })
    }

    /// Notes what the gates of gangs' tenants would be, and puts them where their gangs are.
    pub(super) fn keep_gangs(&mut self, gates: &mut BTreeMap<ContainerId, Gate>) {
        for (container, tenant) in self.roster.iter_mut() {
            if let Some(gate) = gates.get_mut(&container) {
                *gate = tenant.keep_bond(*gate);
            }
        }
    }
}
