//! The machine as a monitor sees it: all its processes. The monitor is not one of them.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exec::turns::busy_until;
use crate::inspect::{DeviceTruth, ProcessTruth, Snapshot, of};
use crate::pids::seen;
use crate::spec::Spec;
use crate::world::machine::Machine;
use crate::world::{sys, uuid, uuid_text};

/// The shortest sample of utilisation (ns).
const SAMPLE: u64 = 100_000_000;

/// Reads the machine that SPEC describes. It does not keep the machine alive: the machine may be
/// removed and created again between two reads.
#[derive(Debug)]
pub struct Monitor {
    spec: Spec,
    machine: Mutex<Option<Machine>>,
    /// The running sample of utilisation, by device.
    samples: Mutex<HashMap<u32, Sampling>>,
}

/// Utilisation of one device.
#[derive(Debug, Clone, Default)]
pub struct Utilization {
    /// Percent of the sample in which a kernel had the device.
    pub device: u32,
    /// The end of the last sample, in microseconds since the epoch; 0 if there is none yet.
    pub ended_us: u64,
    /// Percent of the sample by pid, for the processes with more than 0.
    pub processes: Vec<(i32, u32)>,
}

/// The time of day in microseconds since the epoch.
pub fn epoch_us() -> u64 {
    sys::epoch_us()
}

/// One device's running sample, and the last complete one.
#[derive(Debug, Default)]
struct Sampling {
    began_ns: u64,
    served: HashMap<u32, u64>,
    last: Utilization,
}

impl Monitor {
    /// A monitor of the machine that `spec` describes.
    ///
    /// # Errors
    /// If the machine's name is in use with other values, or the kernel reports an error.
    pub fn new(spec: Spec) -> io::Result<Self> {
        let machine = Machine::view(&spec).map_err(io::Error::other)?;
        Ok(Self {
            spec,
            machine: Mutex::new(machine),
            samples: Mutex::default(),
        })
    }

    /// The description of the machine.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The current state of the machine. It counts as an operation: delayed memory returns sooner,
    /// and dead processes are found.
    ///
    /// # Errors
    /// If the shared state cannot be read.
    pub fn look(&self) -> io::Result<Snapshot> {
        let machine = self.present()?;
        machine
            .as_ref()
            .map_or_else(|| Ok(empty(&self.spec)), |machine| of(machine, true))
    }

    /// The utilisation of a device in the last complete sample. A sample ends at the first call
    /// that comes long enough after its begin. Before the first sample is complete, the device's
    /// number says whether it is busy now (100 or 0).
    /// # Errors
    /// If the shared state cannot be read.
    pub fn utilization(&self, index: u32) -> io::Result<Utilization> {
        let now = sys::monotonic_ns();
        let processes = self.look()?.devices.swap_remove(index as usize).processes;
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let sampling = samples.entry(index).or_default();
        if sampling.began_ns == 0 || now - sampling.began_ns >= SAMPLE {
            sampling.turn(now, &processes);
        }
        let mut answer = sampling.last.clone();
        if answer.ended_us == 0 {
            let busy = self
                .present()?
                .as_ref()
                .is_some_and(|machine| busy_until(machine.turns(index as usize, 0)) > now);
            answer.device = if busy { 100 } else { 0 };
        }
        Ok(answer)
    }

    /// The machine if a process has it open; the new machine if it was removed and created again.
    fn present(&self) -> io::Result<MutexGuard<'_, Option<Machine>>> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if machine.as_ref().is_none_or(Machine::is_gone) {
            *machine = Machine::view(&self.spec).map_err(io::Error::other)?;
        }
        Ok(machine)
    }
}

impl Sampling {
    /// Completes the running sample, if there is one, and begins the next.
    fn turn(&mut self, now: u64, processes: &[ProcessTruth]) {
        let passed = now.saturating_sub(self.began_ns).max(1);
        let share = |process: &ProcessTruth| {
            let before = self.served.get(&process.number).copied().unwrap_or(0);
            // Time reserved in advance counts before it has passed, so the share is limited to 100
            // percent.
            let percent = process.served[0]
                .saturating_sub(before)
                .saturating_mul(100)
                .div_ceil(passed)
                .min(100);
            let pid = i32::try_from(seen(process)?).ok()?;
            Some((pid, u32::try_from(percent).unwrap_or(100)))
        };
        if self.began_ns != 0 {
            let shares: Vec<(i32, u32)> = processes
                .iter()
                .filter_map(share)
                .filter(|(_, percent)| *percent > 0)
                .collect();
            let device = shares
                .iter()
                .map(|(_, percent)| percent)
                .sum::<u32>()
                .min(100);
            self.last = Utilization {
                device,
                ended_us: sys::epoch_us(),
                processes: shares,
            };
        }
        self.began_ns = now;
        self.served = processes
            .iter()
            .map(|process| (process.number, process.served[0]))
            .collect();
    }
}

/// A machine that no process has open: all its memory is free.
fn empty(spec: &Spec) -> Snapshot {
    let device = |index| DeviceTruth {
        uuid: uuid_text(uuid(spec, index)),
        uuid_bytes: uuid(spec, index),
        capacity: spec.mem,
        used_physical: 0,
        used_peak: 0,
        evicted: 0,
        late: 0,
        requested_now: 0,
        requested_peak: 0,
        processes: Vec::new(),
    };
    Snapshot {
        at: crate::exec::clock::now(),
        spec: spec.clone(),
        open_by: 0,
        devices: (0..spec.count).map(device).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, served: u64) -> ProcessTruth {
        ProcessTruth {
            pid,
            namespace: crate::pids::namespace(),
            number: pid.cast_unsigned(),
            alive: true,
            requested: [0; 8],
            physical: [0; 8],
            kept: 0,
            served: [served, 0, 0],
        }
    }

    #[test]
    fn a_sample_is_the_share_of_time_between_two_calls() {
        let mut sampling = Sampling::default();
        sampling.turn(1000, &[process(1, 500), process(2, 0)]);
        assert_eq!(sampling.last.ended_us, 0, "one call gives no sample");
        sampling.turn(2000, &[process(1, 750), process(2, 0), process(3, 5000)]);
        assert_eq!(sampling.last.processes, [(1, 25), (3, 100)]);
        assert_eq!(sampling.last.device, 100);
        sampling.turn(3000, &[process(1, 750)]);
        assert_eq!(
            (sampling.last.device, sampling.last.processes.len()),
            (0, 0)
        );
    }
}
