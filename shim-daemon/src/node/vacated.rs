//! Processes that continue as other programs: their connection ended, and the old program's device
//! memory was freed with it.
//!
//! A connection may also end while its program continues and keeps its memory. So a process counts
//! as another program only in two cases. Either the kernel shows its program at other addresses
//! (each `exec` chooses new ones at random). Or the kernel does not let the daemon look, the
//! process stayed disconnected, and NVML no longer lists it. Its charges then are limbo: they count
//! until the device no longer shows them. Its row of the usage page stays reserved until the
//! process ends, in case it was the old program after all. Its host memory and its stored ranges
//! are given back on the kernel's word alone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use gpushare_core::{DeviceId, Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::Bytes;
use serde::{Deserialize, Serialize};

use super::{Effect, Node};
use crate::init::start_of;
use crate::small_file;

/// How long a process must have been away before NVML's word alone is taken: programs that live on
/// connect again within a second.
const AWAY: Nanos = Nanos::secs(2);
/// How often the kernel is asked about one.
const ASKED: Nanos = Nanos::secs(1);

/// Where in a `/proc/<pid>/stat`, behind the process's name, the program's addresses are: its code,
/// the start of its stack, its data and its heap. The fields 26 to 28 and 45 to 47.
const ADDRESSES: [usize; 6] = [23, 24, 25, 42, 43, 44];

/// Which program a process runs: its addresses. Two programs of one process have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program([u64; 6]);

/// A process as the kernel shows it.
///
/// It is looked at on its tenant's lane: a process may stay within `exec` for as long as a file
/// takes to close, and newer kernels have all wait meanwhile that read its `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it started, in clock ticks since boot.
    start: u64,
    /// `None` where the kernel does not tell.
    program: Option<Program>,
}

impl Seen {
    /// The process that has this pid now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = small_file::with_a_name(format!("/proc/{pid}/stat")).ok()?;
        Some(Self {
            start: start_of(&stat)?,
            program: Program::read(&stat),
        })
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn program(&self) -> Option<Program> {
        self.program
    }
}

impl Program {
    #[cfg(test)]
    fn of(pid: i32) -> Option<Self> {
        Seen::of(pid)?.program
    }

    fn read(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        let mut addresses = [0; 6];
        for (address, at) in addresses.iter_mut().zip(ADDRESSES) {
            *address = number(at)?;
        }
        // A process that ends has no code, and of one that may not be looked at the kernel says 1.
        let [code, _, stack, ..] = addresses;
        (code > 1 && stack > 0).then_some(Self(addresses))
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
    /// Its host memory was given back.
    left_host: bool,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// The program of each registered process at the time when it registered.
    programs: BTreeMap<ProcessId, Program>,
    absent: BTreeMap<ProcessId, Absence>,
    /// Looks at processes that are under way, and whether another was wanted meanwhile: a lane may
    /// stand, and must not be given the same work each second.
    looks: BTreeMap<ProcessId, bool>,
}

impl Away {
    /// Whether a look may begin: none is under way.
    fn may_look(&mut self, process: ProcessId) -> bool {
        match self.looks.entry(process) {
            Entry::Vacant(free) => drop(free.insert(false)),
            Entry::Occupied(mut under_way) => {
                *under_way.get_mut() = true;
                return false;
            }
        }
        true
    }

    /// A look has ended. Whether another was wanted.
    fn has_looked(&mut self, process: ProcessId) -> bool {
        self.looks.remove(&process).unwrap_or(false)
    }

    /// What a process runs, as was asked.
    fn runs(&mut self, process: ProcessId, program: Option<Program>) {
        let before = self.programs.get(&process);
        match (self.absent.get_mut(&process), program) {
            (Some(absence), program) => {
                let compared = before.zip(program);
                absence.another = compared.map(|(before, after)| *before != after);
            }
            (None, Some(program)) => drop(self.programs.entry(process).or_insert(program)),
            (None, None) => (),
        }
    }

    /// What a process ran when it registered with the previous daemon.
    pub(super) fn awaited(&mut self, process: ProcessId, program: Option<Program>) {
        if let Some(program) = program {
            self.programs.insert(process, program);
        }
    }

    /// What a process ran when it registered, where the kernel tells.
    pub(super) fn program(&self, process: ProcessId) -> Option<Program> {
        self.programs.get(&process).copied()
    }

    /// Whether the kernel shows that it is another program than it was.
    pub(super) fn is_another(&self, process: ProcessId) -> bool {
        let absence = self.absent.get(&process);
        absence.is_some_and(|absence| absence.another == Some(true))
    }

    /// Its connection has ended.
    pub(super) fn went(&mut self, process: ProcessId, since: Nanos) {
        let absence = Absence {
            since,
            asked: None,
            another: None,
            vacated: BTreeSet::new(),
            left_host: false,
        };
        self.absent.insert(process, absence);
    }

    /// It has connected again.
    pub(super) fn came(&mut self, process: ProcessId) {
        self.absent.remove(&process);
    }

    /// It has ended, or its registration has.
    pub(super) fn ended(&mut self, process: ProcessId) {
        self.programs.remove(&process);
        self.absent.remove(&process);
    }

    /// Of how many processes the program is known, and how many are without a connection.
    #[cfg(test)]
    pub(super) fn known(&self) -> (usize, usize) {
        (self.programs.len(), self.absent.len())
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

    /// Whether the kernel is to be asked now: it was not a moment ago.
    fn asks(&mut self, now: Nanos, process: ProcessId) -> bool {
        let Some(absence) = self.absent.get_mut(&process) else {
            return false;
        };
        let asks = absence.asked.is_none_or(|asked| now - asked >= ASKED);
        if asks {
            absence.asked = Some(now);
        }
        asks
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

    /// Has a process looked at, now or once the look that is under way has ended.
    pub(super) fn identify(&mut self, tenant: TenantId, process: ProcessId, pid: i32) {
        if !self.away.may_look(process) {
            return;
        }
        let lane = self.lane(tenant);
        self.effect(Effect::Identify { process, pid, lane });
    }

    /// A process was looked at.
    pub fn identified(&mut self, now: Nanos, process: ProcessId, seen: Option<Seen>) {
        let again = self.away.has_looked(process);
        self.is_seen(now, process, seen);
        let known = self.processes.get(process).filter(|_| again);
        if let Some((tenant, pid)) = known.map(|known| (known.tenant(), known.peer().pid)) {
            self.identify(tenant, process, pid);
        }
    }

    fn is_seen(&mut self, now: Nanos, process: ProcessId, seen: Option<Seen>) {
        let seen_is = seen.as_ref();
        if self.awaited_seen(now, process, seen_is) || self.unrestored_seen(process, seen_is) {
            return;
        }
        let Some(known) = self.processes.get_mut(process) else {
            // It has ended.
            return;
        };
        if let Some(seen) = seen {
            known.has_started(seen.start);
        }
        if let (Some(tenant), Some(seen)) = (self.tenants.get(&known.tenant()), seen) {
            tenant.started(known.slot(), seen.start);
        }
        let pid = known.peer().pid;
        if let Some(seen) = seen {
            self.left_seen(pid, seen);
        }
        self.away.runs(process, seen.and_then(|seen| seen.program));
        if self.late_is_another(now, process) {
            return;
        }
        if self.away.absent.contains_key(&process) {
            for device in 0..self.devices.len() {
                self.mind_away(now, device, None);
            }
            self.carry_out(now);
        }
    }

    /// Looks after the processes without a connection; `taken` is when a look at the device began
    /// that listed processes.
    pub(super) fn mind_away(&mut self, now: Nanos, device: usize, taken: Option<Nanos>) {
        for process in self.away.in_doubt(device) {
            let Some(known) = self.processes.get(process) else {
                continue;
            };
            let (tenant, pid) = (known.tenant(), known.peer().pid);
            if self.away.asks(now, process) {
                self.identify(tenant, process, pid);
            }
            let Some(absence) = self.away.absent.get(&process) else {
                continue;
            };
            let shown = self.looks.shown(device);
            let is_listed = shown.is_some_and(|shown| shown.contains_key(&process));
            let listed = taken.map(|taken| (taken, is_listed));
            let another = absence.another;
            if vacates(absence.since, another, listed) {
                self.vacate(now, process, device);
            }
            // NVML's word is about a device. That alone does not show that the program is gone,
            // and one that lives on has its only copy there.
            if another == Some(true) {
                self.leaves_host(process, tenant);
            }
        }
    }

    /// The host memory of a program that is no more is of no use to the next one: it is free.
    fn leaves_host(&mut self, process: ProcessId, tenant: TenantId) {
        let absence = self.away.absent.get_mut(&process);
        if absence.is_none_or(|absence| std::mem::replace(&mut absence.left_host, true)) {
            return;
        }
        self.forget_moves(process, tenant);
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
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_other_addresses_once_it_is_another_program() {
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        // A program that says something has all its addresses.
        let mut runs = || said.read_line(&mut String::new()).unwrap();
        assert_eq!(runs(), 1);
        let before = Program::of(pid).unwrap();
        assert_eq!(Program::of(pid), Some(before));
        child.stdin.as_mut().unwrap().write_all(b"\n\n").unwrap();
        assert_eq!(runs(), 1);
        assert_ne!(Program::of(pid), Some(before));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Program::of(pid), None, "it has ended");
    }

    #[test]
    fn of_a_process_that_may_not_be_looked_at_nothing_is_known() {
        let stat = |code: u64, stack: u64| {
            let mut fields = vec!["0".to_owned(); 50];
            (fields[23], fields[25]) = (code.to_string(), stack.to_string());
            Program::read(&format!("1 (a ) b) {}", fields.join(" ")))
        };
        assert!(stat(4096, 8192).is_some() && stat(4096, 8192) != stat(4096, 12288));
        for (code, stack) in [(0, 0), (1, 0), (4096, 0)] {
            assert_eq!(stat(code, stack), None);
        }
        assert_eq!(Program::read("1 (a) R 1"), None);
    }

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
        let child = Command::new("sleep").arg("60").spawn();
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
