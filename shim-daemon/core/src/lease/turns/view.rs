//! A tenant's turns, for people to look at.

use super::Schedule;
use crate::ids::TenantId;
use crate::lease::view::ShareView;
use crate::time::Nanos;

impl Schedule {
    /// A tenant's share, with the time from the last input to `now` billed as it will be.
    pub(crate) fn share(&self, id: TenantId, now: Nanos) -> Option<ShareView> {
        let tenant = self.roster.get(id)?;
        let running = tenant.bill_of(self.share_of(now - self.now));
        let counts = (tenant.own.turns, tenant.own.overruns);
        Some(self.roster.view(tenant, tenant.state(), counts, running))
    }
}
