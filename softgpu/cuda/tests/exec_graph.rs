//! Graphs: built, copied, instantiated, changed, launched; memory that lives in them.

mod driver;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use driver::*;
use gpushare_cuda_abi::cuda::*;

const AUTO_FREE: u64 = CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0 as u64;

fn graph() -> CUgraph {
    get(CUgraph::NULL, |out| cuGraphCreate(out, 0))
}

fn instance(graph: CUgraph, flags: u64) -> CUgraphExec {
    get(CUgraphExec::NULL, |out| {
        cuGraphInstantiateWithFlags(out, graph, flags)
    })
}

/// Parameters of a `fill`, with room for the values that they point to.
struct Fill {
    at: CUdeviceptr,
    words: u64,
    value: u32,
    pointers: [*mut c_void; 3],
}

impl Fill {
    fn new(at: CUdeviceptr, words: u64, value: u32) -> Box<Self> {
        let mut fill = Box::new(Self {
            at,
            words,
            value,
            pointers: [null_mut(); 3],
        });
        fill.pointers = [
            (&raw mut fill.at).cast(),
            (&raw mut fill.words).cast(),
            (&raw mut fill.value).cast(),
        ];
        fill
    }

    fn params(&mut self) -> CUDA_KERNEL_NODE_PARAMS_v2 {
        CUDA_KERNEL_NODE_PARAMS_v2 {
            func: function("fill"),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: self.pointers.as_mut_ptr(),
            extra: null_mut(),
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        }
    }
}

fn fill_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    at: CUdeviceptr,
    words: u64,
    value: u32,
) -> CUgraphNode {
    let mut fill = Fill::new(at, words, value);
    let params = fill.params();
    get(CUgraphNode::NULL, |out| {
        cuGraphAddKernelNode_v2(out, graph, after.as_ptr(), after.len(), &raw const params)
    })
}

fn memset_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    dst: CUdeviceptr,
    value: u32,
    width: usize,
) -> CUgraphNode {
    let params = CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch: 0,
        value,
        elementSize: 4,
        width,
        height: 1,
    };
    let (after, count) = (after.as_ptr(), after.len());
    get(CUgraphNode::NULL, |out| {
        cuGraphAddMemsetNode(out, graph, after, count, &raw const params, CUcontext::NULL)
    })
}

/// An allocation of `bytes` on the first device: the node and the address.
fn alloc_node(graph: CUgraph, bytes: usize) -> (CUgraphNode, CUdeviceptr) {
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

fn free_node(graph: CUgraph, after: CUgraphNode, at: CUdeviceptr) -> CUgraphNode {
    get(CUgraphNode::NULL, |out| {
        cuGraphAddMemFreeNode(out, graph, &raw const after, 1, at)
    })
}

fn reserved() -> u64 {
    let mut bytes = 0_u64;
    let attribute = CUgraphMem_attribute::RESERVED_MEM_CURRENT;
    assert_eq!(
        cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut bytes).cast()),
        OK
    );
    bytes
}

#[test]
fn a_graphs_edges_are_its_order_for_every_seed() {
    for seed in 1..=8 {
        alone(
            "a_graphs_edges_are_its_order_for_every_seed",
            &format!("seed={seed}"),
            || {
                start();
                let (at, stream, graph) = (memory(4096), free_stream(), graph());
                let first = fill_node(graph, &[], at, 4, 1);
                let left = fill_node(graph, &[first], at, 2, 2);
                let right = memset_node(graph, &[first], at + 8, 3, 2);
                let last = fill_node(graph, &[], at + 4, 2, 4);
                for before in [left, right] {
                    assert_eq!(
                        cuGraphAddDependencies(graph, &raw const before, &raw const last, 1),
                        OK
                    );
                }
                assert_eq!(
                    cuGraphAddDependencies(graph, &raw const left, &raw const last, 1),
                    CUresult::INVALID_VALUE
                );
                assert_eq!(cuGraphLaunch(instance(graph, 0), stream), OK);
                assert_eq!(cuStreamSynchronize(stream), OK);
                assert_eq!(read(at, 4), [2, 4, 4, 3]);
            },
        );
    }
}

#[test]
fn nodes_without_an_edge_between_them_are_seen_in_both_orders() {
    let name = "nodes_without_an_edge_between_them_are_seen_in_both_orders";
    let seen: std::collections::BTreeSet<String> = (1..=16)
        .map(|seed| {
            alone(name, &format!("seed={seed}"), || {
                start();
                let (at, stream, graph) = (memory(4096), free_stream(), graph());
                fill_node(graph, &[], at, 1, 1);
                fill_node(graph, &[], at, 1, 2);
                assert_eq!(cuGraphLaunch(instance(graph, 0), stream), OK);
                assert_eq!(cuStreamSynchronize(stream), OK);
                tell(read(at, 1)[0]);
            })
        })
        .collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn a_circle_cannot_be_instantiated() {
    alone("a_circle_cannot_be_instantiated", "", || {
        start();
        let graph = graph();
        let one = get(CUgraphNode::NULL, |out| {
            cuGraphAddEmptyNode(out, graph, null(), 0)
        });
        let two = get(CUgraphNode::NULL, |out| {
            cuGraphAddEmptyNode(out, graph, &raw const one, 1)
        });
        assert_eq!(
            cuGraphAddDependencies(graph, &raw const one, &raw const one, 1),
            CUresult::INVALID_VALUE
        );
        assert_eq!(
            cuGraphAddDependencies(graph, &raw const two, &raw const one, 1),
            OK
        );
        let mut exec = CUgraphExec::NULL;
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut exec, graph, 0),
            CUresult::INVALID_VALUE
        );
    });
}

#[test]
fn launches_of_one_instance_come_one_after_the_other_and_in_stream_order() {
    alone(
        "launches_of_one_instance_come_one_after_the_other_and_in_stream_order",
        "",
        || {
            start();
            let (at, one, two, graph) = (memory(4096), free_stream(), free_stream(), graph());
            fill_node(graph, &[], at, 1, 5);
            let exec = instance(graph, 0);
            assert_eq!(cuGraphDestroy(graph), OK);
            spin(one, 5_000_000);
            assert_eq!(cuGraphLaunch(exec, one), OK);
            assert_eq!(fill(one, at, 1, 6), OK);
            assert_eq!(cuGraphLaunch(exec, two), OK);
            assert_eq!(cuStreamSynchronize(one), OK);
            assert_eq!(cuStreamSynchronize(two), OK);
            assert!([5, 6].contains(&read(at, 1)[0]));
            assert_eq!(cuGraphExecDestroy(exec), OK);
            assert_eq!(cuGraphLaunch(exec, one), CUresult::INVALID_VALUE);
        },
    );
}

#[test]
fn parameters_are_taken_when_the_node_is_made_and_can_be_asked_and_changed() {
    alone(
        "parameters_are_taken_when_the_node_is_made_and_can_be_asked_and_changed",
        "",
        || {
            start();
            let (at, stream, graph) = (memory(4096), free_stream(), graph());
            let node = fill_node(graph, &[], at, 1, 5);
            // SAFETY: plain data, for which all zeroes is a value.
            #[expect(unsafe_code, reason = "an out-parameter that is a C struct")]
            let mut told: CUDA_KERNEL_NODE_PARAMS_v2 = unsafe { std::mem::zeroed() };
            assert_eq!(cuGraphKernelNodeGetParams_v2(node, &raw mut told), OK);
            assert_eq!((told.gridDimX, told.blockDimX), (1, 32));
            let exec = instance(graph, 0);
            let mut other = Fill::new(at, 2, 8);
            let params = other.params();
            assert_eq!(
                cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params),
                OK
            );
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 2), [8, 8]);
            // What was asked can be given back: the first parameters, from the driver's own copy.
            assert_eq!(
                cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const told),
                OK
            );
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 2), [5, 8]);
            assert_eq!(cuGraphNodeSetEnabled(exec, node, 0), OK);
            assert_eq!(fill(stream, at, 1, 0), OK);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 2), [0, 8]);
        },
    );
}

#[test]
fn an_update_takes_parameters_of_the_same_shape_and_refuses_another() {
    alone(
        "an_update_takes_parameters_of_the_same_shape_and_refuses_another",
        "",
        || {
            start();
            let (at, stream) = (memory(4096), free_stream());
            let (old, new, longer, other) = (graph(), graph(), graph(), graph());
            fill_node(old, &[], at, 1, 1);
            fill_node(new, &[], at, 1, 2);
            let first = fill_node(longer, &[], at, 1, 3);
            fill_node(longer, &[first], at, 1, 4);
            memset_node(other, &[], at, 3, 1);
            let exec = instance(old, 0);
            let mut info = CUgraphExecUpdateResultInfo_v1 {
                result: CUgraphExecUpdateResult::ERROR,
                errorNode: CUgraphNode::NULL,
                errorFromNode: CUgraphNode::NULL,
            };
            assert_eq!(
                cuGraphExecUpdate_v2(exec, longer, &raw mut info),
                CUresult::GRAPH_EXEC_UPDATE_FAILURE
            );
            assert_eq!(info.result, CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED);
            assert_eq!(
                cuGraphExecUpdate_v2(exec, other, &raw mut info),
                CUresult::GRAPH_EXEC_UPDATE_FAILURE
            );
            assert_eq!(
                info.result,
                CUgraphExecUpdateResult::ERROR_NODE_TYPE_CHANGED
            );
            assert_eq!(cuGraphExecUpdate_v2(exec, new, &raw mut info), OK);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 1), [2]);
        },
    );
}

#[test]
fn a_clone_and_a_child_are_copies() {
    alone("a_clone_and_a_child_are_copies", "", || {
        start();
        let (at, stream, inner, outer) = (memory(4096), free_stream(), graph(), graph());
        let node = fill_node(inner, &[], at, 1, 1);
        let child = get(CUgraphNode::NULL, |out| {
            cuGraphAddChildGraphNode(out, outer, null(), 0, inner)
        });
        let clone = get(CUgraph::NULL, |out| cuGraphClone(out, outer));
        let copied = get(CUgraphNode::NULL, |out| {
            cuGraphNodeFindInClone(out, child, clone)
        });
        assert_eq!(
            get(CUgraphNodeType::EMPTY, |out| cuGraphNodeGetType(
                copied, out
            )),
            CUgraphNodeType::GRAPH
        );
        assert_eq!(
            answer(CUgraphNode::NULL, |out| cuGraphNodeFindInClone(
                out, node, clone
            )),
            CUresult::INVALID_VALUE
        );
        assert_eq!(cuGraphDestroyNode(node), OK);
        assert_eq!(get(7, |out| cuGraphGetNodes(inner, null_mut(), out)), 0);
        assert_eq!(cuGraphDestroy(inner), OK);
        assert_eq!(cuGraphDestroy(outer), OK);
        assert_eq!(cuGraphLaunch(instance(clone, 0), stream), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(read(at, 1), [1]);
    });
}

#[test]
fn memory_that_a_graph_frees_itself_is_there_at_every_launch_and_stays_reserved_until_trimmed() {
    let name = "memory_that_a_graph_frees_itself_is_there_at_every_launch_and_stays_reserved_until_trimmed";
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
        assert_eq!(reserved(), 6 << 20);
        assert_eq!(cuDeviceGraphMemTrim(0), OK);
        assert_eq!(reserved(), 0);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(reserved(), 6 << 20);
    });
}

#[test]
fn a_graph_whose_memory_was_not_freed_is_not_launched_again_until_it_is() {
    alone(
        "a_graph_whose_memory_was_not_freed_is_not_launched_again_until_it_is",
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
fn automatic_free_lets_a_graph_be_launched_again_and_another_graph_may_free_too() {
    let name = "automatic_free_lets_a_graph_be_launched_again_and_another_graph_may_free_too";
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
fn a_launch_that_finds_no_memory_fails_and_changes_nothing() {
    alone(
        "a_launch_that_finds_no_memory_fails_and_changes_nothing",
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

unsafe extern "C" fn store_one(data: *mut c_void) {
    put(data.cast(), look(data.cast()) + 1);
}

#[test]
fn host_nodes_run_at_each_launch_and_user_objects_die_with_the_graph() {
    alone(
        "host_nodes_run_at_each_launch_and_user_objects_die_with_the_graph",
        "",
        || {
            start();
            let (words, stream, graph) = (pinned(2), free_stream(), graph());
            let params = CUDA_HOST_NODE_PARAMS_v1 {
                fn_: Some(store_one),
                userData: words.cast(),
            };
            get(CUgraphNode::NULL, |out| {
                cuGraphAddHostNode(out, graph, null(), 0, &raw const params)
            });
            let exec = instance(graph, 0);
            for _ in 0..3 {
                assert_eq!(cuGraphLaunch(exec, stream), OK);
            }
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(look(words), 3);
            let witness = words.wrapping_add(1).cast();
            let object = get(CUuserObject::NULL, |out| {
                cuUserObjectCreate(out, witness, Some(store_one), 1, 1)
            });
            assert_eq!(
                cuGraphRetainUserObject(graph, object, 1, CUuserObjectRetain_flags::MOVE.0),
                OK
            );
            assert_eq!(look(witness.cast()), 0);
            assert_eq!(cuGraphDestroy(graph), OK);
            assert_eq!(look(witness.cast()), 1);
        },
    );
}
