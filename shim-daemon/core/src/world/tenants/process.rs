//! One connected process, and its memory on devices beside its charges.

use super::making::Making;
use crate::ids::{DeviceId, TenantId};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// A connected process.
#[derive(Debug)]
pub(in crate::world) struct Process {
    tenant: TenantId,
    /// Whether it obeys this daemon's control page.
    adopted: bool,
    /// Whether its gate can be closed.
    gated: bool,
    /// Whether its library can seal it and move its memory; and whether it heeds what is withheld
    /// of a return.
    movable: bool,
    /// Whether it is connected.
    here: bool,
    /// Whether it is the previous daemon's and has not come.
    late: bool,
    opened: BTreeMap<DeviceId, Opened>,
}

impl Process {
    pub(super) fn new(tenant: TenantId, adopted: bool, gated: bool) -> Self {
        Self {
            tenant,
            adopted,
            gated,
            movable: false,
            here: true,
            late: false,
            opened: BTreeMap::new(),
        }
    }

    pub(in crate::world) fn tenant(&self) -> TenantId {
        self.tenant
    }

    pub(in crate::world) fn is_adopted(&self) -> bool {
        self.adopted
    }

    pub(in crate::world) fn is_gated(&self) -> bool {
        self.gated
    }

    /// It was counted, and has come.
    pub(in crate::world) fn comes(&mut self, gated: bool) {
        (self.gated, self.late) = (gated, false);
    }

    pub(in crate::world) fn is_late(&self) -> bool {
        self.late
    }

    /// It is counted, and has not come.
    pub(in crate::world) fn set_late(&mut self) {
        self.late = !self.adopted;
    }

    pub(in crate::world) fn is_movable(&self) -> bool {
        self.movable
    }

    pub(in crate::world) fn set_movable(&mut self) {
        self.movable = true;
    }

    pub(in crate::world) fn is_here(&self) -> bool {
        self.here
    }

    pub(in crate::world) fn set_here(&mut self, here: bool) {
        self.here = here;
    }

    pub(in crate::world) fn adopt(&mut self) {
        self.adopted = true;
    }

    /// Its memory on a device. `None`: it has no context there.
    pub(in crate::world) fn on(&self, device: DeviceId) -> Option<&Opened> {
        self.opened.get(&device)
    }

    pub(in crate::world) fn on_mut(&mut self, device: DeviceId) -> Option<&mut Opened> {
        self.opened.get_mut(&device)
    }

    /// The devices on which it has a context.
    pub(in crate::world) fn devices(&self) -> Vec<DeviceId> {
        self.opened.keys().copied().collect()
    }

    pub(in crate::world) fn opened_mut(&mut self) -> impl Iterator<Item = (DeviceId, &mut Opened)> {
        let opened = self.opened.iter_mut();
        opened.map(|(device, opened)| (*device, opened))
    }

    /// It has a context on a device, for which so much is set aside if nothing is yet.
    pub(in crate::world) fn open(
        &mut self,
        device: DeviceId,
        overhead: Bytes,
        now: Nanos,
    ) -> &mut Opened {
        let opened = self.opened.entry(device);
        opened.or_insert_with(|| Opened::reserved(overhead, now))
    }

    /// It has a first context on a device, for which so much is set aside.
    pub(in crate::world) fn open_first(&mut self, device: DeviceId, overhead: Bytes, now: Nanos) {
        let opened = self.open(device, overhead, now);
        if opened.bare {
            (opened.overhead, opened.measured, opened.bare) = (overhead, false, false);
            (opened.since, opened.due) = (now, now);
        }
    }

    /// It makes a further context on a device. It may have none there.
    pub(in crate::world) fn open_bare(&mut self, device: DeviceId, now: Nanos) -> &mut Opened {
        let opened = self.opened.entry(device);
        opened.or_insert_with(|| Opened {
            measured: true,
            bare: true,
            ..Opened::reserved(Bytes::ZERO, now)
        })
    }

    /// Nothing of it is on a device any more.
    pub(in crate::world) fn close(&mut self, device: DeviceId) -> Option<Opened> {
        self.opened.remove(&device)
    }
}

/// A process's memory on a device beside its charges.
#[derive(Clone, Debug)]
pub(in crate::world) struct Opened {
    /// What was measured, or is expected of the first context.
    overhead: Bytes,
    /// What is set aside for further contexts.
    making: Making,
    /// Whether nothing was ever set aside for a first context.
    bare: bool,
    /// When it said that it has no context left.
    without: Option<Nanos>,
    measured: bool,
    /// Whether it is of the previous daemon's time, and was not measured since: nothing tells what
    /// it takes while its tenant is out.
    found: bool,
    /// Whether the device ever showed it.
    shown: bool,
    /// When it was set aside for.
    since: Nanos,
    /// Since when the device could have shown it.
    due: Nanos,
    /// Whether a context of the process is complete.
    made: bool,
    /// The credit that it presented after a restart, and the charged part of it.
    presented: Option<(Bytes, Bytes)>,
}

impl Opened {
    /// A context that was not measured yet.
    fn reserved(overhead: Bytes, since: Nanos) -> Self {
        Self {
            overhead,
            making: Making::default(),
            bare: false,
            without: None,
            measured: false,
            found: false,
            shown: false,
            since,
            due: since,
            made: false,
            presented: None,
        }
    }

    pub(in crate::world) fn overhead(&self) -> Bytes {
        self.overhead + self.making.bytes()
    }

    /// What is set aside for a context that is not complete yet: the first, or the dearest.
    pub(in crate::world) fn awaited_context(&self) -> Bytes {
        let first = match self.measured || self.made {
            true => Bytes::ZERO,
            false => self.overhead,
        };
        first.max(self.making.awaited())
    }

    /// What is set aside for further contexts.
    pub(in crate::world) fn making(&self) -> &Making {
        &self.making
    }

    /// The same, to be changed. The tenant's account is to follow.
    pub(in crate::world) fn making_mut(&mut self) -> &mut Making {
        &mut self.making
    }

    /// Whether it never had a first context, as far as is known.
    pub(in crate::world) fn is_bare(&self) -> bool {
        self.bare
    }

    /// It makes one again: what it said of having none is void.
    pub(in crate::world) fn is_with(&mut self) {
        self.without = None;
    }

    /// It says that it has no context left.
    pub(in crate::world) fn is_without(&mut self, now: Nanos) {
        self.without = Some(now);
    }

    /// A look that was taken then does not show the process: what its contexts took is given back
    /// if it had said so before.
    pub(in crate::world) fn was_without(&mut self, taken: Nanos) {
        let said = self.without.is_some_and(|at| at <= taken);
        if said && self.making.is_empty() {
            (self.overhead, self.measured, self.found) = (Bytes::ZERO, true, false);
        }
    }

    /// The credit that it presented after a restart.
    pub(in crate::world) fn presented(&self) -> Option<Bytes> {
        self.presented.map(|(credit, _)| credit)
    }

    /// The part of that credit that was not charged.
    pub(in crate::world) fn unused(&self) -> Option<Bytes> {
        self.presented.map(|(credit, charged)| credit - charged)
    }

    /// It presents its credit, and what of it is charged. Whether it had not before.
    pub(in crate::world) fn present(&mut self, credit: Bytes, charged: Bytes) -> bool {
        self.found |= !self.measured;
        self.presented.replace((credit, charged)).is_none()
    }

    /// Whether it is set aside by guess and was so after `then`: it may be measured any moment.
    pub(in crate::world) fn is_fresh_guess(&self, then: impl Fn(Nanos) -> bool) -> bool {
        let first = then(self.since) && !self.measured && !self.overhead.is_zero();
        first || self.making.is_fresh(then)
    }

    /// A context is complete. Earlier samples may have shown a half-made one.
    pub(in crate::world) fn measure_anew(&mut self) {
        (self.measured, self.made) = (false, true);
    }

    /// A look that was taken then shows so much. Returns whether that is what a context takes: it
    /// was not measured before, and the process never made a second one.
    pub(in crate::world) fn measure(&mut self, shown: Bytes, taken: Nanos) -> bool {
        self.overhead = self.making.measure(self.overhead, shown, taken);
        (self.bare, self.found) = (false, false);
        !std::mem::replace(&mut self.measured, true) && !self.making.ever()
    }

    /// Whether a look cannot tell its context from memory that was left behind.
    pub(in crate::world) fn is_found(&self) -> bool {
        self.found && self.shown
    }

    /// A look shows the process with so much while its charges tell nothing: no context takes more
    /// than that.
    pub(in crate::world) fn take_at_most(&mut self, shown: Bytes) {
        if self.found && !shown.is_zero() {
            self.overhead = self.overhead.min(shown);
        }
    }

    /// A context costs this: a higher estimate is lowered to it. Returns the difference.
    pub(in crate::world) fn correct(&mut self, cost: Bytes) -> Bytes {
        let further = self.making.correct(cost);
        if self.measured {
            return further;
        }
        let less = self.overhead - cost;
        self.overhead -= less;
        less + further
    }

    /// It cannot be there yet: the grace begins anew.
    pub(in crate::world) fn is_expected(&mut self, now: Nanos) {
        self.due = now;
    }

    /// Gives up what was set aside for further contexts too long before a look: what the process is
    /// `shown` with says no more of it. Returns the part whose calls never returned.
    pub(in crate::world) fn lapse(&mut self, shown: Bytes, taken: Nanos, grace: Nanos) -> Bytes {
        let (lapsed, done) = self.making.lapse(taken, grace);
        if !done.is_zero() {
            // It never held still while it was looked at.
            self.overhead = self.overhead.max((self.overhead + done).min(shown));
        }
        lapsed
    }

    /// The device showed it, or did not at a look that was `taken` then: a guess that is older than
    /// the `grace` is given up if it never did. Returns what that gives back.
    pub(in crate::world) fn seen(&mut self, shown: bool, taken: Nanos, grace: Nanos) -> Bytes {
        self.shown |= shown;
        if self.measured || self.due + grace > taken {
            return Bytes::ZERO;
        }
        self.give_up_unseen()
    }

    /// Releases the reservation for it if the device never showed it. Returns the released amount.
    pub(in crate::world) fn give_up_unseen(&mut self) -> Bytes {
        if self.shown {
            return Bytes::ZERO;
        }
        std::mem::take(&mut self.overhead)
    }

    /// The same for a process that is another program now.
    pub(in crate::world) fn give_up(&mut self) -> Bytes {
        self.give_up_unseen() + self.making.give_up()
    }
}
