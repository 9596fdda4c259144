//! Streams and captures: followed, so that the marks of the gate thread never meet a stream that goes or records.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::{c_int, c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use super::ordered::Ordered;
use crate::entry::hooks;
use crate::gate::streams;
use crate::green;

hooks! {
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult = create;
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult = create_with_priority;
    fn cuGreenCtxStreamCreate(stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult = create_green;
    fn cuStreamDestroy | cuStreamDestroy_v2(stream: CUstream) -> CUresult = destroy;
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult = wait_event;
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz(stream: CUstream) -> CUresult = begin;
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult = begin_v2;
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: CUgraph, after: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) -> CUresult = begin_to_graph;
    fn cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz(stream: CUstream, params: *mut CUstreamCigCaptureParams) -> CUresult
        = begin_to_cig;
    fn cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: *const c_void, data: *mut c_void) -> CUresult = begin_again;
}

fn create(real: cuStreamCreate, stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the program's own arguments.
    made(stream, unsafe { real(stream, flags) })
}

fn create_with_priority(
    real: cuStreamCreateWithPriority,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the program's own arguments.
    made(stream, unsafe { real(stream, flags, priority) })
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

fn destroy(real: cuStreamDestroy, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    let answer = streams::destroying_stream(stream, || unsafe { real(stream) });
    if answer.is_success() {
        green::stream_gone(stream);
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
    streams::joining_capture(capturing(stream), || unsafe { real(stream, event, flags) })
}

/// A stream as captures know it: stream 0, where it can capture at all, is the thread's own.
fn capturing(stream: CUstream) -> Ordered {
    Ordered::per_thread(stream)
}

fn begin(real: cuStreamBeginCapture, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    streams::beginning_capture(capturing(stream), || unsafe { real(stream) })
}

fn begin_v2(
    real: cuStreamBeginCapture_v2,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the program's own arguments.
    streams::beginning_capture(capturing(stream), || unsafe { real(stream, mode) })
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
    streams::beginning_capture(capturing(stream), || unsafe {
        real(stream, graph, after, data, count, mode)
    })
}

fn begin_to_cig(
    real: cuStreamBeginCaptureToCig,
    stream: CUstream,
    params: *mut CUstreamCigCaptureParams,
) -> CUresult {
    // SAFETY: the program's own arguments.
    streams::beginning_capture(capturing(stream), || unsafe { real(stream, params) })
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
    streams::beginning_capture(capturing(stream), || unsafe {
        real(stream, mode, graph, callback, data)
    })
}
