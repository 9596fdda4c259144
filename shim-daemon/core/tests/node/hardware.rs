//! What a device really holds, whatever the books say.

use super::Node;
use gpushare_core::{Bytes, ContainerId, DeviceId, Event, Nanos, ProcessId, ProcessSample, Sample};
use std::collections::BTreeMap;

/// One device.
#[derive(Debug)]
pub struct Hardware {
    pub capacity: Bytes,
    /// What a context really takes.
    pub context: Bytes,
    /// Memory of processes that are none of ours.
    pub foreign: Bytes,
    /// How long dead processes' memory stays. `None`: until it is taken away by hand.
    pub linger: Option<Nanos>,
    /// Dead processes, what they hold, and since when.
    pub dead: BTreeMap<ProcessId, (Bytes, Nanos)>,
    /// Whether NVML lists dead processes that still hold memory.
    pub lists_dead: bool,
    /// Whether NVML can list processes here.
    pub lists_processes: bool,
}

impl Hardware {
    pub fn new(capacity: Bytes, context: Bytes) -> Self {
        Self {
            capacity,
            context,
            foreign: Bytes::ZERO,
            linger: Some(Nanos::ZERO),
            dead: BTreeMap::new(),
            lists_dead: true,
            lists_processes: true,
        }
    }

    pub fn died(&mut self, process: ProcessId, holds: Bytes, now: Nanos) {
        if !holds.is_zero() {
            self.dead.insert(process, (holds, now));
        }
    }

    fn give_back(&mut self, now: Nanos) {
        if let Some(linger) = self.linger {
            self.dead.retain(|_, (_, died)| *died + linger > now);
        }
    }
}

/// One process of a container.
#[derive(Debug)]
pub struct Proc {
    pub container: ContainerId,
    pub charged: BTreeMap<DeviceId, Bytes>,
    /// Contexts, and what they take.
    pub contexts: BTreeMap<DeviceId, Bytes>,
}

impl Proc {
    pub fn new(container: ContainerId) -> Self {
        Self {
            container,
            charged: BTreeMap::new(),
            contexts: BTreeMap::new(),
        }
    }

    pub fn charged(&self, device: DeviceId) -> Bytes {
        self.charged.get(&device).copied().unwrap_or_default()
    }

    pub fn holds(&self, device: DeviceId) -> Bytes {
        self.charged(device) + self.contexts.get(&device).copied().unwrap_or_default()
    }
}

impl Node {
    /// What is really in use on a device.
    pub fn physical(&self, device: DeviceId) -> Bytes {
        let hardware = &self.devices[&device];
        let living: Bytes = self.processes.values().map(|proc| proc.holds(device)).sum();
        let dead: Bytes = hardware.dead.values().map(|(holds, _)| *holds).sum();
        living + dead + hardware.foreign
    }

    /// What NVML would say now.
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
        let living = self
            .processes
            .iter()
            .filter(|(_, proc)| !proc.holds(device).is_zero());
        let living = living.map(|(process, proc)| ProcessSample {
            process: *process,
            used: proc.holds(device),
            charged: Some(proc.charged(device)),
        });
        let dead = hardware.dead.iter().filter(|_| hardware.lists_dead);
        let dead = dead.map(|(process, (used, _))| ProcessSample {
            process: *process,
            used: *used,
            charged: None,
        });
        let processes = hardware
            .lists_processes
            .then(|| living.chain(dead).collect());
        let free = hardware.capacity - used;
        Event::Sampled {
            device,
            sample: Sample {
                taken: now,
                used,
                free,
                processes,
            },
        }
    }
}
