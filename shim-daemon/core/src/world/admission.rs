//! Admission: who may start to run.
//!
//! A container is admitted when its request, and one context on each device where it has one, fits on all its devices
//! beside all that may not be taken back. Else it queues by priority, then age, and who is behind it does not pass it
//! on a device both want guaranteed memory of. A request of nothing needs nothing and never queues.

use super::World;
use crate::decision::Decision;
use crate::ids::{ContainerId, DeviceId};
use crate::ledger::Account;
use crate::room::Room;
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A place in the queue: higher priority first, then who came first.
pub(super) type Place = (Reverse<u16>, Nanos, ContainerId);

impl World {
    fn place(&self, container: ContainerId) -> Option<Place> {
        let known = self.containers.get(&container)?;
        Some((Reverse(known.spec.priority), known.registered, container))
    }

    pub(super) fn enqueue(&mut self, container: ContainerId) {
        if let Some(place) = self.place(container) {
            self.queue.insert(place);
        }
    }

    pub(super) fn dequeue(&mut self, container: ContainerId) {
        if let Some(place) = self.place(container) {
            self.queue.remove(&place);
        }
    }

    /// Whether something freed on this device can have admitted anybody: only the first who waits for it, because all
    /// others there are behind it.
    pub(super) fn may_admit(&mut self, device: DeviceId) -> bool {
        let wants = |container: &ContainerId| {
            let quota = self
                .containers
                .get(container)
                .and_then(|known| known.spec.quota(device));
            quota.is_some_and(|quota| !quota.request.is_zero())
        };
        let first = self
            .queue
            .iter()
            .map(|(_, _, container)| *container)
            .find(wants);
        first.is_some_and(|container| {
            self.resolve_queued(container);
            let needs = self.admission_needs(container);
            self.fits_all(&needs)
        })
    }

    /// Admits whoever's turn has come.
    pub(super) fn admit_waiting(&mut self) {
        if self.recovering || self.queue.is_empty() {
            return;
        }
        let mut taken: BTreeSet<DeviceId> = BTreeSet::new();
        for (_, _, container) in self.queue.clone() {
            self.resolve_queued(container);
            let needs = self.admission_needs(container);
            let blocked = needs.iter().any(|(device, _)| taken.contains(device));
            if !blocked && self.fits_all(&needs) {
                self.admit(container, self.now);
                continue;
            }
            taken.extend(needs.into_iter().map(|(device, _)| device));
        }
    }

    /// What must be firm for this container, per device.
    pub(super) fn admission_needs(&self, container: ContainerId) -> Vec<(DeviceId, Bytes)> {
        let Some(known) = self.containers.get(&container) else {
            return Vec::new();
        };
        let guaranteed = known
            .spec
            .quotas
            .iter()
            .filter(|(_, quota)| !quota.request.is_zero());
        guaranteed
            .map(|(device, quota)| (*device, quota.request + self.context_cost(*device)))
            .collect()
    }

    /// Whether all needs fit; where one does not, unused grants that are in the way are called back.
    fn fits_all(&mut self, needs: &[(DeviceId, Bytes)]) -> bool {
        let mut fits = true;
        for (device, firm) in needs {
            let Some(books) = self.devices.get(device) else {
                return false;
            };
            let short = books.total().firm + *firm - books.spec.usable();
            if !short.is_zero() {
                fits = false;
                let coming = self.lowering(*device).firm;
                self.reclaim_unused(
                    *device,
                    None,
                    Room {
                        taken: Bytes::ZERO,
                        firm: short - coming,
                    },
                );
            }
        }
        fits
    }

    /// Lets it run, whatever room there is; it has done so `since`.
    pub(super) fn admit(&mut self, container: ContainerId, since: Nanos) {
        self.dequeue(container);
        let now = self.now;
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        (known.admitted, known.worked) = (Some(since), now);
        let (quotas, preemptible) = (known.spec.quotas.clone(), known.spec.preemptible);
        let idle_at = now + known.spec.idle_after;
        for (device, quota) in quotas {
            let cost = self.context_cost(device);
            if let Some(books) = self.devices.get_mut(&device) {
                let capacity = books.spec.capacity;
                books.open(container, Account::new(quota, preemptible, cost, capacity));
            }
        }
        self.decide(Decision::Admit { container });
        self.timers.set(Timer::Idle(container), idle_at);
        self.check_end(container);
        for device in self.devices_of(container) {
            self.settle(device);
        }
    }

    /// Firm memory that a better container waits for on this device: bursts of lower ones leave it alone.
    pub(super) fn kept_for_admission(&self, device: DeviceId, priority: u16) -> Bytes {
        let better = self
            .queue
            .iter()
            .take_while(|(Reverse(theirs), ..)| *theirs > priority);
        let needs = better.flat_map(|(_, _, container)| self.admission_needs(*container));
        needs
            .filter(|(wanted, _)| *wanted == device)
            .map(|(_, firm)| firm)
            .next()
            .unwrap_or_default()
    }
}
