//! Batches of copies, stream memory operations and prefetches, graph nodes and textures over device
//! memory: they pass the gate, and a seal holds them.
//!
//! What follows a wait for a value in its stream is no measurement of its kind, as behind a host
//! function: the value may be written by a launch that the gate keeps.
//!
//! A stream memory operation is held only once all submitted work is complete, because that work
//! may wait for it. A graph's node or a texture keeps an address, which the driver looks up when it
//! is told of it: while the memory is away it would find none.

use core::ffi::{c_uint, c_ulonglong};

use gpushare_cuda_abi::cuda::*;

use super::moves::BULK;
use super::plain;
use crate::driver::stream_ref::StreamRef;
use crate::entry::hooks;
use crate::entry::lists::{Count, InSlice};
use crate::gate::{apart, seal};

hooks! {
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: InSlice<'_, usize>,
        count: Count<usize>, attributes: *mut CUmemcpyAttributes, starts: *mut usize, kinds: usize, failed: *mut usize,
        stream: CUstream) -> CUresult = |call, of| copying((sizes, count), of(stream), call);
    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: InSlice<'_, usize>,
        count: Count<usize>, attributes: *mut CUmemcpyAttributes, starts: *mut usize, kinds: usize, stream: CUstream) -> CUresult
        = |call, of| copying((sizes, count), of(stream), call);
    #[held]
    fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz(count: usize, list: *mut CUDA_MEMCPY3D_BATCH_OP, failed: *mut usize,
        flags: c_ulonglong, stream: CUstream) -> CUresult = |call| seal::pass_work(call);
    #[held]
    fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz(count: usize, list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong,
        stream: CUstream) -> CUresult = |call| seal::pass_work(call);
    #[held]
    fn cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz(copy: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong,
        stream: CUstream) -> CUresult = |call| seal::pass_work(call);
    #[held]
    fn cuFabricCpyBatchAsync | cuFabricCpyBatchAsync_ptsz(count: usize, list: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: c_ulonglong,
        stream: CUstream) -> CUresult = |call| seal::pass_work(call);
    #[held]
    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz(at: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream) -> CUresult
        = |real(..)| plain::no_managed(at, count as u64, |at| seal::pass_work(|| real(at, count, device, stream)));
    #[held]
    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz(at: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint,
        stream: CUstream) -> CUresult
        = |real(..)| plain::no_managed(at, count as u64, |at| seal::pass_work(|| real(at, count, location, flags, stream)));
    #[held]
    fn cuMemPrefetchBatchAsync | cuMemPrefetchBatchAsync_ptsz(at: InSlice<'_, CUdeviceptr>, sizes: InSlice<'_, usize>, count: Count<usize>,
        locations: InSlice<'_, CUmemLocation>, starts: InSlice<'_, usize>, kinds: usize, flags: c_ulonglong, stream: CUstream) -> CUresult
        = |real(..)| plain::none_managed((at, sizes, count), |at|
            seal::pass_work(|| real(at, sizes, count, locations, starts, kinds, flags, stream)));
    #[held]
    fn cuMemDiscardBatchAsync | cuMemDiscardBatchAsync_ptsz(at: InSlice<'_, CUdeviceptr>, sizes: InSlice<'_, usize>, count: Count<usize>,
        flags: c_ulonglong, stream: CUstream) -> CUresult
        = |real(..)| plain::none_managed((at, sizes, count), |at| seal::pass_work(|| real(at, sizes, count, flags, stream)));
    #[held]
    fn cuMemDiscardAndPrefetchBatchAsync | cuMemDiscardAndPrefetchBatchAsync_ptsz(at: InSlice<'_, CUdeviceptr>, sizes: InSlice<'_, usize>,
        count: Count<usize>, locations: InSlice<'_, CUmemLocation>, starts: InSlice<'_, usize>, kinds: usize, flags: c_ulonglong,
        stream: CUstream) -> CUresult
        = |real(..)| plain::none_managed((at, sizes, count), |at|
            seal::pass_work(|| real(at, sizes, count, locations, starts, kinds, flags, stream)));
    #[held]
    fn cuMemAdvise(at: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> CUresult
        = |real(..)| plain::no_managed(at, count as u64, |at| seal::pass(|| real(at, count, advice, device)));
    #[held]
    fn cuMemAdvise_v2(at: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) -> CUresult
        = |real(..)| plain::no_managed(at, count as u64, |at| seal::pass(|| real(at, count, advice, location)));
    fn cuStreamWaitValue32 | cuStreamWaitValue32_ptsz | cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz(stream: CUstream,
        at: CUdeviceptr, value: u32, flags: c_uint) -> CUresult = |call, of| waiting_for_a_value(of(stream), call);
    fn cuStreamWaitValue64 | cuStreamWaitValue64_ptsz | cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz(stream: CUstream,
        at: CUdeviceptr, value: u64, flags: c_uint) -> CUresult = |call, of| waiting_for_a_value(of(stream), call);
    #[held]
    fn cuStreamWriteValue32 | cuStreamWriteValue32_ptsz | cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz(stream: CUstream,
        at: CUdeviceptr, value: u32, flags: c_uint) -> CUresult = |call| seal::pass_until_drained(call);
    #[held]
    fn cuStreamWriteValue64 | cuStreamWriteValue64_ptsz | cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz(stream: CUstream,
        at: CUdeviceptr, value: u64, flags: c_uint) -> CUresult = |call| seal::pass_until_drained(call);
    // Some of them may wait.
    fn cuStreamBatchMemOp | cuStreamBatchMemOp_ptsz | cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint,
        list: *mut CUstreamBatchMemOpParams, flags: c_uint) -> CUresult = |call, of| waiting_for_a_value(of(stream), call);
    #[held]
    fn cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        copy: *const CUDA_MEMCPY3D_v2, context: CUcontext) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const CUDA_MEMCPY3D_v2) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, copy: *const CUDA_MEMCPY3D_v2, context: CUcontext)
        -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        memset: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, memset: *const CUDA_MEMSET_NODE_PARAMS_v1) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, memset: *const CUDA_MEMSET_NODE_PARAMS_v1,
        context: CUcontext) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        list: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, list: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, list: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1)
        -> CUresult = |call| seal::pass(call);
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CUresult = |call| changing(exec, call);
    #[held]
    fn cuTexObjectCreate(texture: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, sampling: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC) -> CUresult = |call| seal::pass(call);
    #[held]
    fn cuTexRefSetAddress(offset: *mut c_uint, texture: CUtexref, at: CUdeviceptr_v1, bytes: c_uint) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuTexRefSetAddress_v2(offset: *mut usize, texture: CUtexref, at: CUdeviceptr, bytes: usize) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuTexRefSetAddress2D(texture: CUtexref, shape: *const CUDA_ARRAY_DESCRIPTOR_v1, at: CUdeviceptr_v1, pitch: c_uint) -> CUresult
        = |call| seal::pass(call);
    #[held]
    fn cuTexRefSetAddress2D_v2 | cuTexRefSetAddress2D_v3(texture: CUtexref, shape: *const CUDA_ARRAY_DESCRIPTOR_v2, at: CUdeviceptr,
        pitch: usize) -> CUresult = |call| seal::pass(call);
}

/// Copies a batch by `call`. Where its ends lie is not looked up: a large one is taken for one from
/// or to the host, so that the kernels before it are seen to complete and its time is not taken for
/// that of the kernel behind it.
fn copying(
    (sizes, count): (InSlice<'_, usize>, Count<usize>),
    stream: StreamRef,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = sizes.entries(count).fold(0, usize::saturating_add);
    if bytes >= BULK {
        apart::comes(stream, true);
    }
    seal::pass_work(call)
}

/// Changes an executable graph by `call`: it may take another time then.
pub(super) fn changing(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    let answer = seal::pass(call);
    if answer.is_success() {
        apart::graph_changed(exec);
    }
    answer
}

/// Makes a stream wait, by `call`, for a value that another stream, device or the host writes.
fn waiting_for_a_value(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    apart::waits_for_a_value(stream);
    seal::pass_until_drained(call)
}
