//! Stream and event flags, capture, batched memory operations.

use core::ffi::c_void;

use super::handles::CUdeviceptr;
use crate::abi::c_enum;

c_enum! {
    /// How the host waits for the event of another API.
    pub struct CUevent_sched_flags(u32);
    "CU_EVENT_SCHED_" {
        AUTO = 0x0,
        SPIN = 0x1,
        YIELD = 0x2,
        BLOCKING_SYNC = 0x4,
    }
}

c_enum! {
    /// Whether a stream waits for the legacy default stream.
    pub struct CUstream_flags(u32);
    "CU_STREAM_" {
        DEFAULT = 0x0,
        NON_BLOCKING = 0x1,
    }
}

c_enum! {
    /// How an event is waited for, timed, and shared.
    pub struct CUevent_flags(u32);
    "CU_EVENT_" {
        DEFAULT = 0x0,
        BLOCKING_SYNC = 0x1,
        DISABLE_TIMING = 0x2,
        INTERPROCESS = 0x4,
    }
}

c_enum! {
    /// Whether a captured record is an external node.
    pub struct CUevent_record_flags(u32);
    "CU_EVENT_RECORD_" {
        DEFAULT = 0x0,
        EXTERNAL = 0x1,
    }
}

c_enum! {
    /// Whether a captured wait is an external node.
    pub struct CUevent_wait_flags(u32);
    "CU_EVENT_WAIT_" {
        DEFAULT = 0x0,
        EXTERNAL = 0x1,
    }
}

c_enum! {
    /// The comparison a stream waits for.
    pub struct CUstreamWaitValue_flags(u32);
    "CU_STREAM_WAIT_VALUE_" {
        GEQ = 0x0,
        EQ = 0x1,
        AND = 0x2,
        NOR = 0x3,
        FLUSH = 0x40000000,
    }
}

c_enum! {
    /// Whether a write waits for what went before.
    pub struct CUstreamWriteValue_flags(u32);
    "CU_STREAM_WRITE_VALUE_" {
        DEFAULT = 0x0,
        NO_MEMORY_BARRIER = 0x1,
    }
}

c_enum! {
    /// The kind of stream memory operation.
    ///
    /// Part of
    /// [`CUstreamBatchMemOpParams_v1_waitValue`](crate::cuda::CUstreamBatchMemOpParams_v1_waitValue),
    /// [`CUstreamBatchMemOpParams_v1_writeValue`](crate::cuda::CUstreamBatchMemOpParams_v1_writeValue),
    /// [`CUstreamBatchMemOpParams_v1_flushRemoteWrites`](crate::cuda::CUstreamBatchMemOpParams_v1_flushRemoteWrites).
    pub struct CUstreamBatchMemOpType(u32);
    "CU_STREAM_MEM_OP_" {
        WAIT_VALUE_32 = 1,
        WRITE_VALUE_32 = 2,
        WAIT_VALUE_64 = 4,
        WRITE_VALUE_64 = 5,
        BARRIER = 6,
        ATOMIC_REDUCTION = 8,
        FLUSH_REMOTE_WRITES = 3,
    }
}

c_enum! {
    /// How far a memory barrier reaches.
    pub struct CUstreamMemoryBarrier_flags(u32);
    "CU_STREAM_MEMORY_BARRIER_TYPE_" {
        SYS = 0x0,
        GPU = 0x1,
    }
}

c_enum! {
    /// The operation of an atomic reduction.
    ///
    /// Part of
    /// [`CUstreamBatchMemOpParams_v1_atomicReduction`](crate::cuda::CUstreamBatchMemOpParams_v1_atomicReduction).
    pub struct CUstreamAtomicReductionOpType(u32);
    "CU_STREAM_ATOMIC_REDUCTION_OP_" {
        OR = 6,
        AND = 5,
        ADD = 0,
    }
}

c_enum! {
    /// The data type of an atomic reduction.
    ///
    /// Part of
    /// [`CUstreamBatchMemOpParams_v1_atomicReduction`](crate::cuda::CUstreamBatchMemOpParams_v1_atomicReduction).
    pub struct CUstreamAtomicReductionDataType(u32);
    "CU_STREAM_ATOMIC_REDUCTION_" {
        UNSIGNED_32 = 14,
        UNSIGNED_64 = 22,
    }
}

/// Member `waitValue` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUstreamBatchMemOpParams_v1_waitValue_anon {
    pub value: u32,
    pub value64: u64,
}
crate::abi::opaque_debug!(CUstreamBatchMemOpParams_v1_waitValue_anon);

/// Member `waitValue` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams_v1_waitValue {
    pub operation: CUstreamBatchMemOpType,
    pub address: CUdeviceptr,
    pub anon: CUstreamBatchMemOpParams_v1_waitValue_anon,
    pub flags: u32,
    pub alias: CUdeviceptr,
}

/// Member `writeValue` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUstreamBatchMemOpParams_v1_writeValue_anon {
    pub value: u32,
    pub value64: u64,
}
crate::abi::opaque_debug!(CUstreamBatchMemOpParams_v1_writeValue_anon);

/// Member `writeValue` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams_v1_writeValue {
    pub operation: CUstreamBatchMemOpType,
    pub address: CUdeviceptr,
    pub anon: CUstreamBatchMemOpParams_v1_writeValue_anon,
    pub flags: u32,
    pub alias: CUdeviceptr,
}

/// Member `flushRemoteWrites` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams_v1_flushRemoteWrites {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
}

/// Member `memoryBarrier` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams_v1_memoryBarrier {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
}

/// Member `atomicReduction` of [`CUstreamBatchMemOpParams_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamBatchMemOpParams_v1_atomicReduction {
    pub operation: CUstreamBatchMemOpType,
    pub flags: u32,
    pub reductionOp: CUstreamAtomicReductionOpType,
    pub dataType: CUstreamAtomicReductionDataType,
    pub address: CUdeviceptr,
    pub value: u64,
    pub alias: CUdeviceptr,
}

/// One operation of a batch of stream memory operations; `operation` tells which member is valid.
///
/// Argument of `cuStreamBatchMemOp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUstreamBatchMemOpParams_v1 {
    pub operation: CUstreamBatchMemOpType,
    pub waitValue: CUstreamBatchMemOpParams_v1_waitValue,
    pub writeValue: CUstreamBatchMemOpParams_v1_writeValue,
    pub flushRemoteWrites: CUstreamBatchMemOpParams_v1_flushRemoteWrites,
    pub memoryBarrier: CUstreamBatchMemOpParams_v1_memoryBarrier,
    pub atomicReduction: CUstreamBatchMemOpParams_v1_atomicReduction,
    pub pad: [u64; 6],
}
crate::abi::opaque_debug!(CUstreamBatchMemOpParams_v1);

/// The plain name of [`CUstreamBatchMemOpParams_v1`].
pub type CUstreamBatchMemOpParams = CUstreamBatchMemOpParams_v1;

c_enum! {
    /// Whether dependencies are added or set.
    pub struct CUstreamUpdateCaptureDependencies_flags(u32);
    "CU_STREAM_" {
        ADD_CAPTURE_DEPENDENCIES = 0x0,
        SET_CAPTURE_DEPENDENCIES = 0x1,
    }
}

c_enum! {
    /// Whether a stream is captured.
    ///
    /// Argument of `cuStreamIsCapturing`, `cuStreamGetCaptureInfo`.
    pub struct CUstreamCaptureStatus(u32);
    "CU_STREAM_CAPTURE_STATUS_" {
        NONE = 0,
        ACTIVE = 1,
        INVALIDATED = 2,
    }
}

c_enum! {
    /// Which calls a capture forbids other threads.
    ///
    /// Argument of `cuStreamBeginCapture`, `cuStreamBeginRecaptureToGraph`,
    /// `cuStreamBeginCaptureToGraph`, `cuThreadExchangeStreamCaptureMode`.
    pub struct CUstreamCaptureMode(u32);
    "CU_STREAM_CAPTURE_MODE_" {
        GLOBAL = 0,
        THREAD_LOCAL = 1,
        RELAXED = 2,
    }
}

c_enum! {
    /// The kind of graphics command list.
    ///
    /// Part of [`CUstreamCigParam`](crate::cuda::CUstreamCigParam).
    pub struct CUstreamCigDataType(u32);
    "STREAM_CIG_DATA_TYPE_" {
        D3D12_COMMAND_LIST = 1,
        VULKAN_COMMAND_BUFFER_HANDLE_NV = 2,
    }
}

/// A graphics command list that a stream is recorded into.
///
/// Part of [`CUstreamCigCaptureParams`](crate::cuda::CUstreamCigCaptureParams).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamCigParam {
    pub streamSharedDataType: CUstreamCigDataType,
    pub streamSharedData: *mut c_void,
}

/// How a stream is recorded into a graphics command list.
///
/// Argument of `cuStreamBeginCaptureToCig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUstreamCigCaptureParams {
    pub streamCigParams: *mut CUstreamCigParam,
}
