//! Device memory that loaded code takes, unasked.

use std::sync::Arc;

use crate::error::Result;
use crate::world::{Device, Kind, PageRun};

/// Pages of a module's code and constants. The number is 1 for every image, because images are
/// opaque.
pub(super) const PAGES: u64 = 1;

/// Memory of loaded code, or of what its kernels allocate; freed on drop.
#[derive(Debug)]
pub(super) struct CodeMemory {
    device: Arc<Device>,
    runs: Vec<PageRun>,
}

impl CodeMemory {
    /// Takes so many pages.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory.
    pub(super) fn take(device: &Arc<Device>, pages: u64) -> Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            runs: device.take(Kind::Module, pages)?,
        })
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        self.device.give(&self.runs);
    }
}
