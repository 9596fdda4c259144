//! Streams and captures: followed, so that the marks of the gate thread never meet a stream that goes or records, and so that it is known
//! who captures.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::{c_int, c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::captures;
use crate::driver::green;
use crate::driver::ordered::Ordered;
use crate::driver::streams;
use crate::entry::hooks;
use crate::gate::{apart, awaited};
use crate::holdings::frees;

hooks! {
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult = create;
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult = create_with_priority;
    fn cuGreenCtxStreamCreate(stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult = create_green;
    fn cuStreamDestroy | cuStreamDestroy_v2(stream: CUstream) -> CUresult = destroy;
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult = wait_event;
    fn cuStreamBeginCapture(stream: CUstream) -> CUresult = begin;
    fn cuStreamBeginCapture_ptsz(stream: CUstream) -> CUresult = begin_per_thread;
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult = begin_v2;
    fn cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult = begin_v2_per_thread;
    fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData,
        count: usize, mode: CUstreamCaptureMode) -> CUresult = begin_to_graph;
    fn cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData,
        count: usize, mode: CUstreamCaptureMode) -> CUresult = begin_to_graph_per_thread;
    fn cuStreamBeginCaptureToCig(stream: CUstream, params: *mut CUstreamCigCaptureParams) -> CUresult = begin_to_cig;
    fn cuStreamBeginCaptureToCig_ptsz(stream: CUstream, params: *mut CUstreamCigCaptureParams) -> CUresult = begin_to_cig_per_thread;
    fn cuStreamBeginRecaptureToGraph(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback: *const c_void,
        data: *mut c_void) -> CUresult = begin_again;
    fn cuStreamBeginRecaptureToGraph_ptsz(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback: *const c_void,
        data: *mut c_void) -> CUresult = begin_again_per_thread;
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult = end;
    fn cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) -> CUresult = end_per_thread;
    fn cuStreamEndCaptureToCig(stream: CUstream) -> CUresult = end_cig;
    fn cuStreamEndCaptureToCig_ptsz(stream: CUstream) -> CUresult = end_cig_per_thread;
}

fn create(real: cuStreamCreate, stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = made(stream, unsafe { real(stream, flags) });
    blocking(stream, flags, answer)
}

fn create_with_priority(
    real: cuStreamCreateWithPriority,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = made(stream, unsafe { real(stream, flags, priority) });
    blocking(stream, flags, answer)
}

fn create_green(
    real: cuGreenCtxStreamCreate,
    stream: *mut CUstream,
    context: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the program's own arguments.
    made(stream, unsafe { real(stream, context, flags, priority) })
}

fn made(stream: *const CUstream, answer: CUresult) -> CUresult {
    if answer.is_success() {
        // SAFETY: the driver wrote it.
        let stream = unsafe { *stream };
        green::stream_made(stream);
        streams::stream_made(stream);
    }
    answer
}

/// Notes a stream that waits for the legacy stream, and that for it.
fn blocking(stream: *const CUstream, flags: c_uint, answer: CUresult) -> CUresult {
    if answer.is_success() && flags & CUstream_flags::NON_BLOCKING.0 == 0 {
        // SAFETY: the driver wrote it.
        awaited::blocking_stream_made(unsafe { *stream });
    }
    answer
}

fn destroy(real: cuStreamDestroy, stream: CUstream) -> CUresult {
    awaited::stream_going(stream);
    frees::stream_going(stream);
    captures::stream_going(stream);
    // SAFETY: the program's own argument.
    let answer = streams::destroying_stream(stream, || unsafe { real(stream) });
    if answer.is_success() {
        green::stream_gone(stream);
        frees::stream_gone(stream);
    }
    answer
}

/// A stream that waits for an event of a capture joins it: as the begin of one.
fn wait_event(
    real: cuStreamWaitEvent,
    stream: CUstream,
    event: CUevent,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, event, flags) };
    let answer = streams::joining_capture(capturing(stream), call);
    apart::made_to_wait(Ordered::legacy(stream));
    answer
}

/// A stream as captures know it: stream 0, where it can capture at all, is the thread's own.
fn capturing(stream: CUstream) -> Ordered {
    Ordered::per_thread(stream)
}

/// Begins a capture by `call`. What was freed in the stream before is not the capture's, and gets its event first.
fn beginning(stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    frees::stream_going(stream.handle());
    captures::beginning(place(stream), || streams::beginning_capture(stream, call))
}

/// Notes what came of the end of a capture.
fn ending(stream: Ordered, answer: CUresult) -> CUresult {
    captures::ended(place(stream), answer);
    answer
}

fn place(stream: Ordered) -> captures::Place {
    let context = stream.place().map_or(CUcontext::NULL, |here| here.handle);
    captures::Place::of(stream.handle(), stream.is_per_thread(), context)
}

fn begin(real: cuStreamBeginCapture, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(stream) };
    beginning(Ordered::legacy(stream), call)
}

fn begin_per_thread(real: cuStreamBeginCapture_ptsz, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(stream) };
    beginning(Ordered::per_thread(stream), call)
}

fn begin_v2(
    real: cuStreamBeginCapture_v2,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, mode) };
    beginning(Ordered::legacy(stream), call)
}

fn begin_v2_per_thread(
    real: cuStreamBeginCapture_v2_ptsz,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, mode) };
    beginning(Ordered::per_thread(stream), call)
}

fn begin_to_graph(
    real: cuStreamBeginCaptureToGraph,
    stream: CUstream,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, graph, after, data, count, mode) };
    beginning(Ordered::legacy(stream), call)
}

fn begin_to_graph_per_thread(
    real: cuStreamBeginCaptureToGraph_ptsz,
    stream: CUstream,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, graph, after, data, count, mode) };
    beginning(Ordered::per_thread(stream), call)
}

fn begin_to_cig(
    real: cuStreamBeginCaptureToCig,
    stream: CUstream,
    params: *mut CUstreamCigCaptureParams,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, params) };
    beginning(Ordered::legacy(stream), call)
}

fn begin_to_cig_per_thread(
    real: cuStreamBeginCaptureToCig_ptsz,
    stream: CUstream,
    params: *mut CUstreamCigCaptureParams,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, params) };
    beginning(Ordered::per_thread(stream), call)
}

fn begin_again(
    real: cuStreamBeginRecaptureToGraph,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: *const c_void,
    data: *mut c_void,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, mode, graph, callback, data) };
    beginning(Ordered::legacy(stream), call)
}

fn begin_again_per_thread(
    real: cuStreamBeginRecaptureToGraph_ptsz,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: *const c_void,
    data: *mut c_void,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(stream, mode, graph, callback, data) };
    beginning(Ordered::per_thread(stream), call)
}

fn end(real: cuStreamEndCapture, stream: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the program's own arguments.
    ending(Ordered::legacy(stream), unsafe { real(stream, graph) })
}

fn end_per_thread(
    real: cuStreamEndCapture_ptsz,
    stream: CUstream,
    graph: *mut CUgraph,
) -> CUresult {
    // SAFETY: the program's own arguments.
    ending(Ordered::per_thread(stream), unsafe { real(stream, graph) })
}

fn end_cig(real: cuStreamEndCaptureToCig, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    ending(Ordered::legacy(stream), unsafe { real(stream) })
}

fn end_cig_per_thread(real: cuStreamEndCaptureToCig_ptsz, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    ending(Ordered::per_thread(stream), unsafe { real(stream) })
}
