//! Context flags, limits, creation parameters, execution affinity.

use core::ffi::c_void;

use crate::abi::c_enum;

c_enum! {
    /// How the host waits for a context, and what else it does.
    pub struct CUctx_flags(u32);
    "CU_CTX_" {
        SCHED_AUTO = 0x0,
        SCHED_SPIN = 0x1,
        SCHED_YIELD = 0x2,
        SCHED_BLOCKING_SYNC = 0x4,
        BLOCKING_SYNC = 0x4,
        SCHED_MASK = 0x7,
        MAP_HOST = 0x8,
        LMEM_RESIZE_TO_MAX = 0x10,
        COREDUMP_ENABLE = 0x20,
        USER_COREDUMP_ENABLE = 0x40,
        SYNC_MEMOPS = 0x80,
        FLAGS_MASK = 0xff,
    }
}

c_enum! {
    /// A limit of a context: bytes for stack, heap and print buffer, counts otherwise.
    ///
    /// Argument of `cuCtxSetLimit`, `cuCtxGetLimit`.
    pub struct CUlimit(u32);
    "CU_LIMIT_" {
        STACK_SIZE = 0,
        PRINTF_FIFO_SIZE = 1,
        MALLOC_HEAP_SIZE = 2,
        DEV_RUNTIME_SYNC_DEPTH = 3,
        DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4,
        MAX_L2_FETCH_GRANULARITY = 5,
        PERSISTING_L2_CACHE_SIZE = 6,
        SHMEM_SIZE = 7,
        CIG_ENABLED = 8,
        CIG_SHMEM_FALLBACK_ENABLED = 9,
        PER_BLOCK_MEMORY_SIZE = 10,
        MAX = 11,
    }
}

c_enum! {
    /// The kind of execution affinity.
    ///
    /// Argument of `cuDeviceGetExecAffinitySupport`, `cuCtxGetExecAffinity`.
    pub struct CUexecAffinityType(u32);
    "CU_EXEC_AFFINITY_TYPE_" {
        SM_COUNT = 0,
        MAX = 1,
    }
}

/// A number of multiprocessors.
///
/// Part of [`CUexecAffinityParam_v1_param`](crate::cuda::CUexecAffinityParam_v1_param).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUexecAffinitySmCount_v1 {
    pub val: u32,
}

/// The plain name of [`CUexecAffinitySmCount_v1`].
pub type CUexecAffinitySmCount = CUexecAffinitySmCount_v1;

/// Member `param` of [`CUexecAffinityParam_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUexecAffinityParam_v1_param {
    pub smCount: CUexecAffinitySmCount,
}
crate::abi::opaque_debug!(CUexecAffinityParam_v1_param);

/// How many multiprocessors a context may use (under MPS).
///
/// Argument of `cuCtxGetExecAffinity`, `cuCtxCreate`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUexecAffinityParam_v1 {
    pub type_: CUexecAffinityType,
    pub param: CUexecAffinityParam_v1_param,
}

/// The plain name of [`CUexecAffinityParam_v1`].
pub type CUexecAffinityParam = CUexecAffinityParam_v1;

c_enum! {
    /// The kind of graphics queue.
    ///
    /// Part of [`CUctxCigParam`](crate::cuda::CUctxCigParam).
    pub struct CUcigDataType(u32);
    "CIG_DATA_TYPE_" {
        D3D12_COMMAND_QUEUE = 1,
        NV_BLOB = 2,
    }
}

/// A graphics queue that a context shares its turn with.
///
/// Part of [`CUctxCreateParams`](crate::cuda::CUctxCreateParams).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUctxCigParam {
    pub sharedDataType: CUcigDataType,
    pub sharedData: *mut c_void,
}

/// The parameters of `cuCtxCreate_v4` besides flags and device.
///
/// Argument of `cuCtxCreate`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUctxCreateParams {
    pub execAffinityParams: *mut CUexecAffinityParam,
    pub numExecAffinityParams: i32,
    pub cigParams: *mut CUctxCigParam,
}
