//! One connected process, and its memory on devices beside its charges.

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
    movable: Option<bool>,
    /// Whether it is connected.
    here: bool,
    opened: BTreeMap<DeviceId, Opened>,
}

impl Process {
    pub(super) fn new(tenant: TenantId, adopted: bool, gated: bool) -> Self {
        Self {
            tenant,
            adopted,
            gated,
            movable: None,
            here: true,
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

    pub(in crate::world) fn set_gated(&mut self, gated: bool) {
        self.gated = gated;
    }

    pub(in crate::world) fn is_movable(&self) -> bool {
        self.movable.is_some()
    }

    /// Whether it heeds what is withheld of a return.
    pub(in crate::world) fn is_by_parts(&self) -> bool {
        self.movable == Some(true)
    }

    pub(in crate::world) fn can_move(&mut self, by_parts: bool) {
        self.movable = Some(by_parts);
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

    /// Nothing of it is on a device any more.
    pub(in crate::world) fn close(&mut self, device: DeviceId) -> Option<Opened> {
        self.opened.remove(&device)
    }
}

/// A process's memory on a device beside its charges.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Opened {
    overhead: Bytes,
    measured: bool,
    /// Whether the device ever showed it.
    shown: bool,
    /// When it was set aside for.
    since: Nanos,
    /// Since when the device could have shown it.
    due: Nanos,
    /// Whether a context of the process is complete.
    made: bool,
    /// The credit that it presented after a restart.
    presented: Option<Bytes>,
}

impl Opened {
    /// A context that was not measured yet.
    fn reserved(overhead: Bytes, since: Nanos) -> Self {
        Self {
            overhead,
            measured: false,
            shown: false,
            since,
            due: since,
            made: false,
            presented: None,
        }
    }

    pub(in crate::world) fn overhead(&self) -> Bytes {
        self.overhead
    }

    /// What is set aside for its first context, which is not complete yet.
    pub(in crate::world) fn first_context(&self) -> Bytes {
        match self.measured || self.made {
            true => Bytes::ZERO,
            false => self.overhead,
        }
    }

    /// The credit that it presented after a restart.
    pub(in crate::world) fn presented(&self) -> Option<Bytes> {
        self.presented
    }

    /// It presents its credit. Whether it had not before.
    pub(in crate::world) fn present(&mut self, credit: Bytes) -> bool {
        self.presented.replace(credit).is_none()
    }

    /// Whether it is set aside by guess and was so after `then`: it may be measured any moment.
    pub(in crate::world) fn is_fresh_guess(&self, then: impl Fn(Nanos) -> bool) -> bool {
        then(self.since) && !self.measured && !self.overhead.is_zero()
    }

    /// A context is complete. Earlier samples may have shown a half-made one.
    pub(in crate::world) fn measure_anew(&mut self) {
        (self.measured, self.made) = (false, true);
    }

    /// It takes so much. Whether that was not measured before.
    pub(in crate::world) fn measure(&mut self, overhead: Bytes) -> bool {
        self.overhead = overhead;
        !std::mem::replace(&mut self.measured, true)
    }

    /// A context costs this: a higher estimate is lowered to it. Returns the difference.
    pub(in crate::world) fn correct(&mut self, cost: Bytes) -> Bytes {
        if self.measured {
            return Bytes::ZERO;
        }
        let less = self.overhead - cost;
        self.overhead -= less;
        less
    }

    /// It cannot be there yet: the grace begins anew.
    pub(in crate::world) fn is_expected(&mut self, now: Nanos) {
        self.due = now;
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
}
