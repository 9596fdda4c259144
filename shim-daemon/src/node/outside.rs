//! Work that no gate governs: tells the brain what the driver's samples say of it.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::{DeviceId, Event, Nanos, ProcessId, Work};

use super::Node;
use super::processes::Process;
use crate::devices::Busy;

/// The processes that ran, and for how long.
type Ran = Vec<(Option<ProcessId>, Nanos)>;

impl Node {
    /// Tells the brain which processes' kernels ran on a device, and for how long. A look at the
    /// device `listed` these pids.
    pub(super) fn tell_ran(
        &mut self,
        now: Nanos,
        device: DeviceId,
        (by_pid, listed): (&BTreeMap<u32, ProcessId>, &BTreeSet<u32>),
        busy: &Busy,
    ) {
        if busy.span == Nanos::ZERO {
            return;
        }
        let event = Event::Ran {
            device,
            span: busy.span,
            ran: self.whose(device, (by_pid, listed), &busy.ran),
        };
        self.happened(now, event);
    }

    /// Whose that time is. Those that are not registered have no number, and count only if they are
    /// listed: the driver may name a pid of no process. Those that stand aside as MPS clients have
    /// none, and are told as one, with the longest time: their server has one context for them, in
    /// which they run at the same time. What a process had that has ended is left out: it was
    /// billed.
    pub(super) fn whose(
        &self,
        device: DeviceId,
        (by_pid, listed): (&BTreeMap<u32, ProcessId>, &BTreeSet<u32>),
        ran: &[(u32, Nanos)],
    ) -> Ran {
        let mut whose = Ran::new();
        let mut clients = Nanos::ZERO;
        for (pid, time) in ran {
            match by_pid.get(pid) {
                Some(process) if self.stands_aside(*process, device) => {
                    clients = clients.max(*time);
                }
                Some(process) if self.processes.get(*process).is_some() => {
                    whose.push((Some(*process), *time));
                }
                None if listed.contains(pid) && self.processes.ended_lately(*pid).is_none() => {
                    whose.push((None, *time));
                }
                _ => {}
            }
        }
        if clients > Nanos::ZERO {
            whose.push((None, clients));
        }
        whose
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
