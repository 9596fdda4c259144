//! What always holds on a shared device between two inputs.

use super::super::word::LeaseKind;
use super::Shared;
use super::rules::{Rules, signed};
use super::tenant::Gate;

impl Shared {
    /// Recomputes what must hold.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (container, tenant) in &self.tenants {
            let fail = |what: &str| Err(format!("{container:?} {what}: {tenant:?}"));
            if tenant.members.is_empty() {
                return fail("has no process here");
            }
            let said = match (tenant.gate, tenant.said.kind) {
                (Gate::Free, LeaseKind::Free) | (Gate::Shut, LeaseKind::Closed) => true,
                (Gate::Noted, LeaseKind::Open { slice, .. }) => {
                    slice.is_some_and(|slice| slice.0 == 0)
                }
                (Gate::Slice(told), LeaseKind::Open { slice, .. }) => slice == Some(told),
                _ => false,
            };
            if !said || tenant.said.epoch != tenant.epoch {
                return fail("is told something else by its page");
            }
            if tenant.lag.abs() > signed(Rules::MOST) {
                return fail("is further behind or ahead than is remembered");
            }
            let sliced = matches!(tenant.gate, Gate::Slice(_));
            let shut = tenant.gate == Gate::Shut;
            if let Some(bond) = tenant.bond
                && (sliced || shut != (bond.shut || tenant.dry))
            {
                return fail("is steered apart from its gang");
            }
            if tenant.dry && tenant.gate != Gate::Shut {
                return fail("is above its cap and open");
            }
            let free = self
                .tenants
                .values()
                .filter(|other| other.gate == Gate::Free);
            let active = self.tenants.values().filter(|other| other.is_active());
            if free.count() > 0 && active.count() != 1 {
                return fail("is beside one that nothing binds while others are active");
            }
        }
        for (process, container) in &self.owners {
            let known = self.tenants.get(container);
            if !known.is_some_and(|tenant| tenant.members.contains_key(process)) {
                return Err(format!("{process:?} is not in {container:?}"));
            }
        }
        let open = |gate: Gate| gate != Gate::Shut;
        let held = self
            .tenants
            .values()
            .any(|tenant| !open(tenant.gate) && !tenant.dry && tenant.bond.is_none());
        let runs = self
            .tenants
            .values()
            .any(|tenant| open(tenant.gate) && tenant.is_active());
        if held && !runs {
            return Err("a tenant is held and nobody is open".to_owned());
        }
        Ok(())
    }
}
