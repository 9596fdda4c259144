//! Events, questions and host functions: what tells the gate which work is complete, and what work
//! waits for that is not the gate's. While everything is free each of them is the driver's own,
//! behind one load.
//!
//! # Safety
//! The driver is called with the program's own arguments; what it wrote is read only after it has said so, and of a graph's node only what
//! its type says is there.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::{c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::green;
use crate::driver::ordered::Ordered;
use crate::entry::hooks;
use crate::gate::{apart, awaited};

hooks! {
    #[seen]
    fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult = record;
    #[seen]
    fn cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> CUresult = record_per_thread;
    #[seen]
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult = record_with_flags;
    #[seen]
    fn cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) -> CUresult = record_with_flags_per_thread;
    #[seen]
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> CUresult = record_context;
    #[seen]
    fn cuGreenCtxRecordEvent(context: CUgreenCtx, event: CUevent) -> CUresult = record_green;
    #[seen]
    fn cuEventQuery(event: CUevent) -> CUresult = query;
    #[seen]
    fn cuEventDestroy(event: CUevent) -> CUresult = destroy;
    #[seen]
    fn cuEventDestroy_v2(event: CUevent) -> CUresult = destroy;
    #[seen]
    fn cuStreamQuery(stream: CUstream) -> CUresult = query_stream;
    #[seen]
    fn cuStreamQuery_ptsz(stream: CUstream) -> CUresult = query_stream_per_thread;
    #[seen]
    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult = host;
    #[seen]
    fn cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult = host_per_thread;
    #[seen]
    fn cuLaunchHostFunc_v2(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint) -> CUresult = host_v2;
    #[seen]
    fn cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: c_uint) -> CUresult = host_v2_per_thread;
    #[seen]
    fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) -> CUresult = call_back;
    #[seen]
    fn cuStreamAddCallback_ptsz(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) -> CUresult
        = call_back_per_thread;
    fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) -> CUresult = export;
    fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) -> CUresult = import;
    fn cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent)
        -> CUresult = add_record_node;
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> CUresult = set_event;
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CUresult = set_event_of_exec;
    fn cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams)
        -> CUresult = add_node;
    fn cuGraphAddNode_v2 | cuGraphAddNode_v3(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams) -> CUresult = add_node_v2;
    fn cuGraphNodeSetParams | cuGraphNodeSetParams_v2(node: CUgraphNode, params: *mut CUgraphNodeParams) -> CUresult = set_params;
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) -> CUresult = set_params_of_exec;
}

fn record(real: cuEventRecord, event: CUevent, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(event, stream) };
    awaited::recording_in(event, Ordered::legacy(stream), false, call)
}

fn record_per_thread(real: cuEventRecord, event: CUevent, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(event, stream) };
    awaited::recording_in(event, Ordered::per_thread(stream), false, call)
}

/// Whether the flags make a recording in a capture a node of the graph.
fn is_external(flags: c_uint) -> bool {
    flags & CUevent_record_flags::EXTERNAL.0 != 0
}

fn record_with_flags(
    real: cuEventRecordWithFlags,
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(event, stream, flags) };
    awaited::recording_in(event, Ordered::legacy(stream), is_external(flags), call)
}

fn record_with_flags_per_thread(
    real: cuEventRecordWithFlags,
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(event, stream, flags) };
    awaited::recording_in(event, Ordered::per_thread(stream), is_external(flags), call)
}

fn record_context(real: cuCtxRecordEvent, context: CUcontext, event: CUevent) -> CUresult {
    // SAFETY: the program's own arguments.
    awaited::recording_in_context(event, context, || unsafe { real(context, event) })
}

fn record_green(real: cuGreenCtxRecordEvent, context: CUgreenCtx, event: CUevent) -> CUresult {
    // SAFETY: the program's own arguments.
    awaited::recording_in_green(event, green::of(context), || unsafe {
        real(context, event)
    })
}

fn query(real: cuEventQuery, event: CUevent) -> CUresult {
    // SAFETY: the program's own argument.
    awaited::asking_event(event, || unsafe { real(event) })
}

fn destroy(real: cuEventDestroy, event: CUevent) -> CUresult {
    awaited::event_going(event);
    // SAFETY: the program's own argument.
    unsafe { real(event) }
}

fn query_stream(real: cuStreamQuery, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    awaited::asking_stream(Ordered::legacy(stream), || unsafe { real(stream) })
}

fn query_stream_per_thread(real: cuStreamQuery, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    awaited::asking_stream(Ordered::per_thread(stream), || unsafe { real(stream) })
}

fn host(
    real: cuLaunchHostFunc,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> CUresult {
    apart::comes(Ordered::legacy(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, function, data) }
}

fn host_per_thread(
    real: cuLaunchHostFunc,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> CUresult {
    apart::comes(Ordered::per_thread(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, function, data) }
}

fn host_v2(
    real: cuLaunchHostFunc_v2,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
    mode: c_uint,
) -> CUresult {
    apart::comes(Ordered::legacy(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, function, data, mode) }
}

fn host_v2_per_thread(
    real: cuLaunchHostFunc_v2,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
    mode: c_uint,
) -> CUresult {
    apart::comes(Ordered::per_thread(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, function, data, mode) }
}

fn call_back(
    real: cuStreamAddCallback,
    stream: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> CUresult {
    apart::comes(Ordered::legacy(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, callback, data, flags) }
}

fn call_back_per_thread(
    real: cuStreamAddCallback,
    stream: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> CUresult {
    apart::comes(Ordered::per_thread(stream), true);
    // SAFETY: the program's own arguments.
    unsafe { real(stream, callback, data, flags) }
}

/// Another process may record it from now on.
fn export(real: cuIpcGetEventHandle, handle: *mut CUipcEventHandle, event: CUevent) -> CUresult {
    awaited::event_shared(event);
    // SAFETY: the program's own arguments.
    unsafe { real(handle, event) }
}

fn import(real: cuIpcOpenEventHandle, event: *mut CUevent, handle: CUipcEventHandle) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(event, handle) };
    if answer.is_success() {
        // SAFETY: the driver has written it.
        awaited::event_shared(unsafe { *event });
    }
    answer
}

fn add_record_node(
    real: cuGraphAddEventRecordNode,
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> CUresult {
    awaited::event_shared(event);
    // SAFETY: the program's own arguments.
    unsafe { real(node, graph, after, count, event) }
}

fn set_event(real: cuGraphEventRecordNodeSetEvent, node: CUgraphNode, event: CUevent) -> CUresult {
    awaited::event_shared(event);
    // SAFETY: the program's own arguments.
    unsafe { real(node, event) }
}

fn set_event_of_exec(
    real: cuGraphExecEventRecordNodeSetEvent,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> CUresult {
    awaited::event_shared(event);
    // SAFETY: the program's own arguments.
    unsafe { real(exec, node, event) }
}

/// A graph may record the event of this node, if it is one that records.
fn noted(params: *const CUgraphNodeParams) {
    if params.is_null() {
        return;
    }
    // SAFETY: the program's own argument, which the driver is about to read; the type says which
    // member is there.
    let event = unsafe {
        match (*params).type_ {
            CUgraphNodeType::EVENT_RECORD => (*params).anon.eventRecord.event,
            _ => return,
        }
    };
    awaited::event_shared(event);
}

fn add_node(
    real: cuGraphAddNode,
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    noted(params);
    // SAFETY: the program's own arguments.
    unsafe { real(node, graph, after, count, params) }
}

fn add_node_v2(
    real: cuGraphAddNode_v2,
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    noted(params);
    // SAFETY: the program's own arguments.
    unsafe { real(node, graph, after, data, count, params) }
}

fn set_params(
    real: cuGraphNodeSetParams,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    noted(params);
    // SAFETY: the program's own arguments.
    unsafe { real(node, params) }
}

fn set_params_of_exec(
    real: cuGraphExecNodeSetParams,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    noted(params);
    // SAFETY: the program's own arguments.
    unsafe { real(exec, node, params) }
}
