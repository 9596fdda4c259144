//! The memory that a device really holds, whatever the accounts show.

use super::Node;
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Oversubscribe, ProcessId, ProcessSample, Sample, TenantId,
};
use std::collections::BTreeMap;

/// One device.
#[derive(Debug)]
pub struct Hardware {
    pub capacity: Bytes,
    /// The real memory of a context.
    pub context: Bytes,
    /// Memory of processes that belong to no tenant.
    pub foreign: Bytes,
    /// How long dead processes' memory stays. `None`: until it is taken away by hand.
    pub linger: Option<Nanos>,
    /// Dead processes, the memory they hold, and since when.
    pub dead: BTreeMap<ProcessId, (Bytes, Nanos)>,
    /// The same of their managed memory, as much as there was. It leaves for any other, as that of
    /// the living does: the driver evicts pages until it frees them.
    evictable: BTreeMap<ProcessId, (Bytes, Nanos)>,
    /// Their charges for both kinds, and the tenant whose limit those count against.
    pub dead_charges: BTreeMap<ProcessId, (TenantId, Bytes)>,
    /// How long memory that a live process freed stays on the device.
    pub returns: Nanos,
    /// Freed memory that is not back yet: its process, its size, and since when.
    pub freed: Vec<(ProcessId, Bytes, Nanos)>,
    /// Each process's memory at the last look.
    pub shown: Option<BTreeMap<ProcessId, Bytes>>,
    /// When the device was looked at.
    pub looks: Vec<Nanos>,
    /// Looks fail: nothing comes of them.
    pub looks_fail: bool,
    /// Whether NVML lists dead processes that still hold memory.
    pub lists_dead: bool,
    /// Whether NVML can list processes here.
    pub lists_processes: bool,
    /// Whether it lists them with their managed memory.
    pub lists_managed: bool,
    /// Whether the memory of managed pages that have gone to the host stays taken until other
    /// memory needs it.
    pub keeps: bool,
}

impl Hardware {
    pub fn new(capacity: Bytes, context: Bytes) -> Self {
        Self {
            capacity,
            context,
            foreign: Bytes::ZERO,
            linger: Some(Nanos::ZERO),
            dead: BTreeMap::new(),
            evictable: BTreeMap::new(),
            dead_charges: BTreeMap::new(),
            returns: Nanos::ZERO,
            freed: Vec::new(),
            shown: None,
            looks: Vec::new(),
            looks_fail: false,
            lists_dead: true,
            lists_processes: true,
            lists_managed: true,
            keeps: true,
        }
    }

    pub fn died(&mut self, process: ProcessId, holds: Bytes, now: Nanos) {
        if !holds.is_zero() {
            self.dead.insert(process, (holds, now));
        }
    }

    /// The process dies, with so much fixed and managed memory.
    pub fn leaves(
        &mut self,
        process: ProcessId,
        (fixed, managed): (Bytes, Bytes),
        (tenant, charged): (TenantId, Bytes),
        now: Nanos,
    ) {
        let late = self.take_late(process);
        self.died(process, fixed + late, now);
        if !managed.is_zero() {
            self.evictable.insert(process, (managed, now));
        }
        let charged = charged.min(fixed + managed);
        self.dead_charges.insert(process, (tenant, charged));
    }

    pub(super) fn give_back(&mut self, now: Nanos) {
        if let Some(linger) = self.linger {
            self.dead.retain(|_, (_, died)| *died + linger > now);
            self.evictable.retain(|_, (_, died)| *died + linger > now);
        }
        let returns = self.returns;
        self.freed.retain(|(_, _, since)| *since + returns > now);
    }

    /// A process's freed memory that is not back yet.
    pub(super) fn late(&self, process: ProcessId) -> Bytes {
        let own = self.freed.iter().filter(|(of, _, _)| *of == process);
        own.map(|(_, bytes, _)| *bytes).sum()
    }

    /// The process died: its freed memory goes with the rest of it.
    fn take_late(&mut self, process: ProcessId) -> Bytes {
        let late = self.late(process);
        self.freed.retain(|(of, _, _)| *of != process);
        late
    }

    /// The charged memory that a tenant's dead processes still hold.
    pub fn charged_by_dead(&self, tenant: TenantId) -> Bytes {
        let managed = self.evictable.keys();
        let managed = managed.filter(|dead| !self.dead.contains_key(dead));
        let held = self.dead.keys().chain(managed);
        let held = held.filter_map(|dead| self.dead_charges.get(dead));
        let own = held.filter(|(of, _)| *of == tenant);
        own.map(|(_, bytes)| *bytes).sum()
    }

    /// The part of it that leaves for no other.
    pub fn fixed_by_dead(&self, tenant: TenantId) -> Bytes {
        let managed = |dead: &ProcessId| self.evictable.get(dead).map(|(bytes, _)| *bytes);
        let held = self.dead.keys();
        let held = held.filter_map(|dead| Some((dead, self.dead_charges.get(dead)?)));
        let own = held.filter(|(_, (of, _))| *of == tenant);
        own.map(|(dead, (_, bytes))| *bytes - managed(dead).unwrap_or_default())
            .sum()
    }
}

/// One process of a tenant.
#[derive(Debug)]
pub struct Proc {
    pub tenant: TenantId,
    pub charged: BTreeMap<DeviceId, Bytes>,
    /// The part of the charges that is on the host.
    away: BTreeMap<DeviceId, Bytes>,
    /// The part whose copies on the host are the valid ones: that and what a return has brought.
    home: BTreeMap<DeviceId, Bytes>,
    /// The part of what cannot move that it has freed while it was sealed.
    pub fixed_freed: BTreeMap<DeviceId, Bytes>,
    /// Devices from or to which its memory moves; and those where a copy is under way.
    pub moving: std::collections::BTreeSet<DeviceId>,
    pub copies: std::collections::BTreeSet<DeviceId>,
    /// Devices on which nothing of it runs.
    sealed: std::collections::BTreeSet<DeviceId>,
    /// The part that is managed memory of the program's own.
    pub managed: BTreeMap<DeviceId, Bytes>,
    /// Contexts, and their memory.
    pub contexts: BTreeMap<DeviceId, Bytes>,
    /// Its part of the host store, and whether it gives that back when it is back.
    pub host: Bytes,
    pub gives_back: bool,
    /// All of its memory lies in the file of a command: it needs nothing of the host store.
    pub in_file: bool,
    /// Whether its tenant's memory is managed: its pages leave for any other's.
    pub(super) paged: bool,
    /// It is stopped, or has not come to a new daemon yet: it reads no order and says nothing.
    pub deaf: bool,
    /// It has not come to the new daemon yet, which does not know it.
    pub unknown: bool,
    /// Its work waits for that of another process of its tenant, which is sealed: it does not end.
    pub spins: bool,
}

impl Proc {
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            charged: BTreeMap::new(),
            away: BTreeMap::new(),
            home: BTreeMap::new(),
            fixed_freed: BTreeMap::new(),
            moving: std::collections::BTreeSet::new(),
            copies: std::collections::BTreeSet::new(),
            sealed: std::collections::BTreeSet::new(),
            managed: BTreeMap::new(),
            contexts: BTreeMap::new(),
            host: Bytes::ZERO,
            gives_back: false,
            in_file: false,
            paged: false,
            deaf: false,
            unknown: false,
            spins: false,
        }
    }

    pub fn set_paged(&mut self, oversubscribe: Oversubscribe) {
        self.paged = oversubscribe == Oversubscribe::Uvm;
    }

    pub fn charged(&self, device: DeviceId) -> Bytes {
        self.charged.get(&device).copied().unwrap_or_default()
    }

    pub fn holds(&self, device: DeviceId) -> Bytes {
        let context = self.contexts.get(&device).copied().unwrap_or_default();
        self.charged(device) - self.away(device) + context
    }

    pub fn away(&self, device: DeviceId) -> Bytes {
        self.away.get(&device).copied().unwrap_or_default()
    }

    /// The part of the charges whose copies on the host are the valid ones.
    pub fn home(&self, device: DeviceId) -> Bytes {
        self.home.get(&device).copied().unwrap_or_default()
    }

    pub fn set_away(&mut self, device: DeviceId, bytes: Bytes) {
        self.away.insert(device, bytes);
        self.home.insert(device, bytes);
    }

    /// A return takes so much memory of the device. The copies on the host stay the valid ones.
    pub fn takes(&mut self, device: DeviceId, bytes: Bytes) {
        let away = self.away(device);
        self.away.insert(device, away - bytes);
    }

    /// Gives up what a return has brought, and says how much that was.
    pub fn undoes(&mut self, device: DeviceId) -> Bytes {
        let home = self.home(device);
        let brought = home - self.away(device);
        self.set_away(device, self.away(device).max(home));
        brought
    }

    /// The part of the charges that cannot move, of a process that had so much of that.
    pub fn fixed(&self, device: DeviceId, residue: Bytes) -> Bytes {
        let freed = self.fixed_freed.get(&device).copied().unwrap_or_default();
        (residue - freed).min(self.charged(device))
    }

    pub fn is_sealed(&self, device: DeviceId) -> bool {
        self.sealed.contains(&device)
    }

    pub fn seal(&mut self, device: DeviceId, sealed: bool) {
        if sealed {
            self.sealed.insert(device);
        } else {
            self.sealed.remove(&device);
        }
    }
}

impl Node {
    pub fn add(&mut self, process: ProcessId, mut proc: Proc) {
        proc.set_paged(self.guests[&proc.tenant].spec.oversubscribe);
        self.members.insert((proc.tenant, process));
        let devices = proc.charged.keys().chain(proc.contexts.keys());
        for device in devices.copied().collect::<Vec<_>>() {
            self.is_on(process, device);
        }
        self.processes.insert(process, proc);
    }

    /// A process has something on a device from now on.
    pub(super) fn is_on(&mut self, process: ProcessId, device: DeviceId) {
        self.present.entry(device).or_default().insert(process);
    }

    /// The processes that have something on a device.
    pub(super) fn on(&self, device: DeviceId) -> impl Iterator<Item = (ProcessId, &Proc)> {
        let present = self.present.get(&device).into_iter().flatten();
        present.map(|process| (*process, &self.processes[process]))
    }

    /// The memory really in use on a device.
    pub fn physical(&self, device: DeviceId) -> Bytes {
        let managed: Bytes = self.managed(device).map(|(_, bytes)| bytes).sum();
        let kept: Bytes = self.kept(device).map(|(_, bytes)| bytes).sum();
        self.fixed(device) + managed + kept
    }

    /// The memory with which NVML lists a process.
    fn listed(&self, process: ProcessId, proc: &Proc, device: DeviceId) -> Bytes {
        let hardware = &self.devices[&device];
        let own = proc.managed.get(&device).copied().unwrap_or_default();
        let kept = || self.kept(device).find(|(one, _)| *one == process);
        let (listed, unlisted) = match hardware.lists_managed {
            true => (kept().map_or(Bytes::ZERO, |(_, bytes)| bytes), Bytes::ZERO),
            false => (Bytes::ZERO, self.pages(process, device) + own),
        };
        self.held(process, proc, device) + hardware.late(process) + listed - unlisted
    }

    /// The memory of a process that is on a device.
    pub fn holds(&self, process: ProcessId, device: DeviceId) -> Bytes {
        self.held(process, &self.processes[&process], device)
    }

    fn held(&self, process: ProcessId, proc: &Proc, device: DeviceId) -> Bytes {
        if !proc.paged {
            return proc.holds(device);
        }
        let context = proc.contexts.get(&device).copied().unwrap_or_default();
        self.pages(process, device) + context
    }

    /// The same in two parts: what stays there, and what leaves for any other.
    pub(super) fn parts(&self, process: ProcessId, device: DeviceId) -> (Bytes, Bytes) {
        let pages = self.pages(process, device);
        (self.holds(process, device) - pages, pages)
    }

    /// The managed memory of a process that is on a device: as much as the rest leaves room for,
    /// the first process's first.
    pub(super) fn pages(&self, process: ProcessId, device: DeviceId) -> Bytes {
        if !self.processes[&process].paged {
            return Bytes::ZERO;
        }
        let mut all = self.managed(device);
        let own = all.find(|(one, _)| *one == process);
        own.map_or(Bytes::ZERO, |(_, bytes)| bytes)
    }

    /// The managed memory of each dead process that is on a device.
    fn evictable(&self, device: DeviceId) -> impl Iterator<Item = (ProcessId, Bytes)> {
        // Most devices have none: nothing else is counted for it.
        let some = !self.devices[&device].evictable.is_empty();
        let all = some.then(|| self.managed(device)).into_iter().flatten();
        all.filter(|(process, _)| !self.processes.contains_key(process))
    }

    /// That of all. The pages of the dead are evicted first: nobody uses them.
    fn managed(&self, device: DeviceId) -> impl Iterator<Item = (ProcessId, Bytes)> {
        let living = self.on(device).filter_map(move |(process, proc)| {
            let bytes = || proc.charged(device) - proc.away(device);
            proc.paged.then(|| (process, bytes()))
        });
        let dead = self.devices[&device].evictable.iter();
        let dead = dead.map(|(process, (bytes, _))| (*process, *bytes));
        let mut left = self.room(device);
        living.chain(dead).map(move |(process, wanted)| {
            let there = wanted.min(left);
            left -= there;
            (process, there)
        })
    }

    /// The memory that is kept of each living process's managed pages on the host: as much as all
    /// else leaves room for.
    fn kept(&self, device: DeviceId) -> impl Iterator<Item = (ProcessId, Bytes)> {
        let keeps = self.devices[&device].keeps;
        let away = self.on(device).filter_map(move |(process, proc)| {
            let away = proc.away(device);
            (keeps && proc.paged && !away.is_zero()).then_some((process, away))
        });
        let mut away = away.peekable();
        let mut left = away.peek().map_or(Bytes::ZERO, |_| {
            let managed: Bytes = self.managed(device).map(|(_, bytes)| bytes).sum();
            self.room(device) - managed
        });
        away.map(move |(process, wanted)| {
            let kept = wanted.min(left);
            left -= kept;
            (process, kept)
        })
    }

    /// The memory of a device that its driver can give: what is free, and what is managed, which
    /// leaves for any other.
    pub fn room(&self, device: DeviceId) -> Bytes {
        self.devices[&device].capacity - self.fixed(device)
    }

    /// The memory on a device that leaves for no other.
    pub(super) fn fixed(&self, device: DeviceId) -> Bytes {
        let hardware = &self.devices[&device];
        let living = self.on(device).map(|(_, proc)| {
            if proc.paged {
                proc.contexts.get(&device).copied().unwrap_or_default()
            } else {
                proc.holds(device)
            }
        });
        let living: Bytes = living.sum();
        let dead: Bytes = hardware.dead.values().map(|(holds, _)| *holds).sum();
        let late: Bytes = hardware.freed.iter().map(|(_, bytes, _)| *bytes).sum();
        living + dead + late + hardware.foreign
    }

    /// The sample that NVML would give now.
    pub fn look_at(&mut self, device: DeviceId) -> Event {
        // A look is after all that happened before it.
        self.now = self.now + Nanos(1);
        let now = self.now;
        self.devices
            .get_mut(&device)
            .expect("it exists")
            .give_back(now);
        let used = self.physical(device);
        let hardware = &self.devices[&device];
        let held = |(process, proc): (ProcessId, &Proc)| {
            let used = self.listed(process, proc, device);
            (!used.is_zero()).then(|| ProcessSample {
                process,
                used,
                // A free of a moment ago changed the slot.
                charged: hardware
                    .late(process)
                    .is_zero()
                    .then(|| proc.charged(device)),
            })
        };
        let living = self.on(device).filter_map(held);
        let managed = self.evictable(device);
        let managed = managed.filter(|_| hardware.lists_managed);
        let mut dead: BTreeMap<ProcessId, Bytes> = managed.collect();
        for (process, (used, _)) in &hardware.dead {
            *dead.entry(*process).or_default() += *used;
        }
        dead.retain(|_, used| hardware.lists_dead && !used.is_zero());
        let dead = dead.into_iter().map(|(process, used)| ProcessSample {
            process,
            used,
            charged: None,
        });
        let processes: Option<Vec<ProcessSample>> = hardware
            .lists_processes
            .then(|| living.chain(dead).collect());
        let strangers = match hardware.lists_processes {
            true => hardware.foreign,
            false => Bytes::ZERO,
        };
        let free = hardware.capacity - used;
        let mut charged: BTreeMap<TenantId, Bytes> = BTreeMap::new();
        for (_, proc) in self.on(device) {
            *charged.entry(proc.tenant).or_default() += proc.charged(device);
        }
        let hardware = self.devices.get_mut(&device).expect("it exists");
        hardware.looks.push(now);
        hardware.shown = processes.as_ref().map(|list| {
            let shown = list.iter().map(|sample| (sample.process, sample.used));
            shown.collect()
        });
        Event::Sampled {
            device,
            sample: Sample {
                taken: now,
                used,
                free,
                processes,
                strangers,
                charged,
            },
        }
    }
}
