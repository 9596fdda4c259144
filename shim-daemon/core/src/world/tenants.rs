//! The node's tenants and their processes.
//!
//! Three things hold between two calls: a process is one of its container's for as long as it is
//! known, the queue is of those that are not admitted, and the ladders are of those that are being
//! ended.

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

    /// To change what no list depends on.
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

    /// A container comes; it waits for its admission.
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

    /// Forgets a container that has no process any more.
    pub(super) fn remove(&mut self, container: ContainerId) {
        if let Some(known) = self.containers.remove(&container) {
            self.queue.remove(&place(container, &known));
            self.ladders.remove(&container);
        }
    }

    /// Those that wait for admission, best first.
    pub(super) fn queued(&self) -> impl Iterator<Item = ContainerId> {
        self.queue.iter().map(|(.., container)| *container)
    }

    /// Of those, the ones with a priority above this.
    pub(super) fn queued_above(&self, priority: u16) -> impl Iterator<Item = ContainerId> {
        let above = move |(theirs, ..): &&Place| theirs.0 > priority;
        let above = self.queue.iter().take_while(above);
        above.map(|(.., container)| *container)
    }

    /// Puts a container on the ladder. False: it is on it.
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

    /// A process of a container comes. One that is known, or whose container is not, does not.
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

    /// A container's processes.
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
        for (container, known) in &self.containers {
            let strange = known.processes.iter().find(|process| {
                let process = self.processes.get(process);
                process.is_none_or(|process| process.container() != *container)
            });
            if let Some(process) = strange {
                return Err(format!("{container:?}: {process:?} is not its own"));
            }
            if known.admitted.is_some() == self.queue.contains(&place(*container, known)) {
                return Err(format!("{container:?} queues and is admitted, or neither"));
            }
            if known.ending.is_some() != self.ladders.contains(container) {
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
