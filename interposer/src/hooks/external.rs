//! Memory of other interfaces (Vulkan, Direct3D, dma-buf): allocated and paid for there, so it is not charged.
//!
//! The calls are watched so that a log shows why a program's use is larger than its charges.
//!
//! # Safety
//! The driver is called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use gpushare_cuda_abi::cuda::{CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUexternalMemory, CUresult};

use crate::entry::hooks;
use crate::holdings::objects::Map;

hooks! {
    fn cuImportExternalMemory(
        memory: *mut CUexternalMemory, descriptor: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> CUresult = import;
    fn cuDestroyExternalMemory(memory: CUexternalMemory) -> CUresult = destroy;
}

/// Bytes by handle.
static IMPORTED: Map<u64> = Map::new();

fn import(
    real: cuImportExternalMemory,
    memory: *mut CUexternalMemory,
    descriptor: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(memory, descriptor) };
    if answer.is_success() {
        // SAFETY: the driver has read the one and written the other.
        let (handle, bytes) =
            unsafe { ((*memory).0.expose_provenance() as u64, (*descriptor).size) };
        IMPORTED.insert(handle, bytes);
        tracing::debug!(bytes, "external memory is in use, charged to nobody here");
    }
    answer
}

fn destroy(real: cuDestroyExternalMemory, memory: CUexternalMemory) -> CUresult {
    let bytes = IMPORTED.take(memory.0.expose_provenance() as u64);
    // SAFETY: the program's argument.
    let answer = unsafe { real(memory) };
    if answer.is_success() {
        tracing::debug!(?bytes, "external memory is no longer in use");
    }
    answer
}
