//! The node's GPUs and the processes that hold memory on them, behind one trait: NVML on a machine,
//! facts in a test.

mod activity;
mod fence;
mod fit;
mod health;
mod instances;
mod memory_limits;
mod nvml;
mod older;

use std::collections::BTreeSet;
use std::path::Path;

pub use fence::{DriverLimit, FenceError, Order, Outcome, carry_out};
pub use fit::{MODULE, misfit};
pub use health::Health;
pub use nvml::{Nvml, NvmlError};

use gpushare_core::Nanos;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;

/// One device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its UUID; a MIG device's own.
    pub uuid: [u8; 16],
    /// The minor number of its file `/dev/nvidiaN`; a MIG device has that of the GPU it is part of.
    pub minor: Option<u32>,
    /// The product name.
    pub name: String,
    /// Memory that processes can use: NVML's total less NVML's reserved memory.
    pub capacity: Bytes,
    /// The capabilities of the device and its driver.
    pub capabilities: Capabilities,
}

impl Device {
    /// Its memory where no device is to be treated as if it had more than `most`.
    #[must_use]
    pub fn capacity_under(&self, most: Option<Bytes>) -> Bytes {
        most.map_or(self.capacity, |most| most.min(self.capacity))
    }

    /// Its UUID as `CUDA_VISIBLE_DEVICES` takes it.
    #[must_use]
    pub fn text(&self) -> String {
        Uuid(self.uuid).text(self.capabilities.mig)
    }
}

/// Which facts and actions a device supports; shown by name in `gpushare devices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// NVML tells what each process holds. Without it overhead, limbo and unmanaged memory are
    /// estimates.
    pub process_memory: bool,
    /// The driver can limit a cgroup's memory by itself (r615 and later).
    pub driver_limits: bool,
    /// The device is a MIG instance.
    pub mig: bool,
}

impl Capabilities {
    /// The names of the capabilities that are present.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let rows = [
            (self.process_memory, "process-memory"),
            (self.driver_limits, "driver-limits"),
            (self.mig, "mig"),
        ];
        let there = rows.into_iter().filter(|(there, _)| *there);
        there.map(|(_, name)| name.to_owned()).collect()
    }
}

/// One look at a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Memory in use, by any process.
    pub used: Bytes,
    /// Memory the driver could still give.
    pub free: Bytes,
    /// (pid in the daemon's namespace, bytes held), living and dead, each once; `None` where NVML
    /// cannot tell.
    pub processes: Option<Vec<(u32, Bytes)>>,
    /// Those of them that draw and do not compute: the desktop's, mostly.
    pub drawing: BTreeSet<u32>,
    /// Whose kernels ran, by NVML's samples; `None` where it has none of this device, and will not.
    pub busy: Option<Busy>,
    /// The device itself, where it was asked for with this look.
    pub health: Option<Health>,
}

/// The time in which processes' kernels ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The time of which this is; none where the driver was not asked anew, or did not answer.
    pub span: Nanos,
    /// Each pid, and for how long of that.
    pub ran: Vec<(u32, Nanos)>,
}

/// Why a look failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// The device is gone for good.
    #[error("the device is lost")]
    Lost,
    /// This time it did not answer.
    #[error("{0}")]
    Failed(String),
}

/// The node's GPUs.
pub trait Devices: Send {
    /// All devices, in NVML's order; at least one. Asked once, at start.
    ///
    /// # Errors
    /// A sentence for the log, also where there is none.
    fn list(&mut self) -> Result<Vec<Device>, String>;

    /// The driver's version, as NVML says it; empty where it does not.
    fn driver_version(&mut self) -> String {
        String::new()
    }

    /// Why devices that are there were not listed: they do not answer. A sentence for each, told
    /// once.
    fn silent(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Looks at the device at `index` of [`Devices::list`].
    ///
    /// # Errors
    /// [`LookError`].
    fn look(&mut self, index: usize) -> Result<Look, LookError>;

    /// The driver's limit of a cgroup (a folder of the unified hierarchy) on the device at `index`.
    /// For a cgroup without a limit of its own it may be the limit of an ancestor.
    ///
    /// # Errors
    /// [`FenceError`]; devices without such limits do not support them.
    fn driver_limit(&mut self, _index: usize, _cgroup: &Path) -> Result<DriverLimit, FenceError> {
        Err(FenceError::NotSupported)
    }

    /// Sets the driver's limit of a cgroup on the device at `index` to `hard`, or removes it.
    ///
    /// # Errors
    /// [`FenceError`]; devices without such limits do not support them.
    fn limit_driver(
        &mut self,
        _index: usize,
        _cgroup: &Path,
        _hard: Option<Bytes>,
    ) -> Result<(), FenceError> {
        Err(FenceError::NotSupported)
    }
}
