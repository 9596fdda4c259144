//! What clients report. A report names the turn it speaks of; about any other turn it is old news, or a lie, and ignored.
//!
//! What a lie can do: cut one's own turn short, have turns one does not use and pays for, or not drain, which others
//! wait for once and no longer than the bound, or not at all if it was said to be near its end: then, too, it pays its part of the
//! time beside them.

use super::entity::{Member, Phase};
use super::schedule::Schedule;
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;

impl Schedule {
    pub(super) fn wanted(&mut self, process: ProcessId, epoch: u64) {
        let Some(container) = self.owners.get(&process).copied() else {
            return;
        };
        let turn = self.length(container);
        let known = self.entities.get(&container);
        if known.is_none_or(|entity| entity.phase == Phase::Free || entity.epoch != epoch) {
            return;
        }
        let now = self.now;
        self.touch(container, |entity, mark| {
            if !entity.wants() {
                entity.asked = now;
            }
            if !entity.wants() && !entity.is_in_turn() {
                // Idle time is not saved up; what an interrupted turn lacked is not lost.
                let floor = if std::mem::take(&mut entity.interrupted) {
                    mark.before(turn, entity.weight)
                } else {
                    mark
                };
                entity.clock = entity.clock.max(floor);
            }
            if let Some(member) = entity
                .members
                .get_mut(&process)
                .filter(|member| member.gated)
            {
                member.wants = true;
            }
        });
    }

    pub(super) fn drained(&mut self, process: ProcessId, epoch: u64) {
        self.report(process, epoch, |member| member.drained = true);
    }

    pub(super) fn ending(&mut self, process: ProcessId, epoch: u64, left: Nanos) {
        let lead = self.policy.lead;
        if lead > Nanos::ZERO && left <= lead {
            self.report(process, epoch, |member| member.ending = true);
        }
    }

    pub(super) fn idle(&mut self, process: ProcessId, epoch: u64) {
        self.report(process, epoch, |member| {
            (member.idle, member.wants) = (true, false);
        });
    }

    /// Believed whatever turn it speaks of: it takes nothing from anybody but who says it.
    pub(super) fn busy(&mut self, process: ProcessId, _epoch: u64) {
        if let Some(container) = self.owners.get(&process).copied() {
            self.say(container, process, |member| member.idle = false);
        }
    }

    /// Takes a report about the present turn.
    fn report(&mut self, process: ProcessId, epoch: u64, say: impl FnOnce(&mut Member)) {
        let Some(container) = self.owners.get(&process).copied() else {
            return;
        };
        let known = self.entities.get(&container);
        if known.is_some_and(|entity| entity.epoch == epoch && entity.is_in_turn()) {
            self.say(container, process, say);
        }
    }

    fn say(&mut self, container: ContainerId, process: ProcessId, say: impl FnOnce(&mut Member)) {
        self.touch(container, |entity, _| {
            if let Some(member) = entity.members.get_mut(&process) {
                say(member);
            }
        });
    }
}
