//! The tenants of a device that is dealt in turns: whose turn it is, and who waits in which order.
//!
//! The holder is the one tenant whose turn has begun and that neither has drained nor overran;
//! epochs only rise.

use super::clock::Reading;
use super::tenant::{Order, Phase, Tenant, Turn};
use crate::ids::{ContainerId, ProcessId};
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
    holder: Option<ContainerId>,
    epochs: u64,
}

impl Line {
    /// The `guests` of another regime, with epochs above `epochs`.
    pub(super) fn new(mut epochs: u64, guests: Vec<Guest>) -> Self {
        let tenants = guests.into_iter().map(|(container, mut members, account)| {
            epochs += 1;
            members.begin_regime(true);
            let parts = (members, account);
            (container, Tenant::new(parts, Reading::default(), epochs))
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

    pub(super) fn get(&self, container: ContainerId) -> Option<&Tenant> {
        self.roster.get(container)
    }

    pub(super) fn get_mut(&mut self, container: ContainerId) -> Option<&mut Tenant> {
        self.roster.get_mut(container)
    }

    /// The tenant of a process.
    pub(super) fn of(&mut self, process: ProcessId) -> Option<&mut Tenant> {
        self.roster.of(process)
    }

    pub(super) fn owner(&self, process: ProcessId) -> Option<ContainerId> {
        self.roster.owner(process)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.roster.processes()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ContainerId, &Tenant)> {
        self.roster.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ContainerId, &mut Tenant)> {
        self.roster.iter_mut()
    }

    /// A tenant's part in thousandths while all on the device want it.
    pub(super) fn part(&self, account: &ComputeAccount) -> u32 {
        self.roster.part(account)
    }

    /// A process of a tenant comes; a new tenant's clock is at `mark`. Whether the tenant is new.
    pub(super) fn join(
        &mut self,
        container: ContainerId,
        (process, gated): (ProcessId, bool),
        (class, compute): (u16, Compute),
        mark: Reading,
    ) -> bool {
        let (epoch, many) = (self.epochs + 1, self.roster.len());
        let new = || {
            let parts = (Members::default(), ComputeAccount::new(class, compute));
            Tenant::new(parts, mark, epoch)
        };
        let Some(tenant) = self.roster.join(container, process, new) else {
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
        for (container, weight) in self.roster.weights() {
            if let Some(tenant) = self.roster.get_mut(container) {
                tenant.reweigh(now, weight);
            }
        }
    }

    /// The tenant that holds the device or drains from it within the bound.
    pub(super) fn holder(&self) -> Option<(ContainerId, &Tenant)> {
        let holder = self.holder?;
        Some((holder, self.roster.get(holder)?))
    }

    /// A tenant that has drained from its turn.
    pub(super) fn drained(&self) -> Option<ContainerId> {
        let drained = |tenant: &Tenant| tenant.is_in_turn() && tenant.members().is_drained();
        let mut drained = self.iter().filter(|(_, tenant)| drained(tenant));
        drained.next().map(|(container, _)| container)
    }

    /// The only tenant, if there is one.
    pub(super) fn alone(&self) -> Option<(ContainerId, &Tenant)> {
        self.iter().next().filter(|_| self.roster.len() == 1)
    }

    /// Lets a tenant in, before a higher class for its guarantee if it is `promoted`.
    pub(super) fn grant(
        &mut self,
        container: ContainerId,
        promoted: bool,
        now: Nanos,
        policy: &LeasePolicy,
    ) {
        let length = self.length(container, policy);
        let Some(tenant) = self.roster.get_mut(container) else {
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
        self.holder = Some(container);
    }

    /// The holder is told to stop.
    pub(super) fn close(&mut self, now: Nanos) {
        let holder = self.holder.and_then(|holder| self.roster.get_mut(holder));
        if let Some(tenant) = holder {
            tenant.close(now);
        }
    }

    /// A tenant has drained.
    pub(super) fn end(&mut self, container: ContainerId, now: Nanos) {
        self.holder = self.holder.filter(|holder| *holder != container);
        if let Some(tenant) = self.roster.get_mut(container) {
            tenant.end(now);
        }
    }

    /// The holder has not drained in the bound: other tenants no longer wait for it. Returns the
    /// tenant of which that is to be told, if others are in line.
    pub(super) fn overran(
        &mut self,
        (now, closed): (Nanos, Nanos),
        every: Nanos,
    ) -> Option<ContainerId> {
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
        let alone = alone.map(|(container, _)| container);
        let bound = |(container, tenant): &(ContainerId, &Tenant)| {
            tenant.is_free() && Some(*container) != alone
        };
        let bound = self.iter().filter(bound).map(|(container, _)| container);
        for container in bound.collect::<Vec<_>>() {
            if let Some(tenant) = self.roster.get_mut(container) {
                tenant.bind();
            }
            self.grant(container, false, now, policy);
        }
        let free = alone.and_then(|container| self.roster.get_mut(container));
        if let Some(tenant) = free.filter(|tenant| !tenant.is_free()) {
            self.epochs += 1;
            tenant.set_free(self.epochs);
            self.holder = None;
        }
    }

    /// What a tenant's page says of a turn whose deadline moves to a later time is a new grant.
    pub(super) fn extend_holder(&mut self) {
        let holder = self.holder.and_then(|holder| self.roster.get_mut(holder));
        if let Some(tenant) = holder {
            self.epochs += 1;
            tenant.extend(self.epochs);
        }
    }

    /// Has all pages say what `lease` makes of their tenants; returns those that changed.
    pub(super) fn publish(
        &mut self,
        lease: impl Fn(&Tenant) -> Lease,
    ) -> Vec<(ContainerId, Lease)> {
        let mut changed = Vec::new();
        for (container, tenant) in self.roster.iter_mut() {
            let lease = lease(tenant);
            if tenant.say(lease) {
                changed.push((container, lease));
            }
        }
        changed
    }

    /// Waiting tenants that may have a turn.
    fn in_line(&self) -> impl Iterator<Item = (ContainerId, &Tenant)> {
        self.iter().filter(|(_, tenant)| tenant.is_next_in_line())
    }

    /// Of the highest class in which a tenant waits, the one furthest behind.
    pub(super) fn first_in_line(&self) -> Option<(u16, Order)> {
        let keys = self.in_line().map(|(container, tenant)| {
            let order = tenant.order(container);
            (Reverse(tenant.account().class()), order)
        });
        keys.min().map(|(class, order)| (class.0, order))
    }

    /// Waiting tenants of a class that may have a turn.
    pub(super) fn rivals(&self, class: u16) -> impl Iterator<Item = (ContainerId, &Tenant)> {
        let waits = self.in_line();
        waits.filter(move |(_, tenant)| tenant.account().class() == class)
    }

    /// When the guarantees of waiting tenants in lower classes become due.
    pub(super) fn dues_below(
        &self,
        class: u16,
        policy: &LeasePolicy,
    ) -> impl Iterator<Item = (ContainerId, &Tenant, Nanos)> {
        let below = self.iter();
        let below = below.filter(move |(_, tenant)| tenant.account().class() < class);
        let below = below.filter(|(_, tenant)| tenant.is_next_in_line());
        below.filter_map(|(container, tenant)| Some((container, tenant, tenant.due_in(policy)?)))
    }

    /// Of the highest class below this in which a tenant is due by now, the one furthest behind.
    pub(super) fn due_below(&self, class: u16, policy: &LeasePolicy) -> Option<ContainerId> {
        let due = self.dues_below(class, policy);
        let keys = due
            .filter(|(.., wait)| wait.0 == 0)
            .map(|(container, tenant, _)| {
                let class = Reverse(tenant.account().class());
                (class, tenant.order(container))
            });
        keys.min().map(|(_, (.., container))| container)
    }

    /// The next tenant, and whether it goes before a higher class for its guarantee.
    pub(super) fn next(&self, policy: &LeasePolicy) -> Option<(ContainerId, bool)> {
        let (class, (.., first)) = self.first_in_line()?;
        let due = self.due_below(class, policy);
        Some(due.map_or((first, false), |due| (due, true)))
    }

    /// The turn a tenant would get now: the quantum by its weight within the tenants of its class
    /// that work or wait.
    pub(super) fn length(&self, container: ContainerId, policy: &LeasePolicy) -> Nanos {
        let Some(own) = self.get(container).map(|own| own.account()) else {
            return policy.shortest;
        };
        let (mut count, mut sum) = (0, 0);
        for (other, tenant) in self.iter() {
            let account = tenant.account();
            let counts = other == container || tenant.is_in_demand();
            if counts && account.class() == own.class() {
                (count, sum) = (count + 1, sum + account.weight());
            }
        }
        let part = u128::from(own.weight()) * count * u128::from(WHOLE) / u128::from(sum.max(1));
        let length = u128::from(policy.quantum.0) * part / u128::from(WHOLE);
        Nanos(u64::try_from(length).unwrap_or(u64::MAX)).max(policy.shortest)
    }

    /// Whether tenants and processes are each other's, and the holder is who takes the device.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        self.roster.check()?;
        let takes = |phase: Phase| matches!(phase, Phase::Holding(_) | Phase::Closing(_));
        let holders = self.iter().filter(|(_, tenant)| takes(tenant.phase()));
        let holders: Vec<ContainerId> = holders.map(|(container, _)| container).collect();
        if holders == self.holder.into_iter().collect::<Vec<_>>() {
            Ok(())
        } else {
            Err(format!("{holders:?} hold, {:?} is known to", self.holder))
        }
    }
}
