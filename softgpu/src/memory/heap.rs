//! The small allocations of one context: blocks of its device's memory, and the allocations in
//! them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::blocks::{BLOCK, Blocks};
use super::phys::{Region, signed};
use crate::Result;
use crate::world::{Device, Kind};

/// One context's blocks. They live until both the context and the last allocation in them are gone.
#[derive(Debug)]
pub(crate) struct Heap {
    device: Arc<Device>,
    kind: Kind,
    state: Mutex<HeapState>,
}

#[derive(Debug, Default)]
struct HeapState {
    blocks: Blocks,
    regions: HashMap<u64, Region>,
}

impl Heap {
    /// A heap without blocks, for memory of this kind.
    pub(crate) fn new(device: &Arc<Device>, kind: Kind) -> Self {
        Self {
            device: Arc::clone(device),
            kind,
            state: Mutex::default(),
        }
    }

    /// Takes `len` bytes, a multiple of 512.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if no block has enough space and the device has no page for a new block.
    pub(crate) fn take(&self, len: u64) -> Result<u64> {
        let mut state = self.lock();
        let start = match state.blocks.take(len) {
            Some(start) => start,
            None => {
                let region = Region::new(&self.device, self.kind, BLOCK)?;
                state.blocks.add(region.base());
                state.regions.insert(region.base(), region);
                state
                    .blocks
                    .take(len)
                    .expect("a new block has space for every small allocation")
            }
        };
        self.device.note(self.kind, signed(len));
        Ok(start)
    }

    /// Frees the bytes.
    pub(crate) fn give(&self, start: u64, len: u64) {
        let mut state = self.lock();
        let released = state.blocks.give(start, len);
        let regions: Vec<Region> = released
            .iter()
            .filter_map(|base| state.regions.remove(base))
            .collect();
        drop(state);
        drop(regions);
        self.device.note(self.kind, -signed(len));
    }

    /// Releases the empty blocks; false if there are none.
    pub(crate) fn trim(&self) -> bool {
        let mut state = self.lock();
        let released = state.blocks.trim();
        let regions: Vec<Region> = released
            .iter()
            .filter_map(|base| state.regions.remove(base))
            .collect();
        drop(state);
        !regions.is_empty()
    }

    /// Calls `f` with the block that contains `address`.
    pub(crate) fn with_block<R>(&self, address: u64, f: impl FnOnce(&Region) -> R) -> Option<R> {
        let state = self.lock();
        state
            .regions
            .values()
            .find(|region| region.holds(address))
            .map(f)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HeapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
