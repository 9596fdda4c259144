//! Work that no gate governs: tells the brain what the driver's samples say of it.

use std::collections::BTreeMap;

use gpushare_core::{DeviceId, Event, Nanos, ProcessId, Work};

use super::Node;
use super::processes::Process;
use crate::devices::Busy;

/// The processes that ran, and for how long.
type Ran = Vec<(Option<ProcessId>, Nanos)>;

impl Node {
    /// Tells the brain which processes' kernels ran on a device, and for how long.
    pub(super) fn tell_ran(
        &mut self,
        now: Nanos,
        device: DeviceId,
        by_pid: &BTreeMap<u32, ProcessId>,
        busy: &Busy,
    ) {
        if busy.span == Nanos::ZERO {
            return;
        }
        let event = Event::Ran {
            device,
            span: busy.span,
            ran: self.whose(device, by_pid, &busy.ran),
        };
        self.happened(now, event);
    }

    /// Whose that time is. Those that are not registered have no number, nor have those that stand
    /// aside as MPS clients. What a process had that has ended is left out: it was billed.
    pub(super) fn whose(
        &self,
        device: DeviceId,
        by_pid: &BTreeMap<u32, ProcessId>,
        ran: &[(u32, Nanos)],
    ) -> Ran {
        let known = |pid: &u32| match by_pid.get(pid) {
            Some(process) if self.stands_aside(*process, device) => Some(None),
            Some(process) => self.processes.get(*process).map(|_| Some(*process)),
            None if self.processes.ended_lately(*pid).is_some() => None,
            None => Some(None),
        };
        let whose = |(pid, time): &(u32, Nanos)| Some((known(pid)?, *time));
        ran.iter().filter_map(whose).collect()
    }

    /// Whether a process has said that it is an MPS client, and its page shows no work on the
    /// device: one that is billed for some does not stand aside.
    fn stands_aside(&self, process: ProcessId, device: DeviceId) -> bool {
        let shows_none = |work: Work| (work.service, work.busy, work.since) == (0, 0, None);
        let known = self.processes.get(process);
        known.is_some_and(Process::is_mps_client)
            && self.work_of(process, device).is_none_or(shows_none)
    }
}
