//! The tenants of one device and their processes: what both regimes keep alike.

use super::account::ComputeAccount;
use super::debts::Debts;
use super::input::Output;
use super::members::Members;
use super::terms::{Compute, requests, weight};
use super::view::DeviceTally;
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// The state that a tenant keeps when its device changes its regime.
pub(super) type Guest = (TenantId, Members, ComputeAccount);

/// What a device keeps when it changes its regime.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// The highest epoch that was issued.
    pub(super) epochs: u64,
    pub(super) tally: DeviceTally,
    /// Not polled yet.
    pub(super) outputs: VecDeque<Output>,
    pub(super) tenants: Vec<Guest>,
    /// Of tenants that have no process now.
    pub(super) debts: Debts,
}

/// A regime's tenant: members, account, and the regime's own state.
pub(super) trait Tenant {
    fn members(&self) -> &Members;
    fn members_mut(&mut self) -> &mut Members;
    fn account(&self) -> &ComputeAccount;
    fn account_mut(&mut self) -> &mut ComputeAccount;
    fn into_guest(self) -> (Members, ComputeAccount);

    /// Since when its gate is closed while it wants the device.
    fn waiting(&self) -> Option<Nanos>;

    /// It waited before, `since` then: counts that if it does not any more.
    fn count_wait(&mut self, now: Nanos, since: Option<Nanos>) {
        let over = since.filter(|_| self.waiting().is_none());
        if let Some(since) = over {
            self.account_mut().waited(now - since);
        }
    }
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Roster<T> {
    tenants: BTreeMap<TenantId, T>,
    owners: BTreeMap<ProcessId, TenantId>,
    /// Of tenants that have no process now.
    debts: Debts,
}

impl<T: Tenant> Roster<T> {
    pub(super) fn new(tenants: BTreeMap<TenantId, T>, debts: Debts) -> Self {
        let mut owners = BTreeMap::new();
        for (id, tenant) in &tenants {
            let processes = tenant.members().processes();
            owners.extend(processes.map(|process| (process, *id)));
        }
        Self {
            tenants,
            owners,
            debts,
        }
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&T> {
        self.tenants.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut T> {
        self.tenants.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &T)> {
        let all = self.tenants.iter();
        all.map(|(id, tenant)| (*id, tenant))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TenantId, &mut T)> {
        let all = self.tenants.iter_mut();
        all.map(|(id, tenant)| (*id, tenant))
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = &T> {
        self.tenants.values()
    }

    pub(super) fn tenants_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.tenants.values_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.tenants.len()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.owners.keys().copied()
    }

    /// The tenant of a process.
    pub(super) fn owner(&self, process: ProcessId) -> Option<TenantId> {
        self.owners.get(&process).copied()
    }

    /// The tenant of a process.
    pub(super) fn of(&mut self, process: ProcessId) -> Option<&mut T> {
        let id = self.owner(process)?;
        self.tenants.get_mut(&id)
    }

    /// A process of a tenant joins; `new` makes the tenant of its account if it is not here yet.
    /// `None`: the process belongs to another tenant.
    pub(super) fn join(
        &mut self,
        now: Nanos,
        (id, process): (TenantId, ProcessId),
        (class, compute): (u16, Compute),
        new: impl FnOnce((Members, ComputeAccount)) -> T,
    ) -> Option<&mut T> {
        let Self {
            tenants,
            owners,
            debts,
        } = self;
        let owner = *owners.entry(process).or_insert(id);
        let tenant = || {
            let account = ComputeAccount::owing(debts.take(now, id), class, compute);
            new((Members::default(), account))
        };
        (owner == id).then(|| tenants.entry(id).or_insert_with(tenant))
    }

    /// A process has ended. Returns its tenant, if it was the tenant's last process.
    pub(super) fn leave(&mut self, now: Nanos, process: ProcessId) -> Option<TenantId> {
        let id = self.owners.remove(&process)?;
        let tenant = self.tenants.get_mut(&id)?;
        let waiting = tenant.waiting();
        tenant.members_mut().leave(process);
        tenant.count_wait(now, waiting);
        if !tenant.members().is_empty() {
            return None;
        }
        let gone = self.tenants.remove(&id)?;
        self.debts.keep(now, id, gone.account().allowance());
        Some(id)
    }

    /// Each tenant's weight: its request, or for tenants without one an equal part of the rest of
    /// the class.
    pub(super) fn weights(&self) -> Vec<(TenantId, u64)> {
        let terms = |tenant: &T| {
            let account = tenant.account();
            (account.class(), account.compute().request)
        };
        let requests = requests(self.tenants.values().map(terms));
        let deal = |(id, tenant): (&TenantId, &T)| {
            let (class, request) = terms(tenant);
            let of_class = requests.get(&class).copied().unwrap_or_default();
            (*id, weight(request, of_class))
        };
        self.tenants.iter().map(deal).collect()
    }

    /// A tenant's part in thousandths while all on the device want it.
    pub(super) fn part(&self, account: &ComputeAccount) -> u32 {
        let terms = |tenant: &T| tenant.account().terms();
        let all: Vec<_> = self.tenants.values().map(terms).collect();
        super::terms::part(account.terms(), &all)
    }

    /// Reports each tenant that shares the device and has a process without a gate: this process is
    /// not steered.
    pub(super) fn tell_ungated(&mut self, outputs: &mut impl Extend<Output>) {
        if self.tenants.len() < 2 {
            return;
        }
        for (id, tenant) in &mut self.tenants {
            let (id, ungated) = (*id, tenant.members().ungated());
            if tenant.account_mut().tell_ungated(ungated) {
                outputs.extend([Output::Ungated { tenant: id }]);
            }
        }
    }

    /// Everything that outlives the regime, which ends `now`, beside its last epoch, counters and
    /// outputs.
    pub(super) fn into_guests(
        self,
        now: Nanos,
        (epochs, tally, outputs): (u64, DeviceTally, VecDeque<Output>),
    ) -> Guests {
        let guest = |(id, tenant): (TenantId, T)| {
            let waiting = tenant.waiting();
            let (members, mut account) = tenant.into_guest();
            if let Some(since) = waiting {
                account.waited(now - since);
            }
            (id, members, account)
        };
        Guests {
            epochs,
            tally,
            outputs,
            tenants: self.tenants.into_iter().map(guest).collect(),
            debts: self.debts,
        }
    }

    /// Whether every process is one of its tenant's, and every tenant has one.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        for (id, tenant) in &self.tenants {
            if tenant.members().is_empty() {
                return Err(format!("{id:?} has no process here"));
            }
        }
        for (process, id) in &self.owners {
            let known = self.tenants.get(id);
            if !known.is_some_and(|tenant| tenant.members().has(*process)) {
                return Err(format!("{process:?} is not in {id:?}"));
            }
        }
        Ok(())
    }
}
