//! A device that its tenants share at the same time.
//!
//! All gates are open and the driver's own time slicing fills the gaps. Every other millisecond,
//! while several tenants are active, the daemon samples what each one got (`service`). A tenant
//! that is pending and behind its share makes the others first *yield*, then *hold* (`steer`):
//! where the one behind is open, closing those ahead suffices, and no handoff is needed. Nobody's
//! gaps idle the device.
//!
//! A state machine without a clock, like [`Schedule`](super::Schedule): [`Shared::handle`],
//! [`Shared::sample`] when [`Shared::next_sample`] has come, [`Shared::poll`].

mod books;
mod check;
mod gang;
mod members;
mod rules;
mod service;
mod steer;
mod tenant;
mod view;

pub(super) use gang::{Part, Wish};
pub use steer::Mode;

use super::schedule::{Input, Output};
use super::terms::LeasePolicy;
use super::word::{Lease, LeaseKind};
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;
use books::Books;
use rules::Rules;
use std::collections::{BTreeMap, VecDeque};
use steer::Steering;
use tenant::{Done, Gate, Tenant};

/// What a process's page says of its work on a device: claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Nanoseconds of device time that its completed work takes alone.
    pub service: u64,
    /// Nanoseconds in which it had work pending, but for what is pending now.
    pub busy: u64,
    /// Since when it has work pending.
    pub since: Option<Nanos>,
    /// Whether the service is mostly guessed.
    pub guessed: bool,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Shared {
    policy: LeasePolicy,
    rules: Rules,
    now: Nanos,
    tenants: BTreeMap<ContainerId, Tenant>,
    owners: BTreeMap<ProcessId, ContainerId>,
    steering: Steering,
    books: Books,
    /// When the last sample was.
    sampled: Nanos,
    next: Option<Nanos>,
    epochs: u64,
    outputs: VecDeque<Output>,
}

impl Shared {
    /// A device nobody is on, with epochs above `epochs`.
    pub(super) fn new(policy: LeasePolicy, epochs: u64) -> Self {
        Self {
            rules: Rules {
                slice: policy.slice,
            },
            policy,
            now: Nanos::ZERO,
            tenants: BTreeMap::new(),
            owners: BTreeMap::new(),
            steering: Steering::default(),
            books: Books::default(),
            sampled: Nanos::ZERO,
            next: None,
            epochs,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub(super) fn handle(&mut self, now: Nanos, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Joined {
                container,
                process,
                gated,
                class,
                compute,
            } => self.joined(container, process, gated, (class, compute)),
            Input::Away { process, away } => self.say(process, |member| {
                (member.away, member.waits, member.idle) = (away, false, false);
            }),
            Input::Left { process } => self.left(process),
            Input::Set {
                container,
                class,
                compute,
            } => self.set(container, class, compute),
            Input::Wanted { process, epoch } => {
                self.report(process, epoch, |member| member.waits = true);
            }
            Input::Drained { process, epoch } => {
                self.report(process, epoch, |member| member.drained = true);
            }
            Input::Idle { process, epoch } => {
                self.report(process, epoch, |member| member.idle = true);
            }
            Input::Busy { process, .. } => self.say(process, |member| member.idle = false),
            Input::Ending { .. } => {}
        }
        self.settle();
    }

    /// What the pages of processes say at `now`. Those left out did nothing.
    pub(super) fn sample(&mut self, now: Nanos, works: &[(ProcessId, Work)]) {
        self.now = self.now.max(now);
        let span = self.now - self.sampled;
        if span == Nanos::ZERO {
            return;
        }
        let done = self.read(works, span);
        self.sampled = self.now;
        let bills = service::settle(&mut self.tenants, &done, &self.rules, (self.now, span));
        self.audit(&done, &bills, span);
        self.pay(&done, &bills, span);
        self.next = None;
        self.settle();
    }

    /// Caps and guarantees are paid: by service beside others, by time in flight alone.
    fn pay(
        &mut self,
        done: &BTreeMap<ContainerId, Done>,
        bills: &BTreeMap<ContainerId, u64>,
        span: Nanos,
    ) {
        let all: u64 = done.values().map(|done| done.pending).sum();
        for (container, tenant) in &mut self.tenants {
            let done = done.get(container).copied().unwrap_or_default();
            let bill = Nanos(bills.get(container).copied().unwrap_or(0));
            let flight = Nanos(span.0 * done.pending / 1000);
            let alone = all - done.pending < 50 && !tenant.dry;
            tenant.pay_cap(
                span,
                (bill.0, alone.then_some(flight)),
                self.policy.most_debt,
            );
            if let Some(promise) = &mut tenant.promise {
                if done.pending > 0 {
                    promise.pass(span, bill);
                } else {
                    promise.idles(span);
                }
                let turn = promise.turn(self.policy.quantum, self.policy.shortest);
                tenant.due = if tenant.due {
                    promise.is_owed()
                } else {
                    promise.wait(turn) == Nanos::ZERO
                };
            }
        }
    }

    /// When pages are to be sampled next. `None` while nobody needs steering.
    pub(super) fn next_sample(&self) -> Option<Nanos> {
        self.next
    }

    /// The next thing to do, in order.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What a container's page says.
    pub(super) fn lease(&self, container: ContainerId) -> Option<Lease> {
        self.tenants.get(&container).map(|tenant| tenant.said)
    }

    /// The highest epoch given.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Other settings from now on.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.now = self.now.max(now);
        (self.policy, self.rules.slice) = (policy, policy.slice);
        self.settle();
    }

    /// Brings the gates to what they should be, and says what changed.
    fn settle(&mut self) {
        let active: Vec<ContainerId> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.is_active())
            .map(|(container, _)| *container)
            .collect();
        let mut gates = self
            .steering
            .steer(&self.tenants, &active, &self.rules, self.now);
        self.keep_gangs(&mut gates);
        for (container, gate) in gates {
            self.turn_gate(container, gate);
        }
        self.note_mode();
        self.speak();
        self.plan(&active);
    }

    /// When to sample next: never while one tenant is active alone, unless a cap says otherwise.
    fn plan(&mut self, active: &[ContainerId]) {
        let capped = |container: &&ContainerId| {
            let tenant = self.tenants.get(container);
            tenant.is_some_and(|tenant| tenant.bucket.is_some())
        };
        // The other devices of a gang that is idle here wait until its cap allows something again.
        let dry = self.tenants.values().any(|tenant| tenant.dry);
        let steered = dry || active.len() > 1 || active.iter().any(|container| capped(&container));
        if !steered {
            self.next = None;
            return;
        }
        let shut = self
            .tenants
            .values()
            .any(|tenant| tenant.gate == Gate::Shut && !tenant.dry);
        let tick = if shut { Rules::TICK_HELD } else { Rules::TICK };
        if self.next.is_none() {
            // What was done while nobody looked is not of this span.
            let fresh = self.now - self.sampled > Nanos(Rules::TICK.0 * 4);
            if fresh {
                self.sampled = self.now;
                for tenant in self.tenants.values_mut() {
                    tenant.begin();
                }
            }
            self.next = Some(self.now + tick);
        }
    }

    /// Gives a tenant's gate another position. An epoch that was closed is never opened again.
    fn turn_gate(&mut self, container: ContainerId, gate: Gate) {
        let Some(tenant) = self.tenants.get_mut(&container) else {
            return;
        };
        if tenant.gate == gate {
            return;
        }
        let kind = |gate: Gate| match gate {
            Gate::Free => 0,
            Gate::Noted | Gate::Slice(_) => 1,
            Gate::Shut => 2,
        };
        if kind(gate) != kind(tenant.gate) {
            tenant.since = self.now;
            if gate == Gate::Shut {
                tenant.holds += u64::from(!tenant.dry);
            } else {
                self.epochs += 1;
                tenant.epoch = self.epochs;
            }
            tenant.reopen();
        }
        tenant.gate = gate;
    }

    /// Says what changed, what closes first.
    fn speak(&mut self) {
        let now = self.now;
        let running: Vec<ContainerId> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.may_run(now))
            .map(|(container, _)| *container)
            .collect();
        let mut opened = Vec::new();
        for (container, tenant) in &mut self.tenants {
            let contended = running.iter().any(|other| other != container);
            let open = |slice| LeaseKind::Open {
                deadline: None,
                window: self.policy.window,
                contended,
                slice: Some(slice),
            };
            let kind = match tenant.gate {
                Gate::Free => LeaseKind::Free,
                Gate::Noted => open(Nanos::ZERO),
                Gate::Slice(slice) => open(slice),
                Gate::Shut => LeaseKind::Closed,
            };
            let lease = Lease {
                epoch: tenant.epoch,
                kind,
            };
            if tenant.said == lease {
                continue;
            }
            tenant.said = lease;
            let output = Output::Lease {
                container: *container,
                lease,
            };
            if kind == LeaseKind::Closed {
                self.outputs.push_back(output);
            } else {
                opened.push(output);
            }
        }
        self.outputs.extend(opened);
    }
}
