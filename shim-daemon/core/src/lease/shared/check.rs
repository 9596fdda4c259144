//! The invariants of a shared device between two inputs.

use super::Shared;
use super::gate::Gate;
use super::rules::{Rules, signed};
use crate::lease::page::LeaseKind;

impl Shared {
    /// Recomputes the invariants.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        for (id, tenant) in self.roster.iter() {
            let fail = |what: &str| Err(format!("{id:?} {what}: {tenant:?}"));
            let said = match (tenant.gate(), tenant.said().kind) {
                (Gate::Free, LeaseKind::Free) | (Gate::Shut, LeaseKind::Closed) => true,
                (Gate::Noted, LeaseKind::Open { slice, .. }) => {
                    slice.is_some_and(|slice| slice.0 == 0)
                }
                (Gate::Slice(told), LeaseKind::Open { slice, .. }) => slice == Some(told),
                _ => false,
            };
            if !said || tenant.said().epoch != tenant.epoch() {
                return fail("is told something else by its page");
            }
            if tenant.lag().abs() > signed(Rules::MOST) {
                return fail("is further behind or ahead than is remembered");
            }
            let sliced = matches!(tenant.gate(), Gate::Slice(_));
            let shut = tenant.is_shut();
            if let Some(bond) = tenant.bond()
                && (sliced || shut != (bond.shut || tenant.is_throttled()))
            {
                return fail("is steered apart from its gang");
            }
            if tenant.is_throttled() && !tenant.is_shut() {
                return fail("is above its cap and open");
            }
            let free = self
                .roster
                .tenants()
                .filter(|other| other.gate() == Gate::Free);
            let active = self.roster.tenants().filter(|other| other.is_active());
            if free.count() > 0 && active.count() != 1 {
                return fail("runs beside an unbound tenant while others are active");
            }
        }
        let held = self
            .roster
            .tenants()
            .any(|tenant| tenant.is_shut() && !tenant.is_throttled() && tenant.bond().is_none());
        let runs = self
            .roster
            .tenants()
            .any(|tenant| !tenant.is_shut() && tenant.is_active());
        if held && !runs {
            return Err("a tenant is held and no tenant is open".to_owned());
        }
        Ok(())
    }
}
