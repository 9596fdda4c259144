//! The tenants of one device and their processes: what both regimes keep alike.

use super::account::ComputeAccount;
use super::input::Output;
use super::members::Members;
use super::terms::{requests, weight};
use crate::ids::{ContainerId, ProcessId};
use std::collections::BTreeMap;

/// The state that a tenant keeps when its device changes its regime.
pub(super) type Guest = (ContainerId, Members, ComputeAccount);

/// A regime's tenant: members, account, and the regime's own state.
pub(super) trait Tenant {
    fn members(&self) -> &Members;
    fn members_mut(&mut self) -> &mut Members;
    fn account(&self) -> &ComputeAccount;
    fn account_mut(&mut self) -> &mut ComputeAccount;
    fn into_guest(self) -> (Members, ComputeAccount);
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Roster<T> {
    tenants: BTreeMap<ContainerId, T>,
    owners: BTreeMap<ProcessId, ContainerId>,
}

impl<T: Tenant> Roster<T> {
    pub(super) fn new(tenants: BTreeMap<ContainerId, T>) -> Self {
        let mut owners = BTreeMap::new();
        for (container, tenant) in &tenants {
            let processes = tenant.members().processes();
            owners.extend(processes.map(|process| (process, *container)));
        }
        Self { tenants, owners }
    }

    pub(super) fn get(&self, container: ContainerId) -> Option<&T> {
        self.tenants.get(&container)
    }

    pub(super) fn get_mut(&mut self, container: ContainerId) -> Option<&mut T> {
        self.tenants.get_mut(&container)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ContainerId, &T)> {
        let all = self.tenants.iter();
        all.map(|(container, tenant)| (*container, tenant))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ContainerId, &mut T)> {
        let all = self.tenants.iter_mut();
        all.map(|(container, tenant)| (*container, tenant))
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
    pub(super) fn owner(&self, process: ProcessId) -> Option<ContainerId> {
        self.owners.get(&process).copied()
    }

    /// The tenant of a process.
    pub(super) fn of(&mut self, process: ProcessId) -> Option<&mut T> {
        let container = self.owner(process)?;
        self.tenants.get_mut(&container)
    }

    /// A process of a tenant joins; `new` makes the tenant if it is not here yet. `None`: the
    /// process belongs to another tenant.
    pub(super) fn join(
        &mut self,
        container: ContainerId,
        process: ProcessId,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let owner = *self.owners.entry(process).or_insert(container);
        (owner == container).then(|| self.tenants.entry(container).or_insert_with(new))
    }

    /// A process has ended. Returns its tenant, if it was the tenant's last process.
    pub(super) fn leave(&mut self, process: ProcessId) -> Option<ContainerId> {
        let container = self.owners.remove(&process)?;
        let tenant = self.tenants.get_mut(&container)?;
        tenant.members_mut().leave(process);
        if !tenant.members().is_empty() {
            return None;
        }
        self.tenants.remove(&container);
        Some(container)
    }

    /// Each tenant's weight: its request, or for tenants without one an equal part of the rest of
    /// the class.
    pub(super) fn weights(&self) -> Vec<(ContainerId, u64)> {
        let terms = |tenant: &T| {
            let account = tenant.account();
            (account.class(), account.compute().request)
        };
        let requests = requests(self.tenants.values().map(terms));
        let deal = |(container, tenant): (&ContainerId, &T)| {
            let (class, request) = terms(tenant);
            let of_class = requests.get(&class).copied().unwrap_or_default();
            (*container, weight(request, of_class))
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
        for (container, tenant) in &mut self.tenants {
            let (container, ungated) = (*container, tenant.members().ungated());
            if tenant.account_mut().tell_ungated(ungated) {
                outputs.extend([Output::Ungated { container }]);
            }
        }
    }

    /// Everything that outlives the regime.
    pub(super) fn into_guests(self) -> Vec<Guest> {
        let guest = |(container, tenant): (ContainerId, T)| {
            let (members, account) = tenant.into_guest();
            (container, members, account)
        };
        self.tenants.into_iter().map(guest).collect()
    }

    /// Whether every process is one of its tenant's, and every tenant has one.
    ///
    /// # Errors
    /// The first violated invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        for (container, tenant) in &self.tenants {
            if tenant.members().is_empty() {
                return Err(format!("{container:?} has no process here"));
            }
        }
        for (process, container) in &self.owners {
            let known = self.tenants.get(container);
            if !known.is_some_and(|tenant| tenant.members().has(*process)) {
                return Err(format!("{process:?} is not in {container:?}"));
            }
        }
        Ok(())
    }
}
