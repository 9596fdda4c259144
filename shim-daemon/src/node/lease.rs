//! Turns on devices: checks the reports of gates for the brain, and writes the brain's decisions
//! into the control pages.
//!
//! Reports come from tenants. A report is accepted only from a registered process, about a device
//! of its tenant and a turn that its page has shown; the brain believes reports about current turns
//! only. The number of reports per process is bounded where they are read. A tenant that lies about
//! its own state can only shorten or lengthen its own turn. The brain's clock bounds how long other
//! tenants wait for it.

use gpushare_core::{
    DeviceId, Event, Lease, LeaseKind, LeasePolicy, Nanos, ProcessId, Report, Sharing, TenantId,
    TenantSpec, Work,
};
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};
use gpushare_protocol::page::pending::PendingWord;
use gpushare_protocol::wire::Request;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::Node;
use super::tenant::{Tenant, index};

/// How long a tenant that is alone on a device must have no work in flight before it is reported
/// idle, until its first lease beside others.
const IDLE_AFTER: Nanos = Nanos::micros(500);

/// The same beside others: shorter pauses are not worth announcing to them.
const IDLE_AFTER_SHARED: Nanos = Nanos::millis(20);

/// In turns the library knows the time, which is short against the shortest turn. Any other value
/// says that the device is shared: see [`Turn::is_shared`].
const IDLE_AFTER_IN_TURNS: u64 = 0;

/// The epochs of this daemon's pages, seen from the brain, which counts from 0.
///
/// The first epoch is the daemon's start on the monotonic clock, in microseconds. No turn is that
/// short, so all epochs are above those of the previous daemon, and a report about an old turn is
/// never taken for one about a current turn.
#[derive(Clone, Copy, Debug)]
struct Epochs {
    first: u64,
}

impl Epochs {
    fn since(now: Nanos) -> Self {
        Self {
            first: now.0 / 1_000,
        }
    }

    fn shown(self, epoch: u64) -> u64 {
        self.first.saturating_add(epoch)
    }

    fn told(self, shown: u64) -> Option<u64> {
        shown.checked_sub(self.first)
    }
}

/// How turns are dealt and told.
#[derive(Debug)]
pub(super) struct Leases {
    policy: LeasePolicy,
    epochs: Epochs,
    /// Tenants whose leases changed and whose gates are not woken yet, in this order.
    to_wake: VecDeque<TenantId>,
}

impl Leases {
    pub(super) fn new(policy: LeasePolicy, now: Nanos) -> Self {
        Self {
            policy,
            epochs: Epochs::since(now),
            to_wake: VecDeque::new(),
        }
    }
}

impl Node {
    /// A gate's report, if it is one. False for any other request.
    pub(super) fn reported(
        &mut self,
        now: Nanos,
        tenant: TenantId,
        process: ProcessId,
        request: &Request,
    ) -> bool {
        let Some((report, device_index, epoch)) = request.report() else {
            return false;
        };
        let turn = match report {
            // It takes back that the process is idle, whatever turn of its own it is in: the daemon
            // may have been silent for long.
            Report::Busy => self
                .device_of(tenant, usize::from(device_index))
                .map(|device| (device, 0)),
            _ => self.turn_of(tenant, device_index, epoch),
        };
        let Some((device, epoch)) = turn else {
            return true;
        };
        let event = Event::Reported {
            process,
            device,
            epoch,
            report,
        };
        self.happened(now, event);
        true
    }

    /// The device and the brain's epoch, if there has been the turn that `shown` names.
    fn turn_of(&self, tenant: TenantId, device_index: u8, shown: u64) -> Option<(DeviceId, u64)> {
        let known = self.tenants.get(&tenant)?;
        let device_index = usize::from(device_index);
        let device = *known.device_ids().get(device_index)?;
        let page = known.control().view().devices.get(device_index)?;
        let epoch = self.leases.epochs.told(shown)?;
        (shown <= page.turn().word.epoch()).then_some((device, epoch))
    }

    /// Keeps a change of a lease for traces.
    pub(super) fn note_lease(
        &mut self,
        now: Nanos,
        tenant: TenantId,
        device: DeviceId,
        lease: Lease,
    ) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let described = index(device).and_then(|at| self.devices.get(at));
        if let (Some(device_index), Some(described)) = (known.device_index(device), described) {
            let of = (known.name(), described.uuid);
            let key = (tenant, device_index);
            self.lease_log.note(now, key, of, lease.kind);
        }
    }

    /// Keeps for traces where a tenant has no lease any more: on devices that its last process has
    /// left. The brain says nothing of them.
    pub(super) fn note_ended_leases(&mut self, now: Nanos, tenant: TenantId) {
        let known = self.tenants.get(&tenant).into_iter();
        let device_ids = known.flat_map(|known| known.device_ids()).enumerate();
        for (device_index, device) in device_ids {
            if self.world.share(tenant, *device).is_none() {
                self.lease_log.end(now, (tenant, device_index));
            }
        }
    }

    /// A tenant's processes are to read its control page again.
    pub(super) fn wake_soon(&mut self, tenant: TenantId) {
        self.leases.to_wake.push_back(tenant);
    }

    /// Stores a lease where the tenant's gates see it. They are woken by [`Node::wake_gates`].
    pub(super) fn set_lease(&mut self, tenant: TenantId, device: DeviceId, lease: Lease) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let page = known
            .device_index(device)
            .and_then(|device_index| known.control().view().devices.get(device_index));
        let Some(page) = page else { return };
        let epoch = self.leases.epochs.shown(lease.epoch);
        let turn = Turn {
            // The values without a turn. The states below set those that differ.
            deadline: NO_DEADLINE,
            window: 0,
            contended: false,
            slice: 0,
            idle_after: self.idle_after(&page.turn()),
            ..page.turn()
        };
        let before = page.turn();
        page.publish(&match lease.kind {
            LeaseKind::Free => Turn {
                word: LeaseWord::new(epoch, LeaseState::Free),
                ..turn
            },
            LeaseKind::Open {
                deadline,
                window,
                contended,
                slice,
            } => Turn {
                word: LeaseWord::new(epoch, LeaseState::Open),
                deadline: deadline.map_or(NO_DEADLINE, |at| at.0),
                window: window.0,
                contended,
                slice: slice.map_or(0, |slice| slice.0),
                idle_after: slice.map_or(IDLE_AFTER_IN_TURNS, |_| IDLE_AFTER_SHARED.0),
                ..turn
            },
            LeaseKind::Closed { contended } => Turn {
                word: LeaseWord::new(epoch, LeaseState::Closed),
                contended,
                ..turn
            },
        });
        let after = page.turn();
        let unbound = |turn: &Turn| (turn.word, turn.deadline);
        let is_shared = matches!(lease.kind, LeaseKind::Open { slice: Some(_), .. });
        let is_closed = lease.kind.is_closed();
        if unbound(&before) == unbound(&after) && (is_shared || is_closed) {
            // A launch reads the rest when it comes, and so does a look at what is under way.
            return;
        }
        if is_closed {
            self.leases.to_wake.push_back(tenant);
        } else {
            self.leases.to_wake.push_front(tenant);
        }
    }

    /// Reads the pages of processes on shared devices, where that is due, and tells the brain.
    pub(super) fn sample(&mut self, now: Nanos) {
        self.read(now, self.world.due_samples(now));
    }

    /// Reads the page of a process that goes once more: what it completed last is billed.
    pub(super) fn sample_last(&mut self, now: Nanos, process: ProcessId) {
        self.read(now, self.world.last_samples(process));
    }

    fn read(&mut self, now: Nanos, due: Vec<(DeviceId, Vec<ProcessId>)>) {
        for (device, processes) in due {
            let works = processes
                .into_iter()
                .filter_map(|process| Some((process, self.work_of(process, device)?)))
                .collect();
            self.happened(now, Event::Served { device, works });
        }
    }

    /// The work of a process on a device, according to its page.
    pub(super) fn work_of(&self, process: ProcessId, device: DeviceId) -> Option<Work> {
        let known = self.processes.get(process)?;
        let tenant = self.tenants.get(&known.tenant())?;
        let device_index = tenant.device_index(device)?;
        let line = tenant.usage().view().line(known.slot(), device_index)?;
        let pending = PendingWord::from_bits(line.pending.load(Ordering::Acquire));
        Some(Work {
            service: line.service.load(Ordering::Relaxed),
            busy: line.busy.load(Ordering::Relaxed),
            since: pending.since().map(Nanos),
            guessed: pending.is_guessed(),
        })
    }

    /// Wakes the gates whose leases changed. Tenants that may start are woken first, because the
    /// device is idle until they run. Tenants that must stop know their deadline.
    pub(super) fn wake_gates(&mut self) {
        for tenant in std::mem::take(&mut self.leases.to_wake) {
            if let Some(known) = self.tenants.get(&tenant) {
                self.announce(tenant, known);
            }
        }
    }

    /// Wakes the waiters of a tenant's page. Many of them take time, and the tenant decides how
    /// many there are: beyond a bound they are woken on its lane.
    fn announce(&self, tenant: TenantId, known: &Tenant) {
        if let Some(rest) = known.control().announce() {
            self.door_lane(tenant).run(move || rest.wake());
        }
    }

    /// Deals turns by another policy from now on.
    pub(super) fn deal(&mut self, now: Nanos, policy: LeasePolicy) {
        self.leases.policy = policy;
        for (tenant, known) in &self.tenants {
            self.show_terms(*tenant, known);
        }
        self.world.set_lease_policy(now, policy);
        self.carry_out(now);
    }

    /// Takes a tenant's shares of its devices' time.
    pub(super) fn set_shares(&mut self, tenant: TenantId, spec: &TenantSpec) {
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.set_compute(spec);
        }
        if let Some(known) = self.tenants.get(&tenant) {
            self.show_terms(tenant, known);
        }
    }

    /// Stores the terms that a tenant's gates need outside their turns too, and wakes them.
    fn show_terms(&self, tenant: TenantId, known: &Tenant) {
        let pages = known.control().view().devices.iter();
        for (page, compute) in pages.zip(known.compute()) {
            let slice = self.leases.policy.slice.0;
            page.driver_slice.store(slice, Ordering::Relaxed);
            let shown = page.turn();
            page.publish(&Turn {
                cap: compute.cap().map_or(0, |cap| u32::from(cap.get())),
                idle_after: self.idle_after(&shown),
                ..shown
            });
        }
        self.announce(tenant, known);
    }

    /// How long a tenant rests before it says so, where its lease does not decide that. Beside
    /// others the lease `shown` may say a longer time, and is not written again for this.
    fn idle_after(&self, shown: &Turn) -> u64 {
        match self.leases.policy.sharing {
            Sharing::Together => shown.idle_after.max(IDLE_AFTER.0),
            Sharing::Turns => IDLE_AFTER_IN_TURNS,
        }
    }
}
