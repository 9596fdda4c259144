//! A tenant's share of a shared device, for people to look at.

use super::Shared;
use super::gate::Gate;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::view::{ShareState, ShareView, SharingView};
use crate::time::Nanos;

impl Shared {
    /// A tenant's share as it stands.
    pub(crate) fn share(&self, id: TenantId) -> Option<ShareView> {
        let tenant = self.roster.get(id)?;
        let state = (self.state(tenant), tenant.own.since);
        let counts = (tenant.own.holds, 0);
        Some(self.roster.view(tenant, state, counts, Nanos::ZERO))
    }

    /// How the device is shared, for people to look at.
    pub(crate) fn sharing(&self, now: Nanos) -> SharingView {
        let changes = self.steering.changes();
        SharingView {
            mode: Some(self.steering.mode()),
            changes: changes.all(),
            lately: changes.lately(now),
            off: self.books.off(),
        }
    }

    fn state(&self, tenant: &Tenant) -> ShareState {
        match tenant.own.gate {
            Gate::Free => ShareState::Free,
            Gate::Shut if tenant.account.is_throttled() => ShareState::Capped,
            Gate::Shut => ShareState::Held,
            _ if !tenant.members.is_active() => ShareState::Idle,
            Gate::Slice(_) => ShareState::Yielding,
            Gate::Noted => ShareState::Sharing,
        }
    }
}
