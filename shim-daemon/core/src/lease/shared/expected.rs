//! Tenants yield to one of a higher class that pauses.

use super::case::Case;
use super::gate::{Aim, Gate};
use super::rules::{Rules, Visits};
use super::tenant::Tenant;
use crate::ids::TenantId;
use std::collections::BTreeMap;

/// A tenant of a higher class that pauses may be back any moment: the others yield to it as if it
/// were pending.
pub(super) fn yield_to_expected(
    case: &Case<'_>,
    pending: &[(TenantId, &Tenant)],
    rules: &Rules,
    gates: &mut BTreeMap<TenantId, Aim>,
) {
    let Some((by, first)) = case.expected.filter(|(_, first)| !first.is_silent()) else {
        return;
    };
    for (id, tenant) in pending {
        let slice = rules.yield_slice(&Visits {
            visitors: 1,
            contexts: 1,
            promised: true,
            dense: false,
            presence: first.own.habit.presence(),
            far: false,
        });
        let aim = gates.get_mut(id).filter(|aim| aim.gate == Gate::Noted);
        if let Some(aim) = aim.filter(|_| tenant.class() < first.class()) {
            *aim = Gate::Slice(slice).of(by);
        }
    }
}
