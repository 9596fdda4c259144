//! A tenant: its limits, its pages, and its processes' slots.

mod rows;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};

use gpushare_core::{
    Compute, DeviceId, Nanos, Oversubscribe, ProcessId, Quota, TenantId, TenantSpec,
};
use gpushare_protocol::limits::{Limits, View};
use gpushare_protocol::page::residency::Movability;
use gpushare_protocol::page::{MAX_SLOTS, UNIT};
use gpushare_protocol::units::Bytes;
use serde::{Deserialize, Serialize};

use super::awaited::{Awaited, Member};
use super::injected::{Contained, Container};
use super::measures::Measures;
use super::reaped::Unseen;
use super::shares::Past;
use super::standing::Standing;
use super::tally::Tally;
pub use super::tally::Totals;
use super::{ConnId, Reaped, Remembered};
use crate::devices::Device;
use crate::pages::{ControlPages, PagesError, UsagePage};
pub use rows::Row;

/// How often to try the lock of a tenant whose limit is lowered, at intervals of 0.1 ms. A holder
/// needs microseconds.
const LOCK_TRIES: u32 = 50;

/// A tenant's registration: enough to register it again under the next daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// The variables that say its limits.
    pub environment: Vec<(String, String)>,
    /// Its devices, in the order its programs see them.
    pub devices: Vec<[u8; 16]>,
    /// Tenant cgroups of the commands that made or joined the tenant. None of them is the
    /// tenant's own.
    #[serde(default)]
    pub commands: Vec<String>,
    /// The cgroup, made by a container runtime, of the tenant's first process in such a cgroup.
    /// Processes of other users may join from there.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// The user who owns the tenant; `None` for a tenant of the machine.
    #[serde(default)]
    pub owner: Option<u32>,
    /// Limits that this daemon has, or had, the driver keep.
    #[serde(default)]
    pub fences: Vec<Remembered>,
    /// The most it may ask for: the node's maxima when it was registered; of a container with those
    /// of its rule in place of these.
    #[serde(default)]
    pub maxima: Vec<(String, String)>,
    /// The node's own, which hold beside them where it is a container.
    #[serde(default)]
    pub node_maxima: Vec<(String, String)>,
    /// The node's defaults when it was registered; `None` in a file of an earlier version.
    #[serde(default)]
    pub defaults: Option<Vec<(String, String)>>,
    /// When it was admitted, in nanoseconds of the daemon's clock (`CLOCK_MONOTONIC`, which
    /// continues across daemons).
    #[serde(default)]
    pub began: Option<u64>,
    /// Its dead processes that still held memory when this was written.
    #[serde(default)]
    pub dead: Vec<Reaped>,
    /// Its processes when this was written.
    #[serde(default)]
    pub members: Vec<Member>,
    /// What was counted of it when this was written.
    #[serde(default)]
    pub so_far: Totals,
    /// What the brain knew of it when this was written.
    #[serde(default)]
    pub standing: Standing,
    /// The container that it is, if it is one.
    #[serde(default)]
    pub container: Option<Container>,
}

impl Registration {
    /// The maxima, all of which hold.
    pub(super) fn all_maxima(&self) -> [&[(String, String)]; 2] {
        [&self.maxima, &self.node_maxima]
    }
}

/// A registered tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    registration: Registration,
    /// The limits in their stable form, to compare registrations of an equal name.
    limits: String,
    /// The device of each device of the pages.
    device_ids: Vec<DeviceId>,
    usage: UsagePage,
    control: ControlPages,
    /// The process of each taken row of the usage page.
    slots: BTreeMap<usize, ProcessId>,
    members: BTreeSet<ProcessId>,
    /// Connections of commands that keep it.
    owners: BTreeSet<ConnId>,
    /// Create requests that wait for its admission.
    pending: Vec<(ConnId, u32)>,
    admitted: bool,
    /// Whether it was a previous daemon's: only then may a process have a page of it that is not
    /// this daemon's.
    restored: bool,
    /// Whether its page is the previous daemon's.
    has_page: bool,
    /// Processes of the previous daemon that have not come back, and those of which it was told
    /// that they are refused.
    awaited: BTreeMap<ProcessId, Awaited>,
    refused: BTreeSet<u32>,
    /// The rows that were taken when its page came from the previous daemon, but for those that
    /// were found to be presented or free since.
    unclaimed: Vec<Row>,
    /// Whether the dead of such rows count: they do in the first page that came.
    counts_dead: bool,
    /// Such rows are being looked at.
    rows_looked_at: bool,
    /// Its shares of the devices' time, by device.
    compute: Vec<Compute>,
    /// The recent use of each device, by device.
    shares: Vec<Past>,
    /// Its counters of GPU work when last read.
    worked: u64,
    /// Whether the container that it is lives: it is kept then.
    contained: Option<Contained>,
    /// Its use and refusals so far.
    tally: Tally,
    /// When a command registered it, until it is admitted.
    created: Option<Nanos>,
    /// Its counts and measurements, by device.
    measures: Vec<Measures>,
}

impl Tenant {
    pub(super) fn new(
        registration: Registration,
        limits: String,
        device_ids: Vec<DeviceId>,
        usage: UsagePage,
        instance: u64,
        now: Nanos,
    ) -> Result<Self, PagesError> {
        let shares = device_ids.iter().map(|_| Past::default()).collect();
        let tally = Tally::new(device_ids.len(), now).after(registration.so_far);
        let measures = device_ids.iter().map(|_| Measures::default()).collect();
        usage.view().found(std::process::id(), 0);
        Ok(Self {
            registration,
            limits,
            device_ids,
            usage,
            control: ControlPages::create(instance)?,
            slots: BTreeMap::new(),
            members: BTreeSet::new(),
            owners: BTreeSet::new(),
            pending: Vec::new(),
            admitted: false,
            restored: false,
            has_page: false,
            awaited: BTreeMap::new(),
            refused: BTreeSet::new(),
            unclaimed: Vec::new(),
            counts_dead: false,
            rows_looked_at: false,
            compute: Vec::new(),
            shares,
            worked: 0,
            contained: None,
            tally,
            created: None,
            measures,
        })
    }

    /// Writes the limits that processes read into the usage page, each device being treated as if
    /// it had no more than `most`. The page's capacity is the device's own: a library compares it
    /// with the total that it is to show.
    pub(super) fn found(
        &self,
        spec: &TenantSpec,
        (devices, most): (&[Device], Option<Bytes>),
        limits: &Limits,
        guarantee: Nanos,
    ) {
        let page = self.usage.view();
        let millis = |span: Nanos| span.0.div_ceil(1_000_000);
        let header = &self.control.view().header;
        let guaranteed = spec.wait_timeout.max(guarantee);
        header
            .wait_ms
            .store(millis(spec.wait_timeout), Ordering::Relaxed);
        header
            .guarantee_ms
            .store(millis(guaranteed), Ordering::Relaxed);
        self.control
            .view()
            .set_movability(match spec.oversubscribe {
                Oversubscribe::Off => Movability::Fixed,
                Oversubscribe::Swap => Movability::Swap,
                Oversubscribe::Uvm => Movability::Managed,
            });
        page.header.set_text(&self.limits);
        for (ordinal, (device_index, device)) in
            (0..).zip(page.devices.iter().zip(&self.device_ids))
        {
            let Some(described) = index(*device).and_then(|at| devices.get(at)) else {
                continue;
            };
            let capacity = described.capacity_under(most);
            let (view, by_request) = limits
                .for_device(ordinal, &described.uuid, capacity.0)
                .map_or((capacity.0, false), |limits| {
                    (limits.view_total, limits.view == View::Request)
                });
            let quota = spec.quota(*device).unwrap_or(Quota {
                request: Bytes::ZERO,
                limit: capacity,
            });
            let implied = spec.implied(*device).is_some() && !quota.request.is_zero();
            let view = if implied && limits.shows_request() {
                quota.request.0
            } else {
                view
            };
            device_index.limit.store(quota.limit.0, Ordering::Relaxed);
            device_index
                .request
                .store(quota.request.0, Ordering::Relaxed);
            device_index.view_total.store(view, Ordering::Relaxed);
            device_index
                .by_request
                .store(u32::from(by_request), Ordering::Relaxed);
            device_index
                .capacity
                .store(described.capacity.0, Ordering::Relaxed);
            device_index.claim(&described.uuid);
        }
    }

    /// A free row of the page.
    ///
    /// In a page that came from the previous daemon a row may be taken by a process that has not
    /// presented it yet.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let page = self.usage.view();
        let free = |slot: &usize| {
            !self.slots.contains_key(slot) && page.slots[*slot].taken.load(Ordering::Acquire) == 0
        };
        (0..MAX_SLOTS).find(free)
    }

    /// Assigns a row of the page to this process, one of the tenant's.
    pub(super) fn seat(&mut self, slot: usize, process: ProcessId) {
        self.slots.insert(slot, process);
        if self.members.is_empty() {
            self.tally.lives_on();
        }
        self.members.insert(process);
    }

    /// A process is over: its row is emptied.
    pub(super) fn unseat(&mut self, slot: usize, process: ProcessId) {
        self.clear(slot);
        self.members.remove(&process);
    }

    /// Whose a row of the page is.
    pub(super) fn seated(&self, slot: usize) -> Option<ProcessId> {
        self.slots.get(&slot).copied()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = ProcessId> {
        self.members.iter().copied()
    }

    /// Its processes from this on, in their order.
    pub(super) fn members_from(&self, first: ProcessId) -> impl Iterator<Item = ProcessId> {
        self.members.range(first..).copied()
    }

    /// Whether nothing keeps it: no command, no process, also none that may still come, no
    /// container.
    pub(super) fn is_unused(&self) -> bool {
        let none = !self.has_members() && self.awaited.is_empty();
        self.owners.is_empty() && none && self.contained.is_none()
    }

    pub(super) fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Records the owner of a row in the page, in a form that the next daemon can check. Only this
    /// tenant could gain by a lie, and it would gain a free row.
    pub(super) fn occupy(&self, slot: usize, own_pid: u32, pid: u32) {
        if let Some(header) = self.usage.view().slots.get(slot) {
            header.pid.store(own_pid, Ordering::Relaxed);
            header.generation.store(u64::from(pid), Ordering::Relaxed);
            // It says so itself.
            header.pid_namespace.store(0, Ordering::Relaxed);
            // It is known once the process was looked at.
            header.start.store(0, Ordering::Relaxed);
            header.taken.store(1, Ordering::Release);
        }
    }

    /// When the process of a row has started.
    pub(super) fn started(&self, slot: usize, start: u64) {
        if let Some(header) = self.usage.view().slots.get(slot) {
            header.start.store(start, Ordering::Relaxed);
        }
    }

    /// The `device_index` of a device in its pages.
    pub(super) fn device_index(&self, device: DeviceId) -> Option<usize> {
        self.device_ids.iter().position(|own| *own == device)
    }

    /// The charges of all its processes on a device, according to the usage page.
    pub(super) fn charged(&self, device_index: usize) -> Bytes {
        self.sum(device_index, |split| split.charged)
    }

    /// The memory of all its processes on a device, according to the usage page: their credit, and
    /// the charges of bound processes.
    pub(super) fn held(&self, device_index: usize) -> Bytes {
        self.sum(device_index, gpushare_protocol::page::Split::held)
    }

    fn sum(&self, device_index: usize, part: fn(gpushare_protocol::page::Split) -> u32) -> Bytes {
        let page = self.usage.view();
        let units = self
            .slots
            .keys()
            .filter_map(|slot| page.line(*slot, device_index));
        Bytes(
            units
                .map(|line| u64::from(part(line.word.load())) * UNIT)
                .sum(),
        )
    }

    /// Holds its processes to a ceiling that may be below their charges. It binds every word: until
    /// the charges are below the ceiling again, processes charge only under the tenant lock, and
    /// freed memory does not become credit.
    fn bind_above(&self, device_index: usize, ceiling: Bytes) {
        let page = self.usage.view();
        // Also rows of processes that have not presented them to this daemon yet.
        let rows = || (0..MAX_SLOTS).filter_map(|slot| page.line(slot, device_index));
        let held = match self.unclaimed.is_empty() {
            true => self.held(device_index),
            false => Bytes(
                rows()
                    .map(|line| u64::from(line.word.load().held()) * UNIT)
                    .sum(),
            ),
        };
        if held > ceiling {
            rows().for_each(|line| line.word.bind());
        }
    }

    /// Called after a lowered limit was stored: ensures that no process still grows by the old
    /// limit. The holder of the tenant lock may have read the old limit; memory it took since is
    /// bound too. The wait is bounded: a process that was stopped while it held the lock gives back
    /// that memory when it continues.
    pub(super) fn hold_to(&self, ceilings: &[(usize, Bytes)]) {
        if ceilings.is_empty() {
            return;
        }
        let bind = || self.bind_all_above(ceilings);
        if !self.usage.locked_within(LOCK_TRIES, bind) {
            bind();
        }
    }

    /// The same of a page that a process has just presented. That process has the lock until it has
    /// this daemon's answer.
    pub(super) fn bind_all_above(&self, ceilings: &[(usize, Bytes)]) {
        for (device_index, ceiling) in ceilings {
            self.bind_above(*device_index, *ceiling);
        }
    }

    /// Stores a grant where its processes see it.
    pub(super) fn grant(&self, device_index: usize, grant: Bytes) {
        let page = self.control.view();
        if let Some(device) = page.devices.get(device_index) {
            device.grant.store(grant.0, Ordering::SeqCst);
            page.header.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Lowers a grant and takes back unused credit, but not of processes that are late. Returns the
    /// memory that is still held.
    ///
    /// A process raises its credit first and reads the grant again afterwards; this stores the
    /// grant first and reads the credit afterwards. With the fence between, one of the two sees the
    /// other.
    ///
    /// Memory held above `ceiling` is charged then. It is no credit any more, see
    /// [`Self::bind_above`].
    pub(super) fn lower(
        &self,
        device_index: usize,
        (grant, ceiling): (Bytes, Bytes),
        is_late: impl Fn(ProcessId) -> bool,
    ) -> Bytes {
        self.grant(device_index, grant);
        fence(Ordering::SeqCst);
        let page = self.usage.view();
        let mut above = self
            .held(device_index)
            .0
            .saturating_sub(grant.0)
            .div_ceil(UNIT);
        for (slot, process) in &self.slots {
            if above == 0 {
                break;
            }
            if is_late(*process) {
                continue;
            }
            if let Some(line) = page.line(*slot, device_index) {
                above -= u64::from(line.word.reclaim(above));
            }
        }
        self.bind_above(device_index, ceiling);
        self.held(device_index)
    }

    /// Empties the slot of a process that is gone.
    fn clear(&mut self, slot: usize) {
        let page = self.usage.view();
        for device_index in 0..self.device_ids.len() {
            if let Some(line) = page.line(slot, device_index) {
                line.word.clear();
                line.overhead.store(0, Ordering::Relaxed);
                line.pending.store(0, Ordering::Relaxed);
            }
            if let Some(device) = page.devices.get(device_index) {
                device.watch.changed_by_another();
            }
        }
        if let Some(header) = page.slots.get(slot) {
            header.taken.store(0, Ordering::Release);
        }
        self.slots.remove(&slot);
    }

    /// All counters of GPU work together: they only ever need to differ.
    fn work(&self) -> u64 {
        let page = self.usage.view();
        let device_ids = 0..self.device_ids.len();
        let taken = self.slots.keys();
        let lines = taken.flat_map(|slot| device_ids.clone().map(move |at| (*slot, at)));
        lines
            .filter_map(|(slot, device_index)| page.line(slot, device_index))
            .fold(0_u64, |sum, line| {
                sum.wrapping_add(line.submitted.load(Ordering::Relaxed))
                    .wrapping_add(u64::from(line.word.load().charged))
            })
    }
}

/// The index of a device in the node's list.
pub(super) fn index(device: DeviceId) -> Option<usize> {
    usize::try_from(device.0).ok()
}

/// Ids of tenants are handed out by the node.
pub(super) fn tenant_id(id: u64) -> TenantId {
    TenantId(id)
}
