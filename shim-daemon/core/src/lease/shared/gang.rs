//! A gang's tenant on a shared device: never told to submit in slices, and closed only where its
//! gang is closed.
//!
//! A tenant in slices waits until all its streams are empty, and the streams of a gang may be empty
//! only after a peer on another device has run. So what this device alone would do with such a
//! tenant is a *wish*, which [`Bands`] weighs against what its other devices say. [`Bands`]:
//! super::super::band::Bands

use super::Shared;
use super::tenant::{Bond, Gate, Part, Wish};
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::collections::BTreeMap;

impl Shared {
    /// A tenant belongs to a gang that is open or closed (`Some(true)`), or to none.
    pub(crate) fn bind(&mut self, now: Nanos, container: ContainerId, shut: Option<bool>) {
        self.now = self.now.max(now);
        let Some(tenant) = self.roster.get_mut(container) else {
            return;
        };
        let bond = shut.map(|shut| Bond {
            shut,
            wish: tenant.bond.and_then(|bond| bond.wish),
        });
        if std::mem::replace(&mut tenant.bond, bond) != bond {
            self.settle();
        }
    }

    /// How a gang's tenant stands. `None` if it belongs to none, or is not here.
    pub(crate) fn gang_part(&self, container: ContainerId) -> Option<Part> {
        let tenant = self.roster.get(container)?;
        let wish = tenant.bond?.wish;
        let others = self.roster.all().iter().any(|(other, tenant)| {
            *other != container && tenant.is_active() && tenant.is_pending(self.now)
        });
        Some(Part {
            wish,
            behind: others && tenant.lag >= -self.rules.yield_at(),
        })
    }

    /// Notes what the gates of gangs' tenants would be, and puts them where their gangs are.
    pub(super) fn keep_gangs(&mut self, gates: &mut BTreeMap<ContainerId, Gate>) {
        for (container, tenant) in self.roster.all_mut() {
            let (Some(bond), Some(gate)) = (&mut tenant.bond, gates.get_mut(container)) else {
                continue;
            };
            bond.wish = match gate {
                Gate::Shut if tenant.throttled => Some(Wish::Throttled),
                Gate::Shut if tenant.lag < 0 => Some(Wish::Ahead),
                Gate::Shut => Some(Wish::Rank),
                _ => None,
            };
            *gate = match *gate {
                _ if tenant.throttled || bond.shut => Gate::Shut,
                Gate::Free => Gate::Free,
                _ => Gate::Noted,
            };
        }
    }
}
