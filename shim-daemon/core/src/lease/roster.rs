//! The tenants of one device and their processes, and what else outlives a regime.

use super::account::ComputeAccount;
use super::debts::Debts;
use super::input::{Output, closed_first};
use super::members::Members;
use super::page::{Lease, LeaseKind};
use super::seat::{Seat, State};
use super::terms::{Compute, Terms, part, weighed, weight};
use super::view::{DeviceTally, ShareState, ShareView};
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Roster<S> {
    tenants: BTreeMap<TenantId, Seat<S>>,
    owners: BTreeMap<ProcessId, TenantId>,
    /// Of tenants that have no process now.
    debts: Debts,
    /// The last epoch issued: they only rise.
    epochs: u64,
    pub(super) tally: DeviceTally,
    /// Not polled yet.
    pub(super) outputs: VecDeque<Output>,
}

impl<S: State> Roster<S> {
    pub(super) fn get(&self, id: TenantId) -> Option<&Seat<S>> {
        self.tenants.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut Seat<S>> {
        self.tenants.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Seat<S>)> {
        let all = self.tenants.iter();
        all.map(|(id, tenant)| (*id, tenant))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TenantId, &mut Seat<S>)> {
        let all = self.tenants.iter_mut();
        all.map(|(id, tenant)| (*id, tenant))
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = &Seat<S>> {
        self.tenants.values()
    }

    pub(super) fn tenants_mut(&mut self) -> impl Iterator<Item = &mut Seat<S>> {
        self.tenants.values_mut()
    }

    /// The tenants that are so.
    pub(super) fn ids(&self, is: impl Fn(&Seat<S>) -> bool) -> Vec<TenantId> {
        let all = self.iter().filter(|(_, tenant)| is(tenant));
        all.map(|(id, _)| id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.tenants.len()
    }

    pub(super) fn processes(&self) -> Vec<ProcessId> {
        self.owners.keys().copied().collect()
    }

    /// The tenant of a process.
    pub(super) fn owner(&self, process: ProcessId) -> Option<TenantId> {
        self.owners.get(&process).copied()
    }

    /// The tenant of a process.
    pub(super) fn of(&mut self, process: ProcessId) -> Option<&mut Seat<S>> {
        let id = self.owner(process)?;
        self.tenants.get_mut(&id)
    }

    /// A process of a tenant joins, or says anew whether it is `gated`. `new` is the state of the
    /// tenant if it is not here yet: whether that is so. A process stays its first tenant's.
    pub(super) fn join(
        &mut self,
        now: Nanos,
        (id, process, gated): (TenantId, ProcessId, bool),
        (class, compute): (u16, Compute),
        new: S,
    ) -> bool {
        if *self.owners.entry(process).or_insert(id) != id {
            return false;
        }
        let is_new = !self.tenants.contains_key(&id);
        let tenant = self.tenants.entry(id).or_insert_with(|| {
            let account = ComputeAccount::owing(self.debts.take(now, id), class, compute);
            self.epochs += 1;
            Seat::new((Members::default(), account), (self.epochs, now), new)
        });
        let drained = !tenant.own.admits();
        tenant.members.join(process, gated, drained);
        self.tell_ungated();
        is_new
    }

    /// The terms of a tenant that has no process here change.
    pub(super) fn set_absent(&mut self, now: Nanos, id: TenantId, compute: Compute) {
        self.debts.set(now, id, compute.cap());
    }

    /// A tenant's gate opens, or is open for longer, under an epoch above all others: earlier
    /// reports of its processes are void.
    pub(super) fn renew(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            self.epochs += 1;
            tenant.epoch = self.epochs;
            tenant.members.reopen();
        }
    }

    /// A process has ended. Whether it was its tenant's last one.
    pub(super) fn leave(&mut self, now: Nanos, process: ProcessId) -> bool {
        let Some(id) = self.owners.remove(&process) else {
            return false;
        };
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return false;
        };
        let waiting = tenant.waiting();
        tenant.members.leave(process);
        tenant.count_wait(now, waiting);
        let is_gone = tenant.members.is_empty();
        if is_gone {
            self.debts.keep(now, id, tenant.account.allowance());
            self.tenants.remove(&id);
        }
        is_gone
    }

    /// A tenant's part while all want the device, in thousandths.
    fn entitlement(&self, tenant: &Seat<S>) -> u32 {
        let all = self.tenants().map(|tenant| tenant.account.terms());
        let all = all.collect::<Vec<_>>();
        let (class, compute, _) = tenant.account.terms();
        let own = (class, compute, weight((tenant.account.terms(), true), &all));
        part(own, &weighed(&all))
    }

    /// Notes which tenants ask for the device, or did not long ago. Whether weights change by that.
    pub(super) fn count(&mut self, asks: impl Fn(&Seat<S>) -> bool) -> bool {
        let mut changes = false;
        for tenant in self.tenants.values_mut() {
            let asks = asks(tenant);
            changes |= tenant.account.count(asks);
        }
        changes
    }

    /// Computes each tenant's weight anew.
    pub(super) fn reweigh(&mut self, set: impl Fn(&mut Seat<S>, u64)) {
        let counted = self.tenants().filter(|tenant| tenant.account.counts());
        let counted: Vec<Terms> = counted.map(|tenant| tenant.account.terms()).collect();
        for tenant in self.tenants.values_mut() {
            let own = (tenant.account.terms(), tenant.account.counts());
            set(tenant, weight(own, &counted));
        }
    }

    /// Reports each tenant that shares the device and has a process without a gate: this process is
    /// not steered.
    fn tell_ungated(&mut self) {
        if self.tenants.len() < 2 {
            return;
        }
        for (id, tenant) in &mut self.tenants {
            let ungated = tenant.members.ungated();
            if tenant.account.tell_ungated(ungated) {
                self.outputs.push_back(Output::Ungated { tenant: *id });
            }
        }
    }

    /// Says what changed, what closes first.
    pub(super) fn publish(&mut self, kind: impl Fn(TenantId, &Seat<S>) -> LeaseKind) {
        let mut changed = Vec::new();
        for (id, tenant) in &mut self.tenants {
            let kind = kind(*id, tenant);
            changed.extend(tenant.say(kind).map(|lease| (*id, lease)));
        }
        self.outputs.extend(closed_first(changed));
    }

    /// The content of a tenant's page.
    pub(super) fn lease(&self, id: TenantId) -> Option<Lease> {
        self.get(id).map(|tenant| tenant.said)
    }

    /// A tenant's share, for people to look at: its state, since when, its turns and overruns, and
    /// its bill of the running turn.
    pub(super) fn view(
        &self,
        tenant: &Seat<S>,
        (state, since): (ShareState, Nanos),
        (turns, overruns): (u64, u64),
        running: Nanos,
    ) -> ShareView {
        ShareView {
            weight: self.entitlement(tenant),
            held: tenant.account.held + running,
            state,
            since,
            turns,
            overruns,
            ungated: tenant.members.ungated(),
            waits: tenant.account.waits,
            waiting: tenant.waiting(),
            steered: None,
        }
    }

    /// The same tenants in another regime, which begins `now`, each with this state there and an
    /// epoch above all others.
    pub(super) fn into_regime<U: State>(self, now: Nanos, new: impl Fn() -> U) -> Roster<U> {
        let mut epochs = self.epochs;
        let seat = |(id, tenant): (TenantId, Seat<S>)| {
            let (waiting, own) = (tenant.waiting(), new());
            let (mut members, mut account) = (tenant.members, tenant.account);
            if let Some(since) = waiting {
                account.waited(now - since);
            }
            members.begin_regime(!own.admits());
            epochs += 1;
            (id, Seat::new((members, account), (epochs, now), own))
        };
        Roster {
            tenants: self.tenants.into_iter().map(seat).collect(),
            owners: self.owners,
            debts: self.debts,
            epochs,
            tally: self.tally,
            outputs: self.outputs,
        }
    }

    /// Whether every process is one of its tenant's, and every tenant has one.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        for (id, tenant) in &self.tenants {
            if tenant.members.is_empty() {
                return Err(format!("{id:?} has no process here"));
            }
        }
        for (process, id) in &self.owners {
            let known = self.tenants.get(id);
            if !known.is_some_and(|tenant| tenant.members.has(*process)) {
                return Err(format!("{process:?} is not in {id:?}"));
            }
        }
        Ok(())
    }
}
