//! Clients that move their memory when they are ordered to, in virtual time.

use super::Node;
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Order, Oversubscribe, Place, ProcessId, Quota, Resolver,
    TenantId, TenantSpec, Told,
};
use std::collections::BTreeMap;

/// How a tenant's processes react to an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Obeys {
    /// As ordered.
    #[default]
    Honestly,
    /// They cannot be sealed, and say so.
    Busy,
    /// They say nothing.
    Silently,
    /// They say that they left and move nothing.
    Lying,
    /// They are sealed and then copy nothing.
    Halting,
    /// They leave until half of it is out, then a copy fails.
    Failing,
    /// They leave until half of it is out, then do nothing until the next order.
    Stopping,
}

/// How a tenant's processes move.
#[derive(Debug)]
pub struct Moves {
    pub obeys: Obeys,
    /// Whether it always has work: then it wants to return as soon as it is out.
    pub works: bool,
    /// How long its work in flight takes to drain.
    pub drain: Nanos,
    /// Bytes a second, each way.
    pub rate: u64,
    /// Of its memory so many parts leave one after the other, and only that is told.
    pub parts: u64,
    /// The memory of each process that cannot move.
    pub residue: Bytes,
    /// The last order on each device.
    pub orders: BTreeMap<DeviceId, (u32, Order)>,
    /// How long its work may drain by each.
    pub given: BTreeMap<DeviceId, Nanos>,
    /// The bytes withheld of its return.
    pub withheld: BTreeMap<DeviceId, Bytes>,
    /// Since when its gates are open, and how long they were before.
    pub open: Option<Nanos>,
    pub useful: Nanos,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            obeys: Obeys::default(),
            works: true,
            drain: Nanos::millis(5),
            rate: 20 << 30,
            parts: 8,
            residue: Bytes::ZERO,
            orders: BTreeMap::new(),
            given: BTreeMap::new(),
            withheld: BTreeMap::new(),
            open: Some(Nanos::ZERO),
            useful: Nanos::ZERO,
        }
    }
}

impl Moves {
    pub(super) fn time(&self, bytes: Bytes) -> Nanos {
        let nanos = u128::from(bytes.0) * 1_000_000_000 / u128::from(self.rate);
        Nanos(u64::try_from(nanos).expect("a time"))
    }

    /// How long the tenant could work so far.
    pub fn useful(&self, now: Nanos) -> Nanos {
        self.useful + self.open.map_or(Nanos::ZERO, |since| now - since)
    }

    /// From now on it counts anew how long it could work.
    pub fn count_anew(&mut self, now: Nanos) {
        self.useful = Nanos::ZERO;
        self.open = self.open.map(|_| now);
    }

    fn set_open(&mut self, now: Nanos, open: bool) {
        if !open {
            self.useful = self.useful(now);
        }
        self.open = open.then(|| self.open.unwrap_or(now));
    }
}

/// A tenant that swaps: no request, a limit in MiB, and `swap` alone against collisions.
pub fn swapping(device: DeviceId, limit_mib: u64) -> TenantSpec {
    let quota = Quota {
        request: Bytes::ZERO,
        limit: Bytes::mib(limit_mib),
    };
    TenantSpec {
        on_collision: vec![Resolver::Swap],
        preemptible: gpushare_core::Preemptible::Swap,
        oversubscribe: Oversubscribe::Swap,
        ..super::bare::spec(device, quota)
    }
}

/// The answer of a process that cannot be sealed.
pub(super) fn busy(late: bool) -> Told {
    Told::Busy { retry: 100, late }
}

/// The settings of a node with so much host memory.
pub fn policy(host_gib: u64) -> gpushare_core::Policy {
    gpushare_core::Policy {
        first_overhead: Bytes::ZERO,
        step: Bytes(1),
        swap: gpushare_core::SwapPolicy {
            host: Bytes::gib(host_gib),
            ..gpushare_core::SwapPolicy::default()
        },
        ..gpushare_core::Policy::default()
    }
}

impl Node {
    /// A node of one device of so many MiB, with host memory to swap.
    pub fn swaps(mib: u64, host_gib: u64) -> (Self, DeviceId) {
        let mut node = Self::with(policy(host_gib));
        let device = node.device_of(Bytes::mib(mib));
        (node, device)
    }

    pub fn place(&self, tenant: TenantId, device: DeviceId) -> Place {
        self.world.place(tenant, device).expect("it may swap")
    }

    pub fn obeys(&mut self, tenant: TenantId, obeys: Obeys) {
        self.guests.get_mut(&tenant).expect("it runs").moves.obeys = obeys;
        self.watch.forgets_orders(tenant);
    }

    /// A call of the tenant waits because it is out.
    pub fn calls(&mut self, tenant: TenantId, device: DeviceId) {
        for process in self.hearing(tenant) {
            if self.place(tenant, device) != Place::Out {
                return;
            }
            self.note_return(tenant, device);
            self.tell(Event::WantsIn { process, device });
        }
    }

    /// The tenant's next call waits wherever it is out.
    pub fn call_where_out(&mut self, tenant: TenantId) {
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            if self.world.place(tenant, device) == Some(Place::Out) {
                self.calls(tenant, device);
            }
        }
    }

    /// A process has a context: it obeys the order in its page.
    pub(super) fn has_context(&mut self, process: ProcessId, device: DeviceId) {
        let tenant = self.processes[&process].tenant;
        let order = self.guests[&tenant].moves.orders.get(&device).copied();
        if let Some((epoch, order)) = order {
            self.obey((tenant, process), device, epoch, order);
        }
    }

    pub(super) fn ordered(
        &mut self,
        (tenant, device): (TenantId, DeviceId),
        epoch: u32,
        order: Order,
        drain: Nanos,
    ) {
        let now = self.now;
        let Some(guest) = self.guests.get_mut(&tenant) else {
            return;
        };
        let before = guest.moves.orders.insert(device, (epoch, order));
        assert!(
            before.is_none_or(|(before, _)| before < epoch),
            "every order has a new epoch: {before:?}, {epoch} {order:?}"
        );
        let moves = &mut guest.moves;
        moves.given.insert(device, drain);
        if order == Order::Seal {
            moves.set_open(now, false);
        } else if matches!(order, Order::In | Order::Lost) {
            // A seal on one device holds a process on all.
            let mut last = moves.orders.values();
            let open = last.all(|(_, last)| matches!(last, Order::In | Order::Lost));
            moves.set_open(now, open);
            self.returned(tenant, device);
        }
        self.watches_order(tenant, device, order);
        for process in self.processes_of(tenant) {
            if !self.obeys_beside((tenant, process), device, epoch, order) {
                self.obey((tenant, process), device, epoch, order);
            }
        }
    }

    fn obey(
        &mut self,
        (tenant, process): (TenantId, ProcessId),
        device: DeviceId,
        epoch: u32,
        order: Order,
    ) {
        let now = self.now;
        if self.processes[&process].deaf {
            return;
        }
        let copies = matches!(
            self.guests[&tenant].moves.obeys,
            Obeys::Honestly | Obeys::Failing | Obeys::Stopping
        );
        let leaves = order == Order::Leave && copies;
        let has_host = !leaves || self.has_host_for(process, device);
        // What a late process has from the previous daemon may be beyond the budget.
        let beyond = self.card_is_checked && !self.guarantees;
        assert!(
            has_host || beyond || self.store.fails.is_some() || self.is_uneven(tenant),
            "{tenant:?} is asked to leave, and the store may not give: {:?}",
            self.world.host()
        );
        let moves = &self.guests[&tenant].moves;
        let (obeys, drain, works) = (moves.obeys, moves.drain, moves.works);
        let residue = self.processes[&process].fixed(device, moves.residue);
        let given = moves.given.get(&device).copied().unwrap_or_default();
        let proc = self.processes.get_mut(&process).expect("it lives");
        let charged = proc.charged(device);
        if matches!(order, Order::Leave | Order::Out) {
            self.undoes(process, device);
        }
        let proc = self.processes.get_mut(&process).expect("it lives");
        proc.copies.remove(&device);
        match order {
            Order::Leave | Order::Return => proc.moving.insert(device),
            _ => proc.moving.remove(&device),
        };
        if order == Order::Leave && copies {
            proc.seal(device, true);
        }
        let told = match (order, obeys) {
            // Memory that is away comes back first, as far as it is not withheld.
            (Order::In, _) if !proc.away(device).is_zero() => {
                proc.seal(device, true);
                proc.moving.insert(device);
                self.moves_in(process, device)
            }
            (Order::In | Order::Lost, _) => {
                proc.seal(device, false);
                proc.in_file = false;
                None
            }
            (_, Obeys::Silently) => None,
            // It is sealed for long, and has said so to the daemon that ordered it.
            (Order::Seal, _) if !proc.away(device).is_zero() => None,
            (Order::Seal, Obeys::Busy) => Some((drain, busy(false))),
            // As the library does it at its deadline.
            (Order::Seal, _) if drain > given => {
                proc.seal(device, true);
                Some((given, busy(true)))
            }
            (Order::Seal, _) => {
                proc.seal(device, true);
                Some((drain, Told::Sealed))
            }
            (Order::Leave, Obeys::Halting) => None,
            (Order::Leave, _) if !has_host => {
                let bytes = charged - proc.host;
                Some((Nanos::ZERO, Told::NoRoom { bytes }))
            }
            (Order::Leave, Obeys::Lying) => {
                let away = charged - residue;
                let left = away - proc.away(device);
                let took = self.guests[&tenant].moves.time(left);
                Some((took, Told::Away { away, residue }))
            }
            (Order::Leave, _) => self.moves_out(process, device),
            (Order::Out, _) => {
                proc.seal(device, true);
                if works {
                    self.note_return(tenant, device);
                    self.post(now, Event::WantsIn { process, device });
                }
                None
            }
            (Order::Return, _) => {
                let tight = self.world.is_tight_for_others(tenant);
                let proc = self.processes.get_mut(&process).expect("it lives");
                proc.gives_back = tight;
                self.moves_in(process, device)
            }
        };
        if let Some((after, told)) = told {
            self.moves_on((process, device, epoch), after, told);
        }
    }

    pub(super) fn moves_on(
        &mut self,
        (process, device, epoch): (ProcessId, DeviceId, u32),
        after: Nanos,
        told: Told,
    ) {
        self.post(
            self.now + after,
            Event::Moved {
                process,
                device,
                epoch,
                told,
            },
        );
    }

    /// The next part that leaves, and how long it takes.
    fn moves_out(&mut self, process: ProcessId, device: DeviceId) -> Option<(Nanos, Told)> {
        let proc = &self.processes[&process];
        let guest = &self.guests[&proc.tenant];
        let moves = &guest.moves;
        let (charged, away) = (proc.charged(device), proc.away(device));
        let residue = proc.fixed(device, moves.residue);
        let all = charged - residue;
        let part = Bytes(all.0 / moves.parts)
            .max(Bytes::mib(64))
            .min(all - away);
        let half = Bytes(all.0 / 2);
        // Managed pages that are on the host already are not copied: they go first.
        let copied = match guest.spec.oversubscribe {
            Oversubscribe::Uvm => part - (charged - away - self.pages(process, device)),
            _ => part,
        };
        let told = match (part.is_zero(), moves.obeys) {
            (false, Obeys::Failing) if away >= half => Told::NoRoom { bytes: Bytes(1) },
            (false, Obeys::Stopping) if away >= half => return None,
            (false, _) => Told::Moved { away: away + part },
            (true, _) => Told::Away { away: all, residue },
        };
        Some((moves.time(copied), told))
    }

    /// The next part that returns: as much as is not withheld. The memory is taken at once.
    pub(super) fn moves_in(
        &mut self,
        process: ProcessId,
        device: DeviceId,
    ) -> Option<(Nanos, Told)> {
        let now = self.now;
        let hardware = self.devices.get_mut(&device).expect("it exists");
        hardware.give_back(now);
        let (room, proc) = (self.room(device), &self.processes[&process]);
        let guest = &self.guests[&proc.tenant];
        let (moves, away) = (&guest.moves, proc.away(device));
        if guest.spec.oversubscribe == Oversubscribe::Uvm {
            let told = Some((moves.time(away.min(room)), Told::Back));
            let proc = self.processes.get_mut(&process).expect("it lives");
            proc.set_away(device, Bytes::ZERO);
            return told;
        }
        let part = away - moves.withheld.get(&device).copied().unwrap_or_default();
        if away.is_zero() {
            return Some((Nanos::ZERO, Told::Back));
        }
        if part.is_zero() {
            return None;
        }
        let took = moves.time(part);
        if part > room {
            let hardware = &self.devices[&device];
            // The device may not have returned yet what the tenant itself gave back.
            let alone = moves.orders[&device].1 == Order::In;
            let own = self.processes_of(proc.tenant).into_iter();
            let late: Bytes = own.map(|one| hardware.late(one)).sum();
            let excused = alone || !hardware.foreign.is_zero() || room + late >= part;
            assert!(excused, "{part} return where {room} are free");
            self.undoes(process, device);
            return Some((Nanos::ZERO, Told::NoRoom { bytes: part - room }));
        }
        let proc = self.processes.get_mut(&process).expect("it lives");
        proc.takes(device, part);
        proc.copies.insert(device);
        Some((took, Told::Moved { away: away - part }))
    }

    /// A process gives up what its return has brought.
    fn undoes(&mut self, process: ProcessId, device: DeviceId) {
        let proc = self.processes.get_mut(&process).expect("it lives");
        let brought = proc.undoes(device);
        let hardware = self.devices.get_mut(&device).expect("it exists");
        if hardware.returns > Nanos::ZERO && !brought.is_zero() {
            hardware.freed.push((process, brought, self.now));
        }
    }

    /// So much of a tenant's return is withheld from now on.
    pub(super) fn withheld(&mut self, tenant: TenantId, device: DeviceId, bytes: Bytes) {
        let Some(guest) = self.guests.get_mut(&tenant) else {
            return;
        };
        guest.moves.withheld.insert(device, bytes);
        let Some((epoch, Order::Return | Order::In)) = guest.moves.orders.get(&device).copied()
        else {
            return;
        };
        for process in self.hearing(tenant) {
            let proc = &self.processes[&process];
            let waits = proc.moving.contains(&device) && !proc.copies.contains(&device);
            if waits && let Some((after, told)) = self.moves_in(process, device) {
                self.moves_on((process, device, epoch), after, told);
            }
        }
    }

    /// Carries out on the hardware the move that a client reports, when the report arrives.
    /// `false`: the process is gone or the order is no longer the last one, and nothing was done.
    pub(super) fn is_done(&mut self, event: &Event) -> bool {
        let Event::Moved {
            process,
            device,
            epoch,
            told,
        } = event
        else {
            return true;
        };
        let Some(proc) = self.processes.get_mut(process) else {
            return false;
        };
        let Some(guest) = self.guests.get(&proc.tenant) else {
            return false;
        };
        if guest.moves.orders.get(device).map(|(last, _)| last) != Some(epoch) {
            return false;
        }
        let tenant = proc.tenant;
        match told {
            // The daemon reads its page: nothing can be charged from now on.
            Told::Sealed => {
                let in_use = self.charged(tenant, *device);
                let device = *device;
                let usage = Event::Usage {
                    tenant,
                    device,
                    in_use,
                };
                self.world.handle(self.now, usage);
            }
            Told::Moved { away } => {
                let (process, device, epoch) = (*process, *device, *epoch);
                let next = if guest.moves.orders[&device].1 == Order::Leave {
                    let left = *away - proc.away(device);
                    proc.set_away(device, *away);
                    let now = self.now;
                    let hardware = self.devices.get_mut(&device).expect("it exists");
                    if hardware.returns > Nanos::ZERO && !left.is_zero() {
                        hardware.freed.push((process, left, now));
                    }
                    self.moves_out(process, device)
                } else {
                    proc.copies.remove(&device);
                    self.moves_in(process, device)
                };
                if let Some((after, told)) = next {
                    self.moves_on((process, device, epoch), after, told);
                }
            }
            Told::NoRoom { .. } if guest.moves.orders[device].1 == Order::In => {
                self.tries_again((*process, *device, *epoch));
            }
            Told::Away { .. } | Told::NoRoom { .. } => {
                proc.moving.remove(device);
            }
            Told::Busy { .. } => proc.seal(*device, false),
            Told::Back => {
                assert_eq!(
                    proc.away(*device),
                    Bytes::ZERO,
                    "it opens without its memory"
                );
                proc.set_away(*device, Bytes::ZERO);
                proc.moving.remove(device);
                proc.seal(*device, false);
                let process = *process;
                self.gives_back(process);
            }
        }
        true
    }
}
