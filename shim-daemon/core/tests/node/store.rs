//! The host store of the node: it asks the brain before it gives, tells what it has given, and may
//! fail. Processes keep host memory for all of their movable memory, as the library does.

use super::{Node, Rng};
use gpushare_core::{Bytes, DeviceId, Event, Held, Oversubscribe, ProcessId, TenantId};
use std::collections::BTreeSet;

/// Processes ask in steps of this.
const STEP: Bytes = Bytes::mib(64);

/// How the system behaves below the store.
#[derive(Debug, Default)]
pub struct Store {
    /// It refuses one of so many requests, at random.
    pub fails: Option<(Rng, u64)>,
    /// Processes that keep what they have, however much that is.
    pub hoards: BTreeSet<ProcessId>,
}

impl Store {
    fn refuses(&mut self) -> bool {
        let fails = self.fails.as_mut();
        fails.is_some_and(|(rng, one_in)| rng.one_in(*one_in))
    }
}

impl Node {
    /// Processes ask for host memory in the background, and give back what is too much.
    pub fn provide_all(&mut self) {
        for process in self.processes.keys().copied().collect::<Vec<_>>() {
            self.provide(process, STEP);
        }
    }

    /// The memory of a process that can move, on all devices.
    fn movable(&self, process: ProcessId) -> Bytes {
        let Some(proc) = self.processes.get(&process) else {
            return Bytes::ZERO;
        };
        let guest = self.guests.get(&proc.tenant);
        match guest.map(|guest| guest.spec.oversubscribe) {
            Some(Oversubscribe::Swap) => proc.charged.values().copied().sum(),
            _ => Bytes::ZERO,
        }
    }

    fn provide(&mut self, process: ProcessId, step: Bytes) {
        let movable = self.movable(process);
        if self.store.hoards.contains(&process) {
            return;
        }
        let proc = self.processes.get_mut(&process);
        let Some(proc) = proc.filter(|proc| !proc.in_file) else {
            return;
        };
        let (tenant, had) = (proc.tenant, proc.host);
        let wanted = (movable - had).round_up(step);
        let most = (movable + Bytes(movable.0 / 4)).round_up(STEP);
        proc.host = had.min(most);
        if !wanted.is_zero() && !self.store.refuses() {
            proc.host = had + self.world.may_give(tenant, wanted);
        }
        if self.processes[&process].host != had {
            self.tell_held(tenant);
        }
    }

    /// All memory of a tenant that is out lies in the file of a command.
    pub fn is_elsewhere(&mut self, tenant: TenantId) {
        for process in self.processes_of(tenant) {
            let proc = self.processes.get_mut(&process).expect("it lives");
            (proc.host, proc.in_file) = (Bytes::ZERO, true);
        }
        self.tell_held(tenant);
        self.tell(Event::Elsewhere { tenant });
    }

    /// A process is back, and gives back what lies unused where others lack it.
    pub(super) fn gives_back(&mut self, process: ProcessId) {
        let proc = self.processes.get_mut(&process).expect("it lives");
        let used: Bytes = proc.charged.keys().map(|device| proc.away(*device)).sum();
        let hoards = self.store.hoards.contains(&process);
        if std::mem::take(&mut proc.gives_back) && used.is_zero() && !hoards {
            proc.host = Bytes::ZERO;
            let tenant = proc.tenant;
            self.tell_held(tenant);
        }
    }

    /// Whether a process has the host memory for all that leaves a device. It asks for what it
    /// lacks.
    pub(super) fn has_host_for(&mut self, process: ProcessId, device: DeviceId) -> bool {
        let lacks = |node: &Self| {
            let proc = &node.processes[&process];
            if proc.in_file {
                return false;
            }
            let elsewhere = proc.charged.keys().filter(|other| **other != device);
            let elsewhere: Bytes = elsewhere.map(|other| proc.away(*other)).sum();
            node.movable(process).min(elsewhere + proc.charged(device)) > proc.host
        };
        if lacks(self) {
            // While its tenant leaves, the store gives no more than it has to move.
            self.provide(process, Bytes::mib(2));
        }
        !lacks(self)
    }

    /// Whether one process of a tenant may have host memory that another lacks: the brain counts
    /// what a tenant has, and does not know which of its processes has it (ADR 125, limits). On a
    /// small node that is judged strictly.
    pub(super) fn is_uneven(&self, tenant: TenantId) -> bool {
        self.watch.on && self.processes_of(tenant).len() > 1
    }

    /// Tells the brain what the store has given a tenant.
    pub fn tell_held(&mut self, tenant: TenantId) {
        let own = self.processes_of(tenant).into_iter();
        let held = Held {
            memory: own.map(|process| self.processes[&process].host).sum(),
            ..Held::default()
        };
        // At once, as the daemon does: nothing else is given before.
        self.world.handle(self.now, Event::Held { tenant, held });
    }

    /// What is reserved or given fits the budget, each tenant with the larger of the two.
    pub fn check_host(&self) {
        let host = self.world.host();
        if self.card_is_checked && !self.guarantees {
            // What a late process has from the previous daemon may be beyond the budget.
            return;
        }
        assert!(host.counted <= host.budget, "{host:?}");
        let given: Bytes = self.processes.values().map(|proc| proc.host).sum();
        assert_eq!(given, host.held.memory, "{host:?}");
        assert!(given <= host.budget, "{given} are given: {host:?}");
    }
}
