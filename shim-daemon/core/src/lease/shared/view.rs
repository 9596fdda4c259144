//! A tenant's share of a shared device, for people to look at.

use super::super::view::{ShareState, ShareView};
use super::tenant::{Gate, Tenant};
use super::{Mode, Shared};
use crate::ids::ContainerId;

impl Shared {
    /// A tenant's share as it stands.
    pub(crate) fn share(&self, container: ContainerId) -> Option<ShareView> {
        let tenant = self.tenants.get(&container)?;
        let ungated = tenant.members.values().filter(|member| !member.gated);
        Some(ShareView {
            weight: self.part(tenant),
            held: tenant.held,
            state: self.state(tenant),
            since: tenant.since,
            turns: tenant.holds,
            overruns: 0,
            ungated: u32::try_from(ungated.count()).unwrap_or(u32::MAX),
        })
    }

    /// How the device is shared now, and how often that changed.
    pub(crate) fn mode(&self) -> (Mode, u64) {
        (self.steering.mode, self.steering.changes)
    }

    fn state(&self, tenant: &Tenant) -> ShareState {
        match tenant.gate {
            Gate::Free => ShareState::Free,
            Gate::Shut if tenant.dry => ShareState::Capped,
            Gate::Shut => ShareState::Held,
            _ if !tenant.is_active() => ShareState::Idle,
            Gate::Slice(_) => ShareState::Yielding,
            Gate::Noted => ShareState::Sharing,
        }
    }

    /// Its part in thousandths while all on the device want it: see [`ShareView::weight`].
    fn part(&self, own: &Tenant) -> u32 {
        let tenants: Vec<_> = self
            .tenants
            .values()
            .map(|tenant| (tenant.class, tenant.compute, tenant.weight))
            .collect();
        super::super::terms::part((own.class, own.compute, own.weight), &tenants)
    }
}
