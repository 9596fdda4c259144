//! The processes of a tenant that have nothing on the device from which it is to leave. They are
//! sealed with the others: work on another device may wait for what a sealed process has yet to
//! submit. Such work does not end, and its tenant could work nowhere. Why: ADR 262.

use super::{Place, Resident, Told, Turned};
use crate::ids::ProcessId;
use crate::time::Nanos;
use std::collections::BTreeSet;

impl Resident {
    /// The processes that answer an order.
    pub(in crate::residency) fn answering(&self) -> impl Iterator<Item = ProcessId> {
        let all = self.members.iter();
        let all = all.filter(|(_, one)| one.can && one.lost.is_none() && !one.silent);
        all.map(|(process, _)| *process)
    }

    /// Whether a process has a context on the device.
    pub(in crate::residency) fn has(&self, process: ProcessId) -> bool {
        self.members.contains_key(&process)
    }

    /// It is being sealed, and these have nothing here.
    pub(crate) fn seals_beside(&mut self, processes: BTreeSet<ProcessId>) {
        self.beside = processes;
    }

    /// Of its processes that have nothing here only these are waited for.
    pub(crate) fn waits_beside(&mut self, processes: &BTreeSet<ProcessId>) -> Option<Turned> {
        let before = self.beside.len();
        self.beside.retain(|process| processes.contains(process));
        (self.beside.len() < before).then(|| self.all_said())?
    }

    /// Whether such a process has yet to say that it is sealed.
    pub(super) fn is_beside(&self) -> bool {
        !self.beside.is_empty()
    }

    /// A report of a process that has nothing here.
    pub(super) fn told_beside(&mut self, process: ProcessId, told: Told) -> Option<Turned> {
        match (self.place, told) {
            (Place::Sealing, Told::Sealed) => {
                self.beside.remove(&process);
                self.all_said()
            }
            (Place::Sealing, Told::Busy { retry, late }) => {
                let retry = Nanos::millis(u64::from(retry));
                Some(Turned::Busy { retry, late })
            }
            _ => None,
        }
    }
}
