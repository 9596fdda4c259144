//! The order of the waiting tenants: which is next, for how long, and which is alone.

use super::Schedule;
use super::tenant::{Order, Tenant, Turn};
use crate::ids::TenantId;
use crate::lease::roster::Tenant as _;
use crate::lease::terms::WHOLE;
use crate::time::Nanos;
use std::cmp::Reverse;

impl Schedule {
    /// The tenant that holds the device or drains from it within the bound.
    pub(super) fn holder(&self) -> Option<(TenantId, &Tenant)> {
        let holder = self.holder?;
        Some((holder, self.roster.get(holder)?))
    }

    /// Lets a tenant in. One that is due keeps its turn also where a higher class does not want the
    /// device at this instant.
    pub(super) fn grant(&mut self, id: TenantId) {
        let (now, length) = (self.now, self.length(id));
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        let account = tenant.account();
        let due = account.guaranteed_turn(&self.policy);
        let due = due.filter(|(_, wait)| wait.0 == 0);
        let turn = Turn {
            since: now,
            from: tenant.clock(),
            read: now,
            length,
            runs_dry: account.cap_lasts().map(|lasts| now + lasts),
            kept: now + due.map_or(Nanos::ZERO, |(turn, _)| turn),
        };
        self.epochs += 1;
        tenant.begin(self.epochs, turn);
        self.holder = Some(id);
    }

    /// A tenant that is alone and has no cap is free. One that was continues in a turn of its own:
    /// as far as is known it works.
    pub(super) fn free_who_is_alone(&mut self) {
        let one = self.roster.iter().next().filter(|_| self.roster.len() == 1);
        let alone = one.filter(|(_, tenant)| !tenant.account().is_capped());
        let alone = alone.map(|(id, _)| id);
        let bound = |(id, tenant): &(TenantId, &Tenant)| tenant.is_free() && Some(*id) != alone;
        let bound = self.roster.iter().filter(bound).map(|(id, _)| id);
        for id in bound.collect::<Vec<_>>() {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.bind();
            }
            self.grant(id);
        }
        let free = alone.and_then(|id| self.roster.get_mut(id));
        if let Some(tenant) = free.filter(|tenant| !tenant.is_free()) {
            self.epochs += 1;
            tenant.set_free(self.epochs, self.now);
            self.holder = None;
        }
    }

    /// Waiting tenants that may have a turn.
    fn in_line(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let all = self.roster.iter();
        all.filter(|(_, tenant)| tenant.is_next_in_line())
    }

    /// Of the highest class in which a tenant waits, the one furthest behind.
    pub(super) fn first_in_line(&self) -> Option<(u16, Order)> {
        let keys = self.in_line().map(|(id, tenant)| {
            let order = tenant.order(id);
            (Reverse(tenant.account().class()), order)
        });
        keys.min().map(|(class, order)| (class.0, order))
    }

    /// Waiting tenants of a class that may have a turn.
    pub(super) fn rivals(&self, class: u16) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let waits = self.in_line();
        waits.filter(move |(_, tenant)| tenant.account().class() == class)
    }

    /// When the guarantees of waiting tenants in lower classes become due.
    pub(super) fn dues_below(
        &self,
        class: u16,
    ) -> impl Iterator<Item = (TenantId, &Tenant, Nanos)> {
        let below = self.in_line();
        let below = below.filter(move |(_, tenant)| tenant.account().class() < class);
        below.filter_map(|(id, tenant)| {
            let (_, wait) = tenant.account().guaranteed_turn(&self.policy)?;
            Some((id, tenant, wait))
        })
    }

    /// Of the lowest class below this in which a tenant is due by now, the one furthest behind:
    /// what a lower one is owed takes of the time of all above it, so these are due again.
    pub(super) fn due_below(&self, class: u16) -> Option<TenantId> {
        let due = self.dues_below(class).filter(|(.., wait)| wait.0 == 0);
        let keys = due.map(|(id, tenant, _)| (tenant.account().class(), tenant.order(id)));
        keys.min().map(|(_, (.., id))| id)
    }

    /// Whether a lower class has a guarantee: that takes of the time that weights divide within
    /// this class.
    pub(super) fn is_taken_from(&self, class: u16) -> bool {
        let takes = |tenant: &Tenant| {
            let account = tenant.account();
            account.class() < class && account.has_promise() && tenant.is_in_demand()
        };
        self.roster.tenants().any(takes)
    }

    /// The tenant of this class that is due by now and furthest behind, where a lower class takes
    /// of its time.
    fn due_within(&self, class: u16) -> Option<TenantId> {
        if !self.is_taken_from(class) {
            return None;
        }
        let is_due = |tenant: &Tenant| {
            let turn = tenant.account().guaranteed_turn(&self.policy);
            turn.is_some_and(|(_, wait)| wait.0 == 0)
        };
        let due = self.rivals(class).filter(|(_, tenant)| is_due(tenant));
        due.map(|(id, tenant)| tenant.order(id))
            .min()
            .map(|(.., id)| id)
    }

    /// The next tenant: one that is due goes before a higher class.
    pub(super) fn next(&self) -> Option<TenantId> {
        let (class, (.., first)) = self.first_in_line()?;
        let within = || self.due_within(class);
        Some(self.due_below(class).or_else(within).unwrap_or(first))
    }

    /// The turn a tenant would get now: the quantum by its weight within the tenants of its class
    /// that work or wait.
    pub(super) fn length(&self, id: TenantId) -> Nanos {
        let Some(own) = self.roster.get(id).map(|own| own.account()) else {
            return self.policy.shortest;
        };
        let (mut count, mut sum) = (0, 0);
        for (other, tenant) in self.roster.iter() {
            let account = tenant.account();
            let counts = other == id || tenant.is_in_demand();
            if counts && account.class() == own.class() {
                (count, sum) = (count + 1, sum + account.weight());
            }
        }
        let part = u128::from(own.weight()) * count * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(self.policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(self.policy.shortest)
    }
}
