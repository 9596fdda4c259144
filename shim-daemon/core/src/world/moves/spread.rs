//! Tenants with contexts on several devices. To seal such a tenant on one device stops its work on
//! all: it works only while it is in on all of them.
//!
//! Towards equals it leaves a device only while it is idle. Towards better askers, and towards one
//! that has waited a whole round, it stays as long as any other. A round is meant as it usually is
//! where the asker has had the device for less than half of its time. While it waits to return to
//! one device it is not idle on the others: it could not work. Of two that wait, each for what the
//! other has, the one goes on that ranks first, and of equals the one that has waited longer; else
//! each took from the other what it has, and neither ever had all. That lasts for one step of the
//! rotation beyond the round after which an asker is overdue, and ends in time for the moves before
//! a second round is over, so that I9 holds. One that waits for a device where no turn
//! gives it room has none of this on others, and makes nobody leave there. Why: ADR 87.

use super::movers::{Asker, Ends};
use crate::ids::{DeviceId, TenantId};
use crate::residency::{Place, Resident, Rotation};
use crate::time::Nanos;
use crate::world::World;
use crate::world::settle::{Class, OVERDUE};
use std::cmp::Reverse;

/// The rank of a tenant that waits for some of its devices, the least first: its best class, and
/// since when it could not work.
type Wait = (Reverse<Class>, Nanos);

impl World {
    /// Whether a tenant has contexts on other devices too.
    pub(super) fn is_on_others(&self, tenant: TenantId, device: DeviceId) -> bool {
        let mut members = self.tenants.members(tenant);
        members.any(|(_, known)| known.devices().iter().any(|other| *other != device))
    }

    /// When such a tenant may be moved for an asker: towards equals and towards better ones.
    /// `None`: it stays as long as it works.
    pub(super) fn stays_of_spread(
        &self,
        (device, asker): (DeviceId, Asker),
        (tenant, resident): (TenantId, &Resident),
        ends: &Ends,
    ) -> Option<[Nanos; 2]> {
        let [normal, urgent] = ends.over;
        let waits = self.wait_of(tenant, Some(device));
        let waits = waits.filter(|_| !self.is_stalled(tenant, device));
        let goes_on = waits.is_some_and(|wait| self.is_first((wait, tenant), (device, asker)));
        let round = self.round_of(device);
        let late = asker.since + round.time();
        let stays = match (ends.loan, waits) {
            _ if ends.first || goes_on => [Nanos::MAX; 2],
            (true, Some(_)) => [normal, urgent],
            (false, Some(_)) => [normal; 2],
            (true, None) => {
                let idle = self.tenants.get(tenant)?.is_idle();
                let rests = if idle { ends.rests } else { Nanos::MAX };
                let turn = if asker.rotates {
                    let worked = |tenant| self.worked_so_far(tenant, device);
                    let little = worked(asker.tenant) < worked(tenant) / 2;
                    let soon = little.then(|| asker.since + round.usual_time());
                    soon.unwrap_or(late).max(urgent)
                } else {
                    Nanos::MAX
                };
                let equal = rests.min(turn);
                if equal == Nanos::MAX && !self.is_better(asker, tenant) {
                    return None;
                }
                [equal, rests.min(urgent)]
            }
            (false, None) => {
                let idle = self.tenants.get(tenant)?.is_idle();
                return idle.then_some([ends.rests; 2]);
            }
        };
        let least = resident.since() + (urgent - resident.stay().from());
        let last = late + round.step_before_moves();
        Some(stays.map(|at| at.min(least.max(last))))
    }

    /// Whether an asker also waits for a device with a longer round, without which it cannot work.
    /// Here it would keep a tenant of this device alone from work that nobody does meanwhile. So
    /// that one stays until the asker is overdue, unless it has had half as much again.
    pub(super) fn comes_later(&self, (device, asker): (DeviceId, Asker), holder: TenantId) -> bool {
        let waits_longer = |(other, rotation): (DeviceId, &Rotation)| {
            let one = rotation.get(asker.tenant);
            other != device
                && one.is_some_and(|one| one.returns().is_some())
                && self.round(other) > self.round(device)
        };
        let had = |tenant| self.worked_so_far(tenant, device);
        asker.rotates
            && !asker.guaranteed
            && self.residency.devices().any(waits_longer)
            && had(holder) / 3 < had(asker.tenant) / 2
    }

    /// Whether a tenant above its request here can do nothing here, as it also waits for a device
    /// where for a whole round no turn could give it room. It keeps nobody from this device.
    pub(in crate::world) fn is_stalled(&self, tenant: TenantId, device: DeviceId) -> bool {
        let mut others = self.residency.devices().map(|(other, _)| other);
        others.any(|other| other != device && self.has_no_turns(tenant, other))
            && !self.returns_within_request(tenant, device)
    }

    /// Whether for a whole round no turn could give a tenant the room to return to a device.
    pub(super) fn has_no_turns(&self, tenant: TenantId, device: DeviceId) -> bool {
        let since = self.no_turn_since(tenant, device);
        since.is_some_and(|since| self.is_overdue(device, since))
    }

    /// From when on that holds, if it does not yet and will unless a turn comes before.
    pub(super) fn no_turns_from(&self, tenant: TenantId, device: DeviceId) -> Option<Nanos> {
        let since = self.no_turn_since(tenant, device)?;
        let from = since + self.round(device) + Nanos(1);
        Some(from).filter(|from| *from > self.timers.now())
    }

    fn no_turn_since(&self, tenant: TenantId, device: DeviceId) -> Option<Nanos> {
        let resident = self.residency.get(device, tenant);
        resident.filter(|one| one.returns().is_some())?.no_turn
    }

    /// Notes whether any turn of others could give a tenant that is out the room to return.
    pub(super) fn note_turns(&mut self, tenant: TenantId, device: DeviceId, comes: bool) {
        let now = self.timers.now();
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            let since = resident.no_turn.unwrap_or(now);
            resident.no_turn = (!comes).then_some(since);
        }
    }

    /// The residency of a tenant so far without the time in which it waited for another device.
    fn worked_so_far(&self, tenant: TenantId, device: DeviceId) -> u64 {
        let resident = self.residency.get(device, tenant);
        let halting = resident.map_or(0, Resident::halting);
        self.used_so_far(tenant, device).saturating_sub(halting)
    }

    fn is_better(&self, asker: Asker, than: TenantId) -> bool {
        asker.guaranteed || self.tenants.priority(asker.tenant) > self.tenants.priority(than)
    }

    /// Whether a tenant that waits for another device goes on before the asker does.
    fn is_first(&self, own: (Wait, TenantId), (device, asker): (DeviceId, Asker)) -> bool {
        let class = (asker.guaranteed, self.tenants.priority(asker.tenant));
        let class = match asker.rotates && self.is_overdue(device, asker.since) {
            true => class.max(OVERDUE),
            false => class,
        };
        let wait = (Reverse(class), asker.since);
        let wait = match self.wait_of(asker.tenant, None) {
            Some(all) => better(wait, all),
            None => wait,
        };
        !asker.guaranteed && own < (wait, asker.tenant)
    }

    /// The wait of a tenant for its devices, `beside` one. `None`: it waits for none.
    pub(super) fn wait_of(&self, tenant: TenantId, beside: Option<DeviceId>) -> Option<Wait> {
        let residents = || {
            let devices = self.residency.devices();
            devices.filter_map(|(device, rotation)| Some((device, rotation.get(tenant)?)))
        };
        let waits =
            residents().filter(|(device, one)| one.halted().is_some() && Some(*device) != beside);
        let waits = waits.filter_map(|(device, resident)| {
            let class = (
                self.returns_within_request(tenant, device),
                self.tenants.priority(tenant),
            );
            let since = resident.halted()?;
            // As overdue it came back to one device: so it stays until it is back on all. One that
            // is on its way back is nearly there.
            let mut own = residents().filter(|(_, one)| !one.is_empty());
            let late = !resident.waits() || own.any(|(device, _)| self.is_overdue(device, since));
            let class = if late { class.max(OVERDUE) } else { class };
            Some((Reverse(class), since))
        });
        waits.reduce(better)
    }

    /// Since when a tenant could not work that waits for this device.
    pub(super) fn halted_on(&self, tenant: TenantId, device: DeviceId) -> Option<Nanos> {
        self.residency.get(device, tenant)?.halted()
    }

    /// A tenant no longer waits for one of its devices. If that was the last one it goes on: the
    /// time in which it could not work counts nowhere, and a call that waited is work now.
    pub(super) fn goes_on(&mut self, tenant: TenantId, halted: Option<Nanos>) {
        let now = self.timers.now();
        let Some(since) = halted.filter(|_| self.wait_of(tenant, None).is_none()) else {
            return;
        };
        let mut called = false;
        for device in self.devices_of(tenant) {
            let resident = self.residency.get_mut(device, tenant);
            let Some(resident) = resident else {
                continue;
            };
            called |= std::mem::take(&mut resident.called);
            // One that drains still has the card.
            if matches!(resident.place(), Place::In | Place::Sealing) {
                resident.stay_mut().goes_on(now, since);
            }
        }
        if called {
            self.worked(tenant);
        }
    }
}

/// The best class and the longest wait of both.
fn better(one: Wait, other: Wait) -> Wait {
    (one.0.min(other.0), one.1.min(other.1))
}
