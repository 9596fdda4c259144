//! Handles the driver gives out: numbers for devices and addresses, opaque pointers for everything
//! else.
//!
//! Every opaque handle is a `#[repr(transparent)]` pointer of its own type, so that a stream cannot
//! be passed where a context is meant. Nothing here ever dereferences one.

use core::ffi::c_char;

use crate::abi::handles;

/// A device by its ordinal in this process, counted from 0.
pub type CUdevice = i32;
/// The host, where a device is asked for (advice, prefetch).
pub const CU_DEVICE_CPU: CUdevice = -1;
/// No device.
pub const CU_DEVICE_INVALID: CUdevice = -2;
/// A device address on a 64-bit host.
pub type CUdeviceptr = u64;
/// The 32-bit device address of the functions of CUDA 2 (`cuMemAlloc` and the like without a
/// suffix).
pub type CUdeviceptr_v1 = u32;
/// A texture object.
pub type CUtexObject = u64;
/// A surface object.
pub type CUsurfObject = u64;
/// A physical allocation of `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;
/// The condition of a conditional graph node.
pub type CUgraphConditionalHandle = u64;
/// A logical endpoint of the fabric.
pub type CUlogicalEndpointId = u32;
/// A position in the driver's error log.
pub type CUlogIterator = u32;

handles! {
    /// A context.
    ///
    /// Argument of `cuDevicePrimaryCtxRetain`, `cuCtxCreate`, `cuCtxDestroy`, `cuCtxPushCurrent`
    /// and 23 more.
    CUcontext;
    /// A module loaded into one context.
    ///
    /// Argument of `cuModuleLoad`, `cuModuleLoadData`, `cuModuleLoadDataEx`,
    /// `cuModuleLoadFatBinary` and 9 more.
    CUmodule;
    /// A function of a module; may also be a `CUkernel`, which launches accept.
    ///
    /// Argument of `cuModuleGetFunction`, `cuModuleEnumerateFunctions`, `cuKernelGetFunction`,
    /// `cuFuncGetAttribute` and 29 more.
    CUfunction;
    /// A library: a module for every context.
    ///
    /// Argument of `cuLibraryLoadData`, `cuLibraryLoadFromFile`, `cuLibraryUnload`,
    /// `cuLibraryGetKernel` and 7 more.
    CUlibrary;
    /// A kernel of a library.
    ///
    /// Argument of `cuLibraryGetKernel`, `cuLibraryEnumerateKernels`, `cuKernelGetFunction`,
    /// `cuKernelGetLibrary` and 6 more.
    CUkernel;
    /// An array: memory in a layout of the driver's own.
    ///
    /// Argument of `cuMemcpyDtoA`, `cuMemcpyAtoD`, `cuMemcpyHtoA`, `cuMemcpyAtoH` and 17 more.
    CUarray;
    /// An array with its smaller images.
    ///
    /// Argument of `cuMipmappedArrayGetSparseProperties`, `cuMipmappedArrayGetMemoryRequirements`,
    /// `cuMipmappedArrayCreate`, `cuMipmappedArrayGetLevel` and 5 more.
    CUmipmappedArray;
    /// A texture reference of a module (CUDA 2).
    ///
    /// Argument of `cuModuleGetTexRef`, `cuParamSetTexRef`, `cuTexRefSetArray`,
    /// `cuTexRefSetMipmappedArray` and 25 more.
    CUtexref;
    /// A surface reference of a module.
    ///
    /// Argument of `cuModuleGetSurfRef`, `cuSurfRefSetArray`, `cuSurfRefGetArray`.
    CUsurfref;
    /// An event.
    ///
    /// Argument of `cuCtxRecordEvent`, `cuCtxWaitEvent`, `cuIpcGetEventHandle`,
    /// `cuIpcOpenEventHandle` and 18 more.
    CUevent;
    /// A stream; null is the default stream, whose meaning the function's variant decides.
    ///
    /// Argument of `cuMemcpyAsync`, `cuMemcpyPeerAsync`, `cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync`
    /// and 71 more.
    CUstream;
    /// A resource of a graphics API.
    ///
    /// Argument of `cuGraphicsUnregisterResource`, `cuGraphicsSubResourceGetMappedArray`,
    /// `cuGraphicsResourceGetMappedMipmappedArray`, `cuGraphicsResourceGetMappedPointer` and 3
    /// more.
    CUgraphicsResource;
    /// Memory of another API.
    ///
    /// Argument of `cuImportExternalMemory`, `cuExternalMemoryGetMappedBuffer`,
    /// `cuExternalMemoryGetMappedMipmappedArray`, `cuDestroyExternalMemory`.
    CUexternalMemory;
    /// A semaphore of another API.
    ///
    /// Argument of `cuImportExternalSemaphore`, `cuSignalExternalSemaphoresAsync`,
    /// `cuWaitExternalSemaphoresAsync`, `cuDestroyExternalSemaphore`.
    CUexternalSemaphore;
    /// A graph.
    ///
    /// Argument of `cuStreamBeginRecaptureToGraph`, `cuStreamBeginCaptureToGraph`,
    /// `cuStreamEndCapture`, `cuStreamGetCaptureInfo` and 35 more.
    CUgraph;
    /// A node of a graph.
    ///
    /// Argument of `cuStreamBeginCaptureToGraph`, `cuStreamGetCaptureInfo`,
    /// `cuStreamUpdateCaptureDependencies`, `cuGraphAddKernelNode` and 67 more.
    CUgraphNode;
    /// An executable graph.
    ///
    /// Argument of `cuGraphExecBatchMemOpNodeSetParams`, `cuGraphExecGetId`,
    /// `cuGraphInstantiateWithFlags`, `cuGraphInstantiateWithParams` and 18 more.
    CUgraphExec;
    /// A pool of stream-ordered memory.
    ///
    /// Argument of `cuDeviceSetMemPool`, `cuDeviceGetMemPool`, `cuDeviceGetDefaultMemPool`,
    /// `cuMemPoolTrimTo` and 13 more.
    CUmemoryPool;
    /// An object that lives as long as the graphs that refer to it.
    ///
    /// Argument of `cuUserObjectCreate`, `cuUserObjectRetain`, `cuUserObjectRelease`,
    /// `cuGraphRetainUserObject` and 1 more.
    CUuserObject;
    /// A kernel node that kernels can change.
    ///
    /// Part of
    /// [`CUlaunchAttributeValue_deviceUpdatableKernelNode`](crate::cuda::CUlaunchAttributeValue_deviceUpdatableKernelNode).
    CUgraphDeviceNode;
    /// A registered notification.
    ///
    /// Argument of `cuDeviceRegisterAsyncNotification`, `cuDeviceUnregisterAsyncNotification`.
    CUasyncCallbackHandle;
    /// A green context: a context on a part of a device.
    ///
    /// Argument of `cuStreamGetCtx`, `cuGreenCtxCreate`, `cuGreenCtxDestroy`, `cuCtxFromGreenCtx`
    /// and 6 more.
    CUgreenCtx;
    /// A linking in progress.
    ///
    /// Argument of `cuLinkCreate`, `cuLinkAddData`, `cuLinkAddFile`, `cuLinkComplete` and 1 more.
    CUlinkState;
    /// A checkpoint in progress.
    ///
    /// Argument of `cuCheckpointOperationComplete`.
    CUcheckpointOperationHandle;
    /// A registered core dump callback.
    ///
    /// Argument of `cuCoredumpRegisterStartCallback`, `cuCoredumpRegisterCompleteCallback`,
    /// `cuCoredumpDeregisterStartCallback`, `cuCoredumpDeregisterCompleteCallback`.
    CUcoredumpCallbackHandle;
    /// Resources to make a green context of.
    ///
    /// Argument of `cuGreenCtxCreate`, `cuDevResourceGenerateDesc`.
    CUdevResourceDesc;
    /// A registered log callback.
    ///
    /// Argument of `cuLogsRegisterCallback`, `cuLogsUnregisterCallback`.
    CUlogsCallbackHandle;
}

/// The legacy default stream, named explicitly: it waits for the other blocking streams of its
/// context.
pub const CU_STREAM_LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(0x1));
/// The calling thread's own default stream, named explicitly.
pub const CU_STREAM_PER_THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(0x2));

/// The 16 bytes that identify a device (or a MIG instance of one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CUuuid {
    /// The UUID's bytes in the order they are written.
    pub bytes: [c_char; 16],
}
