//! One device's exclusive turns, as a state machine without a clock.
//!
//! Feed events to [`Schedule::handle`], call [`Schedule::advance`] at [`Schedule::next_timeout`],
//! and carry out the outputs of [`Schedule::poll`]. At most one tenant holds the device or drains
//! from it. A tenant that does not drain within the bound runs beside the next until it drains.
//!
//! * A turn costs the time from its grant until the last process has drained: the time denied to
//!   other tenants, used or not. Time beyond the turn is a debt of the tenant (`clock`).
//! * Higher classes of priority go first, always; an explicit request is kept against them.
//! * A cap is kept in every window, also alone.
//! * An idle holder gives way as soon as another tenant wants the device, and keeps it
//!   otherwise.
//! * A holder that does not drain delays others for a bounded time: then the next runs beside it.

mod billing;
mod check;
mod clock;
mod deal;
mod line;
mod tenant;
mod view;

use super::input::{Input, Output, Report, closed_first};
use super::members::Members;
use super::page::{Lease, LeaseKind};
use super::roster::{Guests, Roster, Tenant as _};
use super::terms::{Compute, LeasePolicy};
use super::view::DeviceTally;
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use clock::{Marks, Reading};
use std::collections::VecDeque;
use tenant::{Phase, Tenant};

/// See the module's page.
#[derive(Debug)]
pub struct Schedule {
    policy: LeasePolicy,
    now: Nanos,
    roster: Roster<Tenant>,
    /// The one tenant whose turn has begun and that neither has drained nor overran.
    holder: Option<TenantId>,
    /// The last epoch issued: they only rise.
    epochs: u64,
    marks: Marks,
    outputs: VecDeque<Output>,
    wake: Option<Nanos>,
    tally: DeviceTally,
    /// When the last turn ended or was ordered to, while no other has begun.
    handing_on: Option<Nanos>,
}

impl Schedule {
    /// A device without tenants.
    pub fn new(policy: LeasePolicy) -> Self {
        Self::with(Nanos::ZERO, policy, Guests::default())
    }

    /// A device whose `guests` come from another regime, with epochs above theirs.
    pub(super) fn with(now: Nanos, policy: LeasePolicy, guests: Guests) -> Self {
        let mut epochs = guests.epochs;
        let tenants = guests
            .tenants
            .into_iter()
            .map(|(id, mut members, account)| {
                epochs += 1;
                members.begin_regime(true);
                let parts = (members, account);
                (id, Tenant::new(parts, Reading::default(), epochs))
            });
        let roster = Roster::new(tenants.collect(), guests.debts);
        let mut schedule = Self {
            policy,
            now,
            roster,
            holder: None,
            epochs,
            marks: Marks::default(),
            outputs: guests.outputs,
            wake: None,
            tally: guests.tally,
            handing_on: None,
        };
        schedule.settle();
        schedule
    }

    /// All that another regime needs, which begins `now`.
    pub(super) fn into_guests(mut self, now: Nanos) -> Guests {
        self.pass(now);
        self.roster
            .into_guests(self.now, (self.epochs, self.tally, self.outputs))
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.roster.processes()
    }

    /// Whether a tenant has a process here.
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.roster.get(id).is_some()
    }

    /// Takes in what happened. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, input: Input) {
        self.pass(now);
        match input {
            Input::Joined {
                tenant: id,
                process,
                gated,
                class,
                compute,
            } => self.joined(id, (process, gated), (class, compute)),
            Input::Away { process, away } => {
                self.set_there(process, |members| members.set_away(process, away));
            }
            Input::Sealed { process, sealed } => {
                self.set_there(process, |members| members.set_sealed(process, sealed));
            }
            Input::Left { process } => {
                if let Some(gone) = self.roster.leave(self.now, process) {
                    self.holder = self.holder.filter(|holder| *holder != gone);
                    self.reweigh();
                }
            }
            Input::Set {
                tenant: id,
                class,
                compute,
            } => {
                let (now, mark) = (self.now, self.marks.of(class));
                if let Some(tenant) = self.roster.get_mut(id) {
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

    /// When to call `advance` if no event comes before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.wake
    }

    /// The next output, in order.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The content of a tenant's page.
    pub fn lease(&self, id: TenantId) -> Option<Lease> {
        self.roster.get(id).map(Tenant::said)
    }

    /// The counters of the device since it was added.
    pub(super) fn tally(&self) -> &DeviceTally {
        &self.tally
    }

    /// Other settings from now on; turns under way get new deadlines.
    pub fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        self.forgive();
        self.settle();
    }

    fn joined(&mut self, id: TenantId, (process, gated): (ProcessId, bool), terms: (u16, Compute)) {
        let (mark, epoch, many) = (self.marks.of(terms.0), self.epochs + 1, self.roster.len());
        let new = |parts| Tenant::new(parts, mark, epoch);
        let joined = self.roster.join(self.now, (id, process), terms, new);
        if let Some(tenant) = joined {
            let drained = !tenant.is_open();
            tenant.members_mut().join(process, gated, drained);
        }
        if self.roster.len() > many {
            self.epochs = epoch;
            self.reweigh();
        }
        self.roster.tell_ungated(&mut self.outputs);
    }

    /// A process can report, and is waited for, or not.
    fn set_there(&mut self, process: ProcessId, set: impl FnOnce(&mut Members)) {
        let Some(id) = self.roster.owner(process) else {
            return;
        };
        let (now, turn) = (self.now, self.length(id));
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.set_there(process, (now, turn), set);
        }
    }

    fn reported(&mut self, process: ProcessId, epoch: u64, report: Report) {
        let Some(id) = self.roster.owner(process) else {
            return;
        };
        let (now, turn) = (self.now, self.length(id));
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.report(process, (epoch, report), (now, turn));
        }
    }

    /// Brings the state up to date, and outputs the changes.
    fn settle(&mut self) {
        self.free_who_is_alone();
        self.note_caps();
        while self.step() {
            self.note_caps();
        }
        self.publish();
        self.wake = self.next_wake();
    }

    /// Says what changed, what closes first. A later deadline is a new grant.
    fn publish(&mut self) {
        let held = self.holder_kind();
        let later = |((_, tenant), kind): ((_, &Tenant), _)| {
            tenant.is_told() && is_later(&tenant.said().kind, &kind)
        };
        if self.holder().zip(held).is_some_and(later)
            && let Some(tenant) = self.holder.and_then(|id| self.roster.get_mut(id))
        {
            self.epochs += 1;
            tenant.extend(self.epochs);
        }
        let mut changed = Vec::new();
        for (id, tenant) in self.roster.iter_mut() {
            let kind = match tenant.phase() {
                Phase::Free => LeaseKind::Free,
                Phase::Holding(_) => held.unwrap_or(LeaseKind::Closed),
                Phase::Out | Phase::Closing(_) | Phase::Overrun { .. } => LeaseKind::Closed,
            };
            changed.extend(tenant.say(kind).map(|lease| (id, lease)));
        }
        self.outputs.extend(closed_first(changed));
    }

    /// The lease to write into the holder's page during its turn.
    fn holder_kind(&self) -> Option<LeaseKind> {
        let (_, tenant) = self.holder()?;
        let Phase::Holding(turn) = tenant.phase() else {
            return None;
        };
        Some(LeaseKind::Open {
            deadline: self.until(tenant, &turn),
            window: self.window(tenant.account().class()),
            contended: self.first_in_line().is_some(),
            slice: None,
        })
    }

    /// The most un-drained work of a class's holder: little if a tenant is here that must not wait.
    fn window(&self, class: u16) -> Nanos {
        let mut others = self.roster.tenants();
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
