//! The tenants of a device in turns: the holder, and the order of the waiting tenants.
//!
//! The holder is the one tenant whose turn has begun and that neither has drained nor overran;
//! epochs only rise.

use super::clock::Reading;
use super::tenant::{Order, Phase, Tenant, Turn};
use crate::ids::{ProcessId, TenantId};
use crate::lease::account::ComputeAccount;
use crate::lease::input::Output;
use crate::lease::members::Members;
use crate::lease::page::Lease;
use crate::lease::roster::{Guest, Roster, Tenant as _};
use crate::lease::terms::{Compute, LeasePolicy, WHOLE};
use crate::time::Nanos;
use std::cmp::Reverse;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Line {
    roster: Roster<Tenant>,
    holder: Option<TenantId>,
    epochs: u64,
}

impl Line {
    /// The `guests` of another regime, with epochs above `epochs`.
    pub(super) fn new(mut epochs: u64, guests: Vec<Guest>) -> Self {
        let tenants = guests.into_iter().map(|(id, mut members, account)| {
            epochs += 1;
            members.begin_regime(true);
            let parts = (members, account);
            (id, Tenant::new(parts, Reading::default(), epochs))
        });
        let roster = Roster::new(tenants.collect());
        Self {
            roster,
            holder: None,
            epochs,
        }
    }

    /// All tenants, and the highest epoch issued, for another regime.
    pub(super) fn into_guests(self) -> (u64, Vec<Guest>) {
        (self.epochs, self.roster.into_guests())
    }

    /// The tenants, to look at.
    pub(super) fn roster(&self) -> &Roster<Tenant> {
        &self.roster
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.roster.get(id)
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.roster.get_mut(id)
    }

    /// The tenant of a process.
    pub(super) fn of(&mut self, process: ProcessId) -> Option<&mut Tenant> {
        self.roster.of(process)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.roster.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TenantId, &mut Tenant)> {
        self.roster.iter_mut()
    }

    /// A process of a tenant comes; a new tenant's clock is at `mark`. Whether the tenant is new.
    pub(super) fn join(
        &mut self,
        id: TenantId,
        (process, gated): (ProcessId, bool),
        (class, compute): (u16, Compute),
        mark: Reading,
    ) -> bool {
        let (epoch, many) = (self.epochs + 1, self.roster.len());
        let new = || {
            let parts = (Members::default(), ComputeAccount::new(class, compute));
            Tenant::new(parts, mark, epoch)
        };
        let Some(tenant) = self.roster.join(id, process, new) else {
            return false;
        };
        let drained = !tenant.is_open();
        tenant.members_mut().join(process, gated, drained);
        let new = self.roster.len() > many;
        self.epochs += u64::from(new);
        new
    }

    /// A process is no more. Whether its tenant went with it.
    pub(super) fn leave(&mut self, process: ProcessId) -> bool {
        let gone = self.roster.leave(process);
        self.holder = self.holder.filter(|holder| Some(*holder) != gone);
        gone.is_some()
    }

    /// See [`Roster::tell_ungated`].
    pub(super) fn tell_ungated(&mut self, outputs: &mut impl Extend<Output>) {
        self.roster.tell_ungated(outputs);
    }

    /// Recomputes the weights of each class.
    pub(super) fn reweigh(&mut self, now: Nanos) {
        for (id, weight) in self.roster.weights() {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.reweigh(now, weight);
            }
        }
    }

    /// The tenant that holds the device or drains from it within the bound.
    pub(super) fn holder(&self) -> Option<(TenantId, &Tenant)> {
        let holder = self.holder?;
        Some((holder, self.roster.get(holder)?))
    }

    /// A tenant that has drained from its turn.
    pub(super) fn drained(&self) -> Option<TenantId> {
        let drained = |tenant: &Tenant| tenant.is_in_turn() && tenant.members().is_drained();
        let mut drained = self.iter().filter(|(_, tenant)| drained(tenant));
        drained.next().map(|(id, _)| id)
    }

    /// The only tenant, if there is one.
    pub(super) fn alone(&self) -> Option<(TenantId, &Tenant)> {
        self.iter().next().filter(|_| self.roster.len() == 1)
    }

    /// Lets a tenant in, before a higher class for its guarantee if it is `promoted`.
    pub(super) fn grant(&mut self, id: TenantId, promoted: bool, now: Nanos, policy: &LeasePolicy) {
        let length = self.length(id, policy);
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        let account = tenant.account();
        let guaranteed = account.guaranteed_turn(policy).filter(|_| promoted);
        let turn = Turn {
            since: now,
            from: tenant.clock(),
            read: now,
            length: guaranteed.map_or(length, |(turn, _)| turn),
            runs_dry: account.cap_lasts().map(|lasts| now + lasts),
            promoted,
        };
        self.epochs += 1;
        tenant.begin(self.epochs, turn);
        self.holder = Some(id);
    }

    /// The holder is told to stop.
    pub(super) fn close(&mut self, now: Nanos) {
        let holder = self.holder.and_then(|holder| self.roster.get_mut(holder));
        if let Some(tenant) = holder {
            tenant.close(now);
        }
    }

    /// A tenant has drained.
    pub(super) fn end(&mut self, id: TenantId, now: Nanos) {
        self.holder = self.holder.filter(|holder| *holder != id);
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.end(now);
        }
    }

    /// The holder has not drained in the bound: other tenants no longer wait for it. Returns the
    /// tenant of which that is to be told, if others are in line.
    pub(super) fn overran(
        &mut self,
        (now, closed): (Nanos, Nanos),
        every: Nanos,
    ) -> Option<TenantId> {
        let holder = self.holder.take()?;
        let shared = self.first_in_line().is_some();
        let tenant = self.roster.get_mut(holder)?;
        let told = tenant.overran((now, closed), every) && shared;
        if told {
            tenant.told_overrun(now);
        }
        told.then_some(holder)
    }

    /// A tenant that is alone and has no cap is free. One that was continues in a turn of its own:
    /// as far as is known it works.
    pub(super) fn free_who_is_alone(&mut self, now: Nanos, policy: &LeasePolicy) {
        let alone = self.alone();
        let alone = alone.filter(|(_, tenant)| !tenant.account().is_capped());
        let alone = alone.map(|(id, _)| id);
        let bound = |(id, tenant): &(TenantId, &Tenant)| tenant.is_free() && Some(*id) != alone;
        let bound = self.iter().filter(bound).map(|(id, _)| id);
        for id in bound.collect::<Vec<_>>() {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.bind();
            }
            self.grant(id, false, now, policy);
        }
        let free = alone.and_then(|id| self.roster.get_mut(id));
        if let Some(tenant) = free.filter(|tenant| !tenant.is_free()) {
            self.epochs += 1;
            tenant.set_free(self.epochs);
            self.holder = None;
        }
    }

    /// A page whose turn's deadline moves to a later time shows a new grant.
    pub(super) fn extend_holder(&mut self) {
        let holder = self.holder.and_then(|holder| self.roster.get_mut(holder));
        if let Some(tenant) = holder {
            self.epochs += 1;
            tenant.extend(self.epochs);
        }
    }

    /// Updates all pages to the `lease` of their tenants; returns those that changed.
    pub(super) fn publish(&mut self, lease: impl Fn(&Tenant) -> Lease) -> Vec<(TenantId, Lease)> {
        let mut changed = Vec::new();
        for (id, tenant) in self.roster.iter_mut() {
            let lease = lease(tenant);
            if tenant.say(lease) {
                changed.push((id, lease));
            }
        }
        changed
    }

    /// Waiting tenants that may have a turn.
    fn in_line(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.iter().filter(|(_, tenant)| tenant.is_next_in_line())
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
        policy: &LeasePolicy,
    ) -> impl Iterator<Item = (TenantId, &Tenant, Nanos)> {
        let below = self.iter();
        let below = below.filter(move |(_, tenant)| tenant.account().class() < class);
        let below = below.filter(|(_, tenant)| tenant.is_next_in_line());
        below.filter_map(|(id, tenant)| Some((id, tenant, tenant.due_in(policy)?)))
    }

    /// Of the highest class below this in which a tenant is due by now, the one furthest behind.
    pub(super) fn due_below(&self, class: u16, policy: &LeasePolicy) -> Option<TenantId> {
        let due = self.dues_below(class, policy);
        let keys = due.filter(|(.., wait)| wait.0 == 0).map(|(id, tenant, _)| {
            let class = Reverse(tenant.account().class());
            (class, tenant.order(id))
        });
        keys.min().map(|(_, (.., id))| id)
    }

    /// The next tenant, and whether it goes before a higher class for its guarantee.
    pub(super) fn next(&self, policy: &LeasePolicy) -> Option<(TenantId, bool)> {
        let (class, (.., first)) = self.first_in_line()?;
        let due = self.due_below(class, policy);
        Some(due.map_or((first, false), |due| (due, true)))
    }

    /// The turn a tenant would get now: the quantum by its weight within the tenants of its class
    /// that work or wait.
    pub(super) fn length(&self, id: TenantId, policy: &LeasePolicy) -> Nanos {
        let Some(own) = self.get(id).map(|own| own.account()) else {
            return policy.shortest;
        };
        let (mut count, mut sum) = (0, 0);
        for (other, tenant) in self.iter() {
            let account = tenant.account();
            let counts = other == id || tenant.is_in_demand();
            if counts && account.class() == own.class() {
                (count, sum) = (count + 1, sum + account.weight());
            }
        }
        let part = u128::from(own.weight()) * count * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(policy.shortest)
    }

    /// Whether tenants and processes refer to each other, and the holder is the tenant that takes
    /// the device.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        let takes = |phase: Phase| matches!(phase, Phase::Holding(_) | Phase::Closing(_));
        let holders = self.iter().filter(|(_, tenant)| takes(tenant.phase()));
        let holders: Vec<TenantId> = holders.map(|(id, _)| id).collect();
        if holders == self.holder.into_iter().collect::<Vec<_>>() {
            Ok(())
        } else {
            Err(format!("{holders:?} hold, {:?} is known to", self.holder))
        }
    }
}
