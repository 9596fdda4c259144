//! Device memory that loaded code takes, unasked.

use std::sync::Arc;

use crate::error::Result;
use crate::world::{Device, Kind, PageRun};

/// Pages of a module's code and constants. The number is 1 for every image, because images are
/// opaque.
const PAGES: u64 = 1;

/// Memory of loaded code; freed on drop.
#[derive(Debug)]
pub(super) struct CodeMemory {
    device: Arc<Device>,
    runs: Vec<PageRun>,
}

impl CodeMemory {
    /// Takes the memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory.
    pub(super) fn take(device: &Arc<Device>) -> Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            runs: device.take(Kind::Module, PAGES)?,
        })
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        self.device.give(&self.runs);
    }
}
