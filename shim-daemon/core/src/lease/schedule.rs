//! One device's turns, as a state machine without a clock.
//!
//! Give it what happens with [`Schedule::handle`], the time with [`Schedule::advance`] when [`Schedule::next_timeout`] has
//! come, and carry out what [`Schedule::poll`] says. At most one container holds the device or drains from it; one that
//! is about to have drained, and those that do not drain in the bound, stay beside it until they do.

use super::clock::Marks;
use super::entity::{Entity, Phase};
use super::index::Index;
use super::terms::{Compute, LeasePolicy};
use super::word::{Lease, LeaseKind};
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// What happens on a device. What cannot be, is ignored: reports come from clients, late, doubled or forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process has a context here. Said again it changes whether the process is gated.
    Joined {
        /// Its container.
        container: ContainerId,
        /// Which.
        process: ProcessId,
        /// Whether its gate can be closed.
        gated: bool,
        /// The container's priority.
        class: u16,
        /// The container's share.
        compute: Compute,
    },
    /// See [`crate::Event::Away`].
    Away {
        /// Which.
        process: ProcessId,
        /// Whether it is.
        away: bool,
    },
    /// A process is dead.
    Left {
        /// Which.
        process: ProcessId,
    },
    /// A container's terms changed.
    Set {
        /// Whose.
        container: ContainerId,
        /// Its priority.
        class: u16,
        /// Its share.
        compute: Compute,
    },
    /// See [`crate::Event::Wanted`].
    Wanted {
        /// Who.
        process: ProcessId,
        /// The turn that is over.
        epoch: u64,
    },
    /// See [`crate::Event::Drained`].
    Drained {
        /// Who.
        process: ProcessId,
        /// The turn it speaks of.
        epoch: u64,
    },
    /// See [`crate::Event::Ending`].
    Ending {
        /// Who.
        process: ProcessId,
        /// The turn it speaks of.
        epoch: u64,
        /// In how long it will have drained, by estimate.
        left: Nanos,
    },
    /// See [`crate::Event::Idle`].
    Idle {
        /// Who.
        process: ProcessId,
        /// The turn it speaks of.
        epoch: u64,
    },
    /// See [`crate::Event::Busy`].
    Busy {
        /// Who.
        process: ProcessId,
        /// The turn it speaks of.
        epoch: u64,
    },
}

/// What is to be done or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store this lease.
    Lease {
        /// Whose.
        container: ContainerId,
        /// What its page must say.
        lease: Lease,
    },
    /// See [`crate::Notice::Overrun`].
    Overrun {
        /// Who.
        container: ContainerId,
        /// How long ago its gate was closed.
        after: Nanos,
    },
    /// See [`crate::Notice::Ungated`].
    Ungated {
        /// Who.
        container: ContainerId,
    },
}

/// See the module's page.
#[derive(Debug)]
pub struct Schedule {
    pub(super) policy: LeasePolicy,
    pub(super) now: Nanos,
    pub(super) entities: BTreeMap<ContainerId, Entity>,
    pub(super) owners: BTreeMap<ProcessId, ContainerId>,
    /// Who holds the device or drains from it in the bound, unless it is about to have drained.
    pub(super) holder: Option<ContainerId>,
    pub(super) marks: Marks,
    pub(super) index: Index,
    /// Whose page may have to say something else since it was last looked at.
    pub(super) touched: Vec<ContainerId>,
    pub(super) epochs: u64,
    pub(super) outputs: VecDeque<Output>,
    /// What is decided for this device with others in view.
    pub(super) gang: super::gang::Word,
    wake: Option<Nanos>,
}

impl Schedule {
    /// A device nobody is on.
    pub fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            now: Nanos::ZERO,
            entities: BTreeMap::new(),
            owners: BTreeMap::new(),
            holder: None,
            marks: Marks::default(),
            index: Index::default(),
            touched: Vec::new(),
            epochs: 0,
            outputs: VecDeque::new(),
            gang: super::gang::Word::default(),
            wake: None,
        }
    }

    /// A device nobody is on, whose epochs are above `epochs`.
    pub(super) fn above(policy: LeasePolicy, epochs: u64) -> Self {
        Self {
            epochs,
            ..Self::new(policy)
        }
    }

    /// The highest epoch given.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.pass(now);
        match input {
            Input::Joined {
                container,
                process,
                gated,
                class,
                compute,
            } => self.joined(container, process, gated, (class, compute)),
            Input::Away { process, away } => self.away(process, away),
            Input::Left { process } => self.left(process),
            Input::Set {
                container,
                class,
                compute,
            } => self.set(container, class, compute),
            Input::Wanted { process, epoch } => self.wanted(process, epoch),
            Input::Drained { process, epoch } => self.drained(process, epoch),
            Input::Ending {
                process,
                epoch,
                left,
            } => self.ending(process, epoch, left),
            Input::Idle { process, epoch } => self.idle(process, epoch),
            Input::Busy { process, epoch } => self.busy(process, epoch),
        }
        self.settle();
    }

    /// Lets time pass without an input: call it when [`Self::next_timeout`] has come.
    pub fn advance(&mut self, now: Nanos) {
        self.pass(now);
        self.settle();
    }

    /// When `advance` is wanted if nothing happens before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.wake
    }

    /// The next thing to do, in order.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What a container's page says.
    pub fn lease(&self, container: ContainerId) -> Option<Lease> {
        self.entities.get(&container).map(|entity| entity.said)
    }

    /// Other settings from now on; turns under way get new deadlines.
    pub fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        self.put_all();
        for container in self.entities.keys().copied().collect::<Vec<_>>() {
            self.forgive(container);
        }
        self.settle();
    }

    /// Brings everything to where it should be now, and says what changed.
    pub(super) fn settle(&mut self) {
        self.regime();
        while self.step() {}
        self.speak();
        self.wake = self.next_wake();
    }

    /// Who is alone and without a cap is free; everybody else takes turns.
    fn regime(&mut self) {
        // Nobody was free when the third came.
        if self.entities.len() > 2 {
            return;
        }
        let alone = self.entities.len() == 1;
        for container in self.entities.keys().copied().collect::<Vec<_>>() {
            let Some(entity) = self.entities.get(&container) else {
                continue;
            };
            let free = alone && entity.bucket.is_none();
            if free && entity.phase != Phase::Free {
                self.epochs += 1;
                let epoch = self.epochs;
                self.holder = None;
                self.touch(container, |entity, _| {
                    (entity.epoch, entity.phase) = (epoch, Phase::Free);
                });
            } else if !free && entity.phase == Phase::Free {
                // It works, for all that is known: it goes on in a turn of its own.
                self.touch(container, |entity, mark| {
                    (entity.clock, entity.phase) = (entity.clock.max(mark), Phase::Out);
                });
                self.grant(container, false);
                return;
            }
        }
    }

    /// Says what changed, what closes first.
    fn speak(&mut self) {
        let mut opened = Vec::new();
        let contended = self.is_contended();
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(self.holder);
        touched.sort_unstable();
        touched.dedup();
        for container in touched.drain(..) {
            let Some(lease) = self.word(container, contended) else {
                continue;
            };
            let Some(entity) = self.entities.get_mut(&container) else {
                continue;
            };
            if entity.said == lease {
                continue;
            }
            entity.said = lease;
            let output = Output::Lease { container, lease };
            if lease.kind == LeaseKind::Closed {
                self.outputs.push_back(output);
            } else {
                opened.push(output);
            }
        }
        self.outputs.extend(opened);
        // What was touched meanwhile was so by what was said.
        self.touched = touched;
    }

    /// What a container's page should say. A later deadline is a new grant.
    fn word(&mut self, container: ContainerId, contended: bool) -> Option<Lease> {
        let entity = self.entities.get(&container)?;
        let kind = match entity.phase {
            Phase::Free => LeaseKind::Free,
            Phase::Out
            | Phase::Kept { .. }
            | Phase::Closing { .. }
            | Phase::Ending { .. }
            | Phase::Overrun { .. } => LeaseKind::Closed,
            Phase::Holding(turn) => LeaseKind::Open {
                deadline: self.until(container, &turn),
                window: self.window_of(entity, &turn),
                contended,
                slice: None,
            },
        };
        if extends(&entity.said, entity.epoch, &kind) {
            self.epochs += 1;
            let epoch = self.epochs;
            self.touch(container, |entity, _| {
                entity.epoch = epoch;
                entity.reopen();
            });
        }
        let epoch = self.entities.get(&container)?.epoch;
        Some(Lease { epoch, kind })
    }

    /// The most un-drained work of a class's holder: little if somebody may come who must not wait.
    pub(super) fn window(&self, class: u16) -> Nanos {
        if self.index.highest().is_some_and(|highest| highest > class) {
            self.policy.urgent_window
        } else {
            self.policy.window
        }
    }
}

/// Whether `kind` moves the deadline of an open lease to a later time.
fn extends(said: &Lease, epoch: u64, kind: &LeaseKind) -> bool {
    let (LeaseKind::Open { deadline: old, .. }, LeaseKind::Open { deadline: new, .. }) =
        (said.kind, kind)
    else {
        return false;
    };
    said.epoch == epoch && old.is_some_and(|old| new.is_none_or(|new| new > old))
}
