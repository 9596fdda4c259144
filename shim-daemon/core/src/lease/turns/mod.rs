//! One device's exclusive turns, as a state machine without a clock.
//!
//! Give it what happens with [`Schedule::handle`], the time with [`Schedule::advance`] when
//! [`Schedule::next_timeout`] has come, and carry out what [`Schedule::poll`] says. At most one
//! tenant holds the device or drains from it; those that do not drain in the bound stay beside it
//! until they do.
//!
//! * A turn costs all the time from its grant until the last process has drained: what was denied to
//!   others, whatever was done with it. A tenant that takes more than its turn owes it (`clock`).
//! * Higher classes of priority go first, always; an explicit request is kept against them.
//! * A cap is kept in every window, also alone.
//! * A holder that has nothing to do gives way at once when somebody wants, and keeps the device
//!   while nobody does.
//! * A holder that does not drain holds nobody up for longer than a bound: the next works beside it.

mod billing;
mod check;
mod clock;
mod deal;
mod tenant;
mod view;

use super::account::ComputeAccount;
use super::input::{Input, Output, Report, closed_first};
use super::members::Members;
use super::page::{Lease, LeaseKind};
use super::roster::{Guest, Roster, Tenant as _};
use super::terms::{Compute, LeasePolicy};
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;
use clock::Marks;
use std::collections::VecDeque;
use tenant::{Phase, Tenant};

/// See the module's page.
#[derive(Debug)]
pub struct Schedule {
    policy: LeasePolicy,
    now: Nanos,
    roster: Roster<Tenant>,
    /// Who holds the device or drains from it in the bound.
    holder: Option<ContainerId>,
    marks: Marks,
    epochs: u64,
    outputs: VecDeque<Output>,
    wake: Option<Nanos>,
}

impl Schedule {
    /// A device nobody is on.
    pub fn new(policy: LeasePolicy) -> Self {
        Self::with(Nanos::ZERO, policy, 0, Vec::new())
    }

    /// A device whose `guests` come from another regime, with epochs above `epochs`.
    pub(super) fn with(
        now: Nanos,
        policy: LeasePolicy,
        mut epochs: u64,
        guests: Vec<Guest>,
    ) -> Self {
        let mark = clock::Reading::default();
        let tenants = guests.into_iter().map(|(container, mut members, account)| {
            epochs += 1;
            members.begin_regime(true);
            (container, Tenant::new((members, account), mark, epochs))
        });
        let roster = Roster::new(tenants.collect());
        let mut schedule = Self {
            policy,
            now,
            roster,
            holder: None,
            marks: Marks::default(),
            epochs,
            outputs: VecDeque::new(),
            wake: None,
        };
        schedule.settle();
        schedule
    }

    /// Everybody here, and the highest epoch given, for another regime.
    pub(super) fn into_guests(self) -> (u64, Vec<Guest>) {
        (self.epochs, self.roster.into_guests())
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.roster.processes()
    }

    /// Whether a tenant has a process here.
    pub(super) fn has(&self, container: ContainerId) -> bool {
        self.roster.get(container).is_some()
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
            } => self.joined(container, (process, gated), (class, compute)),
            Input::Away { process, away } => {
                if let Some(tenant) = self.roster.of(process) {
                    let drained = !tenant.is_open();
                    tenant.members_mut().set_away(process, away);
                    tenant.members_mut().set_drained(process, drained);
                }
            }
            Input::Left { process } => self.left(process),
            Input::Set {
                container,
                class,
                compute,
            } => {
                let (now, mark) = (self.now, self.marks.of(class));
                if let Some(tenant) = self.roster.get_mut(container) {
                    tenant.set(now, mark, (class, compute));
                    self.reweigh();
                }
            }
            Input::Reported {
                process,
                epoch,
                report,
            } => self.reported(process, epoch, report),
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

    /// What a tenant's page says.
    pub fn lease(&self, container: ContainerId) -> Option<Lease> {
        self.roster.get(container).map(|tenant| tenant.said)
    }

    /// Other settings from now on; turns under way get new deadlines.
    pub fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        self.forgive();
        self.settle();
    }

    fn joined(
        &mut self,
        container: ContainerId,
        (process, gated): (ProcessId, bool),
        (class, compute): (u16, Compute),
    ) {
        let (epoch, mark, many) = (self.epochs + 1, self.marks.of(class), self.roster.len());
        let new = || {
            let parts = (Members::default(), ComputeAccount::new(class, compute));
            Tenant::new(parts, mark, epoch)
        };
        let Some(tenant) = self.roster.join(container, process, new) else {
            return;
        };
        let drained = !tenant.is_open();
        tenant.members_mut().join(process, gated, drained);
        if self.roster.len() > many {
            self.epochs = epoch;
            self.reweigh();
        }
        self.roster.tell_ungated(&mut self.outputs);
    }

    fn left(&mut self, process: ProcessId) {
        if let Some(gone) = self.roster.leave(process) {
            self.holder = self.holder.filter(|holder| *holder != gone);
            self.reweigh();
        }
    }

    fn reported(&mut self, process: ProcessId, epoch: u64, report: Report) {
        let Some(container) = self.roster.owner(process) else {
            return;
        };
        let (now, turn) = (self.now, self.length(container));
        let Some(tenant) = self.roster.get_mut(container) else {
            return;
        };
        let present = tenant.epoch == epoch;
        let heard = match report {
            Report::Wanted => present && tenant.phase != Phase::Free,
            Report::Drained | Report::Idle => present && tenant.is_in_turn(),
            Report::Busy => true,
        };
        if !heard {
            return;
        }
        if report == Report::Wanted {
            tenant.ask(now, turn);
        }
        tenant.members_mut().report(process, report);
    }

    /// Brings everything to where it should be now, and says what changed.
    fn settle(&mut self) {
        self.free_who_is_alone();
        self.note_caps();
        while self.step() {
            self.note_caps();
        }
        self.publish();
        self.wake = self.next_wake();
    }

    /// A tenant that is alone and has no cap is free; all others take turns.
    fn free_who_is_alone(&mut self) {
        let alone = self.roster.len() == 1;
        for container in self.roster.all().keys().copied().collect::<Vec<_>>() {
            let epoch = self.epochs + 1;
            let Some(tenant) = self.roster.get_mut(container) else {
                continue;
            };
            let free = alone && !tenant.account().is_capped();
            if free && tenant.phase != Phase::Free {
                tenant.set_free(epoch);
                (self.epochs, self.holder) = (epoch, None);
            } else if !free && tenant.phase == Phase::Free {
                // It works, for all that is known: it goes on in a turn of its own.
                (tenant.clock, tenant.phase) = (tenant.clock.max(tenant.mark), Phase::Out);
                self.grant(container, false);
            }
        }
    }

    /// Says what changed, what closes first.
    fn publish(&mut self) {
        let contended = self.first_in_line().is_some();
        let mut changed = Vec::new();
        for container in self.roster.all().keys().copied().collect::<Vec<_>>() {
            let Some(lease) = self.word(container, contended) else {
                continue;
            };
            if let Some(tenant) = self.roster.get_mut(container)
                && std::mem::replace(&mut tenant.said, lease) != lease
            {
                changed.push((container, lease));
            }
        }
        self.outputs.extend(closed_first(changed));
    }

    /// What a tenant's page should say. A later deadline is a new grant.
    fn word(&mut self, container: ContainerId, contended: bool) -> Option<Lease> {
        let tenant = self.roster.get(container)?;
        let kind = match tenant.phase {
            Phase::Free => LeaseKind::Free,
            Phase::Out | Phase::Closing(_) | Phase::Overrun { .. } => LeaseKind::Closed,
            Phase::Holding(turn) => LeaseKind::Open {
                deadline: self.until(tenant, &turn),
                window: self.window(tenant.account().class()),
                contended,
                slice: None,
            },
        };
        let later = tenant.said.epoch == tenant.epoch && is_later(&tenant.said.kind, &kind);
        if later {
            self.epochs += 1;
            let epoch = self.epochs;
            self.roster.get_mut(container)?.extend(epoch);
        }
        let epoch = self.roster.get(container)?.epoch;
        Some(Lease { epoch, kind })
    }

    /// The most un-drained work of a class's holder: little if a tenant is here that must not wait.
    fn window(&self, class: u16) -> Nanos {
        let mut others = self.roster.all().values();
        if others.any(|other| other.account().class() > class) {
            self.policy.urgent_window
        } else {
            self.policy.window
        }
    }
}

/// Whether `new` moves the deadline of an open lease to a later time.
fn is_later(old: &LeaseKind, new: &LeaseKind) -> bool {
    let (LeaseKind::Open { deadline: old, .. }, LeaseKind::Open { deadline: new, .. }) = (old, new)
    else {
        return false;
    };
    old.is_some_and(|old| new.is_none_or(|new| new > old))
}
