//! Events, queries and host functions. They tell the gate which work is complete, and which work
//! waits for something that the gate does not count. While the gate is unbound, events and queries
//! go to the driver after one load.

use core::ffi::{c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::green;
use crate::driver::stream_ref::StreamRef;
use crate::entry::args::{In, Out, recorded_event};
use crate::entry::hooks;
use crate::gate::awaited::Awaited;
use crate::gate::{self, apart, awaited, seal};

hooks! {
    #[seen]
    fn cuEventRecord | cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult
        = |call, of| awaited::recording_in(event, of(stream), false, call);
    // What a capture makes a node of, a graph may record while something binds.
    #[seen(!is_external(flags))]
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult
        = |call, of| awaited::recording_in(event, of(stream), is_external(flags), call);
    #[seen]
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> CUresult
        = |call| awaited::recording_behind(event, Awaited::Context(context), call);
    #[seen]
    fn cuGreenCtxRecordEvent(context: CUgreenCtx, event: CUevent) -> CUresult
        = |call| awaited::recording_behind(event, Awaited::Green(green::of(context)), call);
    #[seen]
    fn cuCtxWaitEvent(context: CUcontext, event: CUevent) -> CUresult = |call| {
        let answer = call();
        apart::context_made_to_wait(context);
        answer
    };
    #[seen]
    fn cuGreenCtxWaitEvent(context: CUgreenCtx, event: CUevent) -> CUresult = |call| {
        let answer = call();
        apart::green_made_to_wait(green::of(context));
        answer
    };
    #[seen]
    fn cuWaitExternalSemaphoresAsync | cuWaitExternalSemaphoresAsync_ptsz(list: *const CUexternalSemaphore,
        params: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, count: c_uint, stream: CUstream) -> CUresult
        = |call, of| waiting_outside(of(stream), call);
    #[seen]
    fn cuEventQuery(event: CUevent) -> CUresult = |call| awaited::asking_event(event, call);
    #[seen]
    fn cuEventDestroy | cuEventDestroy_v2(event: CUevent) -> CUresult = |call| {
        awaited::event_going(event);
        call()
    };
    #[seen]
    fn cuStreamQuery | cuStreamQuery_ptsz(stream: CUstream) -> CUresult = |call, of| awaited::asking_stream(of(stream), call);
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult
        = |call, of| calling_host(of(stream), call);
    fn cuLaunchHostFunc_v2 | cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint)
        -> CUresult = |call, of| calling_host(of(stream), call);
    fn cuStreamAddCallback | cuStreamAddCallback_ptsz(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint)
        -> CUresult = |call, of| calling_host(of(stream), call);
    // Another process may record it from now on.
    fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) -> CUresult = |call| sharing(event, call);
    fn cuIpcOpenEventHandle(event: Out<'_, CUevent>, handle: CUipcEventHandle) -> CUresult = |call| imported(event, call());
    // A graph may record it from now on.
    fn cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent)
        -> CUresult = |call| sharing(event, call);
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> CUresult = |call| sharing(event, call);
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CUresult
        = |call| sharing(event, call);
    fn cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: In<'_, CUgraphNodeParams>) -> CUresult = |call| noting(!graph.is_null(), params, call);
    fn cuGraphAddNode_v2 | cuGraphAddNode_v3(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, params: In<'_, CUgraphNodeParams>) -> CUresult
        = |call| noting(!graph.is_null(), params, call);
    fn cuGraphNodeSetParams | cuGraphNodeSetParams_v2(node: CUgraphNode, params: In<'_, CUgraphNodeParams>) -> CUresult
        = |call| noting(!node.is_null(), params, call);
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<'_, CUgraphNodeParams>) -> CUresult
        = |call| {
            let answer = noting(!exec.is_null() && !node.is_null(), params, call);
            if answer.is_success() {
                apart::graph_changed(exec);
            }
            answer
        };
}

/// Submits a function of the host's by `call`.
fn calling_host(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    apart::comes(stream, true);
    let answer = call();
    // It is work that a free waits for.
    gate::submitted();
    answer
}

/// Makes a stream wait, by `call`, for another API.
fn waiting_outside(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    apart::waits_for_a_value(stream);
    call()
}

/// Whether the flags make a recording in a capture a node of the graph.
#[inline(always)]
fn is_external(flags: c_uint) -> bool {
    flags & CUevent_record_flags::EXTERNAL.0 != 0
}

/// Makes a call after which code outside this process's streams may record the event.
fn sharing(event: CUevent, call: impl FnOnce() -> CUresult) -> CUresult {
    awaited::event_shared(event);
    call()
}

fn imported(event: Out<'_, CUevent>, answer: CUresult) -> CUresult {
    if let Some(event) = event.after(answer) {
        awaited::event_shared(event);
    }
    answer
}

/// A graph may record the event of this node, if it is a record node. Where the driver refuses the
/// call without reading the parameters, this does not read them either. The driver looks up the
/// memory of other nodes.
fn noting(
    is_read: bool,
    params: In<'_, CUgraphNodeParams>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let params = if is_read { params.read() } else { None };
    if let Some(event) = params.as_ref().and_then(recorded_event) {
        awaited::event_shared(event);
    }
    seal::pass(call)
}
