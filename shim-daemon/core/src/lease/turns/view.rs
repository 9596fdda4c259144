//! A tenant's turns, for people to look at.

use super::Schedule;
use super::tenant::{Phase, Tenant};
use crate::ids::ContainerId;
use crate::lease::roster::Tenant as _;
use crate::lease::view::{ShareState, ShareView};
use crate::time::Nanos;

impl Schedule {
    /// A tenant's share, with the time from the last input to `now` billed as it will be.
    pub fn share(&self, container: ContainerId, now: Nanos) -> Option<ShareView> {
        let tenant = self.roster.get(container)?;
        let running = if tenant.is_billed() {
            self.share_of(now - self.now)
        } else {
            Nanos::ZERO
        };
        let (state, since) = state(tenant);
        Some(ShareView {
            weight: self.roster.part(tenant.account()),
            held: tenant.account().held() + running,
            state,
            since,
            turns: tenant.turns,
            overruns: tenant.overruns,
            ungated: tenant.members().ungated(),
        })
    }
}

fn state(tenant: &Tenant) -> (ShareState, Nanos) {
    match tenant.phase {
        Phase::Free => (ShareState::Free, tenant.granted),
        Phase::Holding(turn) => (ShareState::Holding, turn.since),
        Phase::Closing(closed) | Phase::Overrun { closed, .. } => (ShareState::Draining, closed),
        Phase::Out if !tenant.members().waits() => (ShareState::Idle, tenant.granted),
        Phase::Out if tenant.is_throttled() => (ShareState::Capped, tenant.asked),
        Phase::Out => (ShareState::Waiting, tenant.asked),
    }
}
