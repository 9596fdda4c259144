//! Graph memory: a fixed address, and physical memory from launch to free.

use std::ptr::null;

use crate::driver::graphs::*;
use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const AUTO_FREE: u64 = CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0 as u64;

/// An allocation of `bytes` on the first device: the node and the address.
pub(crate) fn alloc_node(graph: CUgraph, bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    // SAFETY: plain data, for which all zeroes is a value.
    #[expect(unsafe_code, reason = "a C struct with reserved fields")]
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = unsafe { std::mem::zeroed() };
    params.poolProps.allocType = CUmemAllocationType::PINNED;
    params.poolProps.location.type_ = CUmemLocationType::DEVICE;
    params.bytesize = bytes;
    let node = get(CUgraphNode::NULL, |out| {
        cuGraphAddMemAllocNode(out, graph, null(), 0, &raw mut params)
    });
    (node, params.dptr)
}

pub(crate) fn free_node(graph: CUgraph, after: CUgraphNode, at: CUdeviceptr) -> CUgraphNode {
    get(CUgraphNode::NULL, |out| {
        cuGraphAddMemFreeNode(out, graph, &raw const after, 1, at)
    })
}

pub(crate) fn reserved() -> u64 {
    let mut bytes = 0_u64;
    let attribute = CUgraphMem_attribute::RESERVED_MEM_CURRENT;
    assert_eq!(
        cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut bytes).cast()),
        OK
    );
    bytes
}

#[test]
fn memory_freed_by_its_graph_stays_reserved_until_trimmed() {
    let name = "memory_freed_by_its_graph_stays_reserved_until_trimmed";
    alone(name, "", || {
        start();
        let (stream, graph) = (free_stream(), graph());
        let (alloc, at) = alloc_node(graph, 5 << 20);
        let used = fill_node(graph, &[alloc], at, 1024, 7);
        free_node(graph, used, at);
        let mut again = CUgraphNode::NULL;
        assert_eq!(
            cuGraphAddMemFreeNode(&raw mut again, graph, &raw const used, 1, at),
            CUresult::INVALID_VALUE
        );
        assert_eq!(
            answer(CUgraph::NULL, |out| cuGraphClone(out, graph)),
            CUresult::NOT_SUPPORTED
        );
        assert_eq!(cuGraphDestroyNode(used), OK);
        assert_eq!(cuGraphDestroyNode(alloc), CUresult::NOT_SUPPORTED);
        assert_eq!(reserved(), 0);
        let exec = instance(graph, 0);
        assert_eq!(
            answer(CUgraphExec::NULL, |out| cuGraphInstantiateWithFlags(
                out, graph, 0
            )),
            CUresult::INVALID_VALUE
        );
        assert_eq!(reserved(), 0);
        for _ in 0..5 {
            assert_eq!(cuGraphLaunch(exec, stream), OK);
        }
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(reserved(), 32 << 20);
        assert_eq!(cuDeviceGraphMemTrim(0), OK);
        assert_eq!(reserved(), 0);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(reserved(), 32 << 20);
    });
}

/// As an H200 had it: eight graphs of 8 MiB each under 256 MiB.
#[test]
fn graphs_whose_memory_is_live_share_no_step() {
    alone("graphs_whose_memory_is_live_share_no_step", "", || {
        start();
        let stream = free_stream();
        let launched = |sizes: &[usize]| {
            let graph = graph();
            let nodes = sizes.iter().map(|bytes| alloc_node(graph, *bytes).1);
            let addresses: Vec<CUdeviceptr> = nodes.collect();
            assert_eq!(cuGraphLaunch(instance(graph, 0), stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            addresses
        };
        let first = launched(&[8 << 20]);
        assert_eq!(reserved(), 32 << 20);
        // Nodes of one graph do.
        let second = launched(&[8 << 20, 8 << 20]);
        assert_eq!(reserved(), 64 << 20);
        // Once a graph's memory is free, another graph has it.
        assert_eq!(cuMemFree_v2(first[0]), OK);
        let third = launched(&[8 << 20]);
        assert_eq!(reserved(), 64 << 20);
        for at in second.into_iter().chain(third) {
            assert_eq!(cuMemFree_v2(at), OK);
        }
        assert_eq!(cuDeviceGraphMemTrim(0), OK);
        assert_eq!(reserved(), 0);
    });
}

#[test]
fn a_graph_with_unfreed_memory_cannot_be_launched_again() {
    alone(
        "a_graph_with_unfreed_memory_cannot_be_launched_again",
        "",
        || {
            start();
            let (stream, graph) = (free_stream(), graph());
            let (alloc, at) = alloc_node(graph, 1 << 20);
            fill_node(graph, &[alloc], at, 4, 7);
            let exec = instance(graph, 0);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuGraphLaunch(exec, stream), CUresult::INVALID_VALUE);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 4), [7; 4]);
            assert_eq!(cuMemFreeAsync(at, stream), OK);
            assert_eq!(cuMemFreeAsync(at, stream), CUresult::INVALID_VALUE);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(cuMemFree_v2(at), OK);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 4), [7; 4]);
            assert_eq!(cuMemFree_v2(at), OK);
            assert_eq!(cuMemFree_v2(at), CUresult::INVALID_VALUE);
        },
    );
}

#[test]
fn a_free_that_a_capture_forbids_leaves_graph_memory_as_it_was() {
    let name = "a_free_that_a_capture_forbids_leaves_graph_memory_as_it_was";
    alone(name, "", || {
        start();
        let (capturing, graph) = (stream(0), graph());
        let (alloc, at) = alloc_node(graph, 1 << 20);
        fill_node(graph, &[alloc], at, 4, 7);
        assert_eq!(cuGraphLaunch(instance(graph, 0), free_stream()), OK);
        assert_eq!(cuCtxSynchronize(), OK);
        let mode = CUstreamCaptureMode::RELAXED;
        assert_eq!(cuStreamBeginCapture_v2(capturing, mode), OK);
        let refused = cuMemFreeAsync(at, CUstream::NULL);
        assert_eq!(refused, CUresult::STREAM_CAPTURE_IMPLICIT);
        let mut none = CUgraph::NULL;
        let ended = cuStreamEndCapture(capturing, &raw mut none);
        assert_eq!(ended, CUresult::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(read(at, 4), [7; 4]);
        assert_eq!(cuMemFreeAsync(at, CUstream::NULL), OK);
        assert_eq!(cuCtxSynchronize(), OK);
        assert_eq!(cuDeviceGraphMemTrim(0), OK);
        assert_eq!(reserved(), 0);
    });
}

#[test]
fn automatic_free_allows_a_relaunch_and_a_free_by_another_graph() {
    let name = "automatic_free_allows_a_relaunch_and_a_free_by_another_graph";
    alone(name, "", || {
        start();
        let (stream, allocs, frees) = (free_stream(), graph(), graph());
        let (alloc, at) = alloc_node(allocs, 1 << 20);
        fill_node(allocs, &[alloc], at, 4, 7);
        let exec = instance(allocs, AUTO_FREE);
        for _ in 0..3 {
            assert_eq!(cuGraphLaunch(exec, stream), OK);
        }
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(read(at, 4), [7; 4]);
        get(CUgraphNode::NULL, |out| {
            cuGraphAddMemFreeNode(out, frees, null(), 0, at)
        });
        assert_eq!(cuGraphLaunch(instance(frees, 0), stream), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(cuMemFree_v2(at), CUresult::INVALID_VALUE);
    });
}

#[test]
fn a_graph_cannot_free_memory_that_is_not_allocated() {
    alone(
        "a_graph_cannot_free_memory_that_is_not_allocated",
        "",
        || {
            start();
            let (stream, allocs, frees) = (free_stream(), graph(), graph());
            let (_, at) = alloc_node(allocs, 1 << 20);
            get(CUgraphNode::NULL, |out| {
                cuGraphAddMemFreeNode(out, frees, null(), 0, at)
            });
            let (taking, freeing) = (instance(allocs, 0), instance(frees, 0));
            assert_eq!(cuGraphLaunch(freeing, stream), CUresult::INVALID_VALUE);
            assert_eq!(cuMemFree_v2(at), CUresult::INVALID_VALUE);
            assert_eq!(cuGraphLaunch(taking, stream), OK);
            assert_eq!(cuGraphLaunch(freeing, stream), OK);
            assert_eq!(cuGraphLaunch(freeing, stream), CUresult::INVALID_VALUE);
            assert_eq!(cuGraphLaunch(taking, stream), OK);
            assert_eq!(cuMemFree_v2(at), OK);
        },
    );
}

#[test]
fn graph_memory_outlives_its_graph_until_it_is_freed() {
    alone(
        "graph_memory_outlives_its_graph_until_it_is_freed",
        "",
        || {
            start();
            let (stream, graph) = (free_stream(), graph());
            let (alloc, at) = alloc_node(graph, 1 << 20);
            fill_node(graph, &[alloc], at, 4, 7);
            let exec = instance(graph, 0);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuGraphExecDestroy(exec), OK);
            assert_eq!(cuGraphDestroy(graph), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 4), [7; 4]);
            assert_eq!(cuMemFree_v2(at), OK);
            assert_eq!(cuMemFree_v2(at), CUresult::INVALID_VALUE);
            assert_eq!(cuDeviceGraphMemTrim(0), OK);
            assert_eq!(reserved(), 0);
        },
    );
}

#[test]
fn a_launch_without_enough_memory_fails_and_changes_nothing() {
    alone(
        "a_launch_without_enough_memory_fails_and_changes_nothing",
        "mem=256MiB",
        || {
            start();
            let (stream, graph) = (free_stream(), graph());
            let (first, one) = alloc_node(graph, 64 << 20);
            let (second, two) = alloc_node(graph, 64 << 20);
            free_node(graph, first, one);
            free_node(graph, second, two);
            let exec = instance(graph, 0);
            let hog = memory(96 << 20);
            assert_eq!(cuGraphLaunch(exec, stream), CUresult::OUT_OF_MEMORY);
            assert_eq!(cuGraphLaunch(exec, stream), CUresult::OUT_OF_MEMORY);
            assert_eq!(cuMemFree_v2(hog), OK);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
        },
    );
}
