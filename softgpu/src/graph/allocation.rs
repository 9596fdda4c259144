//! Graph memory: the address is fixed when the node is created; physical memory is held from a
//! launch until the free.
//!
//! *Outstanding* is the state at submission: launched, and no free submitted since. *Lives* counts
//! launches on the timeline whose free has not happened. Physical memory is released when the count
//! is zero, so a launch may be submitted before the previous launch's free has happened.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use gpushare_cuda_abi::cuda::{CUmemPoolProps, CUresult};

use crate::error::Result;
use crate::exec::Raw;
use crate::memory::graph as memory;
use crate::world::Device;

/// The memory of an allocation node.
#[derive(Debug)]
pub struct Allocation {
    device: Arc<Device>,
    address: u64,
    bytes: u64,
    properties: Raw<CUmemPoolProps>,
    state: Mutex<LaunchState>,
}

#[derive(Debug, Default)]
struct LaunchState {
    outstanding: bool,
    lives: u32,
}

/// Allocations by address. Outstanding allocations stay alive after their graph is destroyed.
#[derive(Debug, Default)]
struct Known {
    all: HashMap<u64, Weak<Allocation>>,
    outstanding: HashMap<u64, Arc<Allocation>>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocation {
    /// Reserves an address for `bytes` on `device`, for a node of the graph with this number.
    ///
    /// # Errors
    /// `INVALID_VALUE` for 0 bytes or properties that name no device, `OUT_OF_MEMORY` for more than
    /// the device has.
    pub fn new(
        device: &Arc<Device>,
        graph: usize,
        properties: CUmemPoolProps,
        bytes: u64,
    ) -> Result<Arc<Self>> {
        let address = memory::reserve(device, graph, &properties, bytes)?;
        let made = Self {
            device: Arc::clone(device),
            address,
            bytes,
            properties: Raw(properties),
            state: Mutex::default(),
        };
        let made = Arc::new(made);
        known().all.insert(address, Arc::downgrade(&made));
        Ok(made)
    }

    /// The device it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pool properties of the request.
    pub fn properties(&self) -> CUmemPoolProps {
        self.properties.0
    }

    /// Whether a launch has allocated it and no free was submitted since.
    pub fn is_outstanding(&self) -> bool {
        self.state().outstanding
    }

    /// Allocates it for a launch: physical memory is mapped on return.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory.
    pub fn take(self: &Arc<Self>) -> Result {
        let mut state = self.state();
        memory::back(&self.device, self.address)?;
        state.lives += 1;
        state.outstanding = true;
        drop(state);
        known().outstanding.insert(self.address, Arc::clone(self));
        Ok(())
    }

    /// Submits a free; false if there is nothing to free. If true, the caller must later call
    /// [`free`](Self::free).
    pub fn submit_free(&self) -> bool {
        let was = std::mem::replace(&mut self.state().outstanding, false);
        let held = known().outstanding.remove(&self.address);
        drop(held);
        was
    }

    /// Executes a submitted free.
    pub fn free(&self) {
        let mut state = self.state();
        state.lives = state.lives.saturating_sub(1);
        if state.lives == 0 {
            memory::unback(&self.device, self.address);
        }
    }

    fn state(&self) -> MutexGuard<'_, LaunchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        known().all.remove(&self.address);
        memory::unreserve(&self.device, self.address);
    }
}

/// The allocation at exactly this address.
///
/// # Errors
/// `INVALID_VALUE` if there is none.
pub fn at(address: u64) -> Result<Arc<Allocation>> {
    known()
        .all
        .get(&address)
        .and_then(Weak::upgrade)
        .ok_or(CUresult::INVALID_VALUE)
}
