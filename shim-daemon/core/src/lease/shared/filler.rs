//! Which tenant keeps the device busy beside one that leaves gaps.

use super::gate::Gate;
use super::rules::Rules;
use super::tenant::Tenant;
use crate::ids::TenantId;

/// Chooses the tenant that keeps the device busy beside one that leaves gaps: among the working
/// dense tenants of the highest class the one least ahead: the lags of two classes do not compare.
/// It is kept until it is more than a slice further ahead than another of its class. Classes below
/// `kept` have nothing.
pub(super) fn filler<'a>(
    ahead: &[(TenantId, &'a Tenant)],
    kept: u16,
    rules: &Rules,
) -> Option<(TenantId, &'a Tenant)> {
    let now = |tenant: &Tenant| matches!(tenant.own.gate, Gate::Slice(_));
    let stays = |tenant: &Tenant| if now(tenant) { rules.yield_at() / 2 } else { 0 };
    let open = ahead.iter();
    let open = open.filter(|(_, tenant)| !tenant.is_barred() && tenant.class() >= kept);
    let key = |(_, tenant): &&(TenantId, &Tenant)| {
        let lag = tenant.lag() + stays(tenant);
        // A silent tenant may have a long operation on the device, so it keeps its rank.
        let rank = (tenant.class(), !tenant.is_doubted());
        (tenant.own.done.works, tenant.is_dense(), rank, lag)
    };
    let first = open.clone().max_by_key(key)?;
    // A tenant that is silent or doubted keeps no tenant of a lower class from the gaps.
    let lower =
        open.filter(|(_, tenant)| tenant.class() < first.1.class() && tenant.own.done.works);
    let lower = lower.max_by_key(key).filter(|_| !earns(first.1));
    Some(*lower.unwrap_or(first))
}

/// Whether others may be held for it: it completes work, and its claims agree with the clock.
pub(super) fn earns(tenant: &Tenant) -> bool {
    !tenant.is_silent() && !tenant.is_doubted()
}
