//! The invariants of a device in turns between two inputs.

use super::Schedule;
use super::tenant::{Phase, Tenant};
use crate::lease::page::LeaseKind;
use crate::lease::terms::LeasePolicy;

impl Schedule {
    /// Recomputes the invariants. `Err` names a violated one; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        self.check_holder()?;
        for (id, tenant) in self.roster.iter() {
            self.check_tenant(tenant)
                .map_err(|broken| format!("{id:?}: {broken}, {tenant:?}"))?;
        }
        Ok(())
    }

    fn check_holder(&self) -> Result<(), String> {
        let holders = self.roster.tenants().filter(|tenant| tenant.holds());
        if holders.count() > 1 {
            return Err("two tenants hold the device".to_owned());
        }
        let Some((_, holder)) = self.holder() else {
            let next = self.next();
            return next.map_or(Ok(()), |next| {
                Err(format!("{next:?} is next and no tenant holds the device"))
            });
        };
        match (holder.own.phase, self.first_in_line()) {
            (Phase::Holding(turn), Some((class, (.., first))))
                if class > holder.class() && turn.kept <= self.now =>
            {
                Err(format!("{first:?} is of a higher class and waits"))
            }
            _ => Ok(()),
        }
    }

    fn check_tenant(&self, tenant: &Tenant) -> Result<(), String> {
        let alone = self.roster.len() == 1 && !tenant.account.is_capped();
        if alone != (tenant.is_free()) {
            return Err("it is free only if alone and without a cap".to_owned());
        }
        let right = match (tenant.said.kind, tenant.own.phase) {
            (LeaseKind::Free, Phase::Free) => true,
            (LeaseKind::Open { deadline, .. }, Phase::Holding(turn)) => {
                deadline == self.until(tenant, &turn)
                    && deadline.is_none_or(|deadline| deadline > self.now)
            }
            (LeaseKind::Closed { .. }, phase) => !matches!(phase, Phase::Free | Phase::Holding(_)),
            _ => false,
        };
        if !right || !tenant.is_told() {
            return Err("its page says something else".to_owned());
        }
        let mark = self.marks.of(tenant.class());
        if tenant.own.clock.since(mark, tenant.account.weight) > LeasePolicy::MOST_DEBT {
            return Err("its debt exceeds the bound".to_owned());
        }
        Ok(())
    }
}
