//! Since when each process has done no GPU work, for `ps`: of a tenant that works, one process may
//! be forgotten. By the process's row of the page, read once a second. Nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use gpushare_core::{Nanos, ProcessId, TenantId};

use super::Node;

/// A process's counters of work together: they only ever need to differ.
type Work = u64;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Workers(BTreeMap<ProcessId, (Work, Nanos)>);

impl Workers {
    /// A process has done so much by now.
    fn note(&mut self, now: Nanos, process: ProcessId, work: Work) {
        let known = self.0.entry(process).or_insert((work, now));
        if known.0 != work {
            *known = (work, now);
        }
    }

    /// For how long a process has done nothing, at most a second less. Nothing of one that was not
    /// read yet.
    pub(super) fn idle_for(&self, now: Nanos, process: ProcessId) -> Nanos {
        let since = self.0.get(&process).map(|(_, since)| *since);
        since.map_or(Nanos::ZERO, |since| now - since)
    }
}

impl Node {
    /// Reads what each process of a tenant has done.
    pub(super) fn note_workers(&mut self, now: Nanos, tenant: TenantId) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        let page = known.usage().view();
        for process in known.members() {
            let Some(slot) = self.processes.get(process).map(|one| one.slot()) else {
                continue;
            };
            let lines = (0..known.device_ids().len()).filter_map(|at| page.line(slot, at));
            let work = lines.fold(0_u64, |sum, line| {
                sum.wrapping_add(line.submitted.load(Ordering::Relaxed))
                    .wrapping_add(u64::from(line.word.load().charged))
            });
            self.workers.note(now, process, work);
        }
    }

    /// Forgets processes that have ended.
    pub(super) fn forget_workers(&mut self) {
        let processes = &self.processes;
        self.workers
            .0
            .retain(|process, _| processes.get(*process).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_idle_since_its_own_last_work() {
        let mut workers = Workers::default();
        let (busy, forgotten) = (ProcessId(1), ProcessId(2));
        for second in 1..=60 {
            workers.note(Nanos::secs(second), busy, second);
            workers.note(Nanos::secs(second), forgotten, second.min(20));
        }
        let idle = |process| workers.idle_for(Nanos::secs(60), process);
        assert_eq!(idle(busy), Nanos::ZERO);
        assert_eq!(idle(forgotten), Nanos::secs(40));
        assert_eq!(idle(ProcessId(3)), Nanos::ZERO, "it was not read yet");
    }
}
