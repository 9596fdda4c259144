//! The heap of device `malloc`: memory of a context that the program sizes.
//!
//! NVIDIA's programming guide, "Heap Memory Allocation": the memory is taken when a module is
//! loaded into the context; if that fails, so does the load, with `SHARED_OBJECT_INIT_FAILED`; and
//! the size cannot be changed once a module has been loaded. What a new context allows is in the
//! context's own memory. Which images use the heap is known of PTX texts alone: each other image
//! may.

use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::{CUlimit, CUresult};

use super::memory::CodeMemory;
use crate::context::{Context, Settings};
use crate::error::Result;
use crate::spec::PAGE;

/// The memory beyond that of a new context, once it is taken.
#[derive(Debug, Default)]
struct DeviceHeap(Mutex<Option<CodeMemory>>);

/// Takes the heap of a context for a module that may use it, once.
///
/// # Errors
/// `SHARED_OBJECT_INIT_FAILED` if the device lacks the memory.
pub(super) fn take(context: &Context) -> Result {
    let heap = context.ext::<DeviceHeap>();
    let mut taken = heap.0.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = CUlimit::MALLOC_HEAP_SIZE;
    let size = context.settings().limit(limit)?;
    let more = size.saturating_sub(Settings::default().limit(limit)?);
    if taken.is_none() && more > 0 {
        let memory = CodeMemory::take(context.device(), more.div_ceil(PAGE));
        *taken = Some(memory.map_err(|_| CUresult::SHARED_OBJECT_INIT_FAILED)?);
    }
    Ok(())
}

/// Whether a context has its heap, whose size then stays.
pub fn is_taken(context: &Arc<Context>) -> bool {
    let heap = context.ext::<DeviceHeap>();
    let taken = heap.0.lock().unwrap_or_else(PoisonError::into_inner);
    taken.is_some()
}
