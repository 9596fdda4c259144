//! The order of the waiting tenants: which is next, for how long, and which is alone.

use super::Schedule;
use super::tenant::{Order, Tenant, Turn};
use crate::ids::TenantId;
use crate::lease::arithmetic::scaled;
use crate::lease::terms::{LeasePolicy, WHOLE};
use crate::time::Nanos;
use std::cmp::Reverse;

impl Schedule {
    /// The tenant that holds the device or drains from it within the bound.
    pub(super) fn holder(&self) -> Option<(TenantId, &Tenant)> {
        self.roster.iter().find(|(_, tenant)| tenant.holds())
    }

    /// Lets a tenant in. One that is due keeps its turn also where a higher class does not want the
    /// device at this instant.
    pub(super) fn grant(&mut self, id: TenantId) {
        let (now, length) = (self.now, self.length(id));
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        let account = &tenant.account;
        let due = account.guaranteed_turn(&self.policy);
        let due = due.filter(|(_, wait)| wait.0 == 0);
        let turn = Turn {
            since: now,
            from: tenant.own.clock,
            read: now,
            length,
            runs_dry: account.cap_lasts().map(|lasts| now + lasts),
            kept: now + due.map_or(Nanos::ZERO, |(turn, _)| turn),
        };
        tenant.begin(turn);
        self.roster.renew(id);
    }

    /// A tenant that is alone and has no cap is free. One that was continues in a turn of its own:
    /// as far as is known it works.
    pub(super) fn free_who_is_alone(&mut self) {
        let is_alone = self.roster.len() == 1;
        let may_be = |one: &Tenant| is_alone && !one.account.is_capped();
        for id in self.roster.ids(|one| one.is_free() && !may_be(one)) {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.bind();
            }
            self.grant(id);
        }
        let now = self.now;
        for id in self.roster.ids(|one| !one.is_free() && may_be(one)) {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.set_free(now);
            }
            self.roster.renew(id);
        }
    }

    /// Waiting tenants that may have a turn.
    pub(super) fn in_line(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let all = self.roster.iter();
        all.filter(|(_, tenant)| tenant.is_next_in_line())
    }

    /// Of the highest class in which a tenant waits, the one furthest behind.
    pub(super) fn first_in_line(&self) -> Option<(u16, Order)> {
        let key = |(id, tenant): (_, &Tenant)| (Reverse(tenant.class()), tenant.order(id));
        let keys = self.in_line().map(key);
        keys.min().map(|(class, order)| (class.0, order))
    }

    /// Waiting tenants of a class that may have a turn.
    pub(super) fn rivals(&self, class: u16) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let waits = self.in_line();
        waits.filter(move |(_, tenant)| tenant.class() == class)
    }

    /// Of the lowest of these classes in which a tenant in line is due, the one furthest behind:
    /// what a lower one is owed takes of the time of all above it, so these are due again.
    fn due(&self, of: impl Fn(u16) -> bool) -> Option<TenantId> {
        let due = self.in_line().filter(|(_, tenant)| {
            let account = &tenant.account;
            of(account.class) && account.is_due(&self.policy)
        });
        let keys = due.map(|(id, tenant)| (tenant.class(), tenant.order(id)));
        keys.min().map(|(_, (.., id))| id)
    }

    /// The tenant in line that is due, of a lower class than this.
    pub(super) fn due_below(&self, class: u16) -> Option<TenantId> {
        self.due(|other| other < class)
    }

    /// Whether a lower class has a guarantee: that takes of the time that weights divide within
    /// this class.
    pub(super) fn is_taken_from(&self, class: u16) -> bool {
        let takes = |tenant: &Tenant| {
            let account = &tenant.account;
            account.class < class && account.has_promise() && tenant.is_in_demand()
        };
        self.roster.tenants().any(takes)
    }

    /// The next tenant: one that is due goes before a higher class, and before its equals where a
    /// lower class takes of their time.
    pub(super) fn next(&self) -> Option<TenantId> {
        let (class, (.., first)) = self.first_in_line()?;
        let is_taken_from = self.is_taken_from(class);
        let due = self.due_below(class);
        let due = due.or_else(|| self.due(|other| is_taken_from && other == class));
        Some(due.unwrap_or(first))
    }

    /// The turn a tenant would get now: the quantum by its weight within the tenants of its class
    /// that work or wait.
    pub(super) fn length(&self, id: TenantId) -> Nanos {
        let Some(own) = self.roster.get(id).map(|own| &own.account) else {
            return LeasePolicy::SHORTEST;
        };
        let (mut count, mut sum) = (0, 0);
        for (other, tenant) in self.roster.iter() {
            let account = &tenant.account;
            let counts = other == id || tenant.is_in_demand();
            if counts && account.class == own.class {
                (count, sum) = (count + 1, sum + account.weight);
            }
        }
        let part = scaled(own.weight * count, WHOLE, sum);
        Nanos(scaled(self.policy.quantum.0, part, WHOLE)).max(LeasePolicy::SHORTEST)
    }
}
