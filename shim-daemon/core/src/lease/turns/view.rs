//! A tenant's turns, for people to look at.

use super::Schedule;
use crate::ids::TenantId;
use crate::lease::roster::Tenant as _;
use crate::lease::view::ShareView;
use crate::time::Nanos;

impl Schedule {
    /// A tenant's share, with the time from the last input to `now` billed as it will be.
    pub fn share(&self, id: TenantId, now: Nanos) -> Option<ShareView> {
        let tenant = self.roster.get(id)?;
        let running = if tenant.is_billed() {
            self.share_of(now - self.now)
        } else {
            Nanos::ZERO
        };
        let (state, since) = tenant.state();
        let (turns, overruns) = tenant.counts();
        Some(ShareView {
            weight: self.roster.part(tenant.account()),
            held: tenant.account().held() + running,
            state,
            since,
            turns,
            overruns,
            ungated: tenant.members().ungated(),
            waits: *tenant.account().waits(),
            waiting: tenant.waiting(),
        })
    }
}
