//! Tenants of a previous daemon: their processes come to the new one in time, late, or never, and
//! say where their memory is when they come, later, or never.

use super::swap::{Moves, policy, swapping};
use super::{Guest, Manners, Node, Proc, secs};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Oversubscribe, Place, ProcessId, Shown, TenantId, TenantSpec,
    Told, World,
};
use std::collections::BTreeMap;

/// When the recovery of a restarted daemon ends.
pub const RECOVERY: Nanos = Nanos::secs(3);

/// Where a process's memory is, of which so much cannot move.
pub fn shown(proc: &Proc, device: DeviceId, residue: Bytes) -> Shown {
    let away = proc.away(device);
    match away.is_zero() {
        true => Shown::In,
        false => Shown::Out {
            away,
            rests: away + proc.fixed(device, residue) >= proc.charged(device),
        },
    }
}

impl Node {
    /// A node whose daemon was restarted a moment ago, with one device of so many MiB.
    pub fn restarted(mib: u64, host_gib: u64) -> (Self, DeviceId) {
        let policy = policy(host_gib);
        let mut node = Self::of(World::recovering(policy, RECOVERY), policy);
        let device = node.device_of(Bytes::mib(mib));
        node.card_is_checked = true;
        (node, device)
    }

    /// A tenant of the previous daemon. Its processes have so many MiB each, so many of them on the
    /// host. None of them has come.
    pub fn survives(
        &mut self,
        device: DeviceId,
        parts: &[(u64, u64)],
    ) -> (TenantId, Vec<ProcessId>) {
        let all: u64 = parts.iter().map(|(charged, _)| charged).sum();
        self.survives_as(swapping(device, all), device, parts)
    }

    /// The same with these limits.
    pub fn survives_as(
        &mut self,
        spec: TenantSpec,
        device: DeviceId,
        parts: &[(u64, u64)],
    ) -> (TenantId, Vec<ProcessId>) {
        let tenant = TenantId(self.fresh());
        let moves = Moves {
            works: false,
            ..Moves::default()
        };
        let guest = Guest {
            spec: spec.clone(),
            admitted: true,
            refused: None,
            manners: Manners::Polite,
            page: BTreeMap::new(),
            leases: BTreeMap::new(),
            signals: Vec::new(),
            worked: false,
            moves,
        };
        self.guests.insert(tenant, guest);
        let processes = parts.iter().map(|(charged, away)| {
            let process = ProcessId(self.fresh());
            let mut proc = Proc::new(tenant);
            proc.charged.insert(device, Bytes::mib(*charged));
            proc.contexts.insert(device, Bytes::ZERO);
            proc.set_away(device, Bytes::mib(*away));
            proc.seal(device, *away > 0);
            (proc.deaf, proc.unknown) = (true, true);
            self.add(process, proc);
            process
        });
        let processes: Vec<ProcessId> = processes.collect();
        self.tell(Event::Register {
            tenant,
            spec,
            running: Some(Nanos::ZERO.into()),
        });
        (tenant, processes)
    }

    /// A process registers with the new daemon, and says no more.
    pub fn comes(&mut self, process: ProcessId) {
        self.comes_as(process, true);
    }

    /// A process whose library cannot move memory comes, and adopts the new daemon's page. It never
    /// says where its memory is, and obeys no order.
    pub fn comes_fixed(&mut self, process: ProcessId) {
        self.comes_as(process, false);
        self.tell(Event::Adopted { process });
    }

    fn comes_as(&mut self, process: ProcessId, movable: bool) {
        let Some(proc) = self.processes.get_mut(&process) else {
            return;
        };
        proc.unknown = false;
        let tenant = proc.tenant;
        let held: Vec<(DeviceId, Bytes)> = proc.charged.clone().into_iter().collect();
        self.tell(Event::ProcessStarted {
            process,
            tenant,
            adopted: false,
            gated: true,
        });
        if movable && self.guests[&tenant].spec.oversubscribe != Oversubscribe::Off {
            self.tell(Event::Movable { process });
        }
        for (device, charged) in held {
            let all = self.charged(tenant, device);
            self.tell(Event::Presented {
                process,
                device,
                charged,
                credit: charged,
                grant: all,
            });
            // The daemon has read the page, with this row, and reads it again.
            self.look(tenant, device);
        }
    }

    /// It goes on: it says where its memory is, and obeys. `eager`: it has obeyed before the daemon
    /// reads what it says.
    pub fn speaks(&mut self, process: ProcessId, eager: bool) {
        let Some(proc) = self.processes.get_mut(&process) else {
            return;
        };
        proc.deaf = false;
        let (tenant, devices) = (proc.tenant, proc.charged.keys().copied());
        let devices: Vec<DeviceId> = devices.collect();
        let away: Bytes = devices.iter().map(|device| proc.away(*device)).sum();
        // Managed memory is on the host in the process's own.
        proc.host = if proc.paged { Bytes::ZERO } else { away };
        let residue = self.guests[&tenant].moves.residue;
        let shows = devices.iter().flat_map(|device| {
            let device = *device;
            let shown = shown(proc, device, residue);
            let bytes = proc.fixed(device, residue);
            let shows = Event::Shown {
                process,
                device,
                shown,
            };
            let stays = Event::Stays {
                process,
                device,
                bytes,
            };
            [shows, stays]
        });
        let shows: Vec<Event> = shows.collect();
        self.tell_held(tenant);
        let before = self.guests[&tenant].moves.orders.clone();
        if eager {
            self.obeys_all(process, &devices);
        }
        self.tell(Event::Adopted { process });
        shows.into_iter().for_each(|shown| self.tell(shown));
        // An order that came since has been obeyed already.
        let guest = self.guests.get(&tenant);
        let same = guest.is_some_and(|guest| guest.moves.orders == before);
        if !eager && same {
            self.obeys_all(process, &devices);
        }
    }

    fn obeys_all(&mut self, process: ProcessId, devices: &[DeviceId]) {
        for device in devices {
            self.has_context(process, *device);
        }
        self.settle_mail();
    }

    /// A process that has not come ends: the new daemon never hears of it.
    pub fn vanishes(&mut self, process: ProcessId) {
        let Some(proc) = self.processes.get_mut(&process) else {
            return;
        };
        let (tenant, had) = (proc.tenant, std::mem::take(&mut proc.charged));
        proc.contexts.clear();
        self.kill(process);
        // Its row in the page of its tenant is cleared.
        for device in had.into_keys() {
            self.look(tenant, device);
        }
    }

    /// The processes of a tenant that are not stopped.
    pub fn hearing(&self, tenant: TenantId) -> Vec<ProcessId> {
        let mut all = self.processes_of(tenant);
        all.retain(|process| !self.processes[process].deaf);
        all
    }

    /// A return by the order to be in found no room: the library tries again until it is back.
    pub(super) fn tries_again(&mut self, (process, device, epoch): (ProcessId, DeviceId, u32)) {
        if let Some((took, told)) = self.moves_in(process, device) {
            let after = match told {
                Told::NoRoom { .. } => secs(1),
                _ => took,
            };
            self.moves_on((process, device, epoch), after, told);
        }
    }

    /// Whether a tenant's memory is all where it counts: in with nothing away and nothing sealed.
    pub fn runs(&self, tenant: TenantId, device: DeviceId) -> bool {
        self.place(tenant, device) == Place::In
            && self.hearing(tenant).iter().all(|process| {
                let proc = &self.processes[process];
                proc.away(device).is_zero() && !proc.is_sealed(device)
            })
    }

    /// The bytes that clients may have on a device: what their pages allow, but for what is on the
    /// host, and what others hold there.
    fn may_be_on_card(&self, device: DeviceId) -> Bytes {
        let hardware = &self.devices[&device];
        let own = self.guests.iter().map(|(tenant, guest)| {
            let page = guest.page.get(&device).copied().unwrap_or_default();
            let all = self.processes_of(*tenant);
            let all = all.iter().map(|process| &self.processes[process]);
            let mut going = all.clone().filter(|proc| !proc.deaf);
            let place = self.world.place(*tenant, device);
            let may_run = matches!(place, None | Some(Place::In | Place::Entering));
            let runs = may_run && going.any(|proc| !proc.is_sealed(device));
            let away: Bytes = all.map(|proc| proc.away(device)).sum();
            let charged = self.charged(*tenant, device);
            // Processes that are sealed, or are ordered to be, and stopped ones charge nothing.
            let most = if runs { page.max(charged) } else { charged };
            most - away
        });
        let own: Bytes = own.sum();
        let dead: Bytes = hardware.dead.values().map(|(holds, _)| *holds).sum();
        own + dead + hardware.foreign
    }

    /// I1 over the bytes on the card, where facts have not overdrawn it: what processes had from
    /// the previous daemon counts when they come.
    pub(super) fn check_late_cards(&self) {
        if !self.card_is_checked {
            return;
        }
        for (device, hardware) in &self.devices {
            let all = self.may_be_on_card(*device);
            let view = self.world.device(*device);
            let fits = view.is_some_and(|view| view.taken <= view.usable);
            assert!(
                !fits || all <= hardware.capacity,
                "I1: clients may have {all} on {device:?} of {}",
                hardware.capacity
            );
        }
    }

    /// Lives on until this is so, for so long at most.
    pub fn until(&mut self, what: &str, most: u64, is_so: impl Fn(&Self) -> bool) {
        let end = self.now + secs(most);
        while !is_so(self) {
            assert!(self.now < end, "{what}: not after {most} s");
            self.live(Nanos::millis(50));
        }
    }
}
