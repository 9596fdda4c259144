//! Processes of a previous daemon, which say where their memory is: at once, late, or never.

use super::{Member, Place, Resident, Said, Turned};
use crate::ids::ProcessId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// Where a tenant's processes are, as far as they have said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Some have memory on the host.
    pub(crate) out: bool,
    /// Some have all of theirs on the card.
    pub(crate) here: bool,
    /// Some have said nothing in time.
    pub(crate) silent: bool,
    /// Some were on their way, or could not leave as a whole.
    pub(crate) moving: bool,
}

impl Member {
    /// Whether it can say where its memory is, and has not yet.
    fn owes(&self) -> bool {
        self.can && self.owes.is_some()
    }

    /// Whether its tenant still waits for that.
    fn is_awaited(&self) -> bool {
        self.owes() && !self.silent
    }
}

impl Resident {
    /// It comes from a previous daemon: where its memory is has still to be shown.
    pub(crate) fn find(&mut self) {
        self.found = true;
    }

    /// A command of the previous daemon's time has moved it out, or was to.
    pub(crate) fn set_suspended(&mut self, suspended: bool) {
        self.suspended = suspended;
    }

    /// A process comes from a previous daemon and has memory here: it has to say where that is,
    /// unless that cannot have left the card.
    pub(crate) fn awaits(&mut self, now: Nanos, process: ProcessId) {
        if let Some(member) = self.members.get_mut(&process) {
            if member.can {
                (member.owes, member.said) = (Some(now), Said::Nothing);
            }
            self.undecided = true;
            self.heard = Some(now);
        }
    }

    /// Whether a process has yet to show its memory.
    pub(crate) fn owes(&self, process: ProcessId) -> bool {
        self.members.get(&process).is_some_and(Member::owes)
    }

    /// Whether a process that has come has yet to show its memory.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.members.values().any(Member::is_awaited)
    }

    /// Since when the first of them is waited for.
    pub(crate) fn awaited_since(&self) -> Option<Nanos> {
        let all = self.members.values().filter(|one| one.is_awaited());
        all.filter_map(|one| one.owes).min()
    }

    /// Those for which it has waited since `then` or longer are waited for no more.
    pub(crate) fn give_up_on(&mut self, then: Nanos) -> Vec<ProcessId> {
        let all = self.members.iter_mut();
        let late = all.filter(|(_, one)| one.is_awaited() && one.owes <= Some(then));
        late.map(|(process, member)| {
            member.silent = true;
            *process
        })
        .collect()
    }

    /// A process from the previous daemon's time shows what it has on the host, and whether that
    /// `rests` there; no `away`: all its memory is on the card. Ignored where it has shown that
    /// already.
    pub(crate) fn shows(&mut self, process: ProcessId, away: Option<Bytes>, rests: bool) -> bool {
        let member = self.members.get_mut(&process);
        let Some(member) = member.filter(|member| member.owes()) else {
            return false;
        };
        (member.owes, member.silent) = (None, false);
        (member.away, member.moving) = (away.unwrap_or_default(), !rests);
        self.brings += member.away;
        member.said = match (self.place, away) {
            (Place::In | Place::Out | Place::Confirming, Some(_)) => Said::Away,
            (Place::Out | Place::Confirming, None) => Said::Here,
            // It is sealed, and does not say so again.
            (Place::Sealing, Some(_)) => Said::Sealed,
            // The order in force is answered by itself.
            _ => Said::Nothing,
        };
        self.undecided = true;
        true
    }

    /// Its place has to be decided anew: all of which it waited have shown where their memory is,
    /// or are waited for no more. Says it once.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.is_awaiting() {
            return false;
        }
        let found = std::mem::take(&mut self.found);
        let undecided = std::mem::take(&mut self.undecided);
        undecided || (found && self.place == Place::Out)
    }

    /// See [`Parts`].
    pub(crate) fn parts(&self) -> Parts {
        let spoke = || self.members.values().filter(|one| !one.silent);
        let is_out = |one: &Member| match self.place {
            Place::Out => one.can && one.said != Said::Here,
            _ => one.said == Said::Away,
        };
        Parts {
            out: spoke().any(is_out),
            here: spoke().any(|one| !is_out(one)),
            silent: self.members.values().any(|one| one.silent),
            moving: spoke().any(|one| one.moving),
        }
    }

    /// What all have reported under the order in force is complete.
    pub(crate) fn complete(&self) -> Option<Turned> {
        self.all_said()
    }
}
