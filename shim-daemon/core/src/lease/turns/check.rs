//! What always holds between two inputs.

use super::Schedule;
use super::tenant::{Phase, Tenant};
use crate::ids::ContainerId;
use crate::lease::page::LeaseKind;
use crate::lease::roster::Tenant as _;

impl Schedule {
    /// Recomputes what must hold. `Err` says what does not; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        self.check_holder()?;
        for (container, tenant) in self.roster.all() {
            self.check_tenant(tenant)
                .map_err(|broken| format!("{container:?}: {broken}, {tenant:?}"))?;
        }
        Ok(())
    }

    fn check_holder(&self) -> Result<(), String> {
        let takes = |tenant: &Tenant| matches!(tenant.phase, Phase::Holding(_) | Phase::Closing(_));
        let holders = self.roster.all().iter();
        let holders: Vec<ContainerId> = holders
            .filter(|(_, tenant)| takes(tenant))
            .map(|(container, _)| *container)
            .collect();
        if holders != self.holder.into_iter().collect::<Vec<_>>() {
            return Err(format!("{holders:?} hold, {:?} is known to", self.holder));
        }
        let holder = self.holder.and_then(|holder| self.roster.get(holder));
        let Some(holder) = holder else {
            let next = self.next();
            return next.map_or(Ok(()), |(next, _)| {
                Err(format!("{next:?} is next and nobody holds the device"))
            });
        };
        match (holder.phase, self.first_in_line()) {
            (Phase::Holding(turn), Some((class, (.., first))))
                if class > holder.account().class() && !turn.promoted =>
            {
                Err(format!("{first:?} is of a higher class and waits"))
            }
            _ => Ok(()),
        }
    }

    fn check_tenant(&self, tenant: &Tenant) -> Result<(), String> {
        let alone = self.roster.len() == 1 && !tenant.account().is_capped();
        if alone != (tenant.phase == Phase::Free) {
            return Err("it is free only if alone and without a cap".to_owned());
        }
        let right = match (tenant.said.kind, tenant.phase) {
            (LeaseKind::Free, Phase::Free) => true,
            (LeaseKind::Open { deadline, .. }, Phase::Holding(turn)) => {
                deadline == self.until(tenant, &turn)
                    && deadline.is_none_or(|deadline| deadline > self.now)
            }
            (LeaseKind::Closed, Phase::Out | Phase::Closing(_) | Phase::Overrun { .. }) => true,
            _ => false,
        };
        if !right || tenant.said.epoch != tenant.epoch {
            return Err("its page says something else".to_owned());
        }
        let mark = self.marks.of(tenant.account().class());
        if tenant.clock.since(mark, tenant.account().weight()) > self.policy.most_debt {
            return Err("it owes more than can be owed".to_owned());
        }
        Ok(())
    }
}
