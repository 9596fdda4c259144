//! The true state of a machine, for tests: physical memory held, memory requested, and the peaks.
//!
//! Nothing here calls the C libraries, so a library preloaded into the process cannot change the
//! result.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::exec::lane::PASSING;
use crate::exec::turns;
use crate::spec::{Listed, Spec};
use crate::world::machine::{Machine, Part};
use crate::world::{Kind, uuid, uuid_text};

/// The index of the multiprocessors among a device's engines.
const COMPUTE: usize = 0;

/// One process's use of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTruth {
    /// Its pid in its own pid namespace.
    pub pid: i32,
    /// The inode of its pid namespace.
    pub namespace: u64,
    /// Its unique number.
    pub number: u32,
    /// False if the process and its forked children are dead and part of its memory has not
    /// returned.
    pub alive: bool,
    /// Bytes it requested and has not freed, by kind. The driver's own kinds stay 0.
    pub requested: [u64; Kind::ALL.len()],
    /// Bytes of physical memory counted for it, by kind.
    pub physical: [u64; Kind::ALL.len()],
    /// The part of its managed memory whose pages have gone to the host: other memory takes it.
    pub kept: u64,
    /// Time it has had each of the device's engines (ns): compute, copies to the device, copies to
    /// the host.
    pub served: [u64; 3],
}

impl ProcessTruth {
    /// All bytes it requested.
    pub fn requested_total(&self) -> u64 {
        self.requested.iter().sum()
    }

    /// All physical memory it holds.
    pub fn physical_total(&self) -> u64 {
        self.physical.iter().sum()
    }

    /// Its managed memory whose pages are on the device.
    pub fn resident(&self) -> u64 {
        self.physical[Kind::Managed as usize] - self.kept
    }

    /// The memory with which NVML lists it.
    pub fn listed(&self, listed: Listed) -> u64 {
        match listed {
            Listed::All => self.physical_total(),
            Listed::Own => self.physical_total() - self.physical[Kind::Managed as usize],
        }
    }

    /// Memory the driver took for itself: contexts and modules.
    pub fn overhead(&self) -> u64 {
        Kind::ALL
            .iter()
            .filter(|kind| kind.is_overhead())
            .map(|kind| self.physical[*kind as usize])
            .sum()
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTruth {
    /// Its UUID as tools print it.
    pub uuid: String,
    /// Its UUID.
    pub uuid_bytes: [u8; 16],
    /// Bytes of memory.
    pub capacity: u64,
    /// Bytes that cannot be allocated now: held, or freed and not returned yet.
    pub used_physical: u64,
    /// The peak of `used_physical` since the machine was created.
    pub used_peak: u64,
    /// Managed memory that has left for other memory since the machine was created: bytes, each
    /// time that they left. What programs sent to the host themselves does not count.
    pub evicted: u64,
    /// The part of `used_physical` that was freed and has not returned yet.
    pub late: u64,
    /// Bytes that all processes together requested and have not freed. A dead process counts until
    /// its memory has returned.
    pub requested_now: u64,
    /// The peak of `requested_now` since the machine was created.
    pub requested_peak: u64,
    /// The processes that hold or requested memory here.
    pub processes: Vec<ProcessTruth>,
}

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The time of the snapshot: `CLOCK_MONOTONIC`, in ns.
    pub at: u64,
    /// The description of the machine.
    pub spec: Spec,
    /// Live processes that have it open, without observers.
    pub open_by: usize,
    /// Its devices, in NVML's order.
    pub devices: Vec<DeviceTruth>,
}

/// A span of time in which a process had the multiprocessors of a device. Times are
/// `CLOCK_MONOTONIC`, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// The process's pid in its own pid namespace; 0 if the context is gone.
    pub pid: i32,
    /// The start of the span.
    pub from: u64,
    /// The end of the span. It lies in the future for a turn that still runs.
    pub to: u64,
}

impl Spell {
    /// Whether the process had the device only to complete an event: the device did no work.
    #[must_use]
    pub const fn is_event(&self) -> bool {
        self.to - self.from <= PASSING
    }
}

/// The current state of the machine with this name; `None` if no process has it open. A snapshot
/// does not count as an operation, so it does not advance delayed returns of memory.
///
/// # Errors
/// The kernel's error if the shared state cannot be read.
pub fn snapshot(name: &str) -> Result<Option<Snapshot>, std::io::Error> {
    let machine = Machine::view_named(name).map_err(std::io::Error::other)?;
    machine.map(|machine| of(&machine, false)).transpose()
}

/// Whether any process is in the driver with the machine's lock held. While it holds it, every
/// other process's call waits: also if it is stopped there, which has no counterpart on hardware,
/// whose driver holds its locks inside the kernel. `false` if no process has the machine open.
///
/// # Errors
/// The kernel's error if the shared state cannot be read.
pub fn is_locked(name: &str) -> Result<bool, std::io::Error> {
    let machine = Machine::view_named(name).map_err(std::io::Error::other)?;
    let locked = machine.map_or(Ok(false), |machine| machine.is_locked());
    locked.map_err(|error| std::io::Error::other(format!("{error:?}")))
}

/// Keeps a machine alive so that its state can be read after its last process has exited, and
/// observes it.
#[derive(Debug)]
pub struct Observer {
    machine: Machine,
}

impl Observer {
    /// Opens the machine that `spec` describes, and creates it if necessary. The caller does not
    /// become one of its processes.
    ///
    /// # Errors
    /// If the machine exists with other values, or the kernel reports an error.
    pub fn open(spec: &Spec) -> Result<Self, std::io::Error> {
        Machine::open(spec, Part::Observer)
            .map(|machine| Self { machine })
            .map_err(std::io::Error::other)
    }

    /// The current state of the machine.
    ///
    /// # Errors
    /// If the shared state is lost.
    pub fn snapshot(&self) -> Result<Snapshot, std::io::Error> {
        of(&self.machine, false)
    }

    /// The spans in which contexts had the multiprocessors of the device with this index, oldest
    /// first: the spans after `place` (0 for all that are kept, some 2000), and the place for the
    /// next call.
    ///
    /// # Errors
    /// If the shared state is lost.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn spells(&self, device: usize, place: u64) -> Result<(Vec<Spell>, u64), std::io::Error> {
        assert!(
            device < self.machine.spec().count as usize,
            "no device {device}"
        );
        let (turns, place) = turns::had(self.machine.turns(device, COMPUTE), place);
        let pids: Vec<i32> = self
            .machine
            .locked(|view, _| view.header.slots.iter().map(|slot| slot.pid).collect())
            .map_err(|error| std::io::Error::other(format!("{error:?}")))?;
        let spell = |turn: turns::Had| {
            let slot = usize::try_from(turn.owner)
                .ok()
                .and_then(|owner| owner.checked_sub(1));
            let pid = slot.and_then(|slot| pids.get(slot)).copied();
            Spell {
                pid: pid.unwrap_or(0),
                from: turn.from,
                to: turn.to,
            }
        };
        Ok((turns.into_iter().map(spell).collect(), place))
    }

    /// Counts one operation, so that delayed memory returns sooner, and finds dead processes; then
    /// as [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// If the shared state is lost.
    pub fn step(&self) -> Result<Snapshot, std::io::Error> {
        of(&self.machine, true)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.machine.leave();
    }
}

/// Reads a machine's state; if `step`, counts one operation first.
pub(crate) fn of(machine: &Machine, step: bool) -> Result<Snapshot, std::io::Error> {
    let spec = machine.spec();
    machine
        .locked(|view, facts| {
            if step {
                view.tick(facts);
                // After the tick, so that a snapshot shows a process as dead before any of its
                // memory returns.
                view.reap(facts);
            }
            let members = || {
                view.header
                    .slots
                    .iter()
                    .enumerate()
                    .filter(|(_, slot)| slot.number != 0 && slot.observer == 0)
            };
            let devices = (0..spec.count).map(|index| {
                let state = &view.header.devices[index as usize];
                let uuid_bytes = uuid(spec, index);
                let processes = members().map(|(number, slot)| {
                    let used = &slot.uses[index as usize];
                    ProcessTruth {
                        pid: slot.pid,
                        namespace: slot.namespace,
                        number: slot.number,
                        alive: slot.dead == 0,
                        requested: used.requested,
                        physical: used.pages.map(crate::world::machine::bytes),
                        kept: crate::world::machine::bytes(used.kept),
                        served: [0, 1, 2].map(|lane| {
                            machine
                                .served(number, index as usize, lane)
                                .load(Ordering::Relaxed)
                        }),
                    }
                });
                DeviceTruth {
                    uuid: uuid_text(uuid_bytes),
                    uuid_bytes,
                    capacity: spec.mem,
                    used_physical: crate::world::machine::bytes(state.taken),
                    used_peak: crate::world::machine::bytes(state.taken_peak),
                    evicted: crate::world::machine::bytes(state.evicted),
                    late: crate::world::machine::bytes(state.late),
                    requested_now: state.requested_now,
                    requested_peak: state.requested_peak,
                    processes: processes
                        .filter(|process| process.requested_total() + process.physical_total() > 0)
                        .collect(),
                }
            });
            Snapshot {
                at: crate::exec::clock::now(),
                spec: spec.clone(),
                open_by: members().filter(|(_, slot)| slot.dead == 0).count(),
                devices: devices.collect(),
            }
        })
        .map_err(|error| std::io::Error::other(format!("{error:?}")))
}

/// The names of the kinds in [`Snapshot::to_json`].
const KINDS: [&str; Kind::ALL.len()] = [
    "linear", "array", "vmm", "pool", "graph", "managed", "context", "module",
];

impl Snapshot {
    /// The snapshot as one line of JSON (all its strings are plain ASCII).
    pub fn to_json(&self) -> String {
        let kinds = |values: &[u64]| {
            let pairs: Vec<String> = KINDS
                .iter()
                .zip(values)
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            format!("{{{}}}", pairs.join(","))
        };
        let mut text = format!(
            "{{\"at_ns\":{},\"spec\":\"{}\",\"open_by\":{},\"devices\":[",
            self.at, self.spec, self.open_by
        );
        for (index, device) in self.devices.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let DeviceTruth {
                uuid,
                uuid_bytes: _,
                capacity,
                used_physical,
                used_peak,
                evicted,
                late,
                requested_now,
                requested_peak,
                processes,
            } = device;
            let _ = write!(
                text,
                "{comma}{{\"uuid\":\"{uuid}\",\"capacity\":{capacity},\"used_physical\":{used_physical},\"used_peak\":{used_peak},\"evicted\":{evicted},\"late\":{late},\"requested_now\":{requested_now},\"requested_peak\":{requested_peak},\"processes\":["
            );
            let processes: Vec<String> = processes
                .iter()
                .map(|process| {
                    let (requested, physical) = (kinds(&process.requested), kinds(&process.physical));
                    let (pid, alive, served) = (process.pid, process.alive, process.served);
                    let kept = process.kept;
                    format!(
                        "{{\"pid\":{pid},\"alive\":{alive},\"requested\":{requested},\"physical\":{physical},\"kept\":{kept},\"served_ns\":{served:?}}}"
                    )
                })
                .collect();
            let _ = write!(text, "{}]}}", processes.join(","));
        }
        text.push_str("]}");
        text
    }
}
