//! One device's time: shared, or dealt in exclusive turns.
//!
//! A device is [`Shared`] unless the node's settings say turns. Whatever the regime, its clients
//! see one control page and epochs that only rise.

use super::schedule::{Input, Output, Schedule};
use super::shared::{Mode, Part, Shared, Work};
use super::terms::{LeasePolicy, Sharing};
use super::view::{ShareView, SharingView};
use super::word::Lease;
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;
use std::borrow::{Borrow, BorrowMut};
use std::collections::{BTreeMap, VecDeque};

/// What is known of a process apart from the regime.
#[derive(Clone, Copy, Debug)]
struct Known {
    joined: Input,
    away: bool,
}

/// See the module's page.
#[derive(Debug)]
pub struct DeviceTime {
    policy: LeasePolicy,
    /// `None` while the device is dealt in turns.
    shared: Option<Shared>,
    /// Empty while the device is shared.
    turns: Schedule,
    processes: BTreeMap<ProcessId, Known>,
    outputs: VecDeque<Output>,
}

impl DeviceTime {
    /// A device nobody is on.
    pub fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            shared: (policy.sharing == Sharing::Together).then(|| Shared::new(policy, 0)),
            turns: Schedule::new(policy),
            processes: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.remember(input);
        match &mut self.shared {
            Some(shared) => shared.handle(now, input),
            None => self.turns.handle(now, input),
        }
    }

    fn remember(&mut self, input: Input) {
        match input {
            Input::Joined { process, .. } => {
                let known = Known {
                    joined: input,
                    away: false,
                };
                self.processes.entry(process).or_insert(known).joined = input;
            }
            Input::Left { process } => {
                self.processes.remove(&process);
            }
            Input::Away { process, away } => {
                if let Some(known) = self.processes.get_mut(&process) {
                    known.away = away;
                }
            }
            Input::Set {
                container,
                class,
                compute,
            } => self.retell(container, (class, compute)),
            _ => {}
        }
    }

    fn retell(&mut self, changed: ContainerId, terms: (u16, super::Compute)) {
        for known in self.processes.values_mut() {
            if let Input::Joined {
                container,
                class,
                compute,
                ..
            } = &mut known.joined
                && *container == changed
            {
                (*class, *compute) = terms;
            }
        }
    }

    /// Lets time pass without an input: call it when [`Self::next_timeout`] has come.
    pub fn advance(&mut self, now: Nanos) {
        if self.shared.is_none() {
            self.turns.advance(now);
        }
    }

    /// When the pages of its processes are to be read next. `None` while nobody needs it.
    pub fn next_sample(&self) -> Option<Nanos> {
        self.shared.as_ref().and_then(Shared::next_sample)
    }

    /// The processes whose pages are read.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.keys().copied()
    }

    /// What the pages of processes said at `now`.
    pub fn sampled(&mut self, now: Nanos, works: &[(ProcessId, Work)]) {
        if let Some(shared) = &mut self.shared {
            shared.sample(now, works);
        }
    }

    /// When `advance` is wanted if nothing happens before. A shared device wants
    /// [samples](Self::next_sample) only.
    pub fn next_timeout(&self) -> Option<Nanos> {
        match &self.shared {
            Some(_) => None,
            None => self.turns.next_timeout(),
        }
    }

    /// The next thing to do, in order.
    pub fn poll(&mut self) -> Option<Output> {
        let earlier = self.outputs.pop_front();
        earlier.or_else(|| match &mut self.shared {
            Some(shared) => shared.poll(),
            None => self.turns.poll(),
        })
    }

    /// What a container's page says.
    pub fn lease(&self, container: ContainerId) -> Option<Lease> {
        match &self.shared {
            Some(shared) => shared.lease(container),
            None => self.turns.lease(container),
        }
    }

    /// A container's share, with the time up to `now` billed as it will be.
    pub fn share(&self, container: ContainerId, now: Nanos) -> Option<ShareView> {
        match &self.shared {
            Some(shared) => shared.share(container),
            None => self.turns.share(container, now),
        }
    }

    /// Whether a container shares the device with others, in no turns.
    pub(super) fn shares_with(&self, container: ContainerId) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.has(container))
    }

    /// How the part of a gang stands on the device. `None` where it is dealt in turns.
    pub(super) fn gang_part(&self, container: ContainerId) -> Option<Part> {
        self.shared.as_ref()?.gang_part(container)
    }

    /// A container belongs to a gang that is open or closed (`Some(true)`), or to none.
    pub(super) fn bind(&mut self, now: Nanos, container: ContainerId, shut: Option<bool>) {
        if let Some(shared) = &mut self.shared {
            shared.bind(now, container, shut);
        }
    }

    /// How the device is shared now and how often that changed; `None` while it is dealt in turns.
    pub fn mode(&self) -> Option<(Mode, u64)> {
        self.shared.as_ref().map(Shared::mode)
    }

    /// How the device is shared, for people to look at.
    pub fn sharing(&self, now: Nanos) -> SharingView {
        let Some(shared) = &self.shared else {
            return SharingView::default();
        };
        let ((mode, changes), (lately, off)) = (shared.mode(), shared.audited(now));
        SharingView {
            mode: Some(mode),
            changes,
            lately,
            off,
        }
    }

    /// Other settings from now on.
    pub fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        let regime = self.policy.sharing != policy.sharing;
        self.policy = policy;
        match &mut self.shared {
            Some(shared) => shared.set_policy(now, policy),
            None => self.turns.set_policy(now, policy),
        }
        if regime {
            self.change(now, policy.sharing);
        }
    }

    /// Goes over to the other regime. What the processes have under way goes on beside the first
    /// turn.
    fn change(&mut self, now: Nanos, sharing: Sharing) {
        self.outputs
            .extend(std::iter::from_fn(|| match &mut self.shared {
                Some(shared) => shared.poll(),
                None => self.turns.poll(),
            }));
        let epochs = match &self.shared {
            Some(shared) => shared.epochs(),
            None => self.turns.epochs(),
        };
        self.turns = Schedule::above(self.policy, epochs);
        self.shared = (sharing == Sharing::Together).then(|| Shared::new(self.policy, epochs));
        let known: Vec<(ProcessId, Known)> = self
            .processes
            .iter()
            .map(|(at, known)| (*at, *known))
            .collect();
        for (process, known) in known {
            self.handle(now, known.joined);
            if known.away {
                let away = true;
                self.handle(now, Input::Away { process, away });
            }
        }
    }

    /// Recomputes what must hold. `Err` says what does not; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        match &self.shared {
            Some(shared) => shared.check(),
            None => self.turns.check(),
        }
    }
}

/// Gangs take turns: they see the turns of all devices, which a shared device has none of.
impl Borrow<Schedule> for DeviceTime {
    fn borrow(&self) -> &Schedule {
        &self.turns
    }
}

impl BorrowMut<Schedule> for DeviceTime {
    fn borrow_mut(&mut self) -> &mut Schedule {
        &mut self.turns
    }
}
