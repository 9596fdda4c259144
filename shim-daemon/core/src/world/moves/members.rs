//! The processes of tenants that may swap: they join, disconnect and end.

use crate::decision::Decision;
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::lease::Input;
use crate::residency::{Order, Place};
use crate::time::Nanos;
use crate::timers::Timer;
use crate::world::World;
use gpushare_protocol::units::Bytes;

impl World {
    /// A process's library can seal it and move its memory.
    pub(in crate::world) fn movable(&mut self, process: ProcessId) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        known.set_movable();
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

    /// A process says how much of its memory cannot move.
    pub(in crate::world) fn stays(&mut self, process: ProcessId, device: DeviceId, bytes: Bytes) {
        let known = self.tenants.process(process);
        let Some(tenant) = known.map(|known| known.tenant()) else {
            return;
        };
        if self.note_stays((process, tenant), device, bytes) {
            self.freed(device);
        }
    }

    /// So much of a process's memory cannot move, as it says. It makes no more than its tenant's
    /// own loan firm. Whether it changes the books.
    fn note_stays(
        &mut self,
        (process, tenant): (ProcessId, TenantId),
        device: DeviceId,
        bytes: Bytes,
    ) -> bool {
        let resident = self.residency.get_mut(device, tenant);
        let Some(stays) = resident.and_then(|one| one.set_stays(process, bytes)) else {
            return false;
        };
        let changed = self.ledger.change(device, tenant, |account| {
            let before = account.stays();
            account.told_to_stay(stays);
            account.stays() != before
        });
        changed == Some(true)
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

    /// The compute schedule of a device: a sealed process has no demand and is not waited for, once
    /// what it has submitted is complete.
    pub(super) fn tell_gates(&mut self, tenant: TenantId, device: DeviceId) {
        let sealed = self.residency.is_still(device, tenant);
        let members = self.tenants.members(tenant);
        let members = members.filter(|(_, known)| known.on(device).is_some());
        let members: Vec<ProcessId> = members.map(|(process, _)| process).collect();
        for process in members {
            self.tell_device(device, Input::Sealed { process, sealed });
        }
    }

    /// The bytes that a process reports on the host: its tenant's accounts believe them up to the
    /// amount that looks showed. Of one that has not said where its memory is, what looks showed
    /// and no other reports.
    pub(in crate::world) fn away_of(
        &self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
    ) -> Bytes {
        let Some(resident) = self.residency.get(device, tenant) else {
            return Bytes::ZERO;
        };
        if resident.owes(process) {
            let account = self.ledger.account(device, tenant);
            let seen = account.map_or(Bytes::ZERO, |account| account.away);
            return seen - resident.told_away();
        }
        resident.away_of(process)
    }

    /// A process has nothing on the device any more.
    pub(in crate::world) fn is_no_member(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
    ) {
        self.note_stays((process, tenant), device, Bytes::ZERO);
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let turned = resident.leave(process);
        if resident.is_empty() {
            self.has_nothing(tenant, device);
        } else {
            if let Some(turned) = turned {
                self.follow_move(tenant, device, turned);
            }
            self.place_anew(tenant, device);
            self.trim_host(tenant, device);
        }
        self.waits_beside(tenant);
    }

    /// A process of a tenant has nothing on one of its devices any more: where the tenant is being
    /// sealed on another it may be waited for no longer.
    pub(super) fn waits_beside(&mut self, tenant: TenantId) {
        for device in self.devices_of(tenant) {
            let beside = self.residency.beside(device, tenant);
            let resident = self.residency.get_mut(device, tenant);
            if let Some(turned) = resident.and_then(|one| one.waits_beside(&beside)) {
                self.follow_move(tenant, device, turned);
            }
        }
    }

    /// A tenant has no process on a device: nothing is left to move or to bring back.
    pub(super) fn has_nothing(&mut self, tenant: TenantId, device: DeviceId) {
        self.residency.reserve(device, tenant, Bytes::ZERO);
        self.ledger.change(device, tenant, |account| {
            account.away = Bytes::ZERO;
            account.seen_to_stay(Bytes::ZERO);
        });
        if self.place(tenant, device) != Some(Place::In) {
            let halted = self.halted_on(tenant, device);
            // One of which none has come stays so: they may be stopped, with all of it on the host.
            if self.tenants.members(tenant).next().is_some() {
                self.set_suspended(tenant, &[device], false);
            }
            self.go(tenant, device, Place::In, false);
            self.goes_on(tenant, halted);
        }
        self.tell_withheld(tenant, device);
        self.set_silence_timer(tenant, device);
        self.facts_changed(device);
    }

    /// A tenant has ended.
    pub(in crate::world) fn stays_nowhere(&mut self, tenant: TenantId, device: DeviceId) {
        self.timers.stop(Timer::Move(device, tenant));
        self.timers.stop(Timer::Silent(device, tenant));
        self.residency.remove(device, tenant);
        self.residency.note_moves(self.timers.now(), device);
    }

    /// A device is lost: nothing on it moves any more. All its tenants are told, also those that
    /// are in: a process of theirs may come late, with memory away. They go on, on their other
    /// devices.
    pub(in crate::world) fn forget_moves(&mut self, device: DeviceId) {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let told = all.map(|(tenant, one)| (tenant, one.last_epoch(), one.halted()));
        let told: Vec<_> = told.collect();
        self.residency.forget(device);
        self.residency.note_moves(self.timers.now(), device);
        for (tenant, epoch, halted) in told {
            self.timers.stop(Timer::Move(device, tenant));
            self.timers.stop(Timer::Silent(device, tenant));
            let (order, drain) = (Order::Lost, Nanos::ZERO);
            self.decide(Decision::Reside {
                tenant,
                device,
                epoch,
                order,
                drain,
            });
            self.goes_on(tenant, halted);
        }
    }
}
