//! Driver functions that this library calls for itself: each always the driver's own, never a hook. Its own threads call none any more
//! once the process leaves ([`exit`](crate::guest::exit)).
//!
//! # Safety
//! Each function here has the contract of the C function of its name, and answers `NOT_FOUND` where the driver has none, or may not be called.
#![allow(unsafe_code, reason = "declares and calls C functions")]
#![allow(
    dead_code,
    reason = "the families of hooks take these into use one by one"
)]

use core::ffi::{c_char, c_void};

use gpushare_cuda_abi::cuda::*;
use gpushare_cuda_abi::nvml::*;

/// Declares driver functions by their C signature: a slot and a function that calls through it.
macro_rules! driver {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {$(
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, clippy::missing_safety_doc, reason = "the C function's name and contract")]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            static SLOT: $crate::driver::real::Slot<unsafe extern "C" fn($($ty),*) -> $ret> =
                // SAFETY: the type is the C function's, spelled next to its name.
                unsafe { $crate::driver::real::Slot::new($crate::entry::c_name(concat!(stringify!($name), "\0"))) };
            if $crate::guest::exit::forbids() {
                return <$ret as $crate::entry::Status>::MISSING;
            }
            match SLOT.get() {
                // SAFETY: the caller keeps the C function's contract.
                Some(real) => unsafe { real($($arg),*) },
                None => <$ret as $crate::entry::Status>::MISSING,
            }
        }
    )*};
}

driver! {
    fn cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
    fn cuArrayDestroy(array: CUarray) -> CUresult;
    fn cuArrayGetMemoryRequirements(needs: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice) -> CUresult;
    fn cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) -> CUresult;
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult;
    fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult;
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> CUresult;
    fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) -> CUresult;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult;
    fn cuDeviceGetCount(count: *mut i32) -> CUresult;
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> CUresult;
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut u32, active: *mut i32) -> CUresult;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
    fn cuEventCreate(event: *mut CUevent, flags: u32) -> CUresult;
    fn cuEventDestroy_v2(event: CUevent) -> CUresult;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> CUresult;
    fn cuEventQuery(event: CUevent) -> CUresult;
    fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult;
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) -> CUresult;
    fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult;
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult;
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) -> CUresult;
    fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> CUresult;
    fn cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32) -> CUresult;
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult;
    fn cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) -> CUresult;
    fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult;
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> CUresult;
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult;
    fn cuMipmappedArrayGetMemoryRequirements(needs: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUmipmappedArray, device: CUdevice) -> CUresult;
    fn cuStreamCreate(stream: *mut CUstream, flags: u32) -> CUresult;
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> CUresult;
    fn cuStreamGetId(stream: CUstream, id: *mut u64) -> CUresult;
    fn cuStreamGetId_ptsz(stream: CUstream, id: *mut u64) -> CUresult;
    fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> CUresult;
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamQuery(stream: CUstream) -> CUresult;
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> CUresult;
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut u32) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t;
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: u32) -> nvmlReturn_t;
}

/// Whether the driver was initialised, by whomever. Asks a question that has no effect.
pub(crate) fn is_initialised() -> bool {
    let mut count = 0;
    // SAFETY: the result is written to a local.
    unsafe { cuDeviceGetCount(&raw mut count) }.is_success()
}
