//! A tenant is moved out by command, and comes back by command or by its next call.

use crate::decision::Notice;
use crate::ids::{DeviceId, TenantId};
use crate::residency::{Place, Resident};
use crate::time::Nanos;
use crate::world::World;
use gpushare_protocol::units::Bytes;

/// Why a tenant cannot be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSuspended {
    /// It is not registered, or not admitted.
    #[error("no such tenant runs")]
    Unknown,
    /// Its memory cannot leave the card.
    #[error("its memory cannot leave the card: it was started without --oversubscribe swap")]
    Fixed,
    /// One of its processes cannot be sealed.
    #[error("one of its processes cannot move its memory, or is not connected")]
    Bound,
    /// The host has too little room.
    #[error("the host budget has {free} free, and {needed} are needed")]
    HostFull {
        /// The host memory that the move needs.
        needed: Bytes,
        /// The free part of the host budget.
        free: Bytes,
    },
}

impl World {
    /// Whether a tenant could be suspended now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_suspend(&self, tenant: TenantId) -> Result<(), NotSuspended> {
        let known = self.tenants.get(tenant);
        known
            .filter(|known| known.admitted().is_some())
            .ok_or(NotSuspended::Unknown)?;
        let (mut needed, mut before) = (Bytes::ZERO, Bytes::ZERO);
        let mut some = false;
        for device in self.devices_of(tenant) {
            let Some(resident) = self.residency.get(device, tenant) else {
                continue;
            };
            some = true;
            if !resident.is_empty() && !resident.can_move() {
                return Err(NotSuspended::Bound);
            }
            if resident.place() == Place::In {
                needed += self.all_on_host(tenant, device);
                before += resident.host();
            }
        }
        // What the store has given it serves the moves off all of its devices once.
        let more = self.residency.more_in_all(tenant, before, needed);
        let host = &self.residency.host;
        let free = host.unreserved().min(host.free() + (needed - more));
        match some {
            false => Err(NotSuspended::Fixed),
            true if needed > free => Err(NotSuspended::HostFull { needed, free }),
            true => Ok(()),
        }
    }

    /// Moves a tenant out on all its devices. What [`Self::may_suspend`] refuses is ignored.
    pub(in crate::world) fn suspend(&mut self, tenant: TenantId) {
        if self.may_suspend(tenant).is_err() {
            return;
        }
        self.notice(Notice::Suspended { tenant });
        for device in self.devices_of(tenant) {
            let Some(resident) = self.residency.get_mut(device, tenant) else {
                continue;
            };
            resident.suspend();
            self.leave_suspended(tenant, device);
        }
    }

    /// A tenant of the previous daemon that a command moves out stays so until it calls: it is
    /// asked as before, once its processes have come.
    pub(in crate::world) fn set_suspended(
        &mut self,
        tenant: TenantId,
        devices: &[DeviceId],
        suspended: bool,
    ) {
        for device in devices {
            if let Some(resident) = self.residency.get_mut(*device, tenant) {
                resident.set_suspended(suspended);
            }
        }
    }

    /// Asks a suspended tenant to leave a device, if it is in, or to give up a return that finds no
    /// room: it has to wait for that no more.
    pub(super) fn leave_suspended(&mut self, tenant: TenantId, device: DeviceId) {
        if self.may_give_up(tenant, device) {
            let bytes = self.in_use(tenant, device);
            if self.reserve(device, tenant, bytes) {
                self.drop_return(tenant, device);
            }
            return;
        }
        let resident = self.residency.get(device, tenant);
        let asked = resident.is_some_and(|resident| {
            resident.is_suspended() && resident.place() == Place::In && resident.can_move()
        });
        if asked {
            self.begin_leave(tenant, device, None);
        }
    }

    /// Whether a suspended tenant can give up its return: nothing of it runs yet.
    fn may_give_up(&self, tenant: TenantId, device: DeviceId) -> bool {
        let account = self.ledger.account(device, tenant);
        let resident = self.residency.get(device, tenant);
        let refused = resident.is_some_and(|one| {
            let refused = one.place() == Place::Entering && one.refused && one.early.is_none();
            refused && one.is_suspended() && one.can_move() && !one.is_partly_back()
        });
        let rested = resident.is_some_and(|one| one.backs_off() <= self.timers.now());
        refused && rested && account.is_some_and(|account| !account.loan.paged)
    }

    /// Asks suspended tenants that are in to leave, once they may be asked again.
    pub(in crate::world) fn suspend_again(&mut self, device: DeviceId) {
        let now = self.timers.now();
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let due = all.filter(|(_, resident)| {
            let asked = resident.is_suspended() && resident.place() == Place::In;
            asked && resident.backs_off() <= now
        });
        for tenant in due.map(|(tenant, _)| tenant).collect::<Vec<_>>() {
            self.leave_suspended(tenant, device);
        }
    }

    /// Whether a tenant that is suspended has left: it is out wherever it has processes, and does
    /// not wait to run on because it did not leave.
    pub fn has_left(&self, tenant: TenantId) -> bool {
        self.residents(tenant).all(|resident| {
            let has_nothing = resident.place() == Place::In && resident.is_empty();
            (resident.place() == Place::Out && !resident.waits()) || has_nothing
        })
    }

    /// When a suspended tenant that did not leave a device is asked again. `None`: it leaves, or
    /// has left.
    pub fn did_not_suspend(&self, tenant: TenantId) -> Option<Nanos> {
        let stays = self.residents(tenant).filter(|resident| {
            resident.is_suspended() && resident.place() == Place::In && !resident.is_empty()
        });
        stays.map(|resident| resident.backs_off()).max()
    }

    /// Whether a suspended tenant is on its way back to a device and does not get there: it leaves
    /// once it is back.
    pub fn is_stuck_in_return(&self, tenant: TenantId) -> bool {
        let mut all = self.residents(tenant);
        all.any(|resident| resident.is_suspended() && resident.return_is_stuck())
    }

    /// Whether a tenant is out wherever it has processes, whether or not it waits to return.
    pub fn is_out_everywhere(&self, tenant: TenantId) -> bool {
        self.residents(tenant).all(|resident| {
            let has_nothing = resident.place() == Place::In && resident.is_empty();
            resident.place() == Place::Out || has_nothing
        })
    }

    fn residents(&self, tenant: TenantId) -> impl Iterator<Item = &Resident> {
        let devices = self.devices_of(tenant).into_iter();
        devices.filter_map(move |device| self.residency.get(device, tenant))
    }

    /// Lets a tenant return to all its devices.
    pub(in crate::world) fn resume(&mut self, tenant: TenantId) {
        let now = self.timers.now();
        let mut resumed = false;
        for device in self.devices_of(tenant) {
            let resident = self.residency.get_mut(device, tenant);
            if resident.is_some_and(|resident| resident.want_in(now)) {
                resumed = true;
                self.settle(device);
            }
        }
        if resumed {
            self.notice(Notice::Resumed { tenant });
        }
    }

    /// Whether a tenant was moved out by command and has not called since.
    pub fn is_suspended(&self, tenant: TenantId) -> bool {
        let devices = self.devices_of(tenant);
        devices.iter().any(|device| {
            let resident = self.residency.get(*device, tenant);
            resident.is_some_and(|resident| resident.is_suspended())
        })
    }
}
