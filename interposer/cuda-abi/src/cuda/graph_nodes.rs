//! Parameters of graph nodes, one struct per node kind and version.

use core::ffi::{c_char, c_void};

use super::batch::CUmemcpyAttributes;
use super::callbacks::CUhostFn;
use super::external::{CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS};
use super::fabric::CUDA_FABRIC_COPY_BATCH_OP;
use super::graph::{CUgraphChildGraphNodeOwnership, CUgraphConditionalNodeType, CUgraphNodeType};
use super::handles::{
    CUcontext, CUdeviceptr, CUevent, CUexternalSemaphore, CUfunction, CUgraph,
    CUgraphConditionalHandle, CUgreenCtx, CUkernel,
};
use super::memory::CUDA_MEMCPY3D;
use super::pool::CUmemPoolProps;
use super::stream::CUstreamBatchMemOpParams;
use super::vmm::CUmemAccessDesc;

/// A graph node that runs a batch of stream memory operations.
///
/// Argument of `cuGraphAddBatchMemOpNode`, `cuGraphBatchMemOpNodeGetParams`,
/// `cuGraphBatchMemOpNodeSetParams`, `cuGraphExecBatchMemOpNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: u32,
}

/// The plain name of [`CUDA_BATCH_MEM_OP_NODE_PARAMS_v1`].
pub type CUDA_BATCH_MEM_OP_NODE_PARAMS = CUDA_BATCH_MEM_OP_NODE_PARAMS_v1;

/// A graph node that runs a batch of stream memory operations, as in `CUgraphNodeParams`.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: u32,
}

/// A graph node that launches a kernel; shared memory in bytes.
///
/// Argument of `cuGraphAddKernelNode`, `cuGraphKernelNodeGetParams`, `cuGraphKernelNodeSetParams`,
/// `cuGraphExecKernelNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// A kernel node that can name a `CUkernel` instead of a function, and its context.
///
/// Argument of `cuGraphAddKernelNode`, `cuGraphKernelNodeGetParams`, `cuGraphKernelNodeSetParams`,
/// `cuGraphExecKernelNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v2 {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

/// The plain name of [`CUDA_KERNEL_NODE_PARAMS_v2`].
pub type CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS_v2;

/// A kernel node as in `CUgraphNodeParams`.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS_v3 {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

/// A graph node that sets memory; `elementSize` is 1, 2 or 4 bytes, `pitch` is in bytes and counts
/// from two rows up.
///
/// Argument of `cuGraphAddMemsetNode`, `cuGraphMemsetNodeGetParams`, `cuGraphMemsetNodeSetParams`,
/// `cuGraphExecMemsetNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS_v1 {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

/// The plain name of [`CUDA_MEMSET_NODE_PARAMS_v1`].
pub type CUDA_MEMSET_NODE_PARAMS = CUDA_MEMSET_NODE_PARAMS_v1;

/// A memset node with its context.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
    pub ctx: CUcontext,
}

/// A graph node that calls a function on the host.
///
/// Argument of `cuGraphAddHostNode`, `cuGraphHostNodeGetParams`, `cuGraphHostNodeSetParams`,
/// `cuGraphExecHostNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS_v1 {
    pub fn_: CUhostFn,
    pub userData: *mut c_void,
}

/// The plain name of [`CUDA_HOST_NODE_PARAMS_v1`].
pub type CUDA_HOST_NODE_PARAMS = CUDA_HOST_NODE_PARAMS_v1;

/// The unnamed union of [`CUDA_HOST_NODE_PARAMS_v2`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_HOST_NODE_PARAMS_v2_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_HOST_NODE_PARAMS_v2_anon);

/// A host node with its context (or green context) and how the device waits for the host.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS_v2 {
    pub fn_: CUhostFn,
    pub userData: *mut c_void,
    pub syncMode: u32,
    pub anon: CUDA_HOST_NODE_PARAMS_v2_anon,
}

/// A graph node whose bodies run or not as a condition says; `phGraph_out` receives the bodies.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_CONDITIONAL_NODE_PARAMS {
    pub handle: CUgraphConditionalHandle,
    pub type_: CUgraphConditionalNodeType,
    pub size: u32,
    pub phGraph_out: *mut CUgraph,
    pub ctx: CUcontext,
}

/// A graph node that copies, with its context.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: i32,
    pub reserved: i32,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

/// A graph node that signals external semaphores.
///
/// Argument of `cuGraphAddExternalSemaphoresSignalNode`,
/// `cuGraphExternalSemaphoresSignalNodeGetParams`, `cuGraphExternalSemaphoresSignalNodeSetParams`,
/// `cuGraphExecExternalSemaphoresSignalNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    pub numExtSems: u32,
}

/// The plain name of [`CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1`].
pub type CUDA_EXT_SEM_SIGNAL_NODE_PARAMS = CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1;

/// The unnamed union of [`CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_anon);

/// A signal node with its context (or green context).
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    pub numExtSems: u32,
    pub anon: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_anon,
}

/// A graph node that waits for external semaphores.
///
/// Argument of `cuGraphAddExternalSemaphoresWaitNode`,
/// `cuGraphExternalSemaphoresWaitNodeGetParams`, `cuGraphExternalSemaphoresWaitNodeSetParams`,
/// `cuGraphExecExternalSemaphoresWaitNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    pub numExtSems: u32,
}

/// The plain name of [`CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1`].
pub type CUDA_EXT_SEM_WAIT_NODE_PARAMS = CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1;

/// The unnamed union of [`CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_anon);

/// A wait node with its context (or green context).
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 {
    pub extSemArray: *mut CUexternalSemaphore,
    pub paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    pub numExtSems: u32,
    pub anon: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_anon,
}

/// A graph node that allocates; `dptr` receives the address.
///
/// Argument of `cuGraphAddMemAllocNode`, `cuGraphMemAllocNodeGetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

/// The plain name of [`CUDA_MEM_ALLOC_NODE_PARAMS_v1`].
pub type CUDA_MEM_ALLOC_NODE_PARAMS = CUDA_MEM_ALLOC_NODE_PARAMS_v1;

/// An allocation node as in `CUgraphNodeParams`.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

/// A graph node that frees.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEM_FREE_NODE_PARAMS {
    pub dptr: CUdeviceptr,
}

/// A graph node that is a graph.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
    pub graph: CUgraph,
    pub ownership: CUgraphChildGraphNodeOwnership,
}

/// The unnamed union of [`CUDA_EVENT_RECORD_NODE_PARAMS`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_EVENT_RECORD_NODE_PARAMS_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_EVENT_RECORD_NODE_PARAMS_anon);

/// A graph node that records an event.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EVENT_RECORD_NODE_PARAMS {
    pub event: CUevent,
    pub anon: CUDA_EVENT_RECORD_NODE_PARAMS_anon,
}

/// A graph node that waits for an event.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_EVENT_WAIT_NODE_PARAMS {
    pub event: CUevent,
}

/// The unnamed union of [`CUDA_MEMCPY_BATCH_NODE_PARAMS_V1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_MEMCPY_BATCH_NODE_PARAMS_V1_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_MEMCPY_BATCH_NODE_PARAMS_V1_anon);

/// A graph node of batched copies.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY_BATCH_NODE_PARAMS_V1 {
    pub count: usize,
    pub dsts: *mut CUdeviceptr,
    pub srcs: *mut CUdeviceptr,
    pub sizes: *mut usize,
    pub attrs: *mut CUmemcpyAttributes,
    pub attrsIdxs: *mut usize,
    pub numAttrs: usize,
    pub anon: CUDA_MEMCPY_BATCH_NODE_PARAMS_V1_anon,
}

/// The plain name of [`CUDA_MEMCPY_BATCH_NODE_PARAMS_V1`].
pub type CUDA_MEMCPY_BATCH_NODE_PARAMS = CUDA_MEMCPY_BATCH_NODE_PARAMS_V1;

/// The unnamed union of [`CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1_anon {
    pub ctx: CUcontext,
    pub gCtx: CUgreenCtx,
}
crate::abi::opaque_debug!(CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1_anon);

/// A graph node of fabric copies.
///
/// Part of [`CUgraphNodeParams_anon`](crate::cuda::CUgraphNodeParams_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1 {
    pub numOps: usize,
    pub opList: *mut CUDA_FABRIC_COPY_BATCH_OP,
    pub flags: u64,
    pub anon: CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1_anon,
}

/// The plain name of [`CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1`].
pub type CUDA_FABRIC_CPY_BATCH_NODE_PARAMS = CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1;

/// The unnamed union of [`CUgraphNodeParams`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUgraphNodeParams_anon {
    pub reserved1: [i64; 29],
    pub kernel: CUDA_KERNEL_NODE_PARAMS_v3,
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub host: CUDA_HOST_NODE_PARAMS_v2,
    pub graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
    pub eventWait: CUDA_EVENT_WAIT_NODE_PARAMS,
    pub eventRecord: CUDA_EVENT_RECORD_NODE_PARAMS,
    pub extSemSignal: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
    pub extSemWait: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS_v2,
    pub free: CUDA_MEM_FREE_NODE_PARAMS,
    pub memOp: CUDA_BATCH_MEM_OP_NODE_PARAMS_v2,
    pub conditional: CUDA_CONDITIONAL_NODE_PARAMS,
    pub memcpyBatch: CUDA_MEMCPY_BATCH_NODE_PARAMS_V1,
    pub fabricCpyBatch: CUDA_FABRIC_CPY_BATCH_NODE_PARAMS_V1,
    pub asBytes: [c_char; 232],
}
crate::abi::opaque_debug!(CUgraphNodeParams_anon);

/// Any graph node; `type_` tells which member of `anon` is valid.
///
/// Argument of `cuGraphAddNode`, `cuGraphNodeSetParams`, `cuGraphNodeGetParams`,
/// `cuGraphExecNodeSetParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUgraphNodeParams {
    pub type_: CUgraphNodeType,
    pub reserved0: [i32; 3],
    pub anon: CUgraphNodeParams_anon,
    pub reserved2: i64,
}
