//! Graphs: construction, clones, instantiation, updates, launch.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::driver::graphs::*;
use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

#[test]
fn a_graph_runs_in_the_order_of_its_edges_for_every_seed() {
    for seed in 1..=8 {
        alone(
            "a_graph_runs_in_the_order_of_its_edges_for_every_seed",
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
fn independent_nodes_take_effect_in_either_order() {
    let name = "independent_nodes_take_effect_in_either_order";
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
fn a_cyclic_graph_cannot_be_instantiated() {
    alone("a_cyclic_graph_cannot_be_instantiated", "", || {
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
fn launches_of_one_instance_run_in_sequence_and_in_stream_order() {
    alone(
        "launches_of_one_instance_run_in_sequence_and_in_stream_order",
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
fn a_node_copies_its_parameters_and_they_can_be_changed() {
    alone(
        "a_node_copies_its_parameters_and_they_can_be_changed",
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
            // Queried parameters can be set again: these are the first parameters, from the
            // driver's own copy.
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
fn an_update_accepts_a_graph_of_equal_shape_and_refuses_others() {
    alone(
        "an_update_accepts_a_graph_of_equal_shape_and_refuses_others",
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
            use CUgraphExecUpdateResult as Answer;
            assert_eq!(updated(exec, longer), Answer::ERROR_TOPOLOGY_CHANGED);
            assert_eq!(updated(exec, other), Answer::ERROR_NODE_TYPE_CHANGED);
            assert_eq!(updated(exec, new), Answer::SUCCESS);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(at, 1), [2]);
        },
    );
}

#[test]
fn only_kernel_nodes_store_launch_attributes() {
    alone("only_kernel_nodes_store_launch_attributes", "", || {
        start();
        let (at, graph) = (memory(4096), graph());
        let (one, two) = (
            fill_node(graph, &[], at, 1, 1),
            fill_node(graph, &[], at, 1, 1),
        );
        let other = memset_node(graph, &[], at, 0, 1);
        let id = CUlaunchAttributeID::PRIORITY;
        let value = CUlaunchAttributeValue { priority: -3 };
        assert_eq!(cuGraphKernelNodeSetAttribute(one, id, &raw const value), OK);
        assert_eq!(
            cuGraphKernelNodeSetAttribute(other, id, &raw const value),
            CUresult::INVALID_VALUE
        );
        assert_eq!(cuGraphKernelNodeCopyAttributes(two, one), OK);
        let told = get(CUlaunchAttributeValue { priority: 0 }, |out| {
            cuGraphKernelNodeGetAttribute(two, id, out)
        });
        // SAFETY: the value of this attribute is the member `priority`.
        #[expect(unsafe_code, reason = "attribute values are a C union")]
        let priority = unsafe { told.priority };
        assert_eq!(priority, -3);
    });
}

#[test]
fn a_clone_and_a_child_graph_are_copies() {
    alone("a_clone_and_a_child_graph_are_copies", "", || {
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

unsafe extern "C" fn store_one(data: *mut c_void) {
    put(data.cast(), look(data.cast()) + 1);
}

#[test]
fn host_nodes_run_at_each_launch_and_the_graph_frees_its_user_objects() {
    alone(
        "host_nodes_run_at_each_launch_and_the_graph_frees_its_user_objects",
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
            assert_eq!(cuGraphExecDestroy(exec), OK);
            while look(witness.cast()) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(look(witness.cast()), 1);
        },
    );
}
