//! What time costs: a tenant in a turn pays for it, drain included.
//!
//! Tenants that overlap because one did not drain split the time evenly, as the hardware does. Their
//! caps pay all of it: a ceiling must hold whatever the others do. No clock gets further ahead of
//! its class than the most debt.

use super::Schedule;
use super::tenant::Tenant;
use crate::ids::ContainerId;
use crate::lease::roster::Tenant as _;
use crate::lease::terms::WHOLE;
use crate::time::Nanos;
use std::collections::BTreeSet;

impl Schedule {
    /// Lets time pass, and bills it.
    pub(super) fn pass(&mut self, now: Nanos) {
        let now = now.max(self.now);
        let time = now - self.now;
        let share = self.share_of(time);
        for tenant in self.roster.all_mut().values_mut() {
            let mark = self.marks.of(tenant.account().class());
            let share = if tenant.is_billed() {
                share
            } else {
                Nanos::ZERO
            };
            tenant.pass((now, time), mark, share, &self.policy);
        }
        self.now = now;
        self.forgive();
        self.note_caps();
    }

    /// What each one that is billed pays of a span.
    pub(super) fn share_of(&self, time: Nanos) -> Nanos {
        let payers = self.roster.all().values();
        let payers = payers.filter(|tenant| tenant.is_billed()).count().max(1);
        Nanos(time.0 / u64::try_from(payers).unwrap_or(1))
    }

    pub(super) fn forgive(&mut self) {
        for tenant in self.roster.all_mut().values_mut() {
            tenant.forgive(&self.policy);
        }
    }

    /// Sees whose cap allows a turn again, and moves the mark of each class up to whoever of it is
    /// furthest behind of those that work or wait.
    pub(super) fn note_caps(&mut self) {
        let freed = self.roster.all().iter();
        let freed = freed.filter(|(_, tenant)| tenant.is_throttled() != tenant.was_throttled());
        for container in freed.map(|(at, _)| *at).collect::<Vec<_>>() {
            let turn = self.length(container);
            if let Some(tenant) = self.roster.get_mut(container) {
                tenant.note_cap(turn);
            }
        }
        let class = |tenant: &Tenant| tenant.account().class();
        let classes: BTreeSet<u16> = self.roster.all().values().map(class).collect();
        let holder = self.holder.and_then(|holder| self.roster.get(holder));
        let holder = holder.map(|holder| (class(holder), holder.clock));
        for class in classes {
            let works = holder.filter(|(own, _)| *own == class);
            let works = works.map(|(_, clock)| clock);
            let least = self.furthest_behind(class).into_iter().chain(works).min();
            if let Some(least) = least {
                self.marks.reach(class, least);
            }
        }
        for tenant in self.roster.all_mut().values_mut() {
            let mark = self.marks.of(tenant.account().class());
            tenant.pass((self.now, Nanos::ZERO), mark, Nanos::ZERO, &self.policy);
        }
    }

    /// Deals the weights of each class anew.
    pub(super) fn reweigh(&mut self) {
        let now = self.now;
        for (container, weight) in self.roster.weights() {
            if let Some(tenant) = self.roster.get_mut(container) {
                tenant.reweigh(now, weight);
            }
        }
        self.forgive();
        let class = |tenant: &Tenant| tenant.account().class();
        let used: BTreeSet<u16> = self.roster.all().values().map(class).collect();
        self.marks.keep(|class| used.contains(&class));
    }

    /// The turn a tenant would get now: the quantum by its weight among those of its class that work
    /// or wait.
    pub(super) fn length(&self, container: ContainerId) -> Nanos {
        let Some(own) = self.roster.get(container).map(|own| own.account()) else {
            return self.policy.shortest;
        };
        let (mut count, mut sum) = (0, 0);
        for (other, tenant) in self.roster.all() {
            let account = tenant.account();
            let counts = *other == container || tenant.is_in_demand();
            if counts && account.class() == own.class() {
                (count, sum) = (count + 1, sum + account.weight());
            }
        }
        let part = u128::from(own.weight()) * count * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(self.policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(self.policy.shortest)
    }
}
