//! Green contexts: synchronisation, the current thread, and destroyed green contexts.
#![allow(unsafe_code, reason = "an empty C structure")]

use std::ptr::null_mut;
use std::thread;

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

/// A green context of the whole device, and its handle as a context.
fn green() -> (CUgreenCtx, CUcontext) {
    // SAFETY: plain numbers and pointers, for which all zeroes is a value.
    let empty: CUdevResource = unsafe { std::mem::zeroed() };
    let mut whole = get(empty, |out| {
        cuDeviceGetDevResource(0, out, CUdevResourceType::SM)
    });
    let none = CUdevResourceDesc(null_mut());
    let desc = get(none, |out| {
        cuDevResourceGenerateDesc(out, &raw mut whole, 1)
    });
    let flags = CUgreenCtxCreate_flags::DEFAULT_STREAM.0;
    let green = get(CUgreenCtx::NULL, |out| {
        cuGreenCtxCreate(out, desc, 0, flags)
    });
    let context = get(CUcontext::NULL, |out| cuCtxFromGreenCtx(out, green));
    (green, context)
}

fn stream_of(green: CUgreenCtx) -> CUstream {
    let flags = CUstream_flags::NON_BLOCKING.0;
    get(CUstream::NULL, |out| {
        cuGreenCtxStreamCreate(out, green, flags, 0)
    })
}

/// Makes `context` current while `body` runs.
fn within<R>(context: CUcontext, body: impl FnOnce() -> R) -> R {
    assert_eq!(cuCtxPushCurrent_v2(context), OK);
    let answer = body();
    assert_eq!(answer_of_pop(), OK);
    answer
}

fn answer_of_pop() -> CUresult {
    answer(CUcontext::NULL, cuCtxPopCurrent_v2)
}

#[test]
fn a_green_context_is_current_in_one_thread_at_a_time() {
    alone(
        "a_green_context_is_current_in_one_thread_at_a_time",
        "",
        || {
            start();
            let (_, context) = green();
            let elsewhere = |wanted: CUresult| {
                let context = context.0.expose_provenance();
                let other = thread::spawn(move || {
                    let context = CUcontext(std::ptr::with_exposed_provenance_mut(context));
                    assert_eq!(cuCtxPushCurrent_v2(context), wanted);
                    assert_eq!(cuCtxSetCurrent(context), wanted);
                });
                other.join().unwrap();
            };
            within(context, || elsewhere(CUresult::INVALID_CONTEXT));
            // The thread's end pops it from the thread's stack.
            elsewhere(OK);
            within(context, || within(context, || ()));
            elsewhere(OK);
        },
    );
}

#[test]
fn a_primary_context_waits_for_its_green_contexts_not_vice_versa() {
    let name = "a_primary_context_waits_for_its_green_contexts_not_vice_versa";
    alone(name, "", || {
        start();
        let (one, context) = green();
        let (two, _) = green();
        let (first, own, at) = (stream_of(one), free_stream(), pinned(1));
        let held = Gate::close(own);
        within(context, || assert_eq!(cuCtxSynchronize(), OK));
        let (event, all) = (event(), event());
        for green in [one, two] {
            assert_eq!(cuGreenCtxRecordEvent(green, event), OK);
            assert_eq!(cuEventQuery(event), OK);
        }
        held.open();
        assert_eq!(cuCtxSynchronize(), OK);
        let held = Gate::close(first);
        assert_eq!(cuGreenCtxRecordEvent(one, event), OK);
        assert_eq!(cuCtxRecordEvent(CUcontext::NULL, all), OK);
        assert_eq!(cuEventQuery(event), CUresult::NOT_READY);
        assert_eq!(cuEventQuery(all), CUresult::NOT_READY);
        // Later work in another green context waits if the event says so.
        assert_eq!(cuGreenCtxWaitEvent(two, event), OK);
        assert_eq!(fill(stream_of(two), at.addr() as u64, 1, 7), OK);
        assert_eq!(look(at), 0);
        held.open();
        assert_eq!(cuCtxSynchronize(), OK);
        assert_eq!(look(at), 7, "the green contexts' work is complete too");
    });
}

#[test]
fn each_green_context_has_its_own_default_stream() {
    alone("each_green_context_has_its_own_default_stream", "", || {
        start();
        let (_, context) = green();
        let held = Gate::close(CUstream::NULL);
        within(context, || {
            let blocking = stream(0);
            assert_eq!(
                cuStreamSynchronize(CUstream::NULL),
                OK,
                "the primary's default stream is idle"
            );
            let held = Gate::close(CUstream::NULL);
            spin(blocking, 1000);
            assert_eq!(
                cuStreamQuery(blocking),
                CUresult::NOT_READY,
                "the green context's default stream is busy"
            );
            held.open();
            assert_eq!(cuStreamSynchronize(blocking), OK);
            assert_eq!(
                cuStreamQuery(CU_STREAM_PER_THREAD),
                CUresult::INVALID_HANDLE
            );
        });
        held.open();
        assert_eq!(cuCtxSynchronize(), OK);
    });
}

#[test]
fn work_of_a_destroyed_green_context_still_completes() {
    let name = "work_of_a_destroyed_green_context_still_completes";
    for driver in ["driver=12080", "driver=13010"] {
        alone(name, driver, || {
            start();
            // An older driver keeps the streams of what is destroyed.
            let (wanted, destroyed) = match get(0, cuDriverGetVersion) {
                ..13010 => (
                    CUresult::CONTEXT_IS_DESTROYED,
                    CUresult::CONTEXT_IS_DESTROYED,
                ),
                _ => (CUresult::STREAM_DETACHED, OK),
            };
            let (green, context) = green();
            let (stream, at) = (stream_of(green), pinned(1));
            let held = Gate::close(stream);
            assert_eq!(fill(stream, at.addr() as u64, 1, 7), OK);
            assert_eq!(cuCtxPushCurrent_v2(context), OK);
            assert_eq!(cuGreenCtxDestroy(green), OK);
            assert_eq!(cuCtxSynchronize(), CUresult::CONTEXT_IS_DESTROYED);
            assert_eq!(answer_of_pop(), OK);
            assert_eq!(cuStreamQuery(stream), wanted);
            assert_eq!(cuStreamDestroy_v2(stream), destroyed);
            assert_eq!(look(at), 0);
            held.open();
            assert_eq!(cuCtxSynchronize(), OK);
            assert_eq!(look(at), 7);
        });
    }
}

#[test]
fn resetting_a_primary_context_ends_its_green_contexts() {
    alone(
        "resetting_a_primary_context_ends_its_green_contexts",
        "",
        || {
            start();
            let (green, _) = green();
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), OK);
            assert_eq!(cuGreenCtxDestroy(green), CUresult::CONTEXT_IS_DESTROYED);
            start();
            let flags = CUstream_flags::NON_BLOCKING.0;
            assert_eq!(
                answer(CUstream::NULL, |out| cuGreenCtxStreamCreate(
                    out, green, flags, 0
                )),
                CUresult::CONTEXT_IS_DESTROYED
            );
        },
    );
}
