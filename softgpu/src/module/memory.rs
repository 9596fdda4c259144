//! What loaded code takes of the device's memory, behind the application's back.

use std::sync::Arc;

use crate::error::Result;
use crate::world::{Device, Kind, PageRun};

/// Pages that a module's code and constants take: one, whatever the image, because images are
/// opaque.
const PAGES: u64 = 1;

/// Memory of loaded code; it goes back when this is dropped.
#[derive(Debug)]
pub(super) struct CodeMemory {
    device: Arc<Device>,
    runs: Vec<PageRun>,
}

impl CodeMemory {
    /// Takes the memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device has not got it.
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
