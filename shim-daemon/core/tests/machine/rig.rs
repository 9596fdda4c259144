//! Several devices beside each other, and containers on some of them: what the world does with their schedules, and kernels
//! that wait for their peers on other devices.

use super::{Machine, Program};
use gpushare_core::lease::{Gangs, Schedule, ShareState};
use gpushare_core::{Compute, ContainerId, DeviceId, LeasePolicy, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// A process: its place on each of its devices.
pub type Process = Vec<(usize, usize)>;

#[derive(Debug)]
pub struct Rig {
    pub devices: Vec<Machine>,
    /// `None`: every device deals its turns by itself.
    gangs: Option<Gangs>,
    /// The devices of each container, by index.
    homes: BTreeMap<ContainerId, BTreeSet<usize>>,
    /// Collectives that ran.
    pub met: BTreeMap<ContainerId, u64>,
    /// Time in which each device ran a kernel that waited for its peers.
    pub spun: Vec<u64>,
}

impl Rig {
    pub fn new(count: usize, seed: u64) -> Self {
        Self::with(count, seed, LeasePolicy::turns())
    }

    pub fn with(count: usize, seed: u64, policy: LeasePolicy) -> Self {
        let machine = |name| Machine {
            name,
            ..Machine::with(policy, seed.wrapping_mul(31).wrapping_add(name as u64))
        };
        Self {
            devices: (0..count).map(machine).collect(),
            gangs: Some(Gangs::default()),
            homes: BTreeMap::new(),
            met: BTreeMap::new(),
            spun: vec![0; count],
        }
    }

    /// As it would be without gangs.
    pub fn apart(mut self) -> Self {
        self.gangs = None;
        self
    }

    pub fn now(&self) -> Nanos {
        self.devices[0].now
    }

    /// A process of a container opens a context on each of these devices and starts its program there.
    pub fn start(
        &mut self,
        container: u64,
        class: u16,
        compute: Compute,
        programs: &[(usize, Program)],
    ) -> Process {
        let start = |(device, program): &(usize, Program)| {
            let home = self.homes.entry(ContainerId(container)).or_default();
            home.insert(*device);
            let at = self.devices[*device].start(container, class, compute, *program);
            (*device, at)
        };
        let process = programs.iter().map(start).collect();
        for (device, _) in programs {
            self.settle(Some((*device, Some(ContainerId(container)))));
        }
        process
    }

    /// A process dies.
    pub fn kill(&mut self, process: &Process) {
        for (device, at) in process {
            self.devices[*device].kill(*at);
            self.settle(Some((*device, None)));
        }
    }

    /// A device is lost, with all that is on it: what runs elsewhere and waits for it waits for ever.
    pub fn lose(&mut self, device: usize) {
        for at in 0..self.devices[device].clients.len() {
            self.devices[device].kill(at);
        }
        self.settle(Some((device, None)));
    }

    pub fn run(&mut self, time: Nanos) {
        self.watch(time, |_| ());
    }

    /// Runs, and looks after everything that happens.
    pub fn watch(&mut self, time: Nanos, mut look: impl FnMut(&Self)) {
        let end = self.now() + time;
        loop {
            let next = self.devices.iter_mut().map(Machine::next_event).min();
            let at = next.unwrap_or(Nanos::MAX).max(self.now());
            self.elapse(at.min(end));
            if at > end {
                return;
            }
            for device in 0..self.devices.len() {
                if self.devices[device].next_event() <= at {
                    self.devices[device].happen();
                    if std::mem::take(&mut self.devices[device].told) {
                        self.settle(None);
                    }
                }
            }
            self.meet();
            let due = |machine: &Machine| machine.schedule.next_timeout();
            let due = self.devices.iter().filter_map(due).min();
            assert!(due.is_none_or(|due| due > at), "a timeout is due at {at:?}");
            look(self);
        }
    }

    fn elapse(&mut self, to: Nanos) {
        for (machine, spun) in self.devices.iter_mut().zip(&mut self.spun) {
            if machine.gpu.spinning().next().is_some() {
                *spun += (to - machine.now).0;
            }
            machine.elapse(to);
        }
    }

    /// What the world does after every input.
    fn settle(&mut self, came: Option<(usize, Option<ContainerId>)>) {
        let now = self.now();
        let mut schedules: BTreeMap<DeviceId, &mut Schedule> = (0..)
            .map(DeviceId)
            .zip(self.devices.iter_mut().map(|machine| &mut machine.schedule))
            .collect();
        if let Some(gangs) = &mut self.gangs {
            if let Some((device, container)) = came {
                let device = DeviceId(device as u64);
                gangs.regroup(now, &mut schedules, device, container);
            }
            gangs.settle(now, &mut schedules);
            gangs
                .check(&schedules)
                .unwrap_or_else(|broken| panic!("at {now:?}: {broken}"));
        }
        for machine in &mut self.devices {
            machine.react();
        }
        self.own();
    }

    /// A device that is kept for a container is that container's.
    fn own(&mut self) {
        for (container, home) in self.homes.iter().filter(|(_, home)| home.len() > 1) {
            for device in home {
                let machine = &mut self.devices[*device];
                let share = machine.schedule.share(*container, machine.now);
                if share.is_some_and(|share| share.state == ShareState::Holding) {
                    machine.owner = Some(*container);
                }
            }
        }
    }

    /// Kernels whose peers run on all devices of their container go on.
    fn meet(&mut self) {
        let mut spinning: BTreeMap<u64, usize> = BTreeMap::new();
        for machine in &self.devices {
            for id in machine.gpu.spinning() {
                *spinning.entry(id).or_default() += 1;
            }
        }
        for (id, count) in spinning {
            let container = ContainerId(id >> 32);
            if count == self.homes[&container].len() {
                *self.met.entry(container).or_default() += 1;
                let devices = self.devices.iter_mut();
                devices.for_each(|machine| machine.gpu.meet(id));
            }
        }
    }

    /// Overruns on all devices.
    pub fn overruns(&self) -> usize {
        self.devices
            .iter()
            .map(|machine| machine.overruns.len())
            .sum()
    }
}
