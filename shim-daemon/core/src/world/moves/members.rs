//! The processes of tenants that may swap: they join, disconnect, end, and come from a previous
//! daemon.

use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::lease::Input;
use crate::residency::{Place, Shown};
use crate::timers::Timer;
use crate::world::World;
use gpushare_protocol::units::Bytes;

impl World {
    /// A process's library can seal it and move its memory. `by_parts`: on a return it heeds what
    /// is withheld.
    pub(in crate::world) fn movable(&mut self, process: ProcessId, by_parts: bool) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        known.can_move(by_parts);
        for device in known.devices() {
            self.is_member(process, device);
        }
    }

    /// A process has a context on a device: its tenant moves with it or not at all.
    pub(in crate::world) fn is_member(&mut self, process: ProcessId, device: DeviceId) {
        if self.residency.is_empty() {
            return;
        }
        let Some(known) = self.tenants.process(process) else {
            return;
        };
        let (tenant, can, here) = (known.tenant(), known.is_movable(), known.is_here());
        let now = self.timers.now();
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.join(now, process, can, here);
            if resident.place() != Place::In {
                self.tell_gates(tenant, device);
            }
        }
    }

    /// A process is connected or not.
    pub(in crate::world) fn is_here(&mut self, process: ProcessId, here: bool) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        known.set_here(here);
        let (tenant, devices) = (known.tenant(), known.devices());
        let now = self.timers.now();
        for device in devices {
            if let Some(resident) = self.residency.get_mut(device, tenant) {
                resident.set_here(now, process, here);
            }
        }
    }

    /// The compute schedule of a device: a sealed process has no demand and is not waited for, as
    /// one that is disconnected.
    pub(super) fn tell_gates(&mut self, tenant: TenantId, device: DeviceId) {
        let sealed = !self.residency.is_in(device, tenant);
        let members = self.tenants.members(tenant);
        let members = members.filter(|(_, known)| known.on(device).is_some());
        let members: Vec<(ProcessId, bool)> = members
            .map(|(process, known)| (process, sealed || !known.is_here()))
            .collect();
        for (process, away) in members {
            self.tell_device(device, Input::Away { process, away });
        }
    }

    /// The bytes that a process reports on the host: its tenant's accounts believe them up to the
    /// amount that looks showed.
    pub(in crate::world) fn away_of(
        &self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
    ) -> Bytes {
        let resident = self.residency.get(device, tenant);
        resident.map_or(Bytes::ZERO, |resident| resident.away_of(process))
    }

    /// A process has nothing on the device any more.
    pub(in crate::world) fn is_no_member(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
    ) {
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let turned = resident.leave(process);
        if !resident.is_empty() {
            if let Some(turned) = turned {
                self.follow_move(tenant, device, turned);
            }
            self.gather_late(tenant, device);
            return;
        }
        // Nothing of it is left to move or to bring back.
        let is_in = resident.place() == Place::In;
        self.residency.reserve(device, tenant, Bytes::ZERO);
        self.ledger.change(device, tenant, |account| {
            account.away = Bytes::ZERO;
        });
        if !is_in {
            self.go(tenant, device, Place::In, false);
        }
        self.facts_changed(device);
    }

    /// A tenant has ended.
    pub(in crate::world) fn stays_nowhere(&mut self, tenant: TenantId, device: DeviceId) {
        self.timers.stop(Timer::Move(device, tenant));
        self.residency.remove(device, tenant);
    }

    /// A device is lost: nothing on it moves any more.
    pub(in crate::world) fn forget_moves(&mut self, device: DeviceId) {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        for (tenant, _) in all.map(|(tenant, _)| (tenant, ())).collect::<Vec<_>>() {
            self.timers.stop(Timer::Move(device, tenant));
        }
        self.residency.forget(device);
    }

    /// A tenant of the previous daemon: its processes stay as they are until all have shown where
    /// their memory is. One that runs is sealed for that long.
    pub(in crate::world) fn find(&mut self, tenant: TenantId) {
        for device in self.devices_of(tenant) {
            let resident = self.residency.get_mut(device, tenant);
            if resident.map(|resident| resident.find()).is_some() {
                self.go(tenant, device, Place::Out, true);
            }
        }
    }

    /// A process of the previous daemon shows where its memory is. Nothing counts as away before a
    /// look shows it.
    pub(in crate::world) fn shown(&mut self, process: ProcessId, device: DeviceId, shown: Shown) {
        let Some(known) = self.tenants.process(process) else {
            return;
        };
        let tenant = known.tenant();
        let (can, here, now) = (known.is_movable(), known.is_here(), self.timers.now());
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        if resident.place() != Place::Out {
            return;
        }
        resident.join(now, process, can, here);
        let away = match shown {
            Shown::In | Shown::Sealed => None,
            Shown::Out { away } => Some(away),
        };
        if !resident.shows(process, away) {
            return;
        }
        let all = resident.told_away();
        self.residency.found(device, tenant, all);
        self.gather_late(tenant, device);
    }

    /// After the recovery: the last process of the previous daemon that its tenant waited for may
    /// have shown its memory, or is not there any more.
    fn gather_late(&mut self, tenant: TenantId, device: DeviceId) {
        if !self.is_recovering() {
            self.gather_one(tenant, device);
        }
    }

    /// All processes of the previous daemon have come.
    pub(in crate::world) fn gather(&mut self) {
        for device in self.ledger.devices() {
            let rotation = self.residency.on(device).into_iter();
            let all = rotation.flat_map(|rotation| rotation.all());
            for tenant in all.map(|(tenant, _)| tenant).collect::<Vec<_>>() {
                self.gather_one(tenant, device);
            }
        }
    }

    /// A tenant of which nothing is out runs on; one of which only a part is out is moved out as a
    /// whole.
    fn gather_one(&mut self, tenant: TenantId, device: DeviceId) {
        let bytes = self.in_use(tenant, device);
        let resident = self.residency.get_mut(device, tenant);
        let told = resident.as_ref().map(|resident| resident.told_away());
        match resident.and_then(|resident| resident.gather()) {
            // All processes are sealed, and some were on their way out.
            Some((true, false)) if told < Some(bytes) && self.reserve(device, tenant, bytes) => {
                self.go(tenant, device, Place::Leaving, true);
            }
            None | Some((true, false)) => (),
            Some((false, _)) => {
                self.residency.reserve(device, tenant, Bytes::ZERO);
                self.go(tenant, device, Place::In, false);
            }
            Some((true, true)) => {
                self.ledger.change(device, tenant, |account| {
                    account.away = Bytes::ZERO;
                });
                self.begin_leave(tenant, device, None);
                self.facts_changed(device);
            }
        }
    }
}
