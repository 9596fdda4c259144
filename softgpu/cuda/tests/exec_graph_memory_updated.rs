//! Updates of executable graphs that allocate: one has the allocations of the new graph.

use crate::driver::graphs::*;
use crate::driver::*;
use crate::exec_graph_memory::{alloc_node, free_node, reserved};
use gpushare_cuda_abi::cuda::*;

use CUgraphExecUpdateResult as Answer;

/// A graph that allocates and fills `bytes`, and frees them if `freed`. Their address, too.
fn filling(bytes: usize, value: u32, freed: bool) -> (CUgraph, CUdeviceptr) {
    let graph = graph();
    let (alloc, at) = alloc_node(graph, bytes);
    let used = fill_node(graph, &[alloc], at, 1024, value);
    if freed {
        free_node(graph, used, at);
    }
    (graph, at)
}

fn runs(exec: CUgraphExec, stream: CUstream) {
    assert_eq!(cuGraphLaunch(exec, stream), OK);
    assert_eq!(cuStreamSynchronize(stream), OK);
}

#[test]
fn an_updated_graph_allocates_what_the_new_graph_does() {
    let name = "an_updated_graph_allocates_what_the_new_graph_does";
    alone(name, "", || {
        start();
        let stream = free_stream();
        let exec = instance(filling(8 << 20, 1, true).0, 0);
        runs(exec, stream);
        assert_eq!(reserved(), 32 << 20);
        assert_eq!(updated(exec, filling(80 << 20, 2, true).0), Answer::SUCCESS);
        assert_eq!(reserved(), 32 << 20, "an update takes nothing");
        runs(exec, stream);
        assert_eq!(reserved(), 96 << 20);
        assert_eq!(cuDeviceGraphMemTrim(0), OK);
        assert_eq!(updated(exec, filling(8 << 20, 3, true).0), Answer::SUCCESS);
        runs(exec, stream);
        assert_eq!(reserved(), 32 << 20);
    });
}

#[test]
fn memory_of_a_launch_before_an_update_stays_until_it_is_freed() {
    let name = "memory_of_a_launch_before_an_update_stays_until_it_is_freed";
    alone(name, "", || {
        start();
        let stream = free_stream();
        let (old, old_at) = filling(1 << 20, 5, false);
        let (new, new_at) = filling(1 << 20, 6, false);
        let exec = instance(old, 0);
        runs(exec, stream);
        assert_eq!(updated(exec, new), Answer::SUCCESS);
        runs(exec, stream);
        assert_eq!([read(old_at, 4), read(new_at, 4)], [[5; 4], [6; 4]]);
        assert_eq!(cuGraphLaunch(exec, stream), CUresult::INVALID_VALUE);
        assert_eq!([cuMemFree_v2(old_at), cuMemFree_v2(new_at)], [OK; 2]);
        runs(exec, stream);
        assert_eq!(cuMemFree_v2(old_at), CUresult::INVALID_VALUE);
        assert_eq!(cuMemFree_v2(new_at), OK);
    });
}

#[test]
fn a_graph_that_is_instantiated_elsewhere_updates_no_other() {
    let name = "a_graph_that_is_instantiated_elsewhere_updates_no_other";
    alone(name, "", || {
        start();
        let stream = free_stream();
        let [(first, _), (second, _)] = [1, 2].map(|value| filling(1 << 20, value, true));
        let (exec, other) = (instance(first, 0), instance(second, 0));
        assert_eq!(updated(exec, second), Answer::ERROR_NOT_SUPPORTED);
        assert_eq!(updated(exec, first), Answer::SUCCESS, "its own");
        assert_eq!(cuGraphExecDestroy(other), OK);
        assert_eq!(updated(exec, second), Answer::SUCCESS);
        let again = |graph| {
            answer(CUgraphExec::NULL, |out| {
                cuGraphInstantiateWithFlags(out, graph, 0)
            })
        };
        assert_eq!([again(first), again(second)], [CUresult::INVALID_VALUE; 2]);
        runs(exec, stream);
        assert_eq!(cuGraphExecDestroy(exec), OK);
        assert_eq!([again(first), again(second)], [OK; 2]);
    });
}
