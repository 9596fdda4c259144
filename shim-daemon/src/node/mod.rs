//! The node as the daemon keeps it: containers, processes and their pages, between the sockets and the brain.
//!
//! Every method takes the time and returns nothing; what is to be sent, watched or looked at is collected as
//! [`Effect`]s. No socket is touched here, so the whole of it runs in a test.

mod commands;
mod container;
mod decisions;
mod events;
mod fences;
mod guarding;
mod joining;
mod lease;
mod listing;
mod mps;
mod pids;
mod reaped;
mod registrations;
mod requests;
mod restart;
mod samples;
mod shares;
mod strangers;
mod unmanaged;
mod users;
mod vacated;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use gpushare_core::{
    AskKey, ContainerId, CostClass, DeviceId, DeviceSpec, Event, LeasePolicy, Nanos, Policy,
    ProcessId, World,
};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ControlReply, EventRow, Reply};

use container::Container;
pub use container::Registration;
use events::Events;
use fences::Fences;
pub use fences::{FenceKey, Remembered};
pub use pids::in_first_namespace;
pub use reaped::Reaped;
pub use requests::Client;
pub use unmanaged::Unmanaged;
use users::Users;

use crate::devices::{Device, Order};
use crate::guard::{Among, Guard};
use crate::peer::Peer;

/// A connection, by a number never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Something for the server to do.
#[derive(Debug)]
pub enum Effect {
    /// Answer a client's request.
    Client {
        /// Whom.
        to: ConnId,
        /// Which request.
        id: u32,
        /// What.
        reply: Reply,
        /// Descriptors that go with it.
        descriptors: Vec<OwnedFd>,
    },
    /// Answer a command.
    Command {
        /// Whom.
        to: ConnId,
        /// Which request.
        id: u32,
        /// What.
        reply: ControlReply,
    },
    /// Tell those who follow what happened.
    Event {
        /// Whom, each under the request it follows by.
        to: Vec<(ConnId, u32)>,
        /// What.
        row: Arc<EventRow>,
    },
    /// Tell when this process ends.
    Watch {
        /// Which.
        process: ProcessId,
        /// Becomes readable at its end.
        pidfd: OwnedFd,
    },
    /// Tell no more when this process ends: it registered anew and is watched as that.
    Unwatch {
        /// Which.
        process: ProcessId,
    },
    /// Accept clients of this container on a socket of its own, and remember the registration for a next daemon.
    Listen {
        /// Which.
        container: ContainerId,
        /// What is remembered.
        registration: Registration,
    },
    /// The container is over: close and forget its socket.
    Unlisten {
        /// Which.
        container: ContainerId,
        /// Its name.
        name: String,
    },
    /// Have the driver hold a cgroup to so much, and tell with [`Node::fenced`].
    Fence {
        /// Which fence.
        key: FenceKey,
        /// The cgroup's folder.
        path: PathBuf,
        /// How it shall be.
        order: Order,
    },
    /// Look at the device of this index now.
    Look {
        /// Its index in the node.
        device: usize,
    },
}

/// A connected process.
#[derive(Debug)]
struct Process {
    container: ContainerId,
    slot: usize,
    peer: Peer,
    /// Where its replies go; `None` once its connection has ended.
    connection: Option<ConnId>,
    /// Whether it says when a context is made.
    tells: bool,
    /// Whether it is an MPS client.
    mps: bool,
    /// Columns on which it was let make a context and has not said that it is made, and since when.
    opening: BTreeMap<usize, Nanos>,
}

/// The node's settings beside the brain's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The brain's.
    pub policy: Policy,
    /// Bytes of each device never given out.
    pub reserve: Bytes,
    /// An artificial capacity for every device, for tests on real hardware.
    pub capacity: Option<Bytes>,
    /// How long after a restart clients may present what they hold before anything new is granted.
    pub recovery: Nanos,
    /// Limits of containers that do not say otherwise, as variables.
    pub defaults: Vec<(String, String)>,
    /// The most any container may ask for, as variables that [`gpushare_protocol::limits::Maxima`] reads.
    pub maxima: Vec<(String, String)>,
    /// What becomes of processes on the devices that no container of ours has.
    pub unmanaged: Unmanaged,
    /// Whether the pids that NVML lists are certainly those of our namespace; where they are not, a list counts once it has shown
    /// a process of ours.
    pub own_pids: bool,
    /// Where the unified hierarchy is in which the driver's own limits are set, if they are.
    pub fences: Option<PathBuf>,
    /// Among whose daemons this one is to be the only one for a GPU; `None` for the machine's own, which nobody's may keep away.
    pub guard: Option<Among>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy {
                // Each waiting ask is looked at whenever something is freed: a program needs one a thread that allocates.
                most_waiting: 16,
                ..Policy::default()
            },
            reserve: Bytes::ZERO,
            capacity: None,
            recovery: Nanos::secs(2),
            defaults: Vec::new(),
            maxima: Vec::new(),
            unmanaged: Unmanaged::default(),
            own_pids: in_first_namespace(),
            fences: None,
            guard: None,
        }
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Node {
    world: World,
    instance: u64,
    devices: Vec<Device>,
    containers: BTreeMap<ContainerId, Container>,
    processes: BTreeMap<ProcessId, Process>,
    /// Dead processes that the driver may still list, by pid.
    graves: BTreeMap<u32, ProcessId>,
    /// Where the answer to an ask goes.
    asks: BTreeMap<AskKey, (ConnId, u32)>,
    /// Charges of a device's processes when a look at it began.
    looking: BTreeMap<usize, samples::Began>,
    /// How many wait on each device, as the control pages show it.
    shown_waiters: Vec<u32>,
    events: Events,
    effects: VecDeque<Effect>,
    ids: u64,
    /// How long an ask within its container's request may take, whatever its timeout.
    guarantee: Nanos,
    /// Whether processes of the previous daemon may still present what they hold.
    recovering: bool,
    defaults: Vec<(String, String)>,
    maxima: Vec<(String, String)>,
    /// Indices of devices that are gone for good.
    lost: BTreeSet<usize>,
    watch: strangers::Watch,
    guard: Option<Guard>,
    /// How turns on devices are dealt.
    lease: LeasePolicy,
    epochs: lease::Epochs,
    /// Containers whose leases changed and whose gates are still to be woken, in this order.
    to_wake: VecDeque<ContainerId>,
    pids: pids::Pids,
    fences: Fences,
    users: Users,
    away: vacated::Away,
}

impl Node {
    /// A node with these devices. `instance` tells this daemon from all others. `recovering` says that a previous
    /// daemon's containers may still run.
    #[must_use]
    pub fn new(
        settings: &Settings,
        devices: Vec<Device>,
        instance: u64,
        now: Nanos,
        recovering: bool,
    ) -> Self {
        let mut world = if recovering {
            World::recovering(settings.policy, now + settings.recovery)
        } else {
            World::new(settings.policy)
        };
        for (index, device) in (0..).zip(&devices) {
            let capacity = settings
                .capacity
                .map_or(device.capacity, |least| least.min(device.capacity));
            let spec = DeviceSpec {
                capacity,
                reserve: settings.reserve,
                class: class_of(&devices, device),
            };
            world.handle(
                now,
                Event::DeviceAdded {
                    device: DeviceId(index),
                    spec,
                },
            );
        }
        let mut node = Self {
            world,
            instance,
            shown_waiters: vec![0; devices.len()],
            devices,
            containers: BTreeMap::new(),
            processes: BTreeMap::new(),
            graves: BTreeMap::new(),
            asks: BTreeMap::new(),
            looking: BTreeMap::new(),
            events: Events::default(),
            effects: VecDeque::new(),
            ids: 0,
            guarantee: settings.policy.guarantee(),
            recovering,
            defaults: settings.defaults.clone(),
            maxima: settings.maxima.clone(),
            lost: BTreeSet::new(),
            guard: settings.guard.map(Guard::new),
            watch: strangers::Watch::new(settings.unmanaged, settings.policy.term_grace),
            lease: settings.policy.lease,
            epochs: lease::Epochs::since(now),
            to_wake: VecDeque::new(),
            pids: pids::Pids::new(settings.own_pids),
            fences: Fences::new(settings.fences.clone()),
            users: Users::default(),
            away: vacated::Away::default(),
        };
        node.carry_out(now);
        node
    }

    /// When [`Node::advance`] wants to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Nanos> {
        let sample = self.world.next_sample().into_iter();
        sample.chain(self.world.next_timeout()).min()
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Nanos) {
        self.sample(now);
        self.world.advance(now);
        self.carry_out(now);
    }

    /// The next thing for the server to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The number that tells this daemon from all others.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Takes what may change while the daemon runs: defaults and maxima for containers registered from now on, and how turns are
    /// dealt.
    pub fn reload(&mut self, now: Nanos, settings: &Settings) {
        self.defaults.clone_from(&settings.defaults);
        self.maxima.clone_from(&settings.maxima);
        self.deal(now, settings.policy.lease);
    }

    fn happened(&mut self, now: Nanos, event: Event) {
        self.world.handle(now, event);
        self.carry_out(now);
    }

    fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

/// Devices of one product name share what a context costs.
fn class_of(devices: &[Device], device: &Device) -> CostClass {
    let first = devices.iter().position(|other| other.name == device.name);
    CostClass(first.unwrap_or(0) as u64)
}
