//! The node's tenants and their processes.
//!
//! Three invariants hold between two calls: a known process belongs to a known tenant; the queue
//! holds the tenants that are not admitted; the ladders hold the tenants that are being ended.

mod making;
mod process;
mod tenant;

use super::ladder::{Ending, Rung};
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::spec::TenantSpec;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
pub(super) use process::{Opened, Process};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
pub(super) use tenant::Tenant;

/// An entry of the queue: higher priority first, then earlier arrival.
type QueueEntry = (Reverse<u16>, Nanos, TenantId);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    tenants: BTreeMap<TenantId, Tenant>,
    processes: BTreeMap<ProcessId, Process>,
    queue: BTreeSet<QueueEntry>,
    ladders: BTreeSet<TenantId>,
}

impl Tenants {
    pub(super) fn get(&self, tenant: TenantId) -> Option<&Tenant> {
        self.tenants.get(&tenant)
    }

    /// For changes that no list depends on.
    pub(super) fn get_mut(&mut self, tenant: TenantId) -> Option<&mut Tenant> {
        self.tenants.get_mut(&tenant)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let all = self.tenants.iter();
        all.map(|(tenant, known)| (*tenant, known))
    }

    pub(super) fn priority(&self, tenant: TenantId) -> u16 {
        let known = self.tenants.get(&tenant);
        known.map_or(0, |known| known.spec.priority)
    }

    /// Registers a tenant; it waits for its admission.
    pub(super) fn register(&mut self, tenant: TenantId, spec: TenantSpec, now: Nanos) {
        let known = Tenant::new(spec, now);
        self.queue.insert(queue_entry(tenant, &known));
        self.tenants.insert(tenant, known);
    }

    /// It may run, and does so `since`.
    pub(super) fn admit(&mut self, tenant: TenantId, since: Nanos, now: Nanos) -> Option<&Tenant> {
        let known = self.tenants.get_mut(&tenant)?;
        self.queue.remove(&queue_entry(tenant, known));
        (known.admitted, known.worked) = (Some(since), now);
        Some(known)
    }

    /// It has other limits. A tenant that waits for its admission may move in the queue.
    pub(super) fn set_spec(&mut self, tenant: TenantId, spec: TenantSpec) -> Option<&Tenant> {
        let known = self.tenants.get_mut(&tenant)?;
        let was = self.queue.remove(&queue_entry(tenant, known));
        known.spec = spec;
        if was {
            self.queue.insert(queue_entry(tenant, known));
        }
        Some(known)
    }

    /// Removes a tenant without processes.
    pub(super) fn remove(&mut self, tenant: TenantId) {
        if let Some(known) = self.tenants.remove(&tenant) {
            self.queue.remove(&queue_entry(tenant, &known));
            self.ladders.remove(&tenant);
        }
    }

    /// The tenants that wait for admission, best first.
    pub(super) fn queued(&self) -> impl Iterator<Item = TenantId> {
        self.queue.iter().map(|(.., tenant)| *tenant)
    }

    /// Of those, the ones with a priority above this.
    pub(super) fn queued_above(&self, priority: u16) -> impl Iterator<Item = TenantId> {
        let above = move |(theirs, ..): &&QueueEntry| theirs.0 > priority;
        let above = self.queue.iter().take_while(above);
        above.map(|(.., tenant)| *tenant)
    }

    /// Puts a tenant on the ladder. `false` if it is on it already.
    pub(super) fn end(&mut self, tenant: TenantId, ending: Ending) -> bool {
        let known = self.tenants.get_mut(&tenant);
        let Some(known) = known.filter(|known| known.ending.is_none()) else {
            return false;
        };
        known.ending = Some(ending);
        self.ladders.insert(tenant)
    }

    /// The next rung of the ladder it is on.
    pub(super) fn climb(&mut self, tenant: TenantId, rung: Rung) {
        let known = self.tenants.get_mut(&tenant);
        if let Some(ending) = known.and_then(|known| known.ending.as_mut()) {
            ending.rung = rung;
        }
    }

    /// It is off the ladder.
    pub(super) fn step_down(&mut self, tenant: TenantId) {
        self.ladders.remove(&tenant);
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.ending = None;
        }
    }

    /// Those on a ladder.
    pub(super) fn ending(&self) -> impl Iterator<Item = (TenantId, &Tenant, Ending)> {
        self.ladders.iter().filter_map(|tenant| {
            let known = self.tenants.get(tenant)?;
            Some((*tenant, known, known.ending?))
        })
    }

    /// A process of a tenant joins. A known process, or one of an unknown tenant, does not.
    pub(super) fn join(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        (adopted, gated): (bool, bool),
    ) {
        if let Some(known) = self.tenants.get_mut(&tenant)
            && !self.processes.contains_key(&process)
        {
            known.processes.insert(process);
            let joined = Process::new(tenant, adopted, gated);
            self.processes.insert(process, joined);
        }
    }

    /// A process is no more.
    pub(super) fn leave(&mut self, process: ProcessId) -> Option<Process> {
        let left = self.processes.remove(&process)?;
        if let Some(known) = self.tenants.get_mut(&left.tenant()) {
            known.processes.remove(&process);
        }
        Some(left)
    }

    pub(super) fn process(&self, process: ProcessId) -> Option<&Process> {
        self.processes.get(&process)
    }

    pub(super) fn process_mut(&mut self, process: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&process)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    pub(super) fn processes_mut(&mut self) -> impl Iterator<Item = (ProcessId, &mut Process)> {
        let all = self.processes.iter_mut();
        all.map(|(process, known)| (*process, known))
    }

    /// A tenant's processes.
    pub(super) fn members(&self, tenant: TenantId) -> impl Iterator<Item = (ProcessId, &Process)> {
        let known = self.tenants.get(&tenant);
        let members = known.into_iter().flat_map(|known| &known.processes);
        members.filter_map(|process| Some((*process, self.processes.get(process)?)))
    }

    /// Whether all that the module's page says holds.
    ///
    /// # Errors
    /// The first thing that does not, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let members: usize = self
            .tenants
            .values()
            .map(|known| known.processes.len())
            .sum();
        if members != self.processes.len() {
            return Err(format!(
                "{members} members, {} processes",
                self.processes.len()
            ));
        }
        let mut all = self.tenants.keys();
        all.try_for_each(|tenant| self.check_one(*tenant))
    }

    /// Whether the account of a tenant has the overhead of its processes on a device.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_overhead(
        &self,
        tenant: TenantId,
        device: DeviceId,
        booked: Bytes,
    ) -> Result<(), String> {
        let opened = self
            .members(tenant)
            .filter_map(|(_, process)| process.on(device));
        let overhead: Bytes = opened.map(Opened::overhead).sum();
        match overhead == booked {
            true => Ok(()),
            false => Err(format!(
                "{tenant:?} has an overhead of {booked:?}, its processes of {overhead:?}"
            )),
        }
    }

    /// [`Self::check`] for one tenant.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_one(&self, tenant: TenantId) -> Result<(), String> {
        if let Some(known) = self.tenants.get(&tenant) {
            let strange = known.processes.iter().find(|process| {
                let process = self.processes.get(process);
                process.is_none_or(|process| process.tenant() != tenant)
            });
            if let Some(process) = strange {
                return Err(format!("{tenant:?}: {process:?} is not its own"));
            }
            if known.admitted.is_some() == self.queue.contains(&queue_entry(tenant, known)) {
                return Err(format!("{tenant:?} queues and is admitted, or neither"));
            }
            if known.ending.is_some() != self.ladders.contains(&tenant) {
                return Err(format!(
                    "{tenant:?} is on a ladder and does not end, or ends off it"
                ));
            }
        }
        Ok(())
    }
}

fn queue_entry(tenant: TenantId, known: &Tenant) -> QueueEntry {
    (Reverse(known.spec.priority), known.registered, tenant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Why;
    use crate::spec::{Oversubscribe, Preemptible};

    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);

    fn spec(priority: u16) -> TenantSpec {
        TenantSpec {
            quotas: Vec::new(),
            implied: Vec::new(),
            compute: Vec::new(),
            priority,
            on_collision: Vec::new(),
            wait_timeout: Nanos::ZERO,
            idle_after: Nanos::ZERO,
            preemptible: Preemptible::Never,
            oversubscribe: Oversubscribe::Off,
            idle_end: None,
            run_limit: None,
            gang: None,
        }
    }

    fn two() -> Tenants {
        let mut tenants = Tenants::default();
        for (tenant, priority) in [(A, 1), (B, 9)] {
            tenants.register(tenant, spec(priority), Nanos(tenant.0));
        }
        tenants
    }

    #[test]
    fn the_queue_follows_priorities_and_ends_with_admission() {
        let mut tenants = two();
        assert_eq!(tenants.queued().collect::<Vec<_>>(), [B, A]);
        tenants.set_spec(B, spec(0));
        assert_eq!(tenants.queued().collect::<Vec<_>>(), [A, B]);
        tenants.admit(A, Nanos::ZERO, Nanos::ZERO);
        tenants.set_spec(A, spec(0));
        assert_eq!(tenants.queued().collect::<Vec<_>>(), [B]);
        assert_eq!(tenants.check(), Ok(()));
    }

    #[test]
    fn a_process_is_its_first_tenants_until_it_leaves() {
        let mut tenants = two();
        let process = ProcessId(7);
        tenants.join(process, A, (true, true));
        tenants.join(process, B, (true, true));
        assert_eq!(tenants.members(A).count(), 1);
        assert_eq!(tenants.members(B).count(), 0);
        assert_eq!(tenants.check(), Ok(()));
        assert!(
            tenants
                .leave(process)
                .is_some_and(|left| left.tenant() == A)
        );
        assert_eq!((tenants.members(A).count(), tenants.check()), (0, Ok(())));
    }

    #[test]
    fn lists_that_do_not_agree_are_found() {
        let mut unqueued = two();
        unqueued.queue.clear();
        assert!(unqueued.check().is_err());
        let mut off_the_ladder = two();
        let (why, rung) = (Why::Idle, Rung::Terminated);
        assert!(off_the_ladder.end(A, Ending { why, rung }));
        assert_eq!(off_the_ladder.check(), Ok(()));
        off_the_ladder.ladders.clear();
        assert!(off_the_ladder.check().is_err());
        let mut orphaned = two();
        orphaned.join(ProcessId(7), A, (true, true));
        orphaned.processes.clear();
        assert!(orphaned.check().is_err());
    }
}
