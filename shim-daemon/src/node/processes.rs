//! The registered processes, and the dead that the driver may still list.

use std::collections::BTreeMap;

use gpushare_core::{Nanos, ProcessId, TenantId};

use super::ConnId;
use crate::peer::{Peer, is_dead};

/// How long the tenant of a process is known after its end. NVML tells of kernels up to two
/// seconds late, and may take some to answer.
const NAMED: Nanos = Nanos::secs(10);

/// A registered process.
#[derive(Debug)]
pub(super) struct Process {
    tenant: TenantId,
    slot: usize,
    peer: Peer,
    /// Where its replies go; `None` once its connection has ended.
    connection: Option<ConnId>,
    /// Whether it is an MPS client.
    mps: bool,
    /// When it started, in clock ticks since boot, once it was looked at.
    started: Option<u64>,
    /// Whether it is the previous daemon's and has not come to this one.
    late: bool,
    /// Devices on which it was let make a context and has not said that it is made, and since when.
    opening: BTreeMap<usize, Nanos>,
}

impl Process {
    pub(super) fn new((tenant, slot): (TenantId, usize), peer: Peer, connection: ConnId) -> Self {
        Self {
            tenant,
            slot,
            peer,
            connection: Some(connection),
            mps: false,
            started: None,
            late: false,
            opening: BTreeMap::new(),
        }
    }

    /// One of the previous daemon that has not come, and has started then.
    pub(super) fn late(place: (TenantId, usize), peer: Peer, started: u64) -> Self {
        let (tenant, slot) = place;
        Self {
            tenant,
            slot,
            peer,
            connection: None,
            mps: false,
            started: Some(started),
            late: true,
            opening: BTreeMap::new(),
        }
    }

    /// Whether it is the previous daemon's and has not come to this one.
    pub(super) fn is_late(&self) -> bool {
        self.late
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Its own row of its tenant's usage page.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Its pid, as the driver lists it.
    pub(super) fn pid(&self) -> u32 {
        self.peer.pid.unsigned_abs()
    }

    /// Whether it has ended; `None` where the kernel does not tell.
    pub(super) fn is_dead(&self) -> Option<bool> {
        is_dead(&self.peer.pidfd).ok()
    }

    /// Where its replies go.
    pub(super) fn connection(&self) -> Option<ConnId> {
        self.connection
    }

    /// It has connected again. Whether it came to this daemon for the first time.
    pub(super) fn reconnected(&mut self, connection: ConnId) -> bool {
        self.connection = Some(connection);
        std::mem::take(&mut self.late)
    }

    /// A connection has ended. Whether it was this process's.
    pub(super) fn disconnected(&mut self, connection: ConnId) -> bool {
        self.connection.take_if(|own| *own == connection).is_some()
    }

    /// When it started, once it was looked at.
    pub(super) fn started(&self) -> Option<u64> {
        self.started
    }

    pub(super) fn has_started(&mut self, start: u64) {
        self.started = Some(start);
    }

    pub(super) fn is_mps_client(&self) -> bool {
        self.mps
    }

    pub(super) fn set_mps_client(&mut self) {
        self.mps = true;
    }

    /// It is let make a context.
    pub(super) fn opens(&mut self, device_index: usize, now: Nanos) {
        self.opening.entry(device_index).or_insert(now);
    }

    /// Its context is made. Whether it was let make one and had not said so.
    pub(super) fn opened(&mut self, device_index: usize) -> bool {
        self.opening.remove(&device_index).is_some()
    }

    /// Since when it makes a context.
    pub(super) fn opening_since(&self, device_index: usize) -> Option<Nanos> {
        self.opening.get(&device_index).copied()
    }
}

/// See the module's page. A process that ends leaves its pid behind until the driver lists it no
/// more or another process has it.
#[derive(Debug, Default)]
pub(super) struct Processes {
    living: BTreeMap<ProcessId, Process>,
    reaped: BTreeMap<u32, ProcessId>,
    /// The tenants of those that ended lately, by pid, and when that was.
    ended: BTreeMap<u32, (TenantId, Nanos)>,
}

impl Processes {
    pub(super) fn get(&self, process: ProcessId) -> Option<&Process> {
        self.living.get(&process)
    }

    pub(super) fn get_mut(&mut self, process: ProcessId) -> Option<&mut Process> {
        self.living.get_mut(&process)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        let living = self.living.iter();
        living.map(|(process, known)| (*process, known))
    }

    /// A process has registered.
    pub(super) fn add(&mut self, process: ProcessId, known: Process) {
        self.reaped.remove(&known.pid());
        self.ended.remove(&known.pid());
        self.living.insert(process, known);
    }

    /// A process is registered no longer; its pid goes on.
    pub(super) fn remove(&mut self, process: ProcessId) -> Option<Process> {
        self.living.remove(&process)
    }

    /// A process has ended.
    pub(super) fn reap(&mut self, now: Nanos, process: ProcessId) -> Option<Process> {
        let known = self.living.remove(&process)?;
        self.reaped.insert(known.pid(), process);
        self.ended.insert(known.pid(), (known.tenant, now));
        Some(known)
    }

    /// The tenant of a process that ended lately.
    pub(super) fn ended_lately(&self, pid: u32) -> Option<TenantId> {
        self.ended.get(&pid).map(|(tenant, _)| *tenant)
    }

    /// Once a second: forgets the tenants of those that ended too long ago.
    pub(super) fn forget_ended(&mut self, now: Nanos) {
        self.ended.retain(|_, (_, at)| now - *at < NAMED);
    }

    /// The dead process of a pid, or what `new` makes one.
    pub(super) fn reaped_as(&mut self, pid: u32, new: ProcessId) -> ProcessId {
        *self.reaped.entry(pid).or_insert(new)
    }

    /// The dead, with their pids.
    pub(super) fn dead(&self) -> impl Iterator<Item = (ProcessId, u32)> {
        self.reaped.iter().map(|(pid, process)| (*process, *pid))
    }

    /// Forgets the dead for which this is false.
    pub(super) fn keep_dead(&mut self, keep: impl Fn(u32, ProcessId) -> bool) {
        self.reaped.retain(|pid, process| keep(*pid, *process));
    }

    /// All, the dead too, by pid.
    pub(super) fn by_pid(&self) -> BTreeMap<u32, ProcessId> {
        let living = self.living.iter();
        let living = living.map(|(process, known)| (known.pid(), *process));
        let dead = self.reaped.iter().map(|(pid, process)| (*pid, *process));
        living.chain(dead).collect()
    }
}
