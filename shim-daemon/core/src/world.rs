//! The world: all devices, containers, processes and asks of a node, and the loop that moves them.
//!
//! Each file below this one is one subject. They share the fields here and nothing else.

mod admission;
mod ask;
mod bands;
mod change;
mod collision;
mod compute;
mod cycle;
mod first_look;
mod ladder;
mod looks;
mod own_dead;
mod parts;
mod pending;
mod process;
mod reclaim;
mod registration;
mod sample;
mod settle;
mod time_limits;
pub(crate) mod view;

use crate::decision::{Decision, Notice};
use crate::event::Event;
use crate::ids::{AskKey, ContainerId, DeviceId, ProcessId};
use crate::lease::{Bands, DeviceTime, Input};
use crate::ledger::Device;
use crate::overhead::Costs;
use crate::spec::{ContainerSpec, Policy};
use crate::time::Nanos;
use crate::timers::{Timer, Timers};
use admission::Place;
use gpushare_protocol::units::Bytes;
use ladder::Ending;
use pending::Pending;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A registered container.
#[derive(Debug)]
struct Container {
    spec: ContainerSpec,
    registered: Nanos,
    /// `None` while it waits for admission.
    admitted: Option<Nanos>,
    processes: BTreeSet<ProcessId>,
    /// When it was last seen doing GPU work.
    worked: Nanos,
    idle: bool,
    /// The end it was warned of.
    warned: Option<Nanos>,
    /// When it was last spared: at that very instant it is not chosen again.
    spared: Option<Nanos>,
    /// The kill ladder it is on.
    ending: Option<Ending>,
}

/// A connected process.
#[derive(Debug)]
struct Process {
    container: ContainerId,
    /// Whether it obeys this daemon's control page.
    adopted: bool,
    /// Whether its gate can be closed.
    gated: bool,
    opened: BTreeMap<DeviceId, Opened>,
    /// Its asks that are not answered.
    waiting: BTreeSet<AskKey>,
}

/// What a process takes on a device beside its charges.
#[derive(Clone, Copy, Debug)]
struct Opened {
    overhead: Bytes,
    measured: bool,
    /// Whether the device ever showed it.
    shown: bool,
    /// When it was set aside for.
    since: Nanos,
    /// What it presented as its credit after a restart.
    presented: Option<Bytes>,
}

/// The brain. See the crate's page.
#[derive(Debug)]
pub struct World {
    policy: Policy,
    now: Nanos,
    devices: BTreeMap<DeviceId, Device>,
    /// Whose turn it is on each device.
    schedules: BTreeMap<DeviceId, DeviceTime>,
    /// Containers whose turns on several devices go together.
    /// Containers that are closed and opened together on the devices they share.
    bands: Bands,
    containers: BTreeMap<ContainerId, Container>,
    processes: BTreeMap<ProcessId, Process>,
    asks: BTreeMap<AskKey, Pending>,
    /// Containers on a kill ladder.
    ladders: BTreeSet<ContainerId>,
    /// Containers that wait for admission, best first.
    queue: BTreeSet<Place>,
    timers: Timers,
    /// Devices that somebody waits to be looked at, and the pause before the next look.
    pauses: BTreeMap<DeviceId, Nanos>,
    decisions: VecDeque<Decision>,
    costs: Costs,
    tickets: u64,
    /// After a restart: until then clients present what they hold and nothing new is granted.
    recovering: bool,
}

impl World {
    /// An empty node.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Nanos::ZERO,
            devices: BTreeMap::new(),
            schedules: BTreeMap::new(),
            bands: Bands::default(),
            containers: BTreeMap::new(),
            processes: BTreeMap::new(),
            asks: BTreeMap::new(),
            ladders: BTreeSet::new(),
            queue: BTreeSet::new(),
            timers: Timers::default(),
            pauses: BTreeMap::new(),
            decisions: VecDeque::new(),
            costs: Costs::default(),
            tickets: 0,
            recovering: false,
        }
    }

    /// A node whose previous daemon died: until `until` clients present what they hold, nobody is admitted that did not
    /// run already, and asks wait.
    pub fn recovering(policy: Policy, until: Nanos) -> Self {
        let mut world = Self::new(policy);
        world.recovering = true;
        world.timers.set(Timer::Recovered, until);
        world
    }

    /// Takes in an event. A `now` before the last one counts as the last one.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.advance(now);
        match event {
            Event::DeviceAdded { device, spec } => self.device_added(device, spec),
            Event::DeviceLost { device } => self.device_lost(device),
            Event::Register {
                container,
                spec,
                running,
            } => self.register(container, spec, running),
            Event::Set { container, spec } => self.set(container, spec),
            Event::ContainerGone { container } => self.container_gone(container),
            Event::ProcessStarted {
                process,
                container,
                adopted,
                gated,
            } => {
                self.process_started(process, container, adopted, gated);
            }
            Event::Presented {
                process,
                device,
                charged,
                credit,
                grant,
            } => {
                self.presented(process, device, charged, credit, grant);
            }
            Event::Adopted { process } => self.adopted(process),
            Event::Away { process, away } => self.away(process, away),
            Event::Vacated {
                process,
                device,
                charged,
            } => self.vacated(process, device, charged),
            Event::Remembered {
                process,
                container,
                device,
                bytes,
                charged,
            } => self.remembered(process, container, device, (bytes, charged)),
            Event::ProcessGone { process, charged } => self.process_gone(process, &charged),
            Event::ProcessReplaced { process, charged } => {
                self.process_replaced(process, &charged);
            }
            Event::Open {
                process,
                device,
                ask,
            } => self.open(process, device, ask),
            Event::ContextMade { process, device } => self.context_made(process, device),
            Event::Ask {
                process,
                device,
                ask,
                held,
                bytes,
                patience,
            } => {
                self.credit_asked(process, device, ask, (held, bytes), patience);
            }
            Event::DriverRefused {
                process,
                device,
                ask,
                held,
                bytes,
                patience,
            } => {
                self.driver_refused(process, device, ask, (held, bytes), patience);
            }
            Event::Cancel { process, ask } => self.cancel((process, ask)),
            Event::Usage {
                container,
                device,
                in_use,
            } => self.usage(container, device, in_use),
            Event::Reclaimed {
                ticket,
                container,
                device,
                held,
                used,
            } => {
                self.reclaimed(ticket, container, device, held, used);
            }
            Event::Reported {
                process,
                device,
                epoch,
                report,
            } => {
                let reported = Input::Reported {
                    process,
                    epoch,
                    report,
                };
                self.tell_device(device, reported);
            }
            Event::Served { device, works } => self.served(device, &works),
            Event::Worked { container } => self.worked(container),
            Event::Sampled { device, sample } => self.sampled(device, sample),
        }
    }

    /// Lets time pass without an event: call it when [`Self::next_timeout`] has come.
    pub fn advance(&mut self, now: Nanos) {
        let now = now.max(self.now);
        while let Some(timer) = self.timers.take_due(now) {
            self.now = now;
            match timer {
                Timer::Recovered => self.recovered(),
                Timer::Patience(ask) => self.patience_over(ask),
                Timer::Idle(container) => self.check_idle(container),
                Timer::End(container) => self.check_end(container),
                Timer::Ladder(container) => self.next_rung(container),
                Timer::Settle(device) => self.freed(device),
                Timer::Look(device) => self.look_again(device),
                Timer::Cycle => self.check_cycles(),
                Timer::Guess(device) => self.guess_due(device),
                Timer::Turn(device) => self.device_due(device),
            }
        }
        self.now = now;
    }

    /// When `advance` is wanted if nothing happens before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// The next thing to do, in order.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// Recomputes everything and compares it with what is kept. `Err` says what is broken; for tests and for `doctor`.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        for device in self.devices.keys() {
            self.check_device(*device)?;
        }
        Ok(())
    }

    /// [`Self::check`] for one device.
    ///
    /// # Errors
    /// As there.
    pub fn check_device(&self, device: DeviceId) -> Result<(), String> {
        let Some(books) = self.devices.get(&device) else {
            return Ok(());
        };
        books
            .check()
            .map_err(|broken| format!("{device:?}: {broken}"))?;
        if let Some(schedule) = self.schedules.get(&device) {
            schedule
                .check()
                .map_err(|broken| format!("{device:?}: {broken}"))?;
        }
        match books
            .waiting
            .iter()
            .find(|ask| !self.asks.contains_key(ask))
        {
            Some(ask) => Err(format!("{device:?}: {ask:?} waits and is not known")),
            None => Ok(()),
        }
    }

    fn decide(&mut self, decision: Decision) {
        self.decisions.push_back(decision);
    }

    fn notice(&mut self, notice: Notice) {
        self.decide(Decision::Notice(notice));
    }

    /// Facts about a device changed: says so if its books broke or mended, and serves whom it can.
    fn facts_changed(&mut self, device: DeviceId) {
        let Some(books) = self.devices.get_mut(&device) else {
            return;
        };
        let unmanaged = books.unmanaged;
        match books.facts_changed() {
            Some(Bytes::ZERO) => self.notice(Notice::Balanced { device }),
            Some(by) => self.notice(Notice::Overdrawn {
                device,
                by,
                unmanaged,
            }),
            None => (),
        }
        self.freed(device);
    }

    /// Something on the device may have become free.
    fn freed(&mut self, device: DeviceId) {
        self.settle(device);
        if self.may_admit(device) {
            self.admit_waiting();
        }
    }

    /// The devices a container has a quota on.
    fn devices_of(&self, container: ContainerId) -> Vec<DeviceId> {
        let quotas = self
            .containers
            .get(&container)
            .map(|known| &known.spec.quotas);
        quotas
            .into_iter()
            .flatten()
            .map(|(device, _)| *device)
            .collect()
    }

    fn recovered(&mut self) {
        self.recovering = false;
        for container in self.containers.keys().copied().collect::<Vec<_>>() {
            self.check_end(container);
        }
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            self.settle(device);
        }
        self.admit_waiting();
    }
}
