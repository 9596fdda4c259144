//! The node's tenants and their processes.
//!
//! Three invariants hold between two calls: a known process belongs to a known tenant; the queue
//! holds the tenants that are not admitted; the ladders hold the tenants that are being ended.

mod container;
mod process;

use super::ladder::{Ending, Rung};
use crate::ids::{ContainerId, ProcessId};
use crate::spec::ContainerSpec;
use crate::time::Nanos;
pub(super) use container::Container;
pub(super) use process::{Opened, Process};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A place in the queue: higher priority first, then earlier arrival.
type Place = (Reverse<u16>, Nanos, ContainerId);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    containers: BTreeMap<ContainerId, Container>,
    processes: BTreeMap<ProcessId, Process>,
    queue: BTreeSet<Place>,
    ladders: BTreeSet<ContainerId>,
}

impl Tenants {
    pub(super) fn get(&self, container: ContainerId) -> Option<&Container> {
        self.containers.get(&container)
    }

    /// For changes that no list depends on.
    pub(super) fn get_mut(&mut self, container: ContainerId) -> Option<&mut Container> {
        self.containers.get_mut(&container)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (ContainerId, &Container)> {
        let all = self.containers.iter();
        all.map(|(container, known)| (*container, known))
    }

    pub(super) fn priority(&self, container: ContainerId) -> u16 {
        let known = self.containers.get(&container);
        known.map_or(0, |known| known.spec.priority)
    }

    /// Registers a tenant; it waits for its admission.
    pub(super) fn register(&mut self, container: ContainerId, spec: ContainerSpec, now: Nanos) {
        let known = Container::new(spec, now);
        self.queue.insert(place(container, &known));
        self.containers.insert(container, known);
    }

    /// It may run, and does so `since`.
    pub(super) fn admit(
        &mut self,
        container: ContainerId,
        since: Nanos,
        now: Nanos,
    ) -> Option<&Container> {
        let known = self.containers.get_mut(&container)?;
        self.queue.remove(&place(container, known));
        (known.admitted, known.worked) = (Some(since), now);
        Some(known)
    }

    /// It has other limits. Waits it for its admission, it may have another place.
    pub(super) fn set_spec(
        &mut self,
        container: ContainerId,
        spec: ContainerSpec,
    ) -> Option<&Container> {
        let known = self.containers.get_mut(&container)?;
        let was = self.queue.remove(&place(container, known));
        known.spec = spec;
        if was {
            self.queue.insert(place(container, known));
        }
        Some(known)
    }

    /// Removes a tenant without processes.
    pub(super) fn remove(&mut self, container: ContainerId) {
        if let Some(known) = self.containers.remove(&container) {
            self.queue.remove(&place(container, &known));
            self.ladders.remove(&container);
        }
    }

    /// The tenants that wait for admission, best first.
    pub(super) fn queued(&self) -> impl Iterator<Item = ContainerId> {
        self.queue.iter().map(|(.., container)| *container)
    }

    /// Of those, the ones with a priority above this.
    pub(super) fn queued_above(&self, priority: u16) -> impl Iterator<Item = ContainerId> {
        let above = move |(theirs, ..): &&Place| theirs.0 > priority;
        let above = self.queue.iter().take_while(above);
        above.map(|(.., container)| *container)
    }

    /// Puts a tenant on the ladder. `false` if it is on it already.
    pub(super) fn end(&mut self, container: ContainerId, ending: Ending) -> bool {
        let known = self.containers.get_mut(&container);
        let Some(known) = known.filter(|known| known.ending.is_none()) else {
            return false;
        };
        known.ending = Some(ending);
        self.ladders.insert(container)
    }

    /// The next rung of the ladder it is on.
    pub(super) fn climb(&mut self, container: ContainerId, rung: Rung) {
        let known = self.containers.get_mut(&container);
        if let Some(ending) = known.and_then(|known| known.ending.as_mut()) {
            ending.rung = rung;
        }
    }

    /// It is off the ladder.
    pub(super) fn step_down(&mut self, container: ContainerId) {
        self.ladders.remove(&container);
        if let Some(known) = self.containers.get_mut(&container) {
            known.ending = None;
        }
    }

    /// Those on a ladder.
    pub(super) fn ending(&self) -> impl Iterator<Item = (ContainerId, &Container, Ending)> {
        self.ladders.iter().filter_map(|container| {
            let known = self.containers.get(container)?;
            Some((*container, known, known.ending?))
        })
    }

    /// A process of a tenant joins. A known process, or one of an unknown tenant, does not.
    pub(super) fn join(
        &mut self,
        process: ProcessId,
        container: ContainerId,
        (adopted, gated): (bool, bool),
    ) {
        if let Some(known) = self.containers.get_mut(&container)
            && !self.processes.contains_key(&process)
        {
            known.processes.insert(process);
            let joined = Process::new(container, adopted, gated);
            self.processes.insert(process, joined);
        }
    }

    /// A process is no more.
    pub(super) fn leave(&mut self, process: ProcessId) -> Option<Process> {
        let left = self.processes.remove(&process)?;
        if let Some(known) = self.containers.get_mut(&left.container()) {
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
    pub(super) fn members(
        &self,
        container: ContainerId,
    ) -> impl Iterator<Item = (ProcessId, &Process)> {
        let known = self.containers.get(&container);
        let members = known.into_iter().flat_map(|known| &known.processes);
        members.filter_map(|process| Some((*process, self.processes.get(process)?)))
    }

    /// Whether all that the module's page says holds.
    ///
    /// # Errors
    /// The first thing that does not, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let members: usize = self
            .containers
            .values()
            .map(|known| known.processes.len())
            .sum();
        if members != self.processes.len() {
            return Err(format!(
                "{members} members, {} processes",
                self.processes.len()
            ));
        }
        let mut all = self.containers.keys();
        all.try_for_each(|container| self.check_one(*container))
    }

    /// [`Self::check`] for one container.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_one(&self, container: ContainerId) -> Result<(), String> {
        if let Some(known) = self.containers.get(&container) {
            let strange = known.processes.iter().find(|process| {
                let process = self.processes.get(process);
                process.is_none_or(|process| process.container() != container)
            });
            if let Some(process) = strange {
                return Err(format!("{container:?}: {process:?} is not its own"));
            }
            if known.admitted.is_some() == self.queue.contains(&place(container, known)) {
                return Err(format!("{container:?} queues and is admitted, or neither"));
            }
            if known.ending.is_some() != self.ladders.contains(&container) {
                return Err(format!(
                    "{container:?} is on a ladder and does not end, or ends off it"
                ));
            }
        }
        Ok(())
    }
}

fn place(container: ContainerId, known: &Container) -> Place {
    (Reverse(known.spec.priority), known.registered, container)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Why;
    use crate::spec::Preemptible;

    const A: ContainerId = ContainerId(1);
    const B: ContainerId = ContainerId(2);

    fn spec(priority: u16) -> ContainerSpec {
        ContainerSpec {
            quotas: Vec::new(),
            implied: Vec::new(),
            compute: Vec::new(),
            priority,
            on_collision: Vec::new(),
            wait_timeout: Nanos::ZERO,
            idle_after: Nanos::ZERO,
            preemptible: Preemptible::Never,
            idle_end: None,
            run_limit: None,
            gang: None,
        }
    }

    fn two() -> Tenants {
        let mut tenants = Tenants::default();
        for (container, priority) in [(A, 1), (B, 9)] {
            tenants.register(container, spec(priority), Nanos(container.0));
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
    fn a_process_is_its_first_containers_until_it_leaves() {
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
                .is_some_and(|left| left.container() == A)
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
