//! The driver as a C program sees it, and a separate process for each test.
//!
//! A test's body runs in a separate process ([`alone`]), so that seeds, faults and late effects do
//! not reach other tests.
#![allow(unsafe_code, reason = "the driver is a C library")]
#![allow(
    clippy::exit,
    clippy::print_stdout,
    reason = "a test's own process prints its result and exits"
)]
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

pub(crate) mod graphs;

use std::ffi::{CString, c_char, c_void};
use std::panic::Location;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

use gpushare_cuda_abi::cuda::*;
use softgpu_cuda as _;

macro_rules! driver {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The exported functions, as declared in `cuda.h`.
        mod c {
            use super::*;
            unsafe extern "C" { $(pub(super) fn $name($($arg: $ty),*) -> CUresult;)* }
        }
        $(
            /// The driver function of this name.
            #[allow(non_snake_case, reason = "the driver's name")]
            pub(crate) fn $name($($arg: $ty),*) -> CUresult {
                // SAFETY: the tests pass arguments as documented, or NULL and stale handles, for
                // which the driver returns an error.
                unsafe { c::$name($($arg),*) }
            }
        )*
    };
}

driver! {
    fn cuInit(flags: u32);
    fn cuDriverGetVersion(version: *mut i32);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: CUdevice);
    fn cuCtxDestroy_v2(context: CUcontext);
    fn cuCtxAttach(context: *mut CUcontext, flags: u32);
    fn cuCtxDetach(context: CUcontext);
    fn cuCtxSynchronize();
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit);
    fn cuCtxSetLimit(limit: CUlimit, value: usize);
    fn cuCtxEnablePeerAccess(context: CUcontext, flags: u32);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: u32);
    fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream);
    fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice);
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32);
    fn cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: u32);
    fn cuMemHostUnregister(at: *mut c_void);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream);
    fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER_v1, stream: CUstream);
    fn cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, near: CUdeviceptr, flags: u64);
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64);
    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, list: *const CUmemAccessDesc, count: usize);
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize);
    fn cuMemRelease(handle: CUmemGenericAllocationHandle);
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: *const CUmemAccessDesc, count: usize);
    fn cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize);
    fn cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
    fn cuDeviceGraphMemTrim(device: CUdevice);
    fn cuStreamCreate(stream: *mut CUstream, flags: u32);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
    fn cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: u32);
    fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32);
    fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    fn cuEventCreate(event: *mut CUevent, flags: u32);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32);
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent);
    fn cuCtxWaitEvent(context: CUcontext, event: CUevent);
    fn cuGraphKernelNodeGetAttribute(node: CUgraphNode, id: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
    fn cuGraphKernelNodeSetAttribute(node: CUgraphNode, id: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
    fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, at: CUdeviceptr);
    fn cuIpcOpenMemHandle_v2(at: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32);
    fn cuIpcCloseMemHandle(at: CUdeviceptr);
    fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
    fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    fn cuLibraryLoadData(library: *mut CUlibrary, image: *const c_void, jit: *mut CUjit_option, jit_values: *mut *mut c_void, jit_count: u32, options: *mut CUlibraryOption, values: *mut *mut c_void, count: u32);
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    fn cuLibraryUnload(library: CUlibrary);
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32);
    fn cuFuncSetBlockShape(function: CUfunction, x: i32, y: i32, z: i32);
    fn cuParamSetSize(function: CUfunction, bytes: u32);
    fn cuParamSetv(function: CUfunction, offset: i32, from: *mut c_void, bytes: u32);
    fn cuLaunchGrid(function: CUfunction, width: i32, height: i32);
    fn cuLaunchKernel(function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchCooperativeKernel(function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void);
    fn cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    fn cuGraphCreate(graph: *mut CUgraph, flags: u32);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph);
    fn cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph);
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
    fn cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
    fn cuGraphDestroyNode(node: CUgraphNode);
    fn cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
    fn cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2);
    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2);
    fn cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext);
    fn cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1);
    fn cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph);
    fn cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1);
    fn cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, address: CUdeviceptr);
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    fn cuGraphExecDestroy(exec: CUgraphExec);
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo_v1);
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32);
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    fn cuUserObjectCreate(object: *mut CUuserObject, argument: *mut c_void, destroy: CUhostFn, count: u32, flags: u32);
    fn cuUserObjectRetain(object: CUuserObject, count: u32);
    fn cuUserObjectRelease(object: CUuserObject, count: u32);
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32);
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32);
    fn cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, kind: CUdevResourceType);
    fn cuDevResourceGenerateDesc(desc: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: u32);
    fn cuGreenCtxCreate(green: *mut CUgreenCtx, desc: CUdevResourceDesc, device: CUdevice, flags: u32);
    fn cuGreenCtxDestroy(green: CUgreenCtx);
    fn cuGreenCtxStreamCreate(stream: *mut CUstream, green: CUgreenCtx, flags: u32, priority: i32);
    fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent);
    fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent);
    fn cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx);
    fn cuCtxPushCurrent_v2(context: CUcontext);
    fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
    fn cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, count: *mut usize);
    fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
    fn cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, data: *mut *const CUgraphEdgeData, count: *mut usize);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
}

/// Success.
pub(crate) const OK: CUresult = CUresult::SUCCESS;

/// The test that this process runs; not set in the process that cargo started.
const CHILD: &str = "SOFTGPU_TEST";

/// Runs `body` in a separate process on a machine described by `spec`; returns the text printed
/// with [`tell`]. `name` is the test's name in the calling file.
#[track_caller]
pub(crate) fn alone(name: &str, spec: &str, body: impl FnOnce()) -> String {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        body();
        std::process::exit(0);
    }
    let output = process(name, spec).output().unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{name} on {spec}: {}\n{out}\n{errors}",
        output.status
    );
    out.lines()
        .filter_map(|line| line.split("TOLD ").nth(1))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The separate process of the test `name` in the calling file.
#[track_caller]
pub(crate) fn process(name: &str, spec: &str) -> Command {
    let file = Path::new(Location::caller().file());
    let test = format!("{}::{name}", file.file_stem().unwrap().display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    command
        .env("SOFTGPU", spec)
        .env(CHILD, name)
        .env_remove("CUDA_MODULE_LOADING");
    command
}

/// Prints a value for the process that started this one.
pub(crate) fn tell(what: impl std::fmt::Display) {
    println!("\nTOLD {what}");
}

/// The value of an out-parameter.
pub(crate) fn get<T: Copy>(none: T, call: impl FnOnce(*mut T) -> CUresult) -> T {
    let mut value = none;
    assert_eq!(call(&raw mut value), OK);
    value
}

/// The result of a call whose out-parameter is ignored.
pub(crate) fn answer<T>(none: T, call: impl FnOnce(*mut T) -> CUresult) -> CUresult {
    let mut value = none;
    call(&raw mut value)
}

/// The device's primary context, made current.
pub(crate) fn start() {
    assert_eq!(cuInit(0), OK);
    let context = get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, 0));
    assert_eq!(cuCtxSetCurrent(context), OK);
}

pub(crate) fn memory(bytes: usize) -> CUdeviceptr {
    get(0, |out| cuMemAlloc_v2(out, bytes))
}

/// Host memory that the device accesses at the same address.
pub(crate) fn pinned(words: usize) -> *mut u32 {
    let at: *mut c_void = get(null_mut(), |out| cuMemHostAlloc(out, words * 4, 0));
    at.expose_provenance();
    at.cast()
}

/// Reads host memory.
pub(crate) fn look(at: *const u32) -> u32 {
    // SAFETY: the tests read live pinned memory.
    unsafe { at.read_volatile() }
}

pub(crate) fn read(at: CUdeviceptr, words: usize) -> Vec<u32> {
    let mut values = vec![0_u32; words];
    assert_eq!(
        cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), at, words * 4),
        OK
    );
    values
}

pub(crate) fn write<T>(at: CUdeviceptr, values: &[T]) {
    assert_eq!(
        cuMemcpyHtoD_v2(at, values.as_ptr().cast(), size_of_val(values)),
        OK
    );
}

pub(crate) fn stream(flags: u32) -> CUstream {
    get(CUstream::NULL, |out| cuStreamCreate(out, flags))
}

/// A non-blocking stream, which does not synchronise with the legacy default stream.
pub(crate) fn free_stream() -> CUstream {
    stream(CUstream_flags::NON_BLOCKING.0)
}

pub(crate) fn event() -> CUevent {
    get(CUevent::NULL, |out| cuEventCreate(out, 0))
}

pub(crate) fn module() -> CUmodule {
    get(CUmodule::NULL, |out| {
        cuModuleLoadData(out, c"image".as_ptr().cast())
    })
}

pub(crate) fn function(name: &str) -> CUfunction {
    let name = CString::new(name).unwrap();
    get(CUfunction::NULL, |out| {
        cuModuleGetFunction(out, module(), name.as_ptr())
    })
}

/// Launches one block of 32 threads.
pub(crate) fn launch(
    function: CUfunction,
    stream: CUstream,
    values: &mut [*mut c_void],
) -> CUresult {
    cuLaunchKernel(
        function,
        1,
        1,
        1,
        32,
        1,
        1,
        0,
        stream,
        values.as_mut_ptr(),
        null_mut(),
    )
}

/// Occupies the device with a kernel of `ns`.
pub(crate) fn spin(stream: CUstream, ns: u64) {
    let mut ns = ns;
    assert_eq!(
        launch(function("spin"), stream, &mut [(&raw mut ns).cast()]),
        OK
    );
}

/// Occupies the device until the gate is opened. `stream` has nothing before it.
pub(crate) fn occupy(stream: CUstream) -> Gate {
    let words = pinned(2);
    let own = words.wrapping_add(1);
    let (mut ns, mut own, mut peer) = (0_u64, own.addr() as u64, words.addr() as u64);
    let mut value = 1_u32;
    let values = &mut [
        (&raw mut ns).cast(),
        (&raw mut own).cast(),
        (&raw mut peer).cast(),
        (&raw mut value).cast(),
    ];
    assert_eq!(launch(function("meet"), stream, values), OK);
    Gate(words)
}

/// Writes `value` to `words` words.
pub(crate) fn fill(stream: CUstream, at: CUdeviceptr, words: u64, value: u32) -> CUresult {
    let (mut at, mut words, mut value) = (at, words, value);
    launch(
        function("fill"),
        stream,
        &mut [
            (&raw mut at).cast(),
            (&raw mut words).cast(),
            (&raw mut value).cast(),
        ],
    )
}

/// Writes host memory.
pub(crate) fn put(at: *mut u32, value: u32) {
    // SAFETY: the tests write live pinned memory.
    unsafe { at.write_volatile(value) }
}

/// The first node that a capture query returned.
pub(crate) fn first_of(nodes: *const CUgraphNode) -> CUgraphNode {
    // SAFETY: the driver returned this address with a count of at least one, and no call followed.
    unsafe { nodes.read() }
}

/// A blocked stream, or a kernel that waits on the device. [`open`](Self::open) unblocks it.
pub(crate) struct Gate(*mut u32);

impl Gate {
    /// Blocks `stream` at this point.
    pub(crate) fn close(stream: CUstream) -> Self {
        let word = pinned(1);
        assert_eq!(cuStreamWaitValue32_v2(stream, word.addr() as u64, 1, 0), OK);
        Self(word)
    }

    /// Unblocks it.
    pub(crate) fn open(self) {
        put(self.0, 1);
    }
}
