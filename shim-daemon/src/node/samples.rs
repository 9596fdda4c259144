//! Looks at devices, matched with the accounts of the same instant.

mod graves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use gpushare_core::{DeviceId, Event, Nanos, ProcessId, ProcessSample, Sample, TenantId, World};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;

use super::looks::all_through;
use super::measures::Measures;
use super::processes::Process;
use super::tenant::{Tenant, index};
use super::{Effect, Node};
use crate::devices::{Look, LookError};

/// How many wait on each device, as the control pages show it.
#[derive(Debug, Default)]
pub(super) struct Waiters(BTreeMap<DeviceId, u32>);

impl Waiters {
    /// So many wait there now. If that is to be shown: whether none waited before.
    fn change(&mut self, device: DeviceId, waiting: u32) -> Option<bool> {
        let before = self.0.insert(device, waiting).unwrap_or(0);
        (before != waiting).then_some(before == 0)
    }
}

/// How often it is read which tenants work, while a tenant waits for memory that another may have
/// to leave: idle tenants are moved first. It is read before each decision as well.
const QUICK: Nanos = Nanos::millis(250);

impl Node {
    /// Reads which tenants work, while a decision may depend on it, and when it is read next.
    pub(super) fn mind_rotation(&mut self, now: Nanos) {
        if self.rotation_read.is_some_and(|at| now < at) {
            return;
        }
        let mut rotating: Vec<TenantId> = self.world.rotating().collect();
        rotating.sort_unstable();
        rotating.dedup();
        self.rotation_read = (!rotating.is_empty()).then(|| now + QUICK);
        self.read_work(now, rotating);
    }

    /// Before the brain decides something: reads whether the tenants have worked for which that
    /// matters ([`World::judged_by`]).
    pub(super) fn read_judged(&mut self, now: Nanos, event: Option<&Event>) {
        let judged = match event {
            Some(event) => self.world.judged_by(now, event),
            None => self.world.judged_until(now),
        };
        self.read_work(now, judged);
    }

    fn read_work(&mut self, now: Nanos, tenants: impl IntoIterator<Item = TenantId>) {
        for tenant in tenants {
            let known = self.tenants.get_mut(&tenant);
            if known.is_some_and(Tenant::worked) {
                self.world.worked_before(now, [tenant]);
            }
        }
    }

    /// Once a second: reads the pages, says that the daemon lives, looks at every device.
    pub fn tick(&mut self, now: Nanos) {
        self.begin_tick(now);
        while self.beat_next(now) {}
        self.end_tick(now);
    }

    /// The second's beginning. Then each tenant has its part by [`Node::beat_next`]: what is due to
    /// turns may come between.
    pub fn begin_tick(&mut self, now: Nanos) {
        for device in 0..self.devices.len() {
            if !self.looks.is_lost(device) {
                self.look(device);
            }
        }
        self.mind_slow_look(now);
        self.beats = self.tenants.keys().copied().collect();
    }

    /// The second's part for the next tenant. `false`: all have had it.
    pub fn beat_next(&mut self, now: Nanos) -> bool {
        let next = self.beats.pop_front();
        next.into_iter().for_each(|tenant| self.beat(now, tenant));
        next.is_some()
    }

    /// The second's end.
    pub fn end_tick(&mut self, now: Nanos) {
        self.note_history(now);
        self.processes.forget_ended(now);
        self.forget_workers();
        self.mind_fences();
        self.tend_host(now);
        self.forget_unlisted_graves();
        self.write_down_dead();
        self.write_down_members();
        self.write_down_standings();
        self.write_down_totals(now);
        self.tend_guard();
        self.tend_containers(now);
        self.tell_left_out(now);
        self.tend_unrestored();
        self.advance(now);
    }

    fn beat(&mut self, now: Nanos, tenant: TenantId) {
        if !self.is_recovering() {
            self.look_at_rows(tenant);
        }
        self.look_at_awaited(tenant);
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let device_ids = known.device_ids().len();
        let header = &known.control().view().header;
        header.heartbeat.store(now.0, Ordering::Relaxed);
        self.read_work(now, [tenant]);
        for device_index in 0..device_ids {
            self.read_usage(now, tenant, device_index);
        }
        self.show_status(tenant);
        self.note_workers(now, tenant);
        self.note_shares(now, tenant);
        self.count(now, tenant);
        self.note_measures(tenant);
    }

    /// Shows a tenant's programs their free memory and the driver's overhead beside their charges.
    pub(super) fn show_status(&self, tenant: TenantId) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let limits = &known.usage().view().devices;
        for ((device, shown), limits) in known
            .device_ids()
            .iter()
            .zip(&known.control().view().devices)
            .zip(limits)
        {
            let more = self.world.grantable(tenant, *device);
            if let Some(account) = self.world.account(tenant, *device) {
                let reach = account.in_use + more;
                shown.reach.store(reach.0, Ordering::Relaxed);
                shown.overhead.store(account.overhead.0, Ordering::Relaxed);
                // A request that a percentage implies follows the measured cost of contexts.
                let request = account.quota.request.0;
                limits.request.store(request, Ordering::Relaxed);
                let assured = self.world.assured(tenant, *device);
                limits.assured.store(assured.0, Ordering::Relaxed);
            }
            // A new tenant's page shows none yet.
            let waiting = waiting(&self.world, *device);
            shown.waiters.store(waiting, Ordering::Relaxed);
        }
    }

    /// Shows all tenants of a device whether an ask waits for its memory, if that changed since it
    /// was last shown. From the first one on, the libraries of tenants that may have to leave
    /// publish their work more often: they are woken for that, else a tenant at work would seem
    /// idle until its library looks by itself.
    pub(super) fn show_waiters(&mut self) {
        let mut woken = BTreeSet::new();
        for device in (0..self.devices.len() as u64).map(DeviceId) {
            let waiting = waiting(&self.world, device);
            let Some(first) = self.shown_waiters.change(device, waiting) else {
                continue;
            };
            if first {
                woken.extend(self.world.rotating_on(device));
            }
            for known in self.tenants.values() {
                let device_index = known.device_index(device);
                let page = known.control().view();
                if let Some(device_index) = device_index.and_then(|at| page.devices.get(at)) {
                    device_index.waiters.store(waiting, Ordering::Relaxed);
                }
            }
        }
        for tenant in woken {
            self.wake_soon(tenant);
        }
    }

    /// Begins a look, unless one is under way.
    pub(super) fn look(&mut self, device: usize) {
        let charged = self.charges_on(device);
        if self.looks.begin(device, charged) {
            self.effect(Effect::Look { device });
        }
    }

    /// A look that began under [`Effect::Look`] has ended; `taken` is when.
    pub fn looked(
        &mut self,
        now: Nanos,
        device: usize,
        taken: Nanos,
        look: Result<Look, LookError>,
    ) {
        let after = self.charges_on(device);
        let id = DeviceId(device as u64);
        let Some((before, again)) = self.looks.end(device) else {
            return;
        };
        let look = match look {
            Ok(look) => look,
            Err(LookError::Lost) if self.looks.is_gone(device, now) => {
                return self.lose(now, device);
            }
            Err(error) => {
                if error != LookError::Lost {
                    self.looks.answers(device);
                }
                let error = error.to_string();
                self.looks.list_none(device);
                self.look_failed(device, "look-failed", error);
                if again {
                    self.look(device);
                }
                return;
            }
        };
        self.looks.answers(device);
        self.look_worked(device);
        let by_pid = self.processes.by_pid();
        self.counted.samples(device, look.busy.is_some());
        if let Some(busy) = look.busy.filter(|_| self.pids.are_ours()) {
            self.note_busy(id, &by_pid, &busy.ran);
            let listed = look.processes.iter().flatten();
            let listed = listed.map(|(pid, _)| *pid).collect();
            self.tell_ran(now, id, (&by_pid, &listed), &busy);
        }
        if let Some(health) = look.health {
            self.counted.saw(device, health);
        }
        let half_made: BTreeSet<ProcessId> = self
            .processes
            .iter()
            .filter(|(process, known)| {
                let tenant = self.tenants.get(&known.tenant());
                let device_index = tenant.and_then(|tenant| tenant.device_index(id));
                device_index
                    .is_some_and(|device_index| self.is_half_made(taken, *process, device_index))
            })
            .map(|(process, _)| process)
            .collect();
        let ours = |(pid, used): &(u32, Bytes)| {
            let process = *by_pid.get(pid)?;
            let steady = before.get(&process) == after.get(&process);
            let steady = steady && !half_made.contains(&process);
            let charged = after.get(&process).copied().filter(|_| steady);
            Some(ProcessSample {
                process,
                used: *used,
                charged,
            })
        };
        for (pid, used) in look.processes.iter().flatten() {
            let charged = by_pid.get(pid).and_then(|process| after.get(process));
            if let Some(charged) = charged {
                self.pids.seen(*used, *charged);
            }
        }
        let pids = self.pids;
        let listed = look.processes.as_ref().filter(|_| pids.are_ours());
        let processes: Option<Vec<_>> = listed.map(|all| all.iter().filter_map(ours).collect());
        let mut strangers = Bytes::ZERO;
        if let Some(shown) = &processes {
            let shown = shown
                .iter()
                .map(|sample| (sample.process, sample.used))
                .collect();
            self.looks.list(device, shown);
            let all = || listed.into_iter().flatten();
            let pids: Vec<u32> = all().map(|(pid, _)| *pid).collect();
            self.forget_graves(device, &pids);
            let others = all().filter(|(pid, _)| !by_pid.contains_key(pid));
            strangers = others.clone().map(|(_, used)| *used).sum();
            let unknown = others.filter(|(pid, _)| !self.is_remembered(*pid));
            let unknown: BTreeMap<u32, Bytes> = unknown.copied().collect();
            self.mind_strangers((now, taken), device, &unknown, &look.drawing);
        } else {
            self.looks.list_none(device);
        }
        let sample = Sample {
            taken,
            used: look.used,
            free: look.free,
            processes,
            strangers,
            charged: self.all_through(&before, &after),
        };
        let listed = sample.processes.is_some();
        if self.world.waiting_on(id) > 0 {
            // Reads memory that tenants freed since their pages were last read; this look is
            // compared with it.
            self.read_all(now, id);
        }
        self.happened(now, Event::Sampled { device: id, sample });
        self.mind_away(now, device, listed.then_some(taken));
        if again {
            self.look(device);
        }
    }

    /// What each tenant's processes had charged all through a look, by what each had before and
    /// after it.
    fn all_through(
        &self,
        before: &BTreeMap<ProcessId, Bytes>,
        after: &BTreeMap<ProcessId, Bytes>,
    ) -> BTreeMap<TenantId, Bytes> {
        let mut all: BTreeMap<TenantId, Bytes> = BTreeMap::new();
        for (process, charged) in after {
            let Some(known) = self.processes.get(*process) else {
                continue;
            };
            let tenant = known.tenant();
            let is_older = self.tenants.get(&tenant).is_some_and(Tenant::is_restored);
            let before = before.get(process).copied();
            *all.entry(tenant).or_default() += all_through(before, *charged, is_older);
        }
        all
    }

    /// Kernels of these processes ran so long since the last look. Some have ended since: a job of
    /// many short programs is mostly such.
    fn note_busy(
        &mut self,
        device: DeviceId,
        by_pid: &BTreeMap<u32, ProcessId>,
        ran: &[(u32, Nanos)],
    ) {
        // A tenant is billed once for all its processes.
        let mut by_tenant: BTreeMap<TenantId, Nanos> = BTreeMap::new();
        for (pid, time) in ran {
            let process = by_pid.get(pid).and_then(|id| self.processes.get(*id));
            let living = process.map(Process::tenant);
            if let Some(tenant) = living.or_else(|| self.processes.ended_lately(*pid)) {
                let all = by_tenant.entry(tenant).or_default();
                *all = *all + *time;
            }
        }
        for (tenant, time) in by_tenant {
            // The brain forgets its bill with its last process; these go on.
            self.note_measures(tenant);
            if let Some(known) = self.tenants.get_mut(&tenant)
                && let Some(device_index) = known.device_index(device)
                && let Some(billed) = known.measures().get(device_index).map(Measures::gpu)
            {
                let tally = known.tally_mut();
                tally.ran(device_index, time.0);
                tally.ran_until(device_index, time.0, billed);
            }
        }
    }

    /// The device is lost: fails the asks that wait for it, and sends no new ones there.
    fn lose(&mut self, now: Nanos, device: usize) {
        let id = DeviceId(device as u64);
        if self.looks.lose(device) {
            let text = "the device does not answer any more; restart the daemon once it is back";
            self.event("lost", None, Some(id), text.to_owned());
        }
        self.happened(now, Event::DeviceLost { device: id });
    }

    /// The memory of a tenant's processes in the last look, where the look could tell.
    pub(super) fn used_by(&self, tenant: TenantId, device: DeviceId) -> Option<Bytes> {
        let at = index(device)?;
        if !self.devices.get(at)?.capabilities.process_memory || !self.pids.are_ours() {
            return None;
        }
        let shown = self.looks.shown(at)?;
        let members = self.tenants.get(&tenant)?.members();
        Some(Bytes(
            members
                .filter(|member| !self.away.has_vacated(*member, at))
                .filter_map(|member| shown.get(&member))
                .map(|used| used.0)
                .sum(),
        ))
    }

    fn charges_on(&self, device: usize) -> BTreeMap<ProcessId, Bytes> {
        let id = DeviceId(device as u64);
        let charge = |(process, known): (ProcessId, &Process)| {
            let tenant = self.tenants.get(&known.tenant())?;
            let line = tenant
                .usage()
                .view()
                .line(known.slot(), tenant.device_index(id)?)?;
            Some((process, Bytes(u64::from(line.word.load().charged) * UNIT)))
        };
        self.processes.iter().filter_map(charge).collect()
    }
}

fn waiting(world: &World, device: DeviceId) -> u32 {
    u32::try_from(world.waiting_on(device)).unwrap_or(u32::MAX)
}
