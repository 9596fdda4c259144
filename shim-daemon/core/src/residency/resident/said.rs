//! The processes of a tenant on a device, and what they report.

use super::{Member, Place, Resident, Said, Told, Turned};
use crate::ids::ProcessId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// A process says again how much of its memory cannot move once that has changed by so many
/// bytes and by a part in so many. As `is_much` of the library's `residency/thread.rs` has it.
const SAID_AGAIN: (Bytes, u64) = (Bytes::mib(64), 8);

/// What a tenant's processes say of their memory that cannot move. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stays {
    /// All of it, before one of them said so anew.
    pub(crate) before: Bytes,
    /// All of it now.
    pub(crate) all: Bytes,
    /// So much of it at least: if it were less they would have said so.
    pub(crate) least: Bytes,
    /// So much of what the others have said may be less now.
    pub(crate) loose: Bytes,
}

/// How much less of such memory a process may have than it said.
fn may_lack(told: Bytes) -> Bytes {
    let (bytes, part) = SAID_AGAIN;
    bytes.max(Bytes(told.0 / part)).min(told)
}

impl Resident {
    /// A process has a context on the device. While its tenant is out there is nothing to move.
    pub(crate) fn join(&mut self, now: Nanos, process: ProcessId, can: bool, here: bool) {
        if self.members.is_empty() && self.place == Place::In {
            self.since = now;
            self.stay.open(now);
        }
        let said = match self.place {
            Place::Confirming | Place::Out if !can => Said::Here,
            Place::Out if self.found => Said::Nothing,
            Place::Confirming | Place::Out => Said::Away,
            _ => Said::Nothing,
        };
        let lost = (!here).then_some(now);
        let owes = self.found.then_some(now);
        let member = self.members.entry(process).or_insert(Member {
            can,
            lost,
            said,
            away: Bytes::ZERO,
            stays: Bytes::ZERO,
            owes,
            silent: false,
            moving: false,
        });
        (member.can, member.lost) = (can, lost.map(|now| member.lost.unwrap_or(now)));
    }

    /// So much of a process's memory cannot move, as it says. `None`: it has no context.
    pub(crate) fn set_stays(&mut self, process: ProcessId, bytes: Bytes) -> Option<Stays> {
        let before = self.members.values().map(|one| one.stays).sum();
        self.members.get_mut(&process)?.stays = bytes;
        let others = self.members.iter().filter(|(other, _)| **other != process);
        let others = others.map(|(_, one)| one.stays);
        let loose: Bytes = others.clone().map(may_lack).sum();
        let all = others.sum::<Bytes>() + bytes;
        Some(Stays {
            before,
            all,
            least: all - loose - may_lack(bytes),
            loose,
        })
    }

    /// Its connection ended, or came again.
    pub(crate) fn set_here(&mut self, now: Nanos, process: ProcessId, here: bool) {
        if let Some(member) = self.members.get_mut(&process) {
            member.lost = (!here).then_some(now);
        }
    }

    /// A process has nothing on the device any more. The reports of the other processes may be
    /// complete now.
    pub(crate) fn leave(&mut self, process: ProcessId) -> Option<Turned> {
        self.members.remove(&process)?;
        if self.members.is_empty() {
            // The command was for the programs that ran then, and nothing is waited for any more.
            (self.suspended, self.held) = (false, false);
            (self.found, self.undecided) = (false, false);
        }
        self.all_said()
    }

    /// How many of its processes have a context.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no process with a context.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A report. One of another epoch, or one that does not answer the current order, is ignored.
    pub(crate) fn told(&mut self, process: ProcessId, epoch: u32, told: Told) -> Option<Turned> {
        if epoch != self.epoch {
            return None;
        }
        let Some(member) = self.members.get_mut(&process) else {
            return self.told_beside(process, told);
        };
        // It answers orders: it is not silent.
        (member.owes, member.silent) = (None, false);
        match (self.place, told) {
            (Place::Sealing, Told::Sealed) => member.said = Said::Sealed,
            (Place::Sealing | Place::Leaving, Told::Busy { retry, late }) => {
                let retry = Nanos::millis(u64::from(retry));
                return Some(Turned::Busy { retry, late });
            }
            // No host memory, and it runs; or a copy failed, and what it has moved stays there.
            (Place::Sealing | Place::Leaving, Told::NoRoom { .. }) => {
                let (retry, late) = (Nanos::ZERO, false);
                return Some(Turned::Busy { retry, late });
            }
            (Place::Leaving, Told::Moved { away }) => {
                let more = away > member.away;
                member.away = away.max(member.away);
                return more.then_some(Turned::Progress);
            }
            (Place::Leaving, Told::Away { away, .. }) => {
                (member.said, member.away) = (Said::Away, away);
            }
            (Place::Entering, Told::Back) => {
                (member.said, member.away) = (Said::Back, Bytes::ZERO);
            }
            (Place::Entering, Told::NoRoom { bytes }) => return Some(Turned::NoRoom(bytes)),
            // A part of it left though it was ordered to be in. It tries again by itself.
            (Place::In, Told::NoRoom { bytes }) if !self.refused => {
                self.refused = true;
                return Some(Turned::Lacks(bytes));
            }
            _ => return None,
        }
        self.all_said().or(Some(Turned::Progress))
    }

    /// Whether every process reported what the current place waits for.
    pub(super) fn all_said(&self) -> Option<Turned> {
        let (wanted, turned) = match self.place {
            Place::Sealing if self.is_beside() => return None,
            Place::Sealing => (Said::Sealed, Turned::Sealed),
            Place::Leaving => (Said::Away, Turned::Away),
            Place::Entering => (Said::Back, Turned::Back),
            _ => return None,
        };
        let returns = turned == Turned::Back;
        let mut heard = self.members.values().filter(|member| !member.silent);
        // Memory that cannot move has not left.
        let owed = |member: &&Member| member.said != wanted && (member.can || !returns);
        let mut missing = heard.clone().filter(owed);
        // Where none can answer there is nothing to bring back.
        let all = missing.next().is_none() && (returns || heard.next().is_some());
        all.then_some(turned)
    }
}
