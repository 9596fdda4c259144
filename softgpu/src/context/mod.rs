//! Contexts: primary and user contexts, the stack of each thread, sticky errors, destruction.

mod hooks;
pub mod peer;
mod stack;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};

use crate::error::Result;
use crate::handle::Handles;
use crate::world::{Device, Ext};

pub use stack::{current, current_unchecked, pop, push, set_current};

static CONTEXTS: Handles<Context> = Handles::new();

/// A context of this process on one device.
#[derive(Debug)]
pub struct Context {
    handle: usize,
    device: Arc<Device>,
    primary: bool,
    flags: AtomicU32,
    destroyed: AtomicBool,
    /// The sticky error, 0 for none.
    error: AtomicU32,
    ext: Ext,
}

/// The context behind a handle.
///
/// # Errors
/// `INVALID_CONTEXT` if there is none (any more).
pub fn lookup(handle: CUcontext) -> Result<Arc<Context>> {
    CONTEXTS
        .get(handle.0.addr())
        .ok_or(CUresult::INVALID_CONTEXT)
}

/// Every live context of this process, oldest first.
pub fn live() -> Vec<Arc<Context>> {
    CONTEXTS
        .all()
        .into_iter()
        .map(|(_, context)| context)
        .collect()
}

impl Context {
    /// Its handle, which also is its unique number in this process (never reused).
    pub fn handle(&self) -> CUcontext {
        CUcontext(std::ptr::without_provenance_mut(self.handle))
    }

    /// Unique number of this context in this process.
    pub fn id(&self) -> u64 {
        self.handle as u64
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether it is its device's primary context.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// Its flags as `cuCtxGetFlags` tells them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Whether it can still be used.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, or the sticky error of earlier work.
    pub fn check(&self) -> Result {
        if self.destroyed.load(Ordering::Acquire) {
            return Err(CUresult::CONTEXT_IS_DESTROYED);
        }
        CUresult(self.error.load(Ordering::Acquire)).ok()
    }

    /// Whether it was destroyed (work that is still queued must not run).
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Loses the context to `error`: every later call in it answers that. The first error stays.
    pub fn poison(&self, error: CUresult) {
        let _ = self
            .error
            .compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes `bytes` more overhead for this context, as loading a module or a kernel lazily does; returned with the context.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device has not got them.
    pub fn grow(&self, bytes: u64) -> Result {
        let _ = bytes;
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Room for what other parts keep about this context; forgotten when it is destroyed or reset.
    pub fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }
}
