//! The daemon's node: tenants, processes and their pages, between the sockets and the brain.
//!
//! Every method takes the time and returns nothing. Messages to send and processes or devices to
//! watch are collected as [`Effect`]s. This module touches no socket, so all of it runs in a test.

mod absent;
mod allowed;
mod asks;
mod awaited;
mod changing;
mod classes;
mod commands;
mod containers_refused;
mod contexts;
mod decisions;
mod device_ids;
mod effect;
mod event_budget;
mod events;
mod fences;
mod given;
mod guarding;
mod having;
mod history;
mod host_memory;
mod host_store;
mod inject_again;
mod injected;
mod inspecting;
mod joining;
mod late;
mod lease;
mod lease_log;
mod leaving;
mod left_behind;
mod listing;
mod look_failures;
mod looks;
mod measures;
mod metrics;
mod move_events;
mod mps;
mod naming;
mod offers;
mod outside;
mod pids;
mod pods;
mod processes;
mod queueing;
mod reaped;
mod refusals;
mod registrations;
mod requests;
mod residency;
mod restart;
mod samples;
mod shares;
mod spec_errors;
mod specs;
mod spill;
mod spill_asked;
mod spill_done;
mod standing;
mod status;
mod storing;
mod strangers;
mod suspending;
mod swaps;
mod tally;
mod tenant;
mod under;
mod unlimited;
mod unmanaged;
mod unrestored;
mod unstored;
mod users;
mod vacated;
mod variables;
mod views;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use gpushare_core::{CostClass, DeviceId, DeviceSpec, Event, Nanos, Policy, TenantId, World};
use gpushare_journal::Bounds;
use gpushare_protocol::units::Bytes;

use asks::Asks;
pub use awaited::Member;
pub use effect::Effect;
use events::Events;
pub use events::Follower;
use fences::Fences;
pub use fences::{FenceKey, Remembered};
use history::History;
pub use injected::Container;
use lease_log::LeaseLog;
use looks::Looks;
use measures::Counted;
pub use pids::in_first_namespace;
use processes::Processes;
pub use reaped::Reaped;
pub use requests::Client;
pub use standing::Standing;
use tenant::Tenant;
pub use tenant::{Registration, Row, Totals};
pub use unlimited::Silent;
pub use unmanaged::Unmanaged;
pub(crate) use unrestored::aside;
pub(crate) use users::CHOSEN;
use users::Users;
pub use vacated::{Program, Seen};

use crate::containers::Containers;
use crate::devices::Device;
use crate::foreign::Lanes;
use crate::groups::KnownMounts;
use crate::guard::{Among, Guard};
use crate::pages::UsagePage;

/// A connection, by a number never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The node's settings beside the brain's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The brain's.
    pub policy: Policy,
    /// Bytes of each device never given out.
    pub reserve: Bytes,
    /// The most that each device is treated to have: percentages, unset limits and what programs
    /// see are of that, too.
    pub capacity: Option<Bytes>,
    /// How long after a restart clients may present their memory before new memory is granted.
    pub recovery: Nanos,
    /// Default limits of tenants, as variables.
    pub defaults: Vec<(String, String)>,
    /// The maxima of tenants' limits, as variables that [`gpushare_protocol::limits::Maxima`]
    /// reads.
    pub maxima: Vec<(String, String)>,
    /// How to treat processes on the devices that belong to no tenant of ours.
    pub unmanaged: Unmanaged,
    /// Whether the pids that NVML lists are certainly of our namespace. If not, a list counts only
    /// after it has shown a process of ours.
    pub own_pids: bool,
    /// Where the unified hierarchy is in which the driver's own limits are set, if they are.
    pub fences: Option<PathBuf>,
    /// The set of daemons among which this one is the only one for a GPU. `None` for the machine's
    /// own daemon, which no user's daemon may block.
    pub guard: Option<Among>,
    /// The rules for tenants that are containers.
    pub containers: Containers,
    /// Most bytes of the journal of events.
    pub journal: Bounds,
    /// The folder for tenants' memory that the host has no room for.
    pub spill: Option<PathBuf>,
    /// Why there is no host memory for swapping where there is none, with what would give it.
    pub no_host: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy {
                // Each waiting ask is looked at whenever something is freed: a program needs one a
                // thread that allocates.
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
            containers: Containers::default(),
            journal: Bounds::default(),
            spill: None,
            no_host: crate::config::NO_HOST.to_owned(),
        }
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Node {
    world: World,
    instance: u64,
    devices: Vec<Device>,
    /// See [`Settings::capacity`].
    capacity: Option<Bytes>,
    tenants: BTreeMap<TenantId, Tenant>,
    processes: Processes,
    asks: Asks,
    looks: Looks,
    /// How many wait on each device, as the control pages show it.
    shown_waiters: samples::Waiters,
    /// Since when each process has done no work.
    workers: workers::Workers,
    events: Events,
    effects: VecDeque<Effect>,
    /// A usage page for the next container, which then need not wait until its memory is allocated.
    spare: Option<UsagePage>,
    /// Whether containers come to this node by hooks.
    expects_containers: bool,
    ids: u64,
    /// How long an ask within the tenant's request may take, whatever its timeout.
    guarantee: Nanos,
    /// Whether processes of the previous daemon may still present their memory.
    recovering: bool,
    /// Whether all tenants of the previous daemon had time to be claimed.
    claimed: bool,
    defaults: Vec<(String, String)>,
    maxima: Vec<(String, String)>,
    watch: strangers::Watch,
    guard: Option<Guard>,
    leases: lease::Leases,
    pids: pids::Pids,
    fences: Fences,
    users: Users,
    away: vacated::Away,
    residency: residency::Moves,
    inspecting: inspecting::Inspecting,
    /// The threads for what may wait. None runs until there is some.
    lanes: Lanes,
    /// Tenants that have had no part in this second yet.
    beats: VecDeque<TenantId>,
    known_mounts: KnownMounts,
    /// The managed memory of all tenants is more than the machine has, as the log says.
    managed_is_beyond: bool,
    containers: Containers,
    /// Containers that a rule allows to run without limits.
    allowed: Vec<allowed::Allowed>,
    /// Tenants of the previous daemon that could not be registered again, by name.
    unrestored: BTreeMap<String, unrestored::Unrestored>,
    /// Why the last change, or registration without a command, was refused.
    refused: Option<String>,
    /// The variables of a tenant as a `set` that is being tried would have them.
    changing: Option<Vec<(String, String)>>,
    /// Changes of limits that wait for the end of the recovery.
    changes: changing::Waiting,
    counted: Counted,
    history: History,
    lease_log: LeaseLog,
    /// When it is read next which tenants work, while a tenant waits for the rotation.
    rotation_read: Option<Nanos>,
}

impl Node {
    /// A node with these devices. `instance` identifies this daemon. `recovering` says that tenants
    /// of a previous daemon may still run.
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
            let capacity = device.capacity_under(settings.capacity);
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
            shown_waiters: samples::Waiters::default(),
            workers: workers::Workers::default(),
            devices,
            capacity: settings.capacity,
            tenants: BTreeMap::new(),
            processes: Processes::default(),
            asks: Asks::default(),
            looks: Looks::default(),
            events: Events::default(),
            effects: VecDeque::new(),
            spare: None,
            expects_containers: false,
            ids: 0,
            guarantee: settings.policy.guarantee(),
            recovering,
            claimed: !recovering,
            defaults: settings.defaults.clone(),
            maxima: settings.maxima.clone(),
            guard: settings.guard.map(Guard::new),
            watch: strangers::Watch::new(settings.unmanaged.clone(), settings.policy.term_grace),
            leases: lease::Leases::new(settings.policy.lease, now),
            pids: pids::Pids::new(settings.own_pids),
            fences: Fences::new(settings.fences.clone()),
            users: Users::default(),
            known_mounts: KnownMounts::default(),
            managed_is_beyond: false,
            containers: settings.containers.clone(),
            allowed: Vec::new(),
            unrestored: BTreeMap::new(),
            refused: None,
            changing: None,
            changes: Vec::new(),
            away: vacated::Away::default(),
            residency: residency::Moves::new(settings, instance, now),
            inspecting: inspecting::Inspecting::default(),
            lanes: Lanes::default(),
            beats: VecDeque::new(),
            counted: Counted::since(now),
            history: History::default(),
            lease_log: LeaseLog::default(),
            rotation_read: None,
        };
        node.carry_out(now);
        node
    }

    /// When [`Node::advance`] wants to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Nanos> {
        let sample = self.world.next_sample().into_iter();
        let all = sample.chain(self.rotation_read);
        let all = all.chain(self.inspecting.next_timeout());
        all.chain(self.world.next_timeout()).min()
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Nanos) {
        self.sample(now);
        self.give_up_looks(now);
        self.read_judged(now, None);
        self.world.advance(now);
        self.carry_out(now);
    }

    /// The next effect for the server to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Makes ready what the next container needs, once no request waits for an answer.
    pub fn prepare(&mut self) {
        if self.expects_containers && self.spare.is_none() {
            // Without memory for it the next container's is tried again, and says so.
            self.spare = UsagePage::create().ok();
        }
    }

    /// The threads for what may wait.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The number that identifies this daemon.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Applies settings that may change while the daemon runs: defaults and maxima for tenants
    /// registered from now on, and the sharing of turns.
    ///
    /// # Errors
    /// If they are nothing without others that only a start applies. Then nothing changes.
    pub fn reload(&mut self, now: Nanos, settings: &Settings) -> Result<(), String> {
        self.may_take(settings)?;
        self.found_host(settings);
        self.defaults.clone_from(&settings.defaults);
        self.maxima.clone_from(&settings.maxima);
        self.containers.clone_from(&settings.containers);
        self.warn_of_absent();
        self.deal(now, settings.policy.lease);
        Ok(())
    }

    /// The rules for containers.
    #[must_use]
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Whether processes of the previous daemon may still present their memory.
    fn is_recovering(&self) -> bool {
        self.recovering
    }

    /// They may no longer.
    fn end_recovery(&mut self) {
        self.recovering = false;
    }

    fn happened(&mut self, now: Nanos, event: Event) {
        self.read_judged(now, Some(&event));
        self.world.handle(now, event);
        self.carry_out(now);
    }

    fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

/// Devices with the same product name share the measured cost of a context.
fn class_of(devices: &[Device], device: &Device) -> CostClass {
    let first = devices.iter().position(|other| other.name == device.name);
    CostClass(first.unwrap_or(0) as u64)
}
