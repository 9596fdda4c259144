//! A tenant's processes on one device, as their reports and pages describe them.

use super::input::Report;
use super::work::Work;
use crate::ids::ProcessId;
use std::collections::BTreeMap;

/// A process. Only gated ones that can answer are asked to drain.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Its gate can be closed.
    gated: bool,
    /// Its connection has ended: it cannot report, and its gate is open.
    away: bool,
    /// It is sealed.
    sealed: bool,
    /// It reported that it is idle.
    idle: bool,
    /// A call waits at its closed gate.
    waits: bool,
    /// It closed and its submitted work is complete.
    drained: bool,
    /// Its page at the last sample. `None`: the page was not needed until now. It may show work
    /// that was billed by a daemon before.
    seen: Option<Work>,
    /// It was away at some time since its page was last read.
    was_away: bool,
    /// It was steered at a sample since the driver's samples were last read.
    was_steered: bool,
}

impl Member {
    fn is_steered(&self) -> bool {
        self.gated && !self.away && !self.sealed
    }
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<ProcessId, Member>);

impl Members {
    /// A process joined. It is `drained` if it can have no work in flight. If it was known already,
    /// `gated` may have changed.
    pub(super) fn join(&mut self, process: ProcessId, gated: bool, drained: bool) {
        let member = self.0.entry(process).or_insert_with(|| Member {
            drained,
            ..Member::default()
        });
        member.gated = gated;
    }

    pub(super) fn leave(&mut self, process: ProcessId) {
        self.0.remove(&process);
    }

    /// A process that is away has no demand and is not waited for. A call of it that waits counts
    /// again when it is back, because the process says so once in an epoch. Whether it is idle, it
    /// says again on its new connection.
    pub(super) fn set_away(&mut self, process: ProcessId, away: bool) {
        if let Some(member) = self.0.get_mut(&process) {
            (member.away, member.idle) = (away, false);
            member.was_away |= away;
        }
    }

    /// The same of a process that is sealed. It says nothing again when it is not any more.
    pub(super) fn set_sealed(&mut self, process: ProcessId, sealed: bool) {
        if let Some(member) = self.0.get_mut(&process) {
            member.sealed = sealed;
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
            Report::Wanted => member.waits = true,
            Report::Drained => member.drained = true,
            Report::Idle => member.idle = true,
            Report::Busy => member.idle = false,
        }
    }

    /// The tenant's gate changed its position, or is open for another turn: earlier reports of its
    /// processes are void. A process that said that it is idle does not say that it works again, if
    /// it begins after that.
    pub(super) fn reopen(&mut self) {
        for member in self.0.values_mut() {
            (member.waits, member.drained, member.idle) = (false, false, false);
        }
    }

    /// The device changes its regime: no reports exist in it yet. Processes count as drained unless
    /// their gates are open.
    pub(super) fn begin_regime(&mut self, drained: bool) {
        self.reopen();
        for member in self.0.values_mut() {
            (member.drained, member.seen) = (drained, None);
        }
    }

    /// Sampling begins after a time without. What a process did that was away in that time passed
    /// no gate that the daemon moved, and is not billed.
    pub(super) fn begin(&mut self) {
        for member in self.0.values_mut().filter(|member| member.was_away) {
            member.seen = None;
        }
    }

    /// The content of a process's page at the last sample, or the current content if there was
    /// none. `None` for a process that is not steered.
    pub(super) fn saw(&mut self, process: ProcessId, work: Work) -> Option<Work> {
        let member = self.0.get_mut(&process)?;
        let seen = member.seen.replace(work).unwrap_or(work);
        member.was_away = member.away;
        member.was_steered |= member.is_steered();
        member.is_steered().then_some(seen)
    }

    pub(super) fn has(&self, process: ProcessId) -> bool {
        self.0.contains_key(&process)
    }

    /// Whether a process has a gate and can answer now.
    pub(super) fn is_steered(&self, process: ProcessId) -> bool {
        self.0.get(&process).is_some_and(Member::is_steered)
    }

    /// Those that were not steered at any sample since this was last asked for, and are not now. A
    /// sealed one runs nothing.
    pub(super) fn take_unsteered(&mut self) -> Vec<ProcessId> {
        let members = self.0.iter_mut();
        let unsteered = members.filter_map(|(process, member)| {
            let was_steered = std::mem::take(&mut member.was_steered);
            let is_steered = was_steered || member.is_steered();
            (!is_steered && !member.sealed).then_some(*process)
        });
        unsteered.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some steerable process has not reported idle.
    pub(super) fn is_active(&self) -> bool {
        self.gated().any(|member| !member.idle)
    }

    /// Whether all its processes that have a gate closed it and drained.
    pub(super) fn is_drained(&self) -> bool {
        self.gated().all(|member| member.drained)
    }

    /// Whether all its gated processes are idle or drained.
    pub(super) fn is_quiet(&self) -> bool {
        self.gated().all(|member| member.drained || member.idle)
    }

    /// Whether a call waits at a closed gate.
    pub(super) fn waits(&self) -> bool {
        self.gated().any(|member| member.waits)
    }

    /// Whether one of them may run work that no gate governs.
    pub(super) fn has_unsteered(&self) -> bool {
        let mut members = self.0.values();
        members.any(|member| !member.is_steered() && !member.sealed)
    }

    /// How many have no gate.
    pub(super) fn ungated(&self) -> u32 {
        let ungated = self.0.values().filter(|member| !member.gated);
        u32::try_from(ungated.count()).unwrap_or(u32::MAX)
    }

    fn gated(&self) -> impl Iterator<Item = &Member> {
        let members = self.0.values();
        members.filter(|member| member.is_steered())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId(1);

    fn member(gated: bool) -> Members {
        let mut members = Members::default();
        members.join(ONE, gated, false);
        members
    }

    #[test]
    fn only_a_process_that_was_not_steered_all_the_time_is_unsteered() {
        assert_eq!(member(false).take_unsteered(), [ONE]);
        assert_eq!(member(true).take_unsteered(), []);
        let mut members = member(true);
        members.set_away(ONE, true);
        assert_eq!(members.take_unsteered(), [ONE]);
    }

    /// What the driver's samples say of it was before it was sealed.
    #[test]
    fn a_sealed_process_runs_nothing_that_no_gate_governs() {
        for (gated, sealed, unsteered) in [
            (true, true, &[][..]),
            (false, true, &[]),
            (false, false, &[ONE]),
        ] {
            let mut members = member(gated);
            members.set_sealed(ONE, sealed);
            assert_eq!(members.take_unsteered(), unsteered, "{gated} {sealed}");
        }
    }

    /// Away whenever the driver's samples are read, it was billed between.
    #[test]
    fn a_process_that_is_back_between_two_readings_is_steered() {
        let mut members = member(true);
        for _ in 0..3 {
            members.set_away(ONE, false);
            members.saw(ONE, Work::default());
            members.set_away(ONE, true);
            members.saw(ONE, Work::default());
            assert_eq!(members.take_unsteered(), []);
        }
        members.saw(ONE, Work::default());
        assert_eq!(members.take_unsteered(), [ONE], "it stays away");
    }
}
