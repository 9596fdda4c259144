//! One device's exclusive turns, as a state machine without a clock.
//!
//! After [`Schedule::pass`] an input is taken in, or it is [`Schedule::next_timeout`], and
//! [`Schedule::settle`] carries out what is due. At most one tenant holds the device or drains
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

use super::input::Report;
use super::members::Members;
use super::page::LeaseKind;
use super::roster::Roster;
use super::seat;
use super::terms::{Compute, LeasePolicy};
use crate::ids::{ProcessId, TenantId};
use crate::time::Nanos;
use clock::Marks;
use tenant::{Phase, State, Tenant};

/// See the module's page.
#[derive(Debug)]
pub(super) struct Schedule {
    policy: LeasePolicy,
    now: Nanos,
    pub(super) roster: Roster<State>,
    marks: Marks,
    /// When the last turn ended or was ordered to, while no other has begun.
    handing_on: Option<Nanos>,
}

impl Schedule {
    /// A device without tenants.
    pub(super) fn new(policy: LeasePolicy) -> Self {
        Self::with(Nanos::ZERO, policy, Roster::<State>::default())
    }

    /// A device with the tenants of another regime.
    pub(super) fn with<S: seat::State>(now: Nanos, policy: LeasePolicy, roster: Roster<S>) -> Self {
        let mut schedule = Self {
            policy,
            now,
            roster: roster.into_regime(now, State::default),
            marks: Marks::default(),
            handing_on: None,
        };
        schedule.settle();
        schedule
    }

    /// For another regime, which begins `now`.
    pub(super) fn into_roster(mut self, now: Nanos) -> Roster<State> {
        self.pass(now);
        self.roster
    }

    /// Other settings from now on. Turns under way keep their length.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.pass(now);
        self.policy = policy;
        self.forgive();
        self.settle();
    }

    pub(super) fn joined(&mut self, process: (TenantId, ProcessId, bool), terms: (u16, Compute)) {
        let new = State::at(self.marks.of(terms.0));
        if self.roster.join(self.now, process, terms, new) {
            self.reweigh();
        }
    }

    pub(super) fn left(&mut self, process: ProcessId) {
        if self.roster.leave(self.now, process) {
            self.reweigh();
        }
    }

    /// A tenant's terms changed.
    pub(super) fn set(&mut self, id: TenantId, terms: (u16, Compute)) {
        let (now, mark) = (self.now, self.marks.of(terms.0));
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.set(now, mark, terms);
            self.reweigh();
        } else {
            self.roster.set_absent(now, id, terms.1);
        }
    }

    /// A process can report, and is waited for, or not.
    pub(super) fn set_there(&mut self, process: ProcessId, set: impl FnOnce(&mut Members)) {
        let Some(id) = self.roster.owner(process) else {
            return;
        };
        let (now, turn) = (self.now, self.length(id));
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.set_there(process, (now, turn), set);
        }
    }

    pub(super) fn reported(&mut self, process: ProcessId, epoch: u64, report: Report) {
        let Some(id) = self.roster.owner(process) else {
            return;
        };
        let (now, turn) = (self.now, self.length(id));
        if let Some(tenant) = self.roster.get_mut(id) {
            tenant.report(process, (epoch, report), (now, turn));
        }
    }

    /// Brings the state up to date, and outputs the changes.
    pub(super) fn settle(&mut self) {
        self.free_who_is_alone();
        self.count();
        self.note_caps();
        while self.step() {
            self.note_caps();
        }
        self.publish();
    }

    /// Says what changed, what closes first. A later deadline is a new grant.
    fn publish(&mut self) {
        let held = self.holder_kind();
        let closed = LeaseKind::Closed {
            contended: self.roster.len() > 1,
        };
        let kind = |tenant: &Tenant| match tenant.own.phase {
            Phase::Free => LeaseKind::Free,
            Phase::Holding(_) => held.unwrap_or(closed),
            Phase::Out | Phase::Closing(_) | Phase::Asked(_) | Phase::Overrun { .. } => closed,
        };
        let later = |one: &Tenant| one.is_told() && is_later(&one.said.kind, &kind(one));
        for id in self.roster.ids(later) {
            self.roster.renew(id);
        }
        self.roster.publish(|_, tenant| kind(tenant));
    }

    /// The lease to write into the holder's page during its turn.
    fn holder_kind(&self) -> Option<LeaseKind> {
        let (_, tenant) = self.holder()?;
        let Phase::Holding(turn) = tenant.own.phase else {
            return None;
        };
        Some(LeaseKind::Open {
            deadline: self.until(tenant, &turn),
            window: self.window(tenant.class()),
            contended: self.first_in_line().is_some(),
            slice: None,
        })
    }

    /// The most un-drained work of a class's holder: little if a tenant is here that must not wait.
    fn window(&self, class: u16) -> Nanos {
        let mut others = self.roster.tenants();
        if others.any(|other| other.class() > class) {
            LeasePolicy::URGENT_WINDOW
        } else {
            self.policy.window()
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
