//! Kernels of PTX texts, through the driver: results, faults, time, order, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const HEAD: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";

fn load(body: &str) -> (CUresult, CUmodule) {
    let text = CString::new(format!("{HEAD}{body}")).unwrap();
    let mut module = CUmodule::NULL;
    let answer = cuModuleLoadData(&raw mut module, text.as_ptr().cast());
    (answer, module)
}

fn kernel(body: &str, name: &CStr) -> CUfunction {
    let (answer, module) = load(body);
    assert_eq!(answer, OK);
    get(CUfunction::NULL, |out| {
        cuModuleGetFunction(out, module, name.as_ptr())
    })
}

/// Launches `grid` blocks of `block` threads with parameters of eight bytes each.
fn start_kernel(
    kernel: CUfunction,
    stream: CUstream,
    grid: u32,
    block: u32,
    params: &[u64],
) -> CUresult {
    let mut values = params.to_vec();
    let mut pointers: Vec<*mut c_void> = values
        .iter_mut()
        .map(|value| std::ptr::from_mut(value).cast())
        .collect();
    cuLaunchKernel(
        kernel,
        grid,
        1,
        1,
        block,
        1,
        1,
        0,
        stream,
        pointers.as_mut_ptr(),
        null_mut(),
    )
}

/// Sets a word to 0, before everything that follows in any stream.
fn zeroed(word: CUdeviceptr) {
    assert_eq!(cuMemsetD32_v2(word, 0, 1), OK);
    assert_eq!(cuCtxSynchronize(), OK);
}

/// `out[i] = in[i] * 3 + 1` for each thread.
const MAP: &str = ".visible .entry map(.param .u64 in, .param .u64 out) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4]; mad.lo.u32 %r6, %r5, 3, 1; st.global.u32 [%rd5], %r6; ret; }";

/// Adds 1 to a word in each thread.
const COUNT: &str = ".visible .entry count(.param .u64 word) { .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; red.global.add.u32 [%rd1], 1; ret; }";

/// Waits for a word to become `value`, then writes 7 to the next one.
const AWAIT: &str = ".visible .entry await(.param .u64 word, .param .u64 value) { .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r1, [value];
    AGAIN: ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p, %r2, %r1; @%p bra AGAIN;
    st.global.u32 [%rd1+4], 7; ret; }";

#[test]
fn a_kernel_of_a_text_computes_in_stream_order() {
    alone("a_kernel_of_a_text_computes_in_stream_order", "", || {
        start();
        let (at, map) = (memory(8192), kernel(MAP, c"map"));
        let stream = free_stream();
        let host = pinned(512);
        (0..512_u32).for_each(|i| put(host.wrapping_add(i as usize), i));
        // A copy, two kernels and a copy in one stream: each sees what came before.
        assert_eq!(cuMemcpyHtoDAsync_v2(at, host.cast(), 2048, stream), OK);
        assert_eq!(start_kernel(map, stream, 16, 32, &[at, at + 2048]), OK);
        assert_eq!(
            start_kernel(map, stream, 16, 32, &[at + 2048, at + 4096]),
            OK
        );
        assert_eq!(
            cuMemcpyDtoHAsync_v2(host.cast(), at + 4096, 2048, stream),
            OK
        );
        assert_eq!(cuStreamSynchronize(stream), OK);
        let found: Vec<u32> = (0..512).map(|i| look(host.wrapping_add(i))).collect();
        assert_eq!(
            found,
            (0..512).map(|i| (i * 3 + 1) * 3 + 1).collect::<Vec<u32>>()
        );
    });
}

#[test]
fn atomics_of_concurrent_kernels_add_up() {
    alone("atomics_of_concurrent_kernels_add_up", "", || {
        start();
        let (word, count) = (memory(64), kernel(COUNT, c"count"));
        zeroed(word);
        let streams: Vec<CUstream> = (0..4).map(|_| free_stream()).collect();
        for stream in streams.iter().cycle().take(24) {
            assert_eq!(start_kernel(count, *stream, 8, 128, &[word]), OK);
        }
        assert_eq!(cuCtxSynchronize(), OK);
        assert_eq!(read(word, 1), [24 * 8 * 128]);
    });
}

#[test]
fn kernels_wait_for_the_host_and_for_each_other() {
    alone("kernels_wait_for_the_host_and_for_each_other", "", || {
        start();
        let words = pinned(4);
        let at = words.addr() as u64;
        let await_ = kernel(AWAIT, c"await");
        let streams = [free_stream(), free_stream()];
        // The second kernel waits for the word that the first one writes, and begins before it.
        assert_eq!(start_kernel(await_, streams[1], 1, 1, &[at + 4, 7]), OK);
        assert_eq!(start_kernel(await_, streams[0], 1, 1, &[at, 5]), OK);
        assert_eq!(cuStreamQuery(streams[0]), CUresult::NOT_READY);
        // Calls that take memory are served while kernels run.
        let other = memory(4 << 20);
        put(words, 5);
        assert_eq!(cuStreamSynchronize(streams[1]), OK);
        assert_eq!(cuStreamSynchronize(streams[0]), OK);
        assert_eq!(look(words.wrapping_add(2)), 7);
        assert_eq!(cuMemFree_v2(other), OK);
    });
}

#[test]
fn a_kernels_time_is_its_instructions_times_their_cost() {
    alone(
        "a_kernels_time_is_its_instructions_times_their_cost",
        "inst=20us",
        || {
            start();
            let (word, count) = (memory(64), kernel(COUNT, c"count"));
            let (stream, begin, end) = (free_stream(), event(), event());
            // The host is not waited for between the two events.
            let gate = Gate::close(stream);
            assert_eq!(cuEventRecord(begin, stream), OK);
            assert_eq!(start_kernel(count, stream, 2, 32, &[word]), OK);
            assert_eq!(cuEventRecord(end, stream), OK);
            gate.open();
            assert_eq!(cuEventSynchronize(end), OK);
            let ms = get(0_f32, |out| cuEventElapsedTime(out, begin, end));
            // 64 threads of three instructions, and 5 us for the launch. The host computes them in
            // less.
            let wanted = f32::from(64_u16 * 3) * 0.02 + 0.005;
            assert!(ms >= wanted && ms < wanted + 200.0, "{ms} ms, not {wanted}");
        },
    );
}

/// A kernel with this body, a pointer to 4096 bytes in `%rd1`, loses its context to `wanted`.
fn ends_the_context(name: &str, body: &str, wanted: CUresult) {
    let text = format!(
        ".visible .entry bad(.param .u64 at) {{ .reg .b32 %r<3>; .reg .b64 %rd<3>; \
         .shared .b32 s[4]; ld.param.u64 %rd1, [at]; {body} ret; }}"
    );
    alone(name, "watchdog=100000", || {
        start();
        let (at, bad) = (memory(4096), kernel(&text, c"bad"));
        assert_eq!(start_kernel(bad, CUstream::NULL, 1, 2, &[at]), OK);
        assert_eq!(cuCtxSynchronize(), wanted);
        assert_eq!(cuCtxSynchronize(), wanted, "the error stays");
        let mut other = 0;
        assert_eq!(cuMemAlloc_v2(&raw mut other, 64), wanted);
    });
}

macro_rules! faults {
    ($(fn $name:ident() { $body:literal ends with $wanted:ident })*) => {$(
        #[test]
        fn $name() {
            ends_the_context(stringify!($name), $body, CUresult::$wanted);
        }
    )*};
}

faults! {
    fn an_access_beyond_an_allocation_is_illegal() {
        "st.global.u32 [%rd1+4096], %r1;" ends with ILLEGAL_ADDRESS
    }
    fn an_access_across_words_is_misaligned() {
        "ld.global.u32 %r1, [%rd1+2];" ends with MISALIGNED_ADDRESS
    }
    fn an_access_beyond_shared_memory_fails_the_launch() {
        "st.shared.u32 [s+16], 1;" ends with LAUNCH_FAILED
    }
    fn a_trap_fails_the_launch() {
        "trap;" ends with LAUNCH_FAILED
    }
    fn a_kernel_without_an_end_is_ended_by_the_watchdog() {
        "L: bra L;" ends with LAUNCH_TIMEOUT
    }
    fn a_barrier_that_not_all_threads_reach_times_out() {
        "bar.sync 0, 64;" ends with LAUNCH_TIMEOUT
    }
}

#[test]
fn unknown_instructions_fail_the_launch_and_errors_the_load() {
    alone(
        "unknown_instructions_fail_the_launch_and_errors_the_load",
        "",
        || {
            start();
            let body =
                ".visible .entry bad() { frobnicate.u32 1; ret; }\n.visible .entry good() { ret; }";
            let (bad, good) = (kernel(body, c"bad"), kernel(body, c"good"));
            assert_eq!(
                start_kernel(bad, CUstream::NULL, 1, 1, &[]),
                CUresult::NOT_SUPPORTED
            );
            assert_eq!(start_kernel(good, CUstream::NULL, 1, 1, &[]), OK);
            assert_eq!(cuCtxSynchronize(), OK);
            assert_eq!(
                load(".visible .entry broken() { ret").0,
                CUresult::INVALID_PTX
            );
            let library = CString::new(format!("{HEAD}nonsense")).unwrap();
            let load = |out| {
                let image = library.as_ptr().cast();
                cuLibraryLoadData(
                    out,
                    image,
                    null_mut(),
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                    0,
                )
            };
            assert_eq!(answer(CUlibrary::NULL, load), CUresult::INVALID_PTX);
        },
    );
}

#[test]
fn a_launch_keeps_to_the_kernels_limits_and_parameters() {
    alone(
        "a_launch_keeps_to_the_kernels_limits_and_parameters",
        "",
        || {
            start();
            let body = ".visible .entry most(.param .u64 p).maxntid 64 { ret; }\n.visible .entry exact().reqntid 32 { ret; }\n\
            .visible .entry wide() { .reg .b32 %r; .shared .b32 s[4096]; ld.shared.u32 %r, [s]; ret; }";
            let (most, exact, wide) = (
                kernel(body, c"most"),
                kernel(body, c"exact"),
                kernel(body, c"wide"),
            );
            let launched = |kernel, block, shared| {
                cuLaunchKernel(
                    kernel,
                    1,
                    1,
                    1,
                    block,
                    1,
                    1,
                    shared,
                    CUstream::NULL,
                    [(&raw const body).cast_mut().cast()].as_mut_ptr(),
                    null_mut(),
                )
            };
            assert_eq!(launched(most, 64, 0), OK);
            assert_eq!(launched(most, 65, 0), CUresult::INVALID_VALUE);
            assert_eq!(
                (launched(exact, 32, 0), launched(exact, 31, 0)),
                (OK, CUresult::INVALID_VALUE)
            );
            // 16 KiB of the 48 KiB are the kernel's own.
            assert_eq!(
                (
                    launched(wide, 1, 32 << 10),
                    launched(wide, 1, (32 << 10) + 1)
                ),
                (OK, CUresult::INVALID_VALUE)
            );
            let none = cuLaunchKernel(
                most,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                CUstream::NULL,
                null_mut(),
                null_mut(),
            );
            assert_eq!(none, CUresult::INVALID_VALUE);
            assert_eq!(cuCtxSynchronize(), OK);
        },
    );
}

#[test]
fn a_kernel_reads_and_writes_its_modules_variables() {
    alone(
        "a_kernel_reads_and_writes_its_modules_variables",
        "",
        || {
            start();
            let body = ".visible .global .align 8 .u64 pointer = data+4;\n.visible .global .align 4 .u32 data[2] = {5, 6};\n\
            .const .align 4 .u32 factor = 100;\n\
            .visible .entry bump() { .reg .b32 %r<4>; .reg .b64 %rd<3>; ld.global.u64 %rd1, [pointer]; ld.global.u32 %r1, [%rd1];\n\
            ld.const.u32 %r2, [factor]; mul.lo.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; ret; }";
            let (answer, module) = load(body);
            assert_eq!(answer, OK);
            let bump = get(CUfunction::NULL, |out| {
                cuModuleGetFunction(out, module, c"bump".as_ptr())
            });
            assert_eq!(start_kernel(bump, CUstream::NULL, 1, 1, &[]), OK);
            let mut bytes = 0;
            let at = get(0, |out| {
                cuModuleGetGlobal_v2(out, &raw mut bytes, module, c"data".as_ptr())
            });
            assert_eq!((bytes, read(at, 2)), (8, vec![5, 600]));
        },
    );
}

#[test]
fn a_captured_kernel_runs_with_each_launch_of_its_graph() {
    alone(
        "a_captured_kernel_runs_with_each_launch_of_its_graph",
        "",
        || {
            start();
            let (word, count, stream) = (memory(64), kernel(COUNT, c"count"), free_stream());
            zeroed(word);
            assert_eq!(
                cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::GLOBAL),
                OK
            );
            for _ in 0..3 {
                assert_eq!(start_kernel(count, stream, 1, 32, &[word]), OK);
            }
            let graph = get(CUgraph::NULL, |out| cuStreamEndCapture(stream, out));
            let exec = get(CUgraphExec::NULL, |out| {
                cuGraphInstantiateWithFlags(out, graph, 0)
            });
            assert_eq!(read(word, 1), [0]);
            for _ in 0..4 {
                assert_eq!(cuGraphLaunch(exec, stream), OK);
            }
            assert_eq!(cuStreamSynchronize(stream), OK);
            assert_eq!(read(word, 1), [4 * 3 * 32]);
        },
    );
}
