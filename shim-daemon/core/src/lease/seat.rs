//! A tenant on one device: what both regimes keep alike, and its state in the present one.

use super::account::ComputeAccount;
use super::members::Members;
use super::page::{Lease, LeaseKind};
use crate::time::Nanos;

/// A tenant's state in a regime.
pub(super) trait State {
    /// Whether its gate is closed and no turn of it goes on: a call that waits there wants the
    /// device.
    fn shuts_out(&self) -> bool;

    /// Whether a process that has just come may have work on the device.
    fn admits(&self) -> bool;
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Seat<S> {
    pub(super) members: Members,
    pub(super) account: ComputeAccount,
    /// Names its present or last turn.
    pub(super) epoch: u64,
    /// The content of its control page.
    pub(super) said: Lease,
    /// When it last began to want the device at its closed gate.
    pub(super) asked: Nanos,
    pub(super) own: S,
}

impl<S: State> Seat<S> {
    pub(super) fn new(
        (members, account): (Members, ComputeAccount),
        (epoch, now): (u64, Nanos),
        own: S,
    ) -> Self {
        Self {
            members,
            account,
            epoch,
            said: Lease::FREE,
            asked: now,
            own,
        }
    }

    pub(super) fn class(&self) -> u16 {
        self.account.class
    }

    /// Its control page says this from now on. Returns the lease if that is something else than
    /// before.
    pub(super) fn say(&mut self, kind: LeaseKind) -> Option<Lease> {
        let epoch = self.epoch;
        let lease = Lease { epoch, kind };
        (std::mem::replace(&mut self.said, lease) != lease).then_some(lease)
    }

    /// Whether what it says is of its present or last turn.
    pub(super) fn is_told(&self) -> bool {
        self.said.epoch == self.epoch
    }

    /// Since when its gate is closed while it wants the device.
    pub(super) fn waiting(&self) -> Option<Nanos> {
        (self.own.shuts_out() && self.members.waits()).then_some(self.asked)
    }

    /// It waited before, `since` then: counts that if it does not any more.
    pub(super) fn count_wait(&mut self, now: Nanos, since: Option<Nanos>) {
        let over = since.filter(|_| self.waiting().is_none());
        if let Some(since) = over {
            self.account.waited(now - since);
        }
    }
}
