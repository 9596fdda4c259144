//! Which tenants are held for a gang on all its devices at once.

use super::bond::Neighbours;
use super::case::Case;
use super::filler::earns;
use super::gate::{Aim, Gate};
use super::rules::Rules;
use super::tenant::Tenant;
use crate::ids::TenantId;
use std::collections::BTreeMap;

/// Whether this tenant is an equal of the gang's, always has work, and belongs to no gang. One that
/// leaves gaps is not held for so long.
pub(super) fn is_neighbour(tenant: &Tenant, gang: &Tenant) -> bool {
    let free = tenant.bond().is_none();
    free && tenant.is_dense() && tenant.class() == gang.class()
}

/// What is decided of a tenant's neighbours on all devices of its gang.
fn decided(gang: &Tenant) -> Neighbours {
    let bond = gang.bond().filter(|_| gang.account.has_promise());
    bond.map_or(Neighbours::Apart, |bond| bond.joint.neighbours)
}

/// The lag from which a neighbour is open while this is decided for a gang. `None`: it is open.
/// Once it is held, it is so until others are helped for as much. Where gangs work beside each
/// other it is open alone only where it is far behind: opened on one device, it takes the gangs'
/// time on all.
fn open_at(gang: &Tenant, is_shut: bool, rules: &Rules) -> Option<i64> {
    match (decided(gang), is_shut) {
        (Neighbours::Held, false) => Some(rules.calm_below()),
        (Neighbours::Held, true) => Some(rules.yield_at()),
        (Neighbours::Kept, false) => Some(rules.yield_at() + rules.calm_below()),
        (Neighbours::Kept, true) => Some(rules.hold_at()),
        (Neighbours::Apart | Neighbours::Open, _) => None,
    }
}

/// Puts the gates of gangs' neighbours where they are on all devices of the gang. A neighbour is
/// open where the gang has no work now, or where it is behind itself.
pub(super) fn hold_at_once(
    case: &Case<'_>,
    pending: &[(TenantId, &Tenant)],
    rules: &Rules,
    gates: &mut BTreeMap<TenantId, Aim>,
) {
    let works = |gang: &Tenant| gang.own.done.works || gang.members.waits();
    let first = case.behind.1;
    for (id, tenant) in pending {
        let gangs = pending.iter();
        let gangs = gangs.filter(|(_, one)| is_neighbour(tenant, one) && works(one) && earns(one));
        let open_at = gangs.filter_map(|(gang, one)| {
            let lag = open_at(one, tenant.is_shut(), rules)?;
            Some((lag, *gang))
        });
        let held = open_at.max().filter(|(lag, _)| tenant.lag() < *lag);
        if let Some((_, gang)) = held {
            gates.insert(*id, Gate::Shut.of(gang));
        } else if is_neighbour(tenant, first) && decided(first) != Neighbours::Apart {
            gates.insert(*id, Gate::Noted.own());
        }
    }
}
