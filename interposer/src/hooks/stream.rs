//! Streams and captures: tracked, so that the marks of the gate thread never meet a stream that is
//! being destroyed or captures, and so that each capture's thread is known.

use core::ffi::{c_int, c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::captures;
use crate::driver::green;
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::gate::{apart, awaited, drain, seal};
use crate::holdings::frees;
use crate::residency::kept_marks;

hooks! {
    fn cuStreamCreate(stream: Out<'_, CUstream>, flags: c_uint) -> CUresult = |call| blocking(stream, flags, call);
    fn cuStreamCreateWithPriority(stream: Out<'_, CUstream>, flags: c_uint, priority: c_int) -> CUresult
        = |call| blocking(stream, flags, call);
    fn cuGreenCtxStreamCreate(stream: Out<'_, CUstream>, context: CUgreenCtx, flags: c_uint, priority: c_int) -> CUresult
        = |call| made(stream, call());
    fn cuStreamDestroy | cuStreamDestroy_v2(stream: CUstream) -> CUresult = |call| destroy(stream, call);
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult
        = |call, of| wait_event(stream, of(stream), call);
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz(stream: CUstream) -> CUresult = |call, of| beginning(of(stream), call);
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult
        = |call, of| beginning(of(stream), call);
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: CUgraph, after: *const CUgraphNode,
        data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) -> CUresult = |call, of| beginning(of(stream), call);
    fn cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz(stream: CUstream, params: *mut CUstreamCigCaptureParams) -> CUresult
        = |call, of| beginning(of(stream), call);
    fn cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
        callback: *const c_void, data: *mut c_void) -> CUresult = |call, of| beginning(of(stream), call);
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) -> CUresult
        = |call, of| ending(of(stream), call());
    fn cuStreamEndCaptureToCig | cuStreamEndCaptureToCig_ptsz(stream: CUstream) -> CUresult = |call, of| ending(of(stream), call());
}

fn made(stream: Out<'_, CUstream>, answer: CUresult) -> CUresult {
    if let Some(stream) = stream.after(answer) {
        green::stream_made(stream);
        streams::stream_made(stream);
    }
    answer
}

/// Notes a stream that waits for the legacy stream, and that for it: its context before it is made,
/// so that a mark which begins meanwhile is not in the legacy stream.
fn blocking(stream: Out<'_, CUstream>, flags: c_uint, call: impl FnOnce() -> CUresult) -> CUresult {
    let blocks = flags & CUstream_flags::NON_BLOCKING.0 == 0;
    if blocks {
        streams::blocking_comes();
    }
    let answer = made(stream, call());
    if blocks && let Some(stream) = stream.after(answer) {
        streams::is_blocking(stream);
        awaited::blocking_stream_made(stream);
    }
    answer
}

fn destroy(stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    // The driver refuses that: the stream lives as long as its context, and its work has this name.
    if streams::is_default(stream) {
        return call();
    }
    awaited::stream_going(stream);
    frees::stream_going(stream);
    if let Some(here) = streams::whereabouts(stream) {
        drain::stream_going(here, stream);
        kept_marks::stream_going(here, StreamRef::legacy(stream));
    }
    let going = streams::going(&[stream]);
    let names = drain::stream_gone(stream);
    let of_green = green::stream_going(stream);
    let answer = call();
    if answer.is_success() {
        frees::stream_gone(stream);
    } else {
        if let Some(known) = of_green {
            green::stream_stays(stream, known);
        }
        going.stay();
        drain::stream_stays(&names);
    }
    answer
}

/// A stream that waits for an event of a capture joins it: as the begin of one.
fn wait_event(stream: CUstream, named: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    streams::note_own(named);
    let before = || mark_before(capturing(stream));
    let answer = captures::joining(before, call);
    apart::made_to_wait(StreamRef::legacy(stream));
    answer
}

/// A stream as captures know it: stream 0, where it can capture at all, is the thread's own.
fn capturing(stream: CUstream) -> StreamRef {
    StreamRef::per_thread(stream)
}

/// Begins a capture by `call`. Earlier frees in the stream are not part of the capture, and get
/// their event first.
fn beginning(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    frees::stream_going(stream.handle());
    mark_before(stream);
    captures::beginning(stream, call)
}

/// Marks the work of a stream that does not capture yet.
fn mark_before(stream: StreamRef) {
    if !(drain::may_bind() || seal::may_move()) || stream.records() {
        return;
    }
    if let Some(here) = streams::locate(stream) {
        drain::capture_begins(here, stream);
        kept_marks::stream_going(here, stream);
    }
}

/// Notes what came of the end of a capture.
fn ending(stream: StreamRef, answer: CUresult) -> CUresult {
    captures::ended(stream, answer);
    answer
}
