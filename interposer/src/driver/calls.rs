//! Driver functions that this library calls for itself: each always the driver's own, never a hook.
//! Its own threads call none any more once the process leaves ([`exit`](crate::guest::exit)).
//!
//! The functions with Rust names are safe: each pointer they pass to the driver is to a local that
//! outlives the call. Handles are numbers here. The driver gave them, and the caller ensures that
//! the object lives (the program does, or the tracker keeps it from being destroyed).
//!
//! # Safety
//! Each function of a C name has the contract of that C function, and answers `NOT_FOUND` where the
//! driver has none, or may not be called.
#![allow(unsafe_code, reason = "declares and calls C functions")]

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::*;

pub(crate) use super::outcome::Asked;
use super::outcome::Outcome;

/// Declares driver functions by their C signature: a slot and a function for each, and their list.
macro_rules! driver {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {$(
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, clippy::missing_safety_doc, reason = "the C function's name and contract")]
        unsafe fn $name($($arg: $ty),*) -> $ret {
            static SLOT: $crate::driver::real::Slot<unsafe extern "C" fn($($ty),*) -> $ret> =
                // SAFETY: the type is the C function's, spelled next to its name.
                unsafe { $crate::driver::real::Slot::new($crate::driver::real::c_name(concat!(stringify!($name), "\0"))) };
            if $crate::guest::exit::forbids() {
                return <$ret as $crate::driver::real::Missing>::MISSING;
            }
            match SLOT.get() {
                // SAFETY: the caller keeps the C function's contract.
                Some(real) => unsafe { real($($arg),*) },
                None => <$ret as $crate::driver::real::Missing>::MISSING,
            }
        }
    )*
        /// The functions that this file calls.
        pub(super) const CALLED: &[$crate::driver::real::Row] = &[$($crate::driver::real::Row::of($crate::driver::real::c_name(concat!(stringify!($name), "\0")))),*];
    };
}
pub(super) use driver;

driver! {
    fn cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
    fn cuArrayDestroy(array: CUarray) -> CUresult;
    fn cuCtxDestroy_v2(context: CUcontext) -> CUresult;
    fn cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx) -> CUresult;
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult;
    fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult;
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> CUresult;
    fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) -> CUresult;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult;
    fn cuDeviceGetCount(count: *mut i32) -> CUresult;
    fn cuDeviceGetExecAffinitySupport(supported: *mut i32, kind: CUexecAffinityType, device: CUdevice) -> CUresult;
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) -> CUresult;
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut u32, active: *mut i32) -> CUresult;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
    fn cuDriverGetVersion(version: *mut i32) -> CUresult;
    fn cuEventCreate(event: *mut CUevent, flags: u32) -> CUresult;
    fn cuEventDestroy_v2(event: CUevent) -> CUresult;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> CUresult;
    fn cuEventQuery(event: CUevent) -> CUresult;
    fn cuEventSynchronize(event: CUevent) -> CUresult;
    fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult;
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) -> CUresult;
    fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult;
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult;
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) -> CUresult;
    fn cuGreenCtxDestroy(green: CUgreenCtx) -> CUresult;
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
    fn cuPointerGetAttributes(count: u32, list: *mut CUpointer_attribute, data: *mut *mut c_void, at: CUdeviceptr) -> CUresult;
    fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    fn cuStreamCreate(stream: *mut CUstream, flags: u32) -> CUresult;
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> CUresult;
    fn cuStreamGetId(stream: CUstream, id: *mut u64) -> CUresult;
    fn cuStreamGetId_ptsz(stream: CUstream, id: *mut u64) -> CUresult;
    fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> CUresult;
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    fn cuStreamQuery(stream: CUstream) -> CUresult;
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> CUresult;
}

/// Whether the driver was initialised, by whomever. Asks a question that has no effect.
pub(crate) fn is_initialised() -> bool {
    device_count().is_ok()
}

/// Declares queries that the driver answers by writing to one place: a local of the function, of
/// the type that the C function writes, with its initial value.
macro_rules! asks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $init:expr, |$at:ident| $call:expr;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $ty),*) -> Asked<$out> {
            let mut value: $out = $init;
            let $at = &raw mut value;
            // SAFETY: the one pointer is to a local that outlives the call; the handles name
            // objects that live (see the module's page).
            unsafe { $call }.ok()?;
            Ok(value)
        }
    )*};
}

/// Declares calls that are given numbers and handles only. The comment of each says why its objects
/// live.
macro_rules! has {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $call:expr;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $ty),*) -> $out {
            // SAFETY: no pointer; the handles name objects that live (see the module's page).
            Outcome::of(unsafe { $call })
        }
    )*};
}

// Contexts.

asks! {
    /// The calling thread's current context, null for none.
    fn current_context() -> CUcontext = CUcontext::NULL, |at| cuCtxGetCurrent(at);

    /// The device of the current context.
    fn current_device() -> CUdevice = 0, |at| cuCtxGetDevice(at);

    /// Makes the context below the current one current again; returns the popped one.
    fn pop_context() -> CUcontext = CUcontext::NULL, |at| cuCtxPopCurrent_v2(at);

    /// A green context's handle as a context.
    fn context_of_green(green: CUgreenCtx) -> CUcontext = CUcontext::NULL, |at| cuCtxFromGreenCtx(at, green);

    /// Retains a device's primary context.
    fn retain_primary(device: CUdevice) -> CUcontext = CUcontext::NULL, |at| cuDevicePrimaryCtxRetain(at, device);
}

has! {
    /// Makes a context that lives the current one, above the one before.
    // no pointer; the driver refuses a handle that is no context.
    fn push_context(context: CUcontext) -> Asked<()> = cuCtxPushCurrent_v2(context);

    /// Gives back what [`retain_primary`] retained.
    // a number, no pointer; balances a retain of ours.
    fn release_primary(device: CUdevice) -> Asked<()> = cuDevicePrimaryCtxRelease_v2(device);

    /// Destroys a context that the program has not seen.
    // no pointer; the driver has just made it, and no other code knows it.
    fn destroy_context(context: CUcontext) -> Asked<()> = cuCtxDestroy_v2(context);

    /// Destroys a green context that the program has not seen.
    // no pointer; the driver has just made it, and no other code knows it.
    fn destroy_green(green: CUgreenCtx) -> Asked<()> = cuGreenCtxDestroy(green);
}

/// Whether a device's primary context is there.
#[inline]
pub(crate) fn primary_is_active(device: CUdevice) -> Asked<bool> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: writes to two locals that outlive the call.
    unsafe { cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) }.ok()?;
    Ok(active != 0)
}

// Devices.

asks! {
    /// The driver's version, 1000 * major + 10 * minor. Before `cuInit` too.
    fn driver_version() -> i32 = 0, |at| cuDriverGetVersion(at);

    /// How many devices the driver shows.
    fn device_count() -> i32 = 0, |at| cuDeviceGetCount(at);

    /// The device of an ordinal.
    fn device(ordinal: i32) -> CUdevice = CUdevice::default(), |at| cuDeviceGet(at, ordinal);

    /// An attribute of a device.
    fn device_attribute(attribute: CUdevice_attribute, device: CUdevice) -> i32 = 0, |at| cuDeviceGetAttribute(at, attribute, device);

    /// Whether a device's contexts may have an execution affinity of a kind.
    fn has_affinity(kind: CUexecAffinityType, device: CUdevice) -> i32 = 0, |at| cuDeviceGetExecAffinitySupport(at, kind, device);

    /// A device's memory in bytes.
    fn total_memory(device: CUdevice) -> usize = 0, |at| cuDeviceTotalMem_v2(at, device);

    /// A device's UUID; of a MIG instance that of the card it is part of.
    fn card_uuid(device: CUdevice) -> CUuuid = CUuuid { bytes: [0; 16] }, |at| cuDeviceGetUuid(at, device);

    /// A device's UUID; of a MIG instance its own.
    fn device_uuid(device: CUdevice) -> CUuuid = CUuuid { bytes: [0; 16] }, |at| cuDeviceGetUuid_v2(at, device);

    /// The pool that stream-ordered allocations on a device come from now.
    fn device_pool(device: CUdevice) -> CUmemoryPool = CUmemoryPool::NULL, |at| cuDeviceGetMemPool(at, device);

    /// An attribute of the graphs' memory on a device, in bytes.
    fn graph_memory(device: CUdevice, attribute: CUgraphMem_attribute) -> u64 = 0_u64, |at| cuDeviceGetGraphMemAttribute(device, attribute, at.cast());
}

has! {
    /// Gives back what of the graphs' memory no graph uses.
    // a number, no pointer; what is in use stays.
    fn trim_graph_memory(device: CUdevice) -> Asked<()> = cuDeviceGraphMemTrim(device);
}

// Events.

asks! {
    /// Makes an event in the current context.
    fn create_event(flags: CUevent_flags) -> CUevent = CUevent::NULL, |at| cuEventCreate(at, flags.0);
}

has! {
    /// Gives back an event of ours, which is not used after this.
    // no pointer; an event of ours, which its owner gives up by this call.
    fn destroy_event(event: CUevent) -> Asked<()> = cuEventDestroy_v2(event);

    /// `SUCCESS` once an event is passed, `NOT_READY` before.
    // no pointer; an event of ours, kept until it is destroyed here.
    fn event_status(event: CUevent) -> CUresult = cuEventQuery(event);

    /// Waits for an event that is passed, which takes no time: the driver's pools learn of frees
    /// before it by a wait, not by a query.
    // no pointer; an event of ours, kept until it is destroyed here.
    fn await_passed_event(event: CUevent) -> CUresult = cuEventSynchronize(event);
}

asks! {
    /// Milliseconds between two passed events.
    fn elapsed(start: CUevent, end: CUevent) -> f32 = 0.0_f32, |at| cuEventElapsedTime(at, start, end);
}

/// Records an event in a stream; `per_thread`: stream 0 is the thread's own.
#[inline]
pub(crate) fn record_event(event: CUevent, stream: CUstream, per_thread: bool) -> CUresult {
    // SAFETY: no pointers; a stream that lives, and an event of ours of the same context, or the
    // driver refuses.
    unsafe {
        if per_thread {
            cuEventRecord_ptsz(event, stream)
        } else {
            cuEventRecord(event, stream)
        }
    }
}

has! {
    /// Records an event behind everything in a context.
    // no pointers; a context that is kept from being destroyed, and an event of ours of it.
    fn record_in_context(context: CUcontext, event: CUevent) -> CUresult = cuCtxRecordEvent(context, event);

    /// Records an event behind everything in a green context.
    // no pointers; a green context that is kept, and an event of its primary context.
    fn record_in_green(green: CUgreenCtx, event: CUevent) -> CUresult = cuGreenCtxRecordEvent(green, event);
}

// Streams.

asks! {
    /// Makes a stream in the current context.
    fn create_stream(flags: CUstream_flags) -> CUstream = CUstream::NULL, |at| cuStreamCreate(at, flags.0);

    /// The context of a stream.
    fn stream_context(stream: CUstream) -> CUcontext = CUcontext::NULL, |at| cuStreamGetCtx(stream, at);

    /// The green context that a stream is of, null for none.
    fn stream_green(stream: CUstream) -> CUgreenCtx = CUgreenCtx::NULL, |at| cuStreamGetGreenCtx(stream, at);
}

/// The driver's number of a stream.
#[inline]
pub(crate) fn stream_number(stream: CUstream, per_thread: bool) -> Asked<u64> {
    let mut number = 0;
    // SAFETY: the program's stream; writes to a local that outlives the call.
    unsafe {
        if per_thread {
            cuStreamGetId_ptsz(stream, &raw mut number)
        } else {
            cuStreamGetId(stream, &raw mut number)
        }
    }
    .ok()?;
    Ok(number)
}

/// Whether a stream captures.
#[inline]
pub(crate) fn capture_status(stream: CUstream, per_thread: bool) -> Asked<CUstreamCaptureStatus> {
    let mut status = CUstreamCaptureStatus::NONE;
    // SAFETY: the program's stream; writes to a local that outlives the call.
    unsafe {
        if per_thread {
            cuStreamIsCapturing_ptsz(stream, &raw mut status)
        } else {
            cuStreamIsCapturing(stream, &raw mut status)
        }
    }
    .ok()?;
    Ok(status)
}

has! {
    /// Destroys a stream of ours.
    // no pointer; a stream of ours, which its owner gives up by this call.
    fn destroy_stream(stream: CUstream) -> Asked<()> = cuStreamDestroy_v2(stream);

    /// `SUCCESS` while a stream has nothing under way, `NOT_READY` otherwise.
    // no pointer; a stream that is kept from being destroyed.
    fn stream_status(stream: CUstream) -> CUresult = cuStreamQuery(stream);
}

/// Makes `mode` the calling thread's capture mode; returns the one before. A driver without
/// captures knows no modes.
#[inline]
pub(crate) fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    let mut mode = mode;
    // SAFETY: exchanges a value of this thread's for that of a local, which outlives the call.
    let _ = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    mode
}

// Memory.

/// Free and total memory of the current context's device, in bytes.
#[inline]
pub(crate) fn memory_info() -> Asked<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes to two locals that outlive the call.
    unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) }.ok()?;
    Ok((free, total))
}

/// The device on which memory lies as the driver knows it, whatever function has made it. `None`:
/// it is the host's, managed, or unknown. Asks for all attributes at once: the question for one is
/// an error where the host's memory is not pinned, which the program's tools would show as its own.
pub(crate) fn device_at(address: CUdeviceptr) -> Option<CUdevice> {
    use CUpointer_attribute as Of;
    let mut list = [Of::MEMORY_TYPE, Of::IS_MANAGED, Of::DEVICE_ORDINAL];
    let mut values = [0_u32; 3];
    let mut places = values.each_mut().map(|at| (&raw mut *at).cast::<c_void>());
    let (list, places) = (list.as_mut_ptr(), places.as_mut_ptr());
    // SAFETY: reads two local lists of three and writes to three locals, each of the attribute's
    // size. All of them outlive the call.
    let answer = unsafe { cuPointerGetAttributes(3, list, places, address) };
    let [kind, is_managed, ordinal] = values;
    let is_found = answer.is_success() && kind == CUmemorytype::DEVICE.0 && is_managed == 0;
    is_found.then(|| ordinal.try_into().ok()).flatten()
}

asks! {
    /// Allocates in the current context.
    fn allocate(bytes: usize) -> CUdeviceptr = CUdeviceptr::default(), |at| cuMemAlloc_v2(at, bytes);
}

/// Allocates rows in the current context: the address and the distance between rows.
#[inline]
pub(crate) fn allocate_pitch(
    width: usize,
    height: usize,
    element: u32,
) -> Asked<(CUdeviceptr, usize)> {
    let (mut at, mut pitch) = (CUdeviceptr::default(), 0);
    // SAFETY: writes to two locals that outlive the call.
    unsafe { cuMemAllocPitch_v2(&raw mut at, &raw mut pitch, width, height, element) }.ok()?;
    Ok((at, pitch))
}

has! {
    /// Frees memory that the program has not seen.
    // a number of the device, no pointer of the host; no other code knows it.
    fn free(address: CUdeviceptr) -> CUresult = cuMemFree_v2(address);
}

/// Frees, in a stream's order, memory that the program has not seen.
#[inline]
pub(crate) fn free_in_stream(address: CUdeviceptr, stream: CUstream, per_thread: bool) -> CUresult {
    // SAFETY: a number of the device that no other code knows, and the program's stream.
    unsafe {
        if per_thread {
            cuMemFreeAsync_ptsz(address, stream)
        } else {
            cuMemFreeAsync(address, stream)
        }
    }
}

has! {
    /// Releases a physical allocation that the program has not seen.
    // a number; the driver has just made it, and no other code knows it.
    fn release_physical(handle: CUmemGenericAllocationHandle) -> CUresult = cuMemRelease(handle);
}

asks! {
    /// An attribute of a pool, 32 or 64 bits wide.
    fn pool_attribute(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 = 0_u64, |at| cuMemPoolGetAttribute(pool, attribute, at.cast());
}

has! {
    /// Makes a pool give back its unused memory, except `keep` bytes.
    // no pointer; a pool that lives.
    fn trim_pool(pool: CUmemoryPool, keep: usize) -> Asked<()> = cuMemPoolTrimTo(pool, keep);
}

// Arrays.

asks! {
    /// Makes an array.
    fn create_array(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CUarray = CUarray::NULL, |at| cuArray3DCreate_v2(at, descriptor);
}

has! {
    /// Destroys an array that the program has not seen.
    // no pointer; the driver has just made it, and no other code knows it.
    fn destroy_array(array: CUarray) -> CUresult = cuArrayDestroy(array);
}

// Graphs.

has! {
    /// Destroys an executable graph that the program has not seen.
    // no pointer; the driver has just made it, and no other code knows it.
    fn destroy_exec(exec: CUgraphExec) -> CUresult = cuGraphExecDestroy(exec);
}

/// The nodes of a graph.
#[inline]
pub(crate) fn graph_nodes(graph: CUgraph) -> Asked<Vec<CUgraphNode>> {
    let mut count = 0;
    // SAFETY: the program's graph; a null list asks for the count, which is a local.
    unsafe { cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) }.ok()?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: the program's graph; the list has room for `count` nodes.
        unsafe { cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }.ok()?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

asks! {
    /// The kind of a graph node.
    fn node_kind(node: CUgraphNode) -> CUgraphNodeType = CUgraphNodeType::EMPTY, |at| cuGraphNodeGetType(node, at);
    /// The graph in a child graph node.
    fn child_graph(node: CUgraphNode) -> CUgraph = CUgraph::NULL, |at| cuGraphChildGraphNodeGetGraph(node, at);
}

/// The parameters of an allocation node.
#[inline]
pub(crate) fn allocation_node(node: CUgraphNode) -> Asked<CUDA_MEM_ALLOC_NODE_PARAMS> {
    let mut params = core::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::zeroed();
    // SAFETY: a node of a graph that lives; writes to a local that outlives the call.
    unsafe { cuGraphMemAllocNodeGetParams(node, params.as_mut_ptr()) }.ok()?;
    // SAFETY: zeros are a valid value of this C structure, and the driver has written it.
    Ok(unsafe { params.assume_init() })
}
