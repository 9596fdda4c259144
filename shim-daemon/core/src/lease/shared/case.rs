//! The tenant that steering helps at an instant, the remedy, and which others yield or are held.

use super::rules::Visits;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::view::Mode;

/// See the module's page.
pub(super) struct Case<'a> {
    pub(super) behind: (TenantId, &'a Tenant),
    /// Its guarantee is due: it is owed so many thousandths of a turn.
    pub(super) due: Option<u64>,
    /// It and others like it take turns.
    pub(super) turns: bool,
    /// Those that wait for each operation always want the device.
    pub(super) loops_stay: bool,
    /// One of those of the highest class has a request.
    pub(super) loop_has_request: bool,
    pub(super) visits: Visits,
    /// Its equals may be steered for it. Where that was given up, and it has no request, only lower
    /// classes are.
    pub(super) equals: bool,
    pub(super) works: bool,
    pub(super) want: Mode,
    pub(super) lag: i64,
    /// See [`Contenders::expected`](super::contenders::Contenders::expected).
    pub(super) expected: Option<(TenantId, &'a Tenant)>,
}

impl Case<'_> {
    /// Whether a tenant always wants the device.
    pub(super) fn stays(&self, tenant: &Tenant) -> bool {
        tenant.is_dense() || (self.turns && tenant.loops())
    }

    /// Whether this other tenant yields or is held for the one that is behind, where any does.
    pub(super) fn steers(&self, (id, tenant): (TenantId, &Tenant)) -> bool {
        let (behind, first) = self.behind;
        // Tenants with deep queues yield or are held beside a tenant that leaves gaps, ahead or
        // not.
        let fills = (self.turns || !self.visits.dense) && self.stays(tenant);
        let lower = tenant.class() < first.class();
        let equal = (tenant.lag() < 0 || fills) && (self.equals || tenant.class() > first.class());
        id != behind && (self.due.is_some() || lower || equal)
    }

    /// Whether the operator promised all that is done for it. A higher class is no promise against
    /// an equal.
    pub(super) fn is_promised(&self, pending: &[(TenantId, &Tenant)]) -> bool {
        let first = self.behind.1;
        let own = self.due.is_some() || first.account.has_promise();
        let equals = || {
            pending
                .iter()
                .filter(|(_, one)| one.class() == first.class())
        };
        self.visits.promised && (own || !equals().any(|one| self.steers(*one)))
    }
}
