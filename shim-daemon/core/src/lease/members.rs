//! A tenant's processes on one device, as their reports and pages describe them.

use super::input::Report;
use super::work::Work;
use crate::ids::ProcessId;
use std::collections::BTreeMap;

/// A process. Only gated ones that can answer are asked to drain.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its gate can be closed.
    gated: bool,
    /// Its connection has ended: it says nothing, and its gate is open.
    away: bool,
    /// It said that it has nothing to do.
    idle: bool,
    /// A call waits at its closed gate.
    waits: bool,
    /// It closed and what it had submitted is complete.
    drained: bool,
    /// Its page at the last sample. `None`: it did not matter until now what it says.
    seen: Option<Work>,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<ProcessId, Member>);

impl Members {
    /// A process came, `drained` if nothing of it can be under way. Known already: whether it is
    /// gated may have changed.
    pub(super) fn join(&mut self, process: ProcessId, gated: bool, drained: bool) {
        let member = self.0.entry(process).or_insert_with(|| Member {
            gated,
            away: false,
            idle: false,
            waits: false,
            drained,
            seen: Some(Work::default()),
        });
        member.gated = gated;
    }

    pub(super) fn leave(&mut self, process: ProcessId) {
        self.0.remove(&process);
    }

    /// A process that is away wants nothing and is not waited for; back again, it is as if it had
    /// just come.
    pub(super) fn set_away(&mut self, process: ProcessId, away: bool) {
        if let Some(member) = self.0.get_mut(&process) {
            (member.away, member.waits, member.idle) = (away, false, false);
        }
    }

    pub(super) fn set_drained(&mut self, process: ProcessId, drained: bool) {
        if let Some(member) = self.0.get_mut(&process) {
            member.drained = drained;
        }
    }

    /// Takes a report of a process about its present turn.
    pub(super) fn report(&mut self, process: ProcessId, report: Report) {
        let Some(member) = self.0.get_mut(&process) else {
            return;
        };
        match report {
            Report::Wanted => member.waits = member.gated,
            Report::Drained => member.drained = true,
            Report::Idle => member.idle = true,
            Report::Busy => member.idle = false,
        }
    }

    /// The tenant's gate has another position: what its processes said before is over.
    pub(super) fn reopen(&mut self) {
        for member in self.0.values_mut() {
            (member.waits, member.drained) = (false, false);
        }
    }

    /// A turn begins: whether they have work is to be seen.
    pub(super) fn begin_turn(&mut self) {
        self.reopen();
        self.0.values_mut().for_each(|member| member.idle = false);
    }

    /// The device goes over to another regime: nothing was said in it yet. They count as drained
    /// unless they have gates that are open.
    pub(super) fn begin_regime(&mut self, drained: bool) {
        self.begin_turn();
        for member in self.0.values_mut() {
            (member.drained, member.seen) = (drained, None);
        }
    }

    /// What a process's page said at the last sample; what it says now, if that did not matter until
    /// now. `None` for one that is not steered.
    pub(super) fn saw(&mut self, process: ProcessId, work: Work) -> Option<Work> {
        let member = self.0.get_mut(&process)?;
        let seen = member.seen.replace(work).unwrap_or(work);
        (member.gated && !member.away).then_some(seen)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.0.keys().copied()
    }

    pub(super) fn has(&self, process: ProcessId) -> bool {
        self.0.contains_key(&process)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a process that can be steered has not said that it is idle.
    pub(super) fn is_active(&self) -> bool {
        self.gated().any(|member| !member.idle)
    }

    /// Whether all its processes that have a gate closed it and drained.
    pub(super) fn is_drained(&self) -> bool {
        self.gated().all(|member| member.drained)
    }

    /// Whether all its processes that have a gate have nothing to do, one way or the other.
    pub(super) fn is_quiet(&self) -> bool {
        self.gated().all(|member| member.drained || member.idle)
    }

    /// Whether a call waits at a closed gate.
    pub(super) fn waits(&self) -> bool {
        self.0.values().any(|member| member.waits)
    }

    /// How many have no gate.
    pub(super) fn ungated(&self) -> u32 {
        let ungated = self.0.values().filter(|member| !member.gated);
        u32::try_from(ungated.count()).unwrap_or(u32::MAX)
    }

    fn gated(&self) -> impl Iterator<Item = &Member> {
        let members = self.0.values();
        members.filter(|member| member.gated && !member.away)
    }
}
