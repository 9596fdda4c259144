//! A tenant's share of a shared device, for people to look at.

use super::Shared;
use super::gate::Gate;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::roster::Tenant as _;
use crate::lease::view::Mode;
use crate::lease::view::{ShareState, ShareView};

impl Shared {
    /// A tenant's share as it stands.
    pub(crate) fn share(&self, id: TenantId) -> Option<ShareView> {
        let tenant = self.roster.get(id)?;
        let (since, turns) = tenant.history();
        Some(ShareView {
            weight: self.roster.part(tenant.account()),
            held: tenant.account().held(),
            state: self.state(tenant),
            since,
            turns,
            overruns: 0,
            ungated: tenant.members().ungated(),
            waits: *tenant.account().waits(),
            waiting: tenant.waiting(),
        })
    }

    /// How the device is shared now, and how often that changed.
    pub(crate) fn mode(&self) -> (Mode, u64) {
        self.steering.mode()
    }

    fn state(&self, tenant: &Tenant) -> ShareState {
        match tenant.gate() {
            Gate::Free => ShareState::Free,
            Gate::Shut if tenant.is_throttled() => ShareState::Capped,
            Gate::Shut => ShareState::Held,
            _ if !tenant.is_active() => ShareState::Idle,
            Gate::Slice(_) => ShareState::Yielding,
            Gate::Noted => ShareState::Sharing,
        }
    }
}
