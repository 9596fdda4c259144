//! Processes come to a device and go, and terms change: who is here, in which class, with which weight.

use super::bucket::Bucket;
use super::entity::{Entity, Member, Phase};
use super::promise::Promise;
use super::schedule::{Output, Schedule};
use super::terms::{Compute, requests, weight};
use crate::ids::{ContainerId, ProcessId};
use std::collections::BTreeSet;

impl Schedule {
    pub(super) fn joined(
        &mut self,
        container: ContainerId,
        process: ProcessId,
        gated: bool,
        (class, compute): (u16, Compute),
    ) {
        if self
            .owners
            .get(&process)
            .is_some_and(|owner| *owner != container)
        {
            return;
        }
        let fresh = !self.entities.contains_key(&container);
        if fresh {
            self.epochs += 1;
            let at = (self.epochs, self.now);
            let came = Entity::new(class, compute, self.marks.of(class), at);
            self.entities.insert(container, came);
        }
        self.owners.insert(process, container);
        self.touch(container, |entity, _| {
            let open = matches!(entity.phase, Phase::Free | Phase::Holding(_));
            let member = entity.members.entry(process).or_insert(Member {
                gated,
                away: false,
                wants: false,
                idle: false,
                ending: false,
                drained: !open,
            });
            member.gated = gated;
        });
        if fresh {
            self.reweigh();
        }
        self.tell_ungated();
    }

    /// A process that is away wants nothing and is not waited for; back again, it is as if it had just come.
    pub(super) fn away(&mut self, process: ProcessId, away: bool) {
        let Some(container) = self.owners.get(&process).copied() else {
            return;
        };
        self.touch(container, |entity, _| {
            let open = matches!(entity.phase, Phase::Free | Phase::Holding(_));
            if let Some(member) = entity.members.get_mut(&process) {
                (member.away, member.wants, member.idle) = (away, false, false);
                member.drained = !open;
            }
        });
    }

    pub(super) fn left(&mut self, process: ProcessId) {
        let Some(container) = self.owners.remove(&process) else {
            return;
        };
        let left = self.touch(container, |entity, _| {
            entity.members.remove(&process);
            entity.members.is_empty()
        });
        if left == Some(true) {
            self.entities.remove(&container);
            if self.holder == Some(container) {
                self.holder = None;
            }
            self.put(container);
            self.reweigh();
        }
    }

    pub(super) fn set(&mut self, container: ContainerId, class: u16, compute: Compute) {
        let (now, new) = (self.now, self.marks.of(class));
        self.touch(container, |entity, old| {
            if entity.class != class {
                // Its debt comes with it into the other class.
                let debt = entity.clock.since(old, entity.weight);
                (entity.clock, entity.seen) = (new.after(debt, entity.weight), new);
            }
            (entity.class, entity.compute) = (class, compute);
            entity.bucket = compute.cap().map(|cap| Bucket::under(entity.bucket, cap));
            entity.promise = compute
                .request
                .map(|part| Promise::under(entity.promise, part));
            if let Phase::Holding(turn) = &mut entity.phase {
                turn.runs_dry = entity.bucket.map(|bucket| now + bucket.lasts());
            }
        });
        self.reweigh();
    }

    /// Deals the weights of each class: a request is its own weight, and what is left is shared equally by those without.
    /// Deficits stay what they are in time.
    fn reweigh(&mut self) {
        let terms = |entity: &Entity| (entity.class, entity.compute.request);
        let requests = requests(self.entities.values().map(terms));
        let now = self.now;
        for container in self.entities.keys().copied().collect::<Vec<_>>() {
            self.touch(container, |entity, mark| {
                let of_class = requests.get(&entity.class).copied().unwrap_or_default();
                let weight = weight(entity.compute.request, of_class);
                let (ahead, behind) = (
                    entity.clock.since(mark, entity.weight),
                    mark.since(entity.clock, entity.weight),
                );
                entity.clock = mark.after(ahead, weight).before(behind, weight);
                if let Phase::Holding(turn) = &mut entity.phase {
                    (turn.from, turn.read) = (entity.clock, now);
                }
                entity.weight = weight;
            });
            self.forgive(container);
        }
        let used: BTreeSet<u16> = requests.into_keys().collect();
        self.marks.keep(|class| used.contains(&class));
    }

    /// Says of each container that shares the device and has a process without a gate that this one takes no turns.
    fn tell_ungated(&mut self) {
        if self.entities.len() < 2 {
            return;
        }
        for (container, entity) in &mut self.entities {
            let ungated = entity.members.values().any(|member| !member.gated);
            if ungated && !std::mem::replace(&mut entity.told_ungated, true) {
                self.outputs.push_back(Output::Ungated {
                    container: *container,
                });
            }
        }
    }
}
