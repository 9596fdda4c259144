//! This process's side of the machine: which devices it sees, whether it has initialised, whether it is a forked child.

use std::sync::Arc;
use std::sync::OnceLock;

use gpushare_cuda_abi::cuda::{CUdevice, CUresult};

use super::device::Device;
use crate::error::Result;
use crate::spec::Spec;

static PROCESS: OnceLock<Process> = OnceLock::new();

/// A process that has called `cuInit`.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    devices: Vec<Arc<Device>>,
}

/// The initialised process.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit`, and in a child forked after it, where the driver is lost for good.
pub fn process() -> Result<&'static Process> {
    PROCESS.get().ok_or(CUresult::NOT_INITIALIZED)
}

impl Process {
    /// The machine as it was described.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The devices this process sees, by ordinal.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if there is none.
    pub fn device(&self, ordinal: CUdevice) -> Result<&Arc<Device>> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|index| self.devices.get(index))
            .ok_or(CUresult::INVALID_DEVICE)
    }
}
