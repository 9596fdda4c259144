//! Processes that continue as other programs: their connection ended, and the old program's device
//! memory was freed with it.
//!
//! A connection may also end while its program continues and keeps its memory. So a process counts
//! as another program only in two cases. Either the kernel shows a different auxiliary vector (each
//! `exec` makes a new one, at random addresses). Or the kernel does not let the daemon look, the
//! process stayed disconnected, and NVML no longer lists it. Its charges then are limbo: they count
//! until the device no longer shows them. Its row of the usage page stays reserved until the
//! process ends, in case it was the old program after all.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

use gpushare_core::{DeviceId, Event, Nanos, ProcessId};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;

use super::Node;

/// How long a process must have been away before NVML's word alone is taken: programs that live on
/// connect again within a second.
const AWAY: Nanos = Nanos::secs(2);
/// How often the kernel is asked about one.
const ASKED: Nanos = Nanos::secs(1);

/// Which program a process runs, in a number; two programs of one process have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program(u64);

impl Program {
    /// `None` where the kernel does not tell.
    fn of(pid: i32) -> Option<Self> {
        let vector = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
        // Empty while a process ends.
        (!vector.is_empty()).then(|| {
            let mut hasher = DefaultHasher::new();
            vector.hash(&mut hasher);
            Self(hasher.finish())
        })
    }
}

/// A process without a connection.
#[derive(Clone, Debug)]
struct Absence {
    since: Nanos,
    /// When the kernel was last asked, and whether it is another program.
    asked: Option<Nanos>,
    another: Option<bool>,
    /// Devices on which it holds nothing any more.
    vacated: BTreeSet<usize>,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// The program of each registered process at the time when it registered.
    programs: BTreeMap<ProcessId, Program>,
    absent: BTreeMap<ProcessId, Absence>,
}

impl Away {
    /// A process has registered.
    pub(super) fn joined(&mut self, process: ProcessId, pid: i32) {
        if let Some(program) = Program::of(pid) {
            self.programs.insert(process, program);
        }
    }

    /// Its connection has ended.
    pub(super) fn went(&mut self, process: ProcessId, since: Nanos) {
        let absence = Absence {
            since,
            asked: None,
            another: None,
            vacated: BTreeSet::new(),
        };
        self.absent.insert(process, absence);
    }

    /// It has connected again.
    pub(super) fn came(&mut self, process: ProcessId) {
        self.absent.remove(&process);
    }

    /// It has ended.
    pub(super) fn ended(&mut self, process: ProcessId) {
        self.programs.remove(&process);
        self.absent.remove(&process);
    }

    /// Whether its memory on a device was given up.
    pub(super) fn has_vacated(&self, process: ProcessId, device: usize) -> bool {
        let absence = self.absent.get(&process);
        absence.is_some_and(|absence| absence.vacated.contains(&device))
    }

    /// Processes that may have vacated a device.
    fn in_doubt(&self, device: usize) -> Vec<ProcessId> {
        let absent = self.absent.iter();
        let doubt = absent.filter(|(_, absence)| !absence.vacated.contains(&device));
        doubt.map(|(process, _)| *process).collect()
    }

    /// Asks the kernel, if that was not done a moment ago.
    fn ask(&mut self, now: Nanos, process: ProcessId, pid: i32) {
        let Some(absence) = self.absent.get_mut(&process) else {
            return;
        };
        if absence.asked.is_some_and(|asked| now - asked < ASKED) {
            return;
        }
        let before = self.programs.get(&process);
        absence.asked = Some(now);
        absence.another = before
            .zip(Program::of(pid))
            .map(|(before, after)| *before != after);
    }
}

/// Whether a process without a connection no longer holds memory on a device. `listed`: when a look
/// at the device was taken that could list processes, and whether it listed this one.
fn vacates(since: Nanos, another: Option<bool>, listed: Option<(Nanos, bool)>) -> bool {
    match (another, listed) {
        (Some(another), _) => another,
        (None, Some((taken, listed))) => !listed && taken >= since + AWAY,
        (None, None) => false,
    }
}

impl Node {
    /// A process lost its connection: it may be another program already.
    pub(super) fn went_away(&mut self, now: Nanos, process: ProcessId) {
        self.away.went(process, now);
        for device in 0..self.devices.len() {
            self.mind_away(now, device, None);
        }
    }

    /// Looks after the processes without a connection; `taken` is when a look at the device began
    /// that listed processes.
    pub(super) fn mind_away(&mut self, now: Nanos, device: usize, taken: Option<Nanos>) {
        for process in self.away.in_doubt(device) {
            let Some(pid) = self.processes.get(process).map(|known| known.peer().pid) else {
                continue;
            };
            self.away.ask(now, process, pid);
            let Some(absence) = self.away.absent.get(&process) else {
                continue;
            };
            let shown = self.looks.shown(device);
            let is_listed = shown.is_some_and(|shown| shown.contains_key(&process));
            let listed = taken.map(|taken| (taken, is_listed));
            if vacates(absence.since, absence.another, listed) {
                self.vacate(now, process, device);
            }
        }
    }

    fn vacate(&mut self, now: Nanos, process: ProcessId, device: usize) {
        if let Some(absence) = self.away.absent.get_mut(&process) {
            absence.vacated.insert(device);
        }
        let id = DeviceId(device as u64);
        let Some(known) = self.processes.get(process) else {
            return;
        };
        let (tenant, slot) = (known.tenant(), known.slot());
        let line = || {
            let owner = self.tenants.get(&tenant)?;
            owner.usage().view().line(slot, owner.device_index(id)?)
        };
        let Some(charged) = line().map(|line| line.word.load().charged) else {
            return;
        };
        let charged = Bytes(u64::from(charged) * UNIT);
        // First the grant is lowered, then what stood for it is cleared: its siblings must not have
        // both.
        let event = Event::Vacated {
            process,
            device: id,
            charged,
        };
        self.happened(now, event);
        let Some(owner) = self.tenants.get(&tenant) else {
            return;
        };
        let device_index = owner.device_index(id);
        if let Some(line) =
            device_index.and_then(|device_index| owner.usage().view().line(slot, device_index))
        {
            line.word.clear();
            line.overhead.store(0, Ordering::Relaxed);
            line.pending.store(0, Ordering::Relaxed);
        }
        if !charged.is_zero() {
            let text = format!(
                "a process became another program: the {} it had charged are free once the device shows it",
                charged.human()
            );
            self.event("vacated", Some(tenant), Some(id), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_word_decides_whatever_nvml_lists() {
        let (now, later) = (Nanos::secs(10), Nanos::secs(99));
        for listed in [None, Some((later, true)), Some((later, false))] {
            assert!(vacates(now, Some(true), listed));
            assert!(!vacates(now, Some(false), listed));
        }
    }

    #[test]
    fn without_it_one_that_nvml_lists_no_more_has_left_after_a_while() {
        let (now, soon, later) = (Nanos::secs(10), Nanos::secs(11), Nanos::secs(12));
        assert!(vacates(now, None, Some((later, false))));
        assert!(!vacates(now, None, Some((soon, false))));
        assert!(!vacates(now, None, Some((later, true))));
        assert!(!vacates(now, None, None), "NVML cannot tell");
    }

    #[test]
    fn a_program_is_itself_and_another_process_another() {
        let own = i32::try_from(std::process::id()).unwrap();
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.unwrap();
        let other = Program::of(i32::try_from(child.id()).unwrap());
        assert_eq!(Program::of(own), Program::of(own));
        assert!(Program::of(own).is_some());
        assert_ne!(Program::of(own), other);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Program::of(i32::try_from(child.id()).unwrap()), None);
    }
}
