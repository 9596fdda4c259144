//! Questions that the state of what is asked about forbids.

use std::ptr::{null, null_mut};

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

fn capture(stream: CUstream) {
    let mode = CUstreamCaptureMode::RELAXED;
    assert_eq!(cuStreamBeginCapture_v2(stream, mode), OK);
}

/// The result of the capture's end.
fn end(stream: CUstream) -> CUresult {
    answer(CUgraph::NULL, |out| cuStreamEndCapture(stream, out))
}

#[test]
fn a_stream_that_captures_does_not_tell_its_device() {
    let name = "a_stream_that_captures_does_not_tell_its_device";
    alone(name, "", || {
        start();
        let (captures, other) = (free_stream(), free_stream());
        capture(captures);
        assert_eq!(get(9, |out| cuStreamGetDevice(other, out)), 0);
        let refused = answer(9, |out| cuStreamGetDevice(captures, out));
        assert_eq!(refused, CUresult::STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end(captures), CUresult::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(get(9, |out| cuStreamGetDevice(captures, out)), 0);
    });
}

#[test]
fn no_time_is_measured_at_an_event_that_a_capture_recorded() {
    let name = "no_time_is_measured_at_an_event_that_a_capture_recorded";
    alone(name, "", || {
        start();
        let (stream, live, captured) = (free_stream(), event(), event());
        let record = |event| assert_eq!(cuEventRecord(event, stream), OK);
        let elapsed = |from, to| answer(0.0, |out| cuEventElapsedTime(out, from, to));
        record(live);
        record(captured);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(elapsed(live, captured), OK);
        capture(stream);
        record(captured);
        assert_eq!(elapsed(live, captured), CUresult::INVALID_VALUE);
        assert_eq!(elapsed(captured, live), CUresult::INVALID_VALUE);
        assert_eq!(end(stream), OK);
        assert_eq!(elapsed(live, captured), CUresult::INVALID_VALUE);
        record(captured);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(elapsed(live, captured), OK);
    });
}

#[test]
fn the_data_of_a_captures_edges_are_not_told_without_its_nodes() {
    let name = "the_data_of_a_captures_edges_are_not_told_without_its_nodes";
    alone(name, "", || {
        start();
        let stream = free_stream();
        capture(stream);
        let (mut nodes, mut data) = (null(), null());
        let ask = |nodes, data| {
            answer(CUstreamCaptureStatus::NONE, |out| {
                let none = null_mut();
                cuStreamGetCaptureInfo_v3(stream, out, null_mut(), null_mut(), nodes, data, none)
            })
        };
        let refused = ask(null_mut(), &raw mut data);
        assert_eq!(refused, CUresult::INVALID_VALUE);
        assert_eq!(ask(&raw mut nodes, &raw mut data), OK);
        assert_eq!(ask(&raw mut nodes, null_mut()), OK);
        assert_eq!(end(stream), OK);
    });
}

#[test]
fn only_the_current_context_is_detached() {
    let name = "only_the_current_context_is_detached";
    alone(name, "", || {
        start();
        let [first, second] =
            [(); 2].map(|()| get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0)));
        assert_eq!(cuCtxDetach(first), CUresult::INVALID_CONTEXT);
        assert_eq!(get(CUcontext::NULL, |out| cuCtxAttach(out, 0)), second);
        assert_eq!(cuCtxDetach(second), OK);
        assert_eq!(cuCtxSynchronize(), OK, "it was attached twice");
        assert_eq!(cuCtxDetach(second), OK);
        assert_eq!(cuCtxSetCurrent(first), OK);
        assert_eq!(cuCtxDetach(first), OK);
    });
}
