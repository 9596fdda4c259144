//! Stream capture: recorded work, forbidden calls and their errors.

use std::ptr::{null, null_mut};

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const MS: u64 = 1_000_000;

fn begin(stream: CUstream, mode: CUstreamCaptureMode) {
    assert_eq!(cuStreamBeginCapture_v2(stream, mode), OK);
}

fn end(stream: CUstream) -> CUgraph {
    get(CUgraph::NULL, |out| cuStreamEndCapture(stream, out))
}

fn status(stream: CUstream) -> CUstreamCaptureStatus {
    get(CUstreamCaptureStatus::NONE, |out| {
        cuStreamIsCapturing(stream, out)
    })
}

/// Ends a capture that must fail; returns the error.
fn fails(stream: CUstream) -> CUresult {
    let mut graph = CUgraph(std::ptr::dangling_mut::<u8>().cast());
    let result = cuStreamEndCapture(stream, &raw mut graph);
    assert!(
        graph.is_null()
            || result == CUresult::STREAM_CAPTURE_WRONG_THREAD
            || result == CUresult::STREAM_CAPTURE_UNMATCHED
    );
    result
}

fn run(graph: CUgraph, stream: CUstream) {
    let exec = get(CUgraphExec::NULL, |out| {
        cuGraphInstantiateWithFlags(out, graph, 0)
    });
    assert_eq!(cuGraphLaunch(exec, stream), OK);
    assert_eq!(cuStreamSynchronize(stream), OK);
    assert_eq!(cuGraphExecDestroy(exec), OK);
}

fn edges(graph: CUgraph) -> usize {
    get(0, |out| cuGraphGetEdges(graph, null_mut(), null_mut(), out))
}

#[test]
fn captured_work_runs_at_every_launch_and_not_before() {
    alone(
        "captured_work_runs_at_every_launch_and_not_before",
        "",
        || {
            start();
            let (at, stream) = (memory(4096), free_stream());
            write(at, &[1_u32, 0]);
            begin(stream, CUstreamCaptureMode::GLOBAL);
            assert_eq!(status(stream), CUstreamCaptureStatus::ACTIVE);
            assert_eq!(cuMemcpyDtoDAsync_v2(at + 4, at, 4, stream), OK);
            assert_eq!(fill(stream, at, 1, 9), OK);
            let graph = end(stream);
            assert_eq!(status(stream), CUstreamCaptureStatus::NONE);
            assert_eq!(read(at, 2), [1, 0]);
            run(graph, stream);
            assert_eq!(read(at, 2), [9, 1]);
            run(graph, stream);
            assert_eq!(read(at, 2), [9, 9]);
            assert_eq!(cuGraphDestroy(graph), OK);
            assert_eq!(cuGraphDestroy(graph), CUresult::INVALID_VALUE);
        },
    );
}

#[test]
fn events_fork_a_capture_to_other_streams_and_join_it_again() {
    for seed in 1..=6 {
        let name = "events_fork_a_capture_to_other_streams_and_join_it_again";
        alone(name, &format!("seed={seed}"), || {
            start();
            let (at, one, two, forked, joined) =
                (memory(4096), free_stream(), free_stream(), event(), event());
            begin(one, CUstreamCaptureMode::GLOBAL);
            assert_eq!(fill(one, at, 4, 1), OK);
            assert_eq!(cuEventRecord(forked, one), OK);
            assert_eq!(cuStreamWaitEvent(two, forked, 0), OK);
            assert_eq!(status(two), CUstreamCaptureStatus::ACTIVE);
            assert_eq!(fill(two, at + 4, 1, 2), OK);
            assert_eq!(fill(one, at + 8, 1, 3), OK);
            assert_eq!(cuEventRecord(joined, two), OK);
            assert_eq!(cuStreamWaitEvent(one, joined, 0), OK);
            assert_eq!(fill(one, at + 12, 1, 4), OK);
            let graph = end(one);
            assert_eq!(status(two), CUstreamCaptureStatus::NONE);
            assert_eq!(edges(graph), 4);
            run(graph, one);
            assert_eq!(read(at, 4), [1, 2, 3, 4]);
        });
    }
}

#[test]
fn an_unjoined_stream_fails_the_capture() {
    alone("an_unjoined_stream_fails_the_capture", "", || {
        start();
        let (at, one, two, forked) = (memory(4096), free_stream(), free_stream(), event());
        begin(one, CUstreamCaptureMode::GLOBAL);
        assert_eq!(cuEventRecord(forked, one), OK);
        assert_eq!(cuStreamWaitEvent(two, forked, 0), OK);
        assert_eq!(fill(two, at, 1, 2), OK);
        assert_eq!(fails(two), CUresult::STREAM_CAPTURE_UNMATCHED);
        assert_eq!(fails(one), CUresult::STREAM_CAPTURE_INVALIDATED);
        begin(one, CUstreamCaptureMode::GLOBAL);
        assert_eq!(cuEventRecord(forked, one), OK);
        assert_eq!(cuStreamWaitEvent(two, forked, 0), OK);
        assert_eq!(fill(two, at, 1, 2), OK);
        assert_eq!(fails(one), CUresult::STREAM_CAPTURE_UNJOINED);
        assert_eq!(status(two), CUstreamCaptureStatus::NONE);
    });
}

#[test]
fn waiting_for_a_capturing_stream_fails_and_invalidates_the_capture() {
    alone(
        "waiting_for_a_capturing_stream_fails_and_invalidates_the_capture",
        "",
        || {
            start();
            let (at, stream) = (memory(4096), free_stream());
            let waits: [fn(CUstream) -> CUresult; 3] = [
                |s| cuStreamSynchronize(s),
                |s| cuStreamQuery(s),
                |_| cuCtxSynchronize(),
            ];
            for wait in waits {
                begin(stream, CUstreamCaptureMode::RELAXED);
                assert_eq!(fill(stream, at, 1, 1), OK);
                assert_eq!(wait(stream), CUresult::STREAM_CAPTURE_UNSUPPORTED);
                assert_eq!(status(stream), CUstreamCaptureStatus::INVALIDATED);
                assert_eq!(fill(stream, at, 1, 1), CUresult::STREAM_CAPTURE_INVALIDATED);
                assert_eq!(fails(stream), CUresult::STREAM_CAPTURE_INVALIDATED);
                assert_eq!(wait(stream), OK);
            }
        },
    );
}

#[test]
fn a_captured_event_can_be_neither_queried_nor_waited_for() {
    alone(
        "a_captured_event_can_be_neither_queried_nor_waited_for",
        "",
        || {
            start();
            let (stream, mark) = (free_stream(), event());
            for ask in [cuEventQuery, cuEventSynchronize] {
                begin(stream, CUstreamCaptureMode::RELAXED);
                assert_eq!(cuEventRecord(mark, stream), OK);
                assert_eq!(ask(mark), CUresult::CAPTURED_EVENT);
                assert_eq!(fails(stream), CUresult::STREAM_CAPTURE_INVALIDATED);
            }
            assert_eq!(cuEventRecord(mark, stream), OK);
            assert_eq!(cuEventSynchronize(mark), OK);
        },
    );
}

#[test]
fn a_capture_cannot_wait_for_outside_work_or_another_capture() {
    alone(
        "a_capture_cannot_wait_for_outside_work_or_another_capture",
        "",
        || {
            start();
            let (one, two, mark) = (free_stream(), free_stream(), event());
            assert_eq!(cuEventRecord(mark, two), OK);
            begin(one, CUstreamCaptureMode::RELAXED);
            assert_eq!(
                cuStreamWaitEvent(one, mark, 0),
                CUresult::STREAM_CAPTURE_ISOLATION
            );
            assert_eq!(fails(one), CUresult::STREAM_CAPTURE_INVALIDATED);
            begin(one, CUstreamCaptureMode::RELAXED);
            begin(two, CUstreamCaptureMode::RELAXED);
            assert_eq!(cuEventRecord(mark, two), OK);
            assert_eq!(
                cuStreamWaitEvent(one, mark, 0),
                CUresult::STREAM_CAPTURE_MERGE
            );
            assert_eq!(fails(one), CUresult::STREAM_CAPTURE_INVALIDATED);
            assert_eq!(fails(two), CUresult::STREAM_CAPTURE_INVALIDATED);
        },
    );
}

#[test]
fn the_legacy_stream_is_unusable_while_a_blocking_stream_captures() {
    alone(
        "the_legacy_stream_is_unusable_while_a_blocking_stream_captures",
        "",
        || {
            start();
            let (at, blocking, free) = (memory(4096), stream(0), free_stream());
            begin(blocking, CUstreamCaptureMode::RELAXED);
            let mut told = CUstreamCaptureStatus::NONE;
            assert_eq!(
                cuStreamIsCapturing(CUstream::NULL, &raw mut told),
                CUresult::STREAM_CAPTURE_IMPLICIT
            );
            assert_eq!(status(blocking), CUstreamCaptureStatus::ACTIVE);
            assert_eq!(
                fill(CUstream::NULL, at, 1, 1),
                CUresult::STREAM_CAPTURE_IMPLICIT
            );
            assert_eq!(fails(blocking), CUresult::STREAM_CAPTURE_INVALIDATED);
            begin(free, CUstreamCaptureMode::RELAXED);
            assert_eq!(fill(CUstream::NULL, at, 1, 1), OK);
            end(free);
            assert_eq!(
                cuStreamBeginCapture_v2(CUstream::NULL, CUstreamCaptureMode::GLOBAL),
                CUresult::STREAM_CAPTURE_UNSUPPORTED
            );
        },
    );
}

#[test]
fn allocation_is_forbidden_by_the_modes_of_capture_and_thread() {
    alone(
        "allocation_is_forbidden_by_the_modes_of_capture_and_thread",
        "",
        || {
            use CUstreamCaptureMode as Mode;
            start();
            let stream = free_stream();
            let allocates = || {
                let mut address = 0;
                cuMemAlloc_v2(&raw mut address, 512)
            };
            let elsewhere = || {
                std::thread::scope(|scope| scope.spawn(|| (start(), allocates()).1).join().unwrap())
            };
            for (mode, here, there) in [
                (
                    Mode::GLOBAL,
                    CUresult::STREAM_CAPTURE_UNSUPPORTED,
                    CUresult::STREAM_CAPTURE_UNSUPPORTED,
                ),
                (Mode::THREAD_LOCAL, CUresult::STREAM_CAPTURE_UNSUPPORTED, OK),
                (Mode::RELAXED, OK, OK),
            ] {
                begin(stream, mode);
                assert_eq!(allocates(), here, "{mode:?}");
                assert_eq!(status(stream) == CUstreamCaptureStatus::ACTIVE, here == OK);
                answer(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
                begin(stream, mode);
                assert_eq!(elsewhere(), there, "{mode:?} in another thread");
                answer(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
            }
            begin(stream, Mode::GLOBAL);
            let mut relaxed = Mode::RELAXED;
            assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut relaxed), OK);
            assert_eq!(relaxed, Mode::GLOBAL);
            assert_eq!(allocates(), OK);
            assert_eq!(status(stream), CUstreamCaptureStatus::ACTIVE);
        },
    );
}

#[test]
fn only_its_thread_ends_a_capture_unless_the_capture_is_relaxed() {
    alone(
        "only_its_thread_ends_a_capture_unless_the_capture_is_relaxed",
        "",
        || {
            start();
            let stream = free_stream();
            let elsewhere = || {
                let end = || {
                    start();
                    answer(CUgraph::NULL, |out| cuStreamEndCapture(stream, out))
                };
                std::thread::scope(|scope| scope.spawn(end).join().unwrap())
            };
            begin(stream, CUstreamCaptureMode::THREAD_LOCAL);
            assert_eq!(elsewhere(), CUresult::STREAM_CAPTURE_WRONG_THREAD);
            assert_eq!(status(stream), CUstreamCaptureStatus::ACTIVE);
            end(stream);
            begin(stream, CUstreamCaptureMode::RELAXED);
            assert_eq!(elsewhere(), OK);
            assert_eq!(fails(stream), CUresult::ILLEGAL_STATE);
        },
    );
}

#[test]
fn a_captured_allocation_has_memory_from_launch_to_free_only() {
    alone(
        "a_captured_allocation_has_memory_from_launch_to_free_only",
        "",
        || {
            start();
            let (out, stream) = (memory(4096), free_stream());
            begin(stream, CUstreamCaptureMode::GLOBAL);
            let inside = get(0, |out| cuMemAllocAsync(out, 4096, stream));
            assert_eq!(fill(stream, inside, 4, 6), OK);
            assert_eq!(cuMemcpyDtoDAsync_v2(out, inside, 16, stream), OK);
            assert_eq!(cuMemFreeAsync(inside, stream), OK);
            assert_eq!(cuMemFreeAsync(out, stream), CUresult::INVALID_VALUE);
            let graph = end(stream);
            run(graph, stream);
            run(graph, stream);
            assert_eq!(read(out, 4), [6; 4]);
            assert_eq!(fill(stream, inside, 1, 1), OK);
            assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
        },
    );
}

#[test]
fn a_capture_can_append_to_existing_nodes_of_a_graph() {
    alone(
        "a_capture_can_append_to_existing_nodes_of_a_graph",
        "",
        || {
            start();
            let (at, stream) = (memory(4096), free_stream());
            let graph = get(CUgraph::NULL, |out| cuGraphCreate(out, 0));
            let first = get(CUgraphNode::NULL, |out| {
                cuGraphAddEmptyNode(out, graph, null(), 0)
            });
            let mode = CUstreamCaptureMode::GLOBAL;
            assert_eq!(
                cuStreamBeginCaptureToGraph(stream, graph, &raw const first, null(), 1, mode),
                OK
            );
            let (mut told, mut id, mut which, mut nodes, mut count) =
                (CUstreamCaptureStatus::NONE, 0, CUgraph::NULL, null(), 0);
            let ask = cuStreamGetCaptureInfo_v2(
                stream,
                &raw mut told,
                &raw mut id,
                &raw mut which,
                &raw mut nodes,
                &raw mut count,
            );
            assert_eq!(
                (ask, told, which, count),
                (OK, CUstreamCaptureStatus::ACTIVE, graph, 1)
            );
            assert_eq!(first_of(nodes), first);
            assert_eq!(fill(stream, at, 1, 1), OK);
            assert_eq!(end(stream), graph);
            assert_eq!(edges(graph), 1);
            run(graph, stream);
            assert_eq!(read(at, 1), [1]);
        },
    );
}

#[test]
fn a_captured_graph_launch_becomes_a_child_graph() {
    alone("a_captured_graph_launch_becomes_a_child_graph", "", || {
        start();
        let (at, stream) = (memory(4096), free_stream());
        begin(stream, CUstreamCaptureMode::GLOBAL);
        assert_eq!(fill(stream, at, 1, 1), OK);
        let inner = end(stream);
        let exec = get(CUgraphExec::NULL, |out| {
            cuGraphInstantiateWithFlags(out, inner, 0)
        });
        begin(stream, CUstreamCaptureMode::GLOBAL);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(cuMemcpyDtoDAsync_v2(at + 4, at, 4, stream), OK);
        let outer = end(stream);
        assert_eq!(cuGraphExecDestroy(exec), OK);
        assert_eq!(cuGraphDestroy(inner), OK);
        run(outer, stream);
        assert_eq!(read(at, 2), [1, 1]);
    });
}

#[test]
fn captured_memory_operations_run_at_every_launch() {
    alone("captured_memory_operations_run_at_every_launch", "", || {
        start();
        let (words, stream) = (pinned(2), free_stream());
        let at = words.addr() as u64;
        begin(stream, CUstreamCaptureMode::GLOBAL);
        assert_eq!(
            cuStreamWaitValue32_v2(stream, at, 3, CUstreamWaitValue_flags::EQ.0),
            OK
        );
        assert_eq!(cuStreamWriteValue32_v2(stream, at + 4, 8, 0), OK);
        let graph = end(stream);
        assert_eq!(edges(graph), 1);
        let exec = get(CUgraphExec::NULL, |out| {
            cuGraphInstantiateWithFlags(out, graph, 0)
        });
        for _ in 0..2 {
            put(words, 0);
            put(words.wrapping_add(1), 0);
            assert_eq!(cuGraphLaunch(exec, stream), OK);
            assert_eq!(cuStreamQuery(stream), CUresult::NOT_READY);
            assert_eq!(look(words.wrapping_add(1)), 0);
            put(words, 3);
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(look(words.wrapping_add(1)), 8);
        }
    });
}

#[test]
fn destroying_a_capturing_stream_ends_its_capture() {
    alone("destroying_a_capturing_stream_ends_its_capture", "", || {
        start();
        let stream = stream(0);
        begin(stream, CUstreamCaptureMode::GLOBAL);
        assert_eq!(cuStreamDestroy_v2(stream), OK);
        assert_ne!(memory(512), 0);
        spin(CUstream::NULL, MS);
        assert_eq!(cuCtxSynchronize(), OK);
    });
}

#[test]
fn an_allocation_that_waits_for_frees_leaves_captures_valid() {
    let name = "an_allocation_that_waits_for_frees_leaves_captures_valid";
    alone(name, "mem=256MiB", || {
        start();
        let mut mode = CUstreamCaptureMode::RELAXED;
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), OK);
        let (stream, other) = (free_stream(), free_stream());
        let ordered = |in_: CUstream| {
            let mut at = 0;
            let answer = cuMemAllocAsync(&raw mut at, 128 << 20, in_);
            (answer, at)
        };
        let (answer, full) = ordered(stream);
        assert_eq!(answer, OK);
        // Its free is under way behind this.
        spin(stream, MS);
        assert_eq!(cuMemFreeAsync(full, stream), OK);
        let captured = free_stream();
        begin(captured, CUstreamCaptureMode::GLOBAL);
        // There is no room for a second one: it waits, and takes the place of the first.
        assert_eq!(ordered(other).0, OK);
        assert_eq!(cuGraphDestroy(end(captured)), OK);
    });
}

#[test]
fn an_allocation_without_room_beside_a_capture_is_out_of_memory() {
    let name = "an_allocation_without_room_beside_a_capture_is_out_of_memory";
    alone(name, "mem=256MiB", || {
        start();
        let mut mode = CUstreamCaptureMode::RELAXED;
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), OK);
        let stream = free_stream();
        let ordered = |bytes| answer(0, |out| cuMemAllocAsync(out, bytes, stream));
        let freed = get(0, |out| cuMemAllocAsync(out, 32 << 20, stream));
        assert_eq!(ordered(96 << 20), OK);
        spin(stream, MS);
        assert_eq!(cuMemFreeAsync(freed, stream), OK);
        let captured = free_stream();
        begin(captured, CUstreamCaptureMode::GLOBAL);
        assert_eq!(ordered(128 << 20), CUresult::OUT_OF_MEMORY);
        assert_eq!(cuGraphDestroy(end(captured)), OK);
    });
}
