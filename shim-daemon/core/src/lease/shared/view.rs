//! A tenant's share of a shared device, for people to look at.

use super::Shared;
use super::gate::Gate;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::view::{Cause, ShareState, ShareView, SharingView, Steered};
use crate::time::Nanos;

impl Shared {
    /// A tenant's share as it stands.
    pub(crate) fn share(&self, id: TenantId) -> Option<ShareView> {
        let tenant = self.roster.get(id)?;
        let state = (self.state(tenant), tenant.own.since);
        let counts = (tenant.own.holds, 0);
        let steered = matches!(state.0, ShareState::Held | ShareState::Yielding);
        Some(ShareView {
            steered: steered.then(|| self.steered(tenant)),
            ..self.roster.view(tenant, state, counts, Nanos::ZERO)
        })
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

    /// Why a tenant yields or is held, and for which.
    fn steered(&self, tenant: &Tenant) -> Steered {
        let by = tenant
            .own
            .by
            .and_then(|by| Some((by, self.roster.get(by)?)));
        let cause = match by {
            _ if tenant.is_barred() => Cause::Gang,
            Some((by, _)) if self.steering.is_due(by) => Cause::Request,
            Some((_, first)) if first.class() > tenant.class() => Cause::Priority,
            Some(_) if self.steering.takes_turns() => Cause::Turn,
            Some((_, first)) if first.account.has_promise() => Cause::Request,
            _ => Cause::Share,
        };
        Steered {
            cause,
            tenant: by.map(|(by, _)| by).filter(|_| cause != Cause::Gang),
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
