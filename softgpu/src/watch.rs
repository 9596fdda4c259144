//! The machine as a monitor sees it: whoever is there, without being one of them.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::inspect::{DeviceTruth, Snapshot, of};
use crate::spec::Spec;
use crate::world::machine::Machine;
use crate::world::{uuid, uuid_text};

/// Looks at the machine SPEC describes. Holds nothing: the machine may come and go between two looks.
#[derive(Debug)]
pub struct Monitor {
    spec: Spec,
    machine: Mutex<Option<Machine>>,
}

impl Monitor {
    /// A monitor of this machine.
    ///
    /// # Errors
    /// If its name is in use with other values, or the kernel says no.
    pub fn new(spec: Spec) -> Result<Self, std::io::Error> {
        let machine = Machine::view(&spec).map_err(std::io::Error::other)?;
        Ok(Self {
            spec,
            machine: Mutex::new(machine),
        })
    }

    /// How the machine is described.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The machine now. Looking counts as an operation: what is late comes nearer, and the dead are found.
    ///
    /// # Errors
    /// If the shared state cannot be read.
    pub fn look(&self) -> Result<Snapshot, std::io::Error> {
        self.with(|machine| {
            machine.map_or_else(|| Ok(empty(&self.spec)), |machine| of(machine, true))
        })?
    }

    /// Whether a kernel occupies the device at `now`, nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// If the shared state cannot be read.
    pub fn is_computing(&self, index: u32, now: u64) -> Result<bool, std::io::Error> {
        let busy_until =
            |machine: &Machine| machine.lane(index as usize, 0).load(Ordering::Acquire);
        self.with(|machine| machine.is_some_and(|machine| busy_until(machine) > now))
    }

    /// Runs `act` on the machine if anybody has it open, the present one if it was founded anew.
    fn with<T>(&self, act: impl FnOnce(Option<&Machine>) -> T) -> Result<T, std::io::Error> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if machine.as_ref().is_none_or(Machine::is_gone) {
            *machine = Machine::view(&self.spec).map_err(std::io::Error::other)?;
        }
        Ok(act(machine.as_ref()))
    }
}

/// A machine nobody has open: all its memory is free.
fn empty(spec: &Spec) -> Snapshot {
    let device = |index| DeviceTruth {
        uuid: uuid_text(uuid(spec, index)),
        uuid_bytes: uuid(spec, index),
        capacity: spec.mem,
        used_physical: 0,
        used_peak: 0,
        late: 0,
        requested_now: 0,
        requested_peak: 0,
        processes: Vec::new(),
    };
    Snapshot {
        spec: spec.clone(),
        open_by: 0,
        devices: (0..spec.count).map(device).collect(),
    }
}
