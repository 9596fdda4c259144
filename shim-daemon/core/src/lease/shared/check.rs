//! The invariants of a shared device between two inputs.

use super::Shared;
use super::gate::Gate;
use super::rules::Rules;
use super::tenant::Tenant;
use crate::lease::arithmetic::signed;
use crate::lease::page::LeaseKind;

impl Shared {
    /// Recomputes the invariants.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        let all = || self.roster.tenants();
        let active = all().filter(|one| one.is_active()).count();
        if active != 1 && all().any(|one| one.own.gate == Gate::Free) {
            return Err("a tenant is unbound beside others that are active, or idle".to_owned());
        }
        for (id, tenant) in self.roster.iter() {
            let fail = |what: &str| Err(format!("{id:?} {what}: {tenant:?}"));
            let said = match (tenant.own.gate, tenant.said.kind) {
                (Gate::Free, LeaseKind::Free) | (Gate::Shut, LeaseKind::Closed { .. }) => true,
                (Gate::Noted, LeaseKind::Open { slice, .. }) => {
                    slice.is_some_and(|slice| slice.0 == 0)
                }
                (Gate::Slice(told), LeaseKind::Open { slice, .. }) => slice == Some(told),
                _ => false,
            };
            if !said || !tenant.is_told() {
                return fail("is told something else by its page");
            }
            if tenant.lag().abs() > signed(Rules::MOST) {
                return fail("is further behind or ahead than is remembered");
            }
            let sliced = matches!(tenant.own.gate, Gate::Slice(_));
            let shut = tenant.is_shut();
            if let Some(bond) = tenant.bond()
                && (sliced || shut != (bond.joint.shut || tenant.account.is_throttled()))
            {
                return fail("is steered apart from its gang");
            }
            if tenant.account.is_throttled() && !tenant.is_shut() {
                return fail("is above its cap and open");
            }
        }
        let apart = |one: &Tenant| !one.account.is_throttled() && one.bond().is_none();
        let held = all().any(|one| one.is_shut() && apart(one));
        let runs = all().any(|one| !one.is_shut() && one.is_active());
        if held && !runs {
            return Err("a tenant is held and no tenant is open".to_owned());
        }
        Ok(())
    }
}
