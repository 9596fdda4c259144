//! Which tenants are held for a gang on all its devices at once.

use super::bond::Neighbours;
use super::case::Case;
use super::filler::earns;
use super::gate::Gate;
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

/// Puts the gates of gangs' neighbours where they are on all devices of the gang. A neighbour is
/// open where the gang has no work now, or where it is behind itself.
pub(super) fn hold_at_once(
    case: &Case<'_>,
    pending: &[(TenantId, &Tenant)],
    rules: &Rules,
    gates: &mut BTreeMap<TenantId, Gate>,
) {
    let works = |gang: &Tenant| gang.own.done.works || gang.members.waits();
    let holds = |gang: &Tenant| decided(gang) == Neighbours::Held && works(gang) && earns(gang);
    let first = case.behind.1;
    for (id, tenant) in pending {
        let mut gangs = pending.iter().filter(|(_, one)| is_neighbour(tenant, one));
        // Once it is held, it is so until others are helped for as much.
        let most = match tenant.is_shut() {
            true => rules.yield_at(),
            false => rules.calm_below(),
        };
        if gangs.any(|(_, one)| holds(one)) && tenant.lag() < most {
            gates.insert(*id, Gate::Shut);
        } else if is_neighbour(tenant, first) && decided(first) != Neighbours::Apart {
            gates.insert(*id, Gate::Noted);
        }
    }
}
