//! Calls that NVIDIA's pages refuse are refused, and have taken nothing.

use std::ptr::null_mut;

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::RELAXED;

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // What was freed returns late.
    for _ in 0..32 {
        assert_eq!(cuMemGetInfo_v2(&raw mut free, &raw mut total), OK);
    }
    free
}

#[test]
fn a_free_that_a_capture_forbids_takes_nothing() {
    alone("a_free_that_a_capture_forbids_takes_nothing", "", || {
        start();
        let (capturing, working) = (stream(0), free_stream());
        let plain = memory(4096);
        let pooled = get(0, |out| cuMemAllocAsync(out, 4096, working));
        let gate = Gate::close(working);
        for at in [plain, pooled] {
            assert_eq!(cuMemsetD32Async(at, 7, 1024, working), OK);
        }
        assert_eq!(cuStreamBeginCapture_v2(capturing, RELAXED), OK);
        for at in [plain, pooled] {
            assert_eq!(
                cuMemFreeAsync(at, CUstream::NULL),
                CUresult::STREAM_CAPTURE_IMPLICIT
            );
        }
        let mut graph = CUgraph::NULL;
        assert_eq!(
            cuStreamEndCapture(capturing, &raw mut graph),
            CUresult::STREAM_CAPTURE_INVALIDATED
        );
        gate.open();
        assert_eq!(cuStreamSynchronize(working), OK);
        for at in [plain, pooled] {
            assert_eq!(read(at, 1024), [7; 1024]);
            assert_eq!(cuMemFreeAsync(at, CUstream::NULL), OK);
            assert_eq!(cuMemFreeAsync(at, CUstream::NULL), CUresult::INVALID_VALUE);
        }
        assert_eq!(cuCtxSynchronize(), OK);
    });
}

#[test]
fn flags_for_captures_are_refused_where_none_is() {
    alone("flags_for_captures_are_refused_where_none_is", "", || {
        start();
        let (stream, event) = (free_stream(), event());
        let external = CUevent_record_flags::EXTERNAL.0;
        let record = || cuEventRecordWithFlags(event, stream, external);
        let wait = || cuStreamWaitEvent(stream, event, external);
        assert_eq!([record(), wait()], [CUresult::INVALID_VALUE; 2]);
        assert_eq!(cuEventRecordWithFlags(event, stream, 0), OK);
        assert_eq!(cuStreamBeginCapture_v2(stream, RELAXED), OK);
        assert_eq!([record(), wait()], [OK; 2]);
        get(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
        assert_eq!([record(), wait()], [CUresult::INVALID_VALUE; 2]);
    });
}

#[test]
fn a_module_of_a_library_goes_with_the_library_alone() {
    alone(
        "a_module_of_a_library_goes_with_the_library_alone",
        "",
        || {
            start();
            let library = get(CUlibrary::NULL, |out| {
                cuLibraryLoadData(
                    out,
                    c"image".as_ptr().cast(),
                    null_mut(),
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                    0,
                )
            });
            let module = get(CUmodule::NULL, |out| cuLibraryGetModule(out, library));
            assert_eq!(cuModuleUnload(module), CUresult::NOT_PERMITTED);
            let name = c"spin".as_ptr();
            get(CUfunction::NULL, |out| {
                cuModuleGetFunction(out, module, name)
            });
            assert_eq!(cuLibraryUnload(library), OK);
            assert_eq!(cuModuleUnload(module), CUresult::INVALID_HANDLE);
        },
    );
}

/// Launches a kernel that records `event` when it is complete.
fn launch_with(event: CUevent, stream: CUstream, id: CUlaunchAttributeID) -> CUresult {
    // SAFETY: plain data, for which all zeroes is a value.
    #[expect(unsafe_code, reason = "a C union")]
    let mut value: CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
    if id == CUlaunchAttributeID::PROGRAMMATIC_EVENT {
        value.programmaticEvent.event = event;
    } else {
        value.launchCompletionEvent.event = event;
    }
    let mut attribute = CUlaunchAttribute {
        id,
        pad: [0; 4],
        value,
    };
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    let mut ns = 50_000_000_u64;
    let mut params = [(&raw mut ns).cast()];
    let function = function("spin");
    cuLaunchKernelEx(&raw const config, function, params.as_mut_ptr(), null_mut())
}

#[test]
fn a_launch_whose_event_is_not_legal_launches_nothing() {
    alone(
        "a_launch_whose_event_is_not_legal_launches_nothing",
        "",
        || {
            start();
            let stream = free_stream();
            let untimed = CUevent_flags::DISABLE_TIMING.0;
            let made = |flags| get(CUevent::NULL, |out| cuEventCreate(out, flags));
            let shared = made(untimed | CUevent_flags::INTERPROCESS.0);
            let first = get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, 0));
            get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
            let elsewhere = made(untimed);
            assert_eq!(cuCtxSetCurrent(first), OK);
            for id in [
                CUlaunchAttributeID::PROGRAMMATIC_EVENT,
                CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT,
            ] {
                for (event, error) in [
                    (made(0), CUresult::INVALID_VALUE),
                    (shared, CUresult::INVALID_VALUE),
                    (elsewhere, CUresult::INVALID_HANDLE),
                ] {
                    assert_eq!(launch_with(event, stream, id), error);
                    assert_eq!(cuStreamQuery(stream), OK);
                }
                let event = made(untimed);
                assert_eq!(launch_with(event, stream, id), OK);
                assert_eq!(cuEventSynchronize(event), OK);
            }
        },
    );
}

#[test]
fn managed_memory_alone_is_attached_and_as_a_whole() {
    alone(
        "managed_memory_alone_is_attached_and_as_a_whole",
        "",
        || {
            start();
            let (stream, plain) = (free_stream(), memory(8192));
            let managed = get(0, |out| cuMemAllocManaged(out, 8192, 1));
            let single = CUmemAttach_flags::SINGLE.0;
            for (at, bytes, answer) in [
                (managed, 0, OK),
                (managed, 8192, OK),
                (managed, 4096, CUresult::INVALID_VALUE),
                (managed + 4096, 4096, CUresult::INVALID_VALUE),
                (plain, 0, CUresult::INVALID_VALUE),
                (0, 0, CUresult::INVALID_VALUE),
            ] {
                assert_eq!(cuStreamAttachMemAsync(stream, at, bytes, single), answer);
            }
            let to_all = cuStreamAttachMemAsync(CUstream::NULL, managed, 0, single);
            assert_eq!(to_all, CUresult::INVALID_VALUE);
            assert_eq!(cuStreamAttachMemAsync(CUstream::NULL, managed, 0, 1), OK);
        },
    );
}

#[test]
fn a_flush_of_remote_writes_is_not_supported() {
    alone("a_flush_of_remote_writes_is_not_supported", "", || {
        start();
        let (stream, at) = (free_stream(), memory(4));
        let flush = CUstreamWaitValue_flags::FLUSH.0;
        assert_eq!(
            cuStreamWaitValue32_v2(stream, at, 0, flush),
            CUresult::NOT_SUPPORTED
        );
        assert_eq!(cuStreamWaitValue32_v2(stream, at, 0, 0), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
    });
}

#[test]
fn a_graph_whose_context_is_gone_is_not_launched() {
    use crate::driver::graphs::*;
    alone("a_graph_whose_context_is_gone_is_not_launched", "", || {
        start();
        let first = get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, 0));
        let stream = free_stream();
        let second = get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
        let (at, graph) = (memory(4096), graph());
        fill_node(graph, &[], at, 4, 7);
        let exec = instance(graph, 0);
        assert_eq!(cuCtxSetCurrent(first), OK);
        assert_eq!(cuGraphLaunch(exec, stream), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(cuCtxDestroy_v2(second), OK);
        assert_eq!(cuGraphLaunch(exec, stream), CUresult::CONTEXT_IS_DESTROYED);
    });
}

#[test]
fn an_update_changes_neither_a_kernels_context_nor_a_fills_rows() {
    use crate::driver::graphs::*;
    let name = "an_update_changes_neither_a_kernels_context_nor_a_fills_rows";
    alone(name, "", || {
        start();
        let (at, graph) = (memory(4096), graph());
        let node = fill_node(graph, &[], at, 4, 7);
        let exec = instance(graph, 0);
        let set = || {
            let mut fill = Fill::new(at, 4, 8);
            let params = fill.params();
            cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params)
        };
        assert_eq!(set(), OK);
        get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
        assert_eq!(set(), CUresult::INVALID_VALUE);

        let fills = |rows, value| {
            let made = get(CUgraph::NULL, |out| cuGraphCreate(out, 0));
            let params = CUDA_MEMSET_NODE_PARAMS_v1 {
                dst: at,
                pitch: 64,
                value,
                elementSize: 1,
                width: 16,
                height: rows,
            };
            get(CUgraphNode::NULL, |out| {
                let of = &raw const params;
                cuGraphAddMemsetNode(out, made, std::ptr::null(), 0, of, CUcontext::NULL)
            });
            made
        };
        let exec = instance(fills(2, 1), 0);
        use CUgraphExecUpdateResult as Answer;
        assert_eq!(updated(exec, fills(2, 9)), Answer::SUCCESS);
        for rows in [3, 1] {
            let answer = updated(exec, fills(rows, 9));
            assert_eq!(answer, Answer::ERROR_PARAMETERS_CHANGED);
        }
    });
}

const HEAP: CUlimit = CUlimit::MALLOC_HEAP_SIZE;
/// Of a new context: in its own memory.
const SMALL: usize = 8 << 20;

#[test]
fn a_larger_heap_of_the_kernels_is_memory_that_a_loaded_module_takes() {
    let name = "a_larger_heap_of_the_kernels_is_memory_that_a_loaded_module_takes";
    alone(name, "mem=512MiB", || {
        start();
        assert_eq!(get(0, |out| cuCtxGetLimit(out, HEAP)), SMALL);
        let stream = free_stream();
        spin(stream, 1000);
        assert_eq!(cuCtxSetLimit(HEAP, SMALL + (64 << 20)), OK);
        let before = free_bytes();
        let function = function("spin");
        assert_eq!(free_bytes(), before, "a module's code is loaded lazily");
        let mut ns = 1000_u64;
        assert_eq!(launch(function, stream, &mut [(&raw mut ns).cast()]), OK);
        assert_eq!(before - free_bytes(), (64 << 20) + (2 << 20));
        assert_eq!(cuCtxSetLimit(HEAP, SMALL), CUresult::INVALID_VALUE);
        spin(stream, 1000);
        assert_eq!(before - free_bytes(), (64 << 20) + (4 << 20));
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), OK);
        start();
        assert_eq!(get(0, |out| cuCtxGetLimit(out, HEAP)), SMALL);
        spin(CUstream::NULL, 1000);
        assert!(free_bytes() > before - (8 << 20));
    });
}

#[test]
fn a_module_whose_heap_does_not_fit_is_not_loaded() {
    alone(
        "a_module_whose_heap_does_not_fit_is_not_loaded",
        "mem=512MiB",
        || {
            start();
            assert_eq!(cuCtxSetLimit(HEAP, 1 << 40), OK);
            let before = free_bytes();
            let mut ns = 1000_u64;
            let answer = launch(
                function("spin"),
                CUstream::NULL,
                &mut [(&raw mut ns).cast()],
            );
            assert_eq!(answer, CUresult::SHARED_OBJECT_INIT_FAILED);
            assert_eq!(free_bytes(), before);
            assert_eq!(cuCtxSetLimit(HEAP, SMALL), OK);
            spin(CUstream::NULL, 1000);
            assert_eq!(cuCtxSynchronize(), OK);
        },
    );
}
