//! A node in virtual time: the world, clients that keep the rules, a device that may return memory
//! late. The accounts and the device's own memory are checked after every event.
#![allow(unreachable_pub, reason = "a module of several test files")]

pub mod bare;
mod beside;
mod bound;
mod clock;
pub mod further;
mod guest;
mod hardware;
pub mod late;
pub mod program;
mod react;
mod returns;
pub mod rng;
mod specs;
pub mod store;
pub mod swap;
pub mod watch;

pub use clock::{gib, mib, secs};
pub use guest::{Guest, Manners};
pub use hardware::{Hardware, Proc};
pub use rng::Rng;
pub use specs::{killable, ranked, resolving, spec};

use gpushare_core::{
    Answer, AskId, AskKey, Bytes, CostClass, Denial, DeviceId, DeviceSpec, Event, LeasePolicy,
    Nanos, Notice, Oversubscribe, Policy, ProcessId, TenantId, TenantSpec, Work, World,
};
use std::collections::{BTreeMap, BTreeSet};

/// The allocation behind an ask, until it is answered.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub device: DeviceId,
    /// `None`: a context.
    pub bytes: Option<Bytes>,
    pub asked: Nanos,
    /// The ask the program made; it may have been asked again after a sibling was quicker.
    pub first: AskKey,
    /// Until when its time was extended.
    pub until: Nanos,
    /// Until when it may wait for the rotation by the bound of `bound.rs`, as things were.
    pub rounds: Nanos,
}

#[derive(Debug)]
pub struct Node {
    pub world: World,
    pub policy: Policy,
    pub now: Nanos,
    pub devices: BTreeMap<DeviceId, Hardware>,
    pub guests: BTreeMap<TenantId, Guest>,
    pub processes: BTreeMap<ProcessId, Proc>,
    members: BTreeSet<(TenantId, ProcessId)>,
    /// The processes that have something on each device.
    present: BTreeMap<DeviceId, BTreeSet<ProcessId>>,
    pub asks: BTreeMap<AskKey, Wanted>,
    /// How the calls go for which further contexts are asked.
    calls: BTreeMap<AskKey, further::Call>,
    pub answers: BTreeMap<AskKey, Answer>,
    pub notices: Vec<Notice>,
    /// Whether facts are such that requests must hold: no strangers, no victim that stays, limbo
    /// soon over.
    pub guarantees: bool,
    /// Whether notices and answers are kept, and all devices are checked after each event.
    pub thorough: bool,
    /// Whether what clients may have on a card is summed up after each event.
    pub card_is_checked: bool,
    /// Events on their way.
    mail: BTreeMap<(Nanos, u64), Event>,
    /// When set, replies take up to this long.
    pub lag: Option<(Rng, Nanos)>,
    /// Print what happens (set `NODE_TRACE`).
    trace: bool,
    pub decided: u64,
    /// The claims of processes on shared devices in their pages: random. `None`: no claims.
    pub claims: Option<Rng>,
    /// When they were read last, and how long after that they are read at the earliest: the daemon
    /// is late, so that hours of a node take seconds.
    read: Nanos,
    pub read_every: Nanos,
    /// The host store.
    pub store: store::Store,
    /// Tenants that wait for the rotation.
    pub returns: returns::Returns,
    /// What is checked after each event where not all devices are.
    pub watch: watch::Watch,
    next: u64,
}

impl Node {
    /// A node whose contexts cost nothing and whose grants are exact, so that scenarios are easy to
    /// compute.
    pub fn new() -> Self {
        Self::with(Policy {
            first_overhead: Bytes::ZERO,
            step: Bytes(1),
            ..Policy::default()
        })
    }

    /// The same, with exclusive turns on its devices.
    pub fn dealt_in_turns() -> Self {
        Self::with(Policy {
            first_overhead: Bytes::ZERO,
            step: Bytes(1),
            lease: LeasePolicy::turns(),
            ..Policy::default()
        })
    }

    /// With one device of so many GiB.
    pub fn with_device(gib: u64) -> (Self, DeviceId) {
        let mut node = Self::new();
        let device = node.device(gib);
        (node, device)
    }

    pub fn with(policy: Policy) -> Self {
        Self::of(World::new(policy), policy)
    }

    pub fn of(world: World, policy: Policy) -> Self {
        Self {
            world,
            policy,
            now: Nanos::secs(1),
            devices: BTreeMap::new(),
            guests: BTreeMap::new(),
            processes: BTreeMap::new(),
            members: BTreeSet::new(),
            present: BTreeMap::new(),
            asks: BTreeMap::new(),
            calls: BTreeMap::new(),
            answers: BTreeMap::new(),
            notices: Vec::new(),
            guarantees: true,
            thorough: true,
            card_is_checked: false,
            mail: BTreeMap::new(),
            lag: None,
            trace: std::env::var_os("NODE_TRACE").is_some(),
            decided: 0,
            claims: None,
            read: Nanos::ZERO,
            read_every: Nanos::millis(50),
            store: store::Store::default(),
            returns: returns::Returns::default(),
            watch: watch::Watch::default(),
            next: 0,
        }
    }

    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn device(&mut self, gib: u64) -> DeviceId {
        self.device_of(Bytes::gib(gib))
    }

    pub fn device_of(&mut self, capacity: Bytes) -> DeviceId {
        let device = DeviceId(self.fresh());
        let spec = DeviceSpec {
            capacity,
            reserve: Bytes::ZERO,
            class: CostClass(1),
        };
        self.devices.insert(
            device,
            Hardware::new(spec.capacity, self.policy.first_overhead),
        );
        self.tell(Event::DeviceAdded { device, spec });
        device
    }

    /// Registers a tenant.
    pub fn register(&mut self, spec: TenantSpec) -> TenantId {
        let tenant = TenantId(self.fresh());
        let guest = Guest {
            spec: spec.clone(),
            admitted: false,
            refused: None,
            manners: Manners::Polite,
            page: BTreeMap::new(),
            leases: BTreeMap::new(),
            signals: Vec::new(),
            worked: false,
            moves: swap::Moves::default(),
        };
        self.guests.insert(tenant, guest);
        self.tell(Event::Register {
            tenant,
            spec,
            running: None,
        });
        tenant
    }

    /// Starts a process and opens a context on every device of its tenant.
    pub fn start(&mut self, tenant: TenantId) -> ProcessId {
        let quotas = self.guests[&tenant].spec.quotas.clone();
        let devices: Vec<DeviceId> = quotas.into_iter().map(|(device, _)| device).collect();
        self.start_on(tenant, &devices)
    }

    /// Starts a process and opens a context on each of these devices.
    pub fn start_on(&mut self, tenant: TenantId, devices: &[DeviceId]) -> ProcessId {
        let process = ProcessId(self.fresh());
        self.add(process, Proc::new(tenant));
        self.tell(Event::ProcessStarted {
            process,
            tenant,
            adopted: true,
            gated: true,
        });
        if self.guests[&tenant].spec.oversubscribe != Oversubscribe::Off {
            self.tell(Event::Movable { process });
        }
        for device in devices {
            self.open(process, *device);
        }
        process
    }

    /// Registers a tenant and starts one process in it.
    pub fn run(&mut self, spec: TenantSpec) -> (TenantId, ProcessId) {
        let tenant = self.register(spec);
        let process = self.start(tenant);
        (tenant, process)
    }

    pub fn open(&mut self, process: ProcessId, device: DeviceId) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        self.note_ask(ask, ask, device, None);
        self.tell(Event::Open {
            process,
            device,
            ask: ask.1,
        });
        ask
    }

    /// A process allocates.
    pub fn want(&mut self, process: ProcessId, device: DeviceId, bytes: Bytes) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        self.want_again(ask, ask, device, bytes, None)
    }

    /// The same with so much of its time to wait left.
    pub fn want_with(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        bytes: Bytes,
        patience: Option<Nanos>,
    ) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        self.want_again(ask, ask, device, bytes, patience)
    }

    fn want_again(
        &mut self,
        ask: AskKey,
        first: AskKey,
        device: DeviceId,
        bytes: Bytes,
        patience: Option<Nanos>,
    ) -> AskKey {
        let held = self.charged(self.processes[&ask.0].tenant, device);
        self.note_ask(ask, first, device, Some(bytes));
        self.tell(Event::Ask {
            process: ask.0,
            device,
            ask: ask.1,
            held,
            bytes,
            patience,
        });
        first
    }

    /// The driver refuses a process an allocation that it had charged within its credit.
    pub fn refused(&mut self, process: ProcessId, device: DeviceId, bytes: Bytes) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        let held = self.charged(self.processes[&process].tenant, device);
        self.note_ask(ask, ask, device, None);
        self.tell(Event::DriverRefused {
            process,
            device,
            ask: ask.1,
            held,
            bytes,
            patience: None,
        });
        ask
    }

    fn note_ask(&mut self, ask: AskKey, first: AskKey, device: DeviceId, bytes: Option<Bytes>) {
        let asked = self.asks.get(&first);
        let asked = asked.map_or(self.now, |wanted| wanted.asked);
        let rounds = asked + self.two_rounds(device);
        self.asks.insert(
            ask,
            Wanted {
                device,
                bytes,
                asked,
                first,
                until: Nanos::ZERO,
                rounds,
            },
        );
    }

    /// A process charges within the credit in its page, without asking. Returns whether it could.
    pub fn charge(&mut self, process: ProcessId, device: DeviceId, bytes: Bytes) -> bool {
        let tenant = self.processes[&process].tenant;
        let page = self.guests[&tenant].page.get(&device).copied();
        let fits = self.charged(tenant, device) + bytes <= page.unwrap_or_default()
            && !self.processes[&process].is_sealed(device);
        if fits {
            let proc = self.processes.get_mut(&process).expect("it lives");
            *proc.charged.entry(device).or_default() += bytes;
            self.is_on(process, device);
        }
        fits
    }

    /// A process frees; its page shows it, and the daemon looks.
    pub fn free(&mut self, process: ProcessId, device: DeviceId, bytes: Bytes) {
        let proc = self.processes.get_mut(&process).expect("it lives");
        let tenant = proc.tenant;
        // While it is sealed it frees what cannot move: a free of the rest waits for the seal.
        let most = match proc.is_sealed(device) {
            true => {
                let fixed = proc.fixed(device, self.guests[&tenant].moves.residue);
                fixed.min(proc.charged(device) - proc.away(device))
            }
            false => bytes,
        };
        let charged = proc.charged.entry(device).or_default();
        let freed = bytes.min(*charged).min(most);
        *charged -= freed;
        if proc.is_sealed(device) {
            *proc.fixed_freed.entry(device).or_default() += freed;
        }
        let now = self.now;
        let hardware = self.devices.get_mut(&device).expect("it exists");
        if hardware.returns > Nanos::ZERO && !freed.is_zero() {
            hardware.freed.push((process, freed, now));
        }
        self.look(tenant, device);
    }

    /// The daemon reads a tenant's usage page.
    pub fn look(&mut self, tenant: TenantId, device: DeviceId) {
        let in_use = self.charged(tenant, device);
        self.tell(Event::Usage {
            tenant,
            device,
            in_use,
        });
    }

    /// A process dies. Its memory stays on the device for as long as the device says.
    pub fn exit(&mut self, process: ProcessId) {
        if let Some(gone) = self.kill(process) {
            self.tell(gone);
        }
    }

    /// All of a tenant ends.
    pub fn finish(&mut self, tenant: TenantId) {
        for process in self.processes_of(tenant) {
            self.exit(process);
        }
        self.guests.remove(&tenant);
        self.returns.forget(tenant);
        self.watches_no_more(tenant);
        self.tell(Event::TenantGone { tenant });
    }

    pub fn processes_of(&self, tenant: TenantId) -> Vec<ProcessId> {
        let mine = (tenant, ProcessId(0))..=(tenant, ProcessId(u64::MAX));
        self.members
            .range(mine)
            .map(|(_, process)| *process)
            .collect()
    }

    /// The charges of a tenant's processes.
    pub fn charged(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let processes = self.processes_of(tenant).into_iter();
        let charged = processes.map(|process| self.processes[&process].charged(device));
        charged.sum()
    }

    /// Takes a process off the books of the harness; its memory stays on the devices.
    pub fn kill(&mut self, process: ProcessId) -> Option<Event> {
        self.processes.get(&process)?;
        let on = |device: &&DeviceId| {
            let present = self.present.get(*device);
            present.is_some_and(|present| present.contains(&process))
        };
        let devices: Vec<DeviceId> = self.devices.keys().filter(on).copied().collect();
        let held = devices.into_iter();
        let held: BTreeMap<DeviceId, (Bytes, Bytes)> = held
            .map(|device| (device, self.parts(process, device)))
            .collect();
        for device in held.keys() {
            let present = self.present.get_mut(device);
            present.map(|present| present.remove(&process));
            self.watch.touch(*device);
        }
        let dead = self.processes.remove(&process)?;
        self.members.remove(&(dead.tenant, process));
        let others = self.processes_of(dead.tenant);
        let has = |device: &DeviceId| {
            let mut others = others.iter().map(|other| &self.processes[other]);
            others.any(|other| other.contexts.contains_key(device))
        };
        for device in held.keys().filter(|device| !has(device)) {
            self.returns.waiting.remove(&(dead.tenant, *device));
        }
        self.tell_held(dead.tenant);
        self.asks.retain(|ask, _| ask.0 != process);
        self.calls.retain(|ask, _| ask.0 != process);
        for (device, held) in held {
            let charged = (dead.tenant, dead.charged(device));
            let hardware = self.devices.get_mut(&device).expect("it exists");
            hardware.leaves(process, held, charged, self.now);
        }
        Some(Event::ProcessGone {
            process,
            charged: dead.charged.into_iter().collect(),
        })
    }

    /// Looks at a device, unless looks at it fail.
    pub fn sample(&mut self, device: DeviceId) {
        if !self.devices[&device].looks_fail {
            let event = self.look_at(device);
            self.tell(event);
        }
    }

    /// Delivers an event and everything that follows from it at this instant.
    pub fn tell(&mut self, event: Event) {
        self.post(self.now, event);
        self.settle_mail();
    }

    fn post(&mut self, at: Nanos, event: Event) {
        let number = self.fresh();
        self.mail.insert((at, number), event);
    }

    /// Whether an ask of a process waits.
    pub fn is_asking(&self, process: ProcessId) -> bool {
        let own = (process, AskId(0))..=(process, AskId(u64::MAX));
        self.asks.range(own).next().is_some()
    }

    pub fn answer(&self, ask: AskKey) -> Option<Answer> {
        self.answers.get(&ask).copied()
    }

    pub fn granted(&self, ask: AskKey) -> bool {
        matches!(self.answer(ask), Some(Answer::Granted { .. }))
    }

    pub fn denied(&self, ask: AskKey) -> Option<Denial> {
        match self.answer(ask) {
            Some(Answer::Denied(denial)) => Some(denial),
            _ => None,
        }
    }

    pub fn waits(&self, ask: AskKey) -> bool {
        self.answer(ask).is_none()
    }
}
