//! The tenants that could be moved off a device, and moving them.

use crate::decision::Notice;
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::{Place, Resident, Rotation};
use crate::resolver::Mover;
use crate::time::Nanos;
use crate::world::World;
use gpushare_protocol::units::Bytes;

/// A full host is reported at most this often for each device.
const SAID: Nanos = Nanos::secs(60);

impl World {
    /// Tenants on the card that may be moved for `asker`, now or later.
    pub(in crate::world) fn movers(&self, device: DeviceId, asker: TenantId) -> Vec<Mover> {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| {
            let others = rotation.all().filter(move |(tenant, _)| *tenant != asker);
            others.filter_map(move |(tenant, one)| self.mover(device, tenant, (rotation, one)))
        });
        all.collect()
    }

    fn mover(
        &self,
        device: DeviceId,
        tenant: TenantId,
        (rotation, resident): (&Rotation, &Resident),
    ) -> Option<Mover> {
        let (now, terms) = (self.timers.now(), &self.policy.swap);
        let account = self.ledger.account(device, tenant)?;
        let known = self.tenants.get(tenant)?;
        let loan = account.in_use > account.request;
        let idle = known.is_idle().then(|| known.worked());
        let gives = gives(account, resident);
        let asked = resident.place() == Place::In
            && resident.can_move()
            && account.loan.moves
            && account.loan.revocable
            && known.ending().is_none()
            && !gives.is_zero();
        let alone = idle.is_some() || !self.is_on_others(tenant, device);
        if !asked || !alone || (!loan && idle.is_none()) {
            return None;
        }
        let since = resident.since();
        let stays = match idle {
            Some(_) => [since + rotation.round_trip(account.in_use, terms); 2],
            None => {
                [false, true].map(|urgent| since + rotation.stay(account.in_use, urgent, terms))
            }
        };
        Some(Mover {
            tenant,
            priority: known.spec().priority,
            loan,
            idle,
            gives,
            host: account.host_for(account.in_use),
            used: resident.used(now, account.in_use),
            stays: (stays[0], stays[1]),
            backs_off: Some(resident.backs_off()).filter(|until| *until > now),
        })
    }

    /// Whether a tenant has contexts on other devices too: sealing it stops its work there.
    fn is_on_others(&self, tenant: TenantId, device: DeviceId) -> bool {
        let mut members = self.tenants.members(tenant);
        members.any(|(_, known)| known.devices().iter().any(|other| *other != device))
    }

    /// The memory that leaving tenants will still give back.
    pub(in crate::world) fn leaving(&self, device: DeviceId) -> Bytes {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let leaving = all.filter(|(_, resident)| resident.is_leaving());
        let given = leaving.filter_map(|(tenant, resident)| {
            let account = self.ledger.account(device, tenant)?;
            Some(gives(account, resident) - account.away)
        });
        given.sum()
    }

    /// Begins to move the victims. Returns the memory that the device gets back.
    pub(in crate::world) fn move_all(
        &mut self,
        device: DeviceId,
        victims: &[TenantId],
        wanted_by: TenantId,
    ) -> Bytes {
        let mut given = Bytes::ZERO;
        for victim in victims {
            let account = self.ledger.account(device, *victim);
            let gives = account
                .zip(self.residency.get(device, *victim))
                .map(|(account, resident)| gives(account, resident));
            if self.begin_leave(*victim, device, Some(wanted_by)) {
                given += gives.unwrap_or_default();
            }
        }
        given
    }

    /// No tenant was moved because the host is full.
    pub(in crate::world) fn tell_host_full(&mut self, device: DeviceId, wanted: Bytes) {
        let now = self.timers.now();
        let free = self.residency.host.free();
        let Some(rotation) = self.residency.on_mut(device) else {
            return;
        };
        if rotation.full_said.is_some_and(|at| now < at + SAID) {
            return;
        }
        rotation.full_said = Some(now);
        self.notice(Notice::HostFull {
            device,
            wanted,
            free,
        });
    }
}

/// The part of a tenant's memory in use that can move.
fn gives(account: &Account, resident: &Resident) -> Bytes {
    (account.in_use - resident.residue()).min(account.booked)
}
