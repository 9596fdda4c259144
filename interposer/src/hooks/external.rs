//! Memory of other interfaces (Vulkan, Direct3D, dma-buf): allocated and paid for there, so it is
//! not charged.
//!
//! The calls are watched so that a log shows why a program's use is larger than its charges.

use gpushare_cuda_abi::cuda::{CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUexternalMemory, CUresult};

use crate::entry::args::{In, Out};
use crate::entry::hooks;
use crate::holdings::objects::Map;

hooks! {
    fn cuImportExternalMemory(
        memory: Out<'_, CUexternalMemory>, descriptor: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
    ) -> CUresult = |call| import(memory, descriptor, call());
    fn cuDestroyExternalMemory(memory: CUexternalMemory) -> CUresult = |call| destroy(memory, call);
}

/// Bytes by handle.
static IMPORTED: Map<u64> = Map::new();

fn import(
    memory: Out<'_, CUexternalMemory>,
    descriptor: In<'_, CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
    answer: CUresult,
) -> CUresult {
    if let Some(memory) = memory.after(answer)
        && let Some(descriptor) = descriptor.read()
    {
        let bytes = descriptor.size;
        IMPORTED.insert(memory.0.expose_provenance() as u64, bytes);
        tracing::debug!(
            bytes,
            "external memory is in use; it is not charged to this tenant"
        );
    }
    answer
}

fn destroy(memory: CUexternalMemory, call: impl FnOnce() -> CUresult) -> CUresult {
    let bytes = IMPORTED.take(memory.0.expose_provenance() as u64);
    let answer = call();
    if answer.is_success() {
        tracing::debug!(?bytes, "external memory is no longer in use");
    }
    answer
}
