//! Kernels: the results of the built-in kernels, their look-up and launch, and illegal launches.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const MS: u64 = 1_000_000;

fn floats(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn built_in_kernels_compute_real_bytes() {
    alone("built_in_kernels_compute_real_bytes", "", || {
        start();
        let (mut a, mut b, mut out, mut n, mut factor) =
            (memory(4096), memory(4096), memory(4096), 3_u64, 0.5_f32);
        write(a, &[1.0_f32, 2.0, -3.0]);
        write(b, &[10.0_f32, 20.0, 30.0]);
        let (a_, b_, out_, n_): (*mut c_void, *mut c_void, *mut c_void, *mut c_void) = (
            (&raw mut a).cast(),
            (&raw mut b).cast(),
            (&raw mut out).cast(),
            (&raw mut n).cast(),
        );
        assert_eq!(
            launch(function("vadd"), CUstream::NULL, &mut [a_, b_, out_, n_]),
            OK
        );
        assert_eq!(read(out, 3), floats(&[11.0, 22.0, 27.0]));
        assert_eq!(
            launch(
                function("saxpy"),
                CUstream::NULL,
                &mut [(&raw mut factor).cast(), a_, b_, n_]
            ),
            OK
        );
        assert_eq!(read(b, 3), floats(&[10.5, 21.0, 28.5]));
        write(a, b"foobar");
        let mut six = 6_u64;
        assert_eq!(
            launch(
                function("checksum"),
                CUstream::NULL,
                &mut [a_, (&raw mut six).cast(), out_]
            ),
            OK
        );
        assert_eq!(read(out, 2), [0xf739_67e8, 0x8594_4171]);
    });
}

#[test]
fn parameters_may_come_in_one_buffer() {
    alone("parameters_may_come_in_one_buffer", "", || {
        start();
        let at = memory(4096);
        let mut buffer = [at.to_le_bytes(), 4_u64.to_le_bytes(), 7_u64.to_le_bytes()].concat();
        let mut size = 20_usize;
        let mut extra = [
            CU_LAUNCH_PARAM_BUFFER_POINTER,
            buffer.as_mut_ptr().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut size).cast(),
            CU_LAUNCH_PARAM_END,
        ];
        let fill = function("fill");
        assert_eq!(
            cuLaunchKernel(
                fill,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                CUstream::NULL,
                null_mut(),
                extra.as_mut_ptr()
            ),
            OK
        );
        assert_eq!(read(at, 4), [7; 4]);
        let neither = cuLaunchKernel(
            fill,
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
        assert_eq!(neither, CUresult::INVALID_VALUE);
    });
}

#[test]
fn a_kernel_of_a_library_is_launched_as_a_function() {
    alone(
        "a_kernel_of_a_library_is_launched_as_a_function",
        "",
        || {
            start();
            let image: *const c_void = c"image".as_ptr().cast();
            let library = get(CUlibrary::NULL, |out| {
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
            });
            let kernel = get(CUkernel::NULL, |out| {
                cuLibraryGetKernel(out, library, c"fill".as_ptr())
            });
            assert_eq!(
                kernel,
                get(CUkernel::NULL, |out| cuLibraryGetKernel(
                    out,
                    library,
                    c"fill".as_ptr()
                ))
            );
            let (mut at, mut n, mut value) = (memory(4096), 2_u64, 3_u32);
            let mut values = [
                (&raw mut at).cast(),
                (&raw mut n).cast(),
                (&raw mut value).cast(),
            ];
            assert_eq!(
                launch(CUfunction(kernel.0), CUstream::NULL, &mut values),
                OK
            );
            assert_eq!(read(at, 2), [3, 3]);
            assert_eq!(cuLibraryUnload(library), OK);
            assert_eq!(
                launch(CUfunction(kernel.0), CUstream::NULL, &mut values),
                CUresult::INVALID_HANDLE
            );
        },
    );
}

#[test]
fn an_unknown_name_is_an_empty_kernel_and_an_empty_name_not_found() {
    alone(
        "an_unknown_name_is_an_empty_kernel_and_an_empty_name_not_found",
        "",
        || {
            start();
            assert_eq!(
                launch(
                    function("_Z9somethingPf"),
                    CUstream::NULL,
                    &mut [null_mut()]
                ),
                OK
            );
            assert_eq!(cuCtxSynchronize(), OK);
            let mut function = CUfunction::NULL;
            let module = module();
            assert_eq!(
                cuModuleGetFunction(&raw mut function, module, c"".as_ptr()),
                CUresult::NOT_FOUND
            );
            assert_eq!(
                cuModuleGetGlobal_v2(null_mut(), null_mut(), module, c"x".as_ptr()),
                CUresult::NOT_FOUND
            );
            assert_eq!(
                cuModuleLoadData((&raw mut function).cast(), null()),
                CUresult::INVALID_VALUE
            );
            assert_eq!(cuModuleUnload(module), OK);
            assert_eq!(cuModuleUnload(module), CUresult::INVALID_HANDLE);
            let name = CString::new("fill").unwrap();
            assert_eq!(
                cuModuleGetFunction(&raw mut function, module, name.as_ptr()),
                CUresult::INVALID_HANDLE
            );
        },
    );
}

#[test]
fn a_programs_own_kernel_of_a_built_in_name_is_not_built_in() {
    alone(
        "a_programs_own_kernel_of_a_built_in_name_is_not_built_in",
        "",
        || {
            start();
            let text = c".version 8.0 .target sm_90 .address_size 64
                .visible .entry fill(.param .u32 a, .param .u64 b, .param .u64 c) { ret; }";
            let (mut module, mut fill) = (CUmodule::NULL, CUfunction::NULL);
            assert_eq!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), OK);
            assert_eq!(
                cuModuleGetFunction(&raw mut fill, module, c"fill".as_ptr()),
                OK
            );
            // As numbers of the built-in kernel these are an endless fill of no memory.
            let (mut a, mut b, mut c) = (7_u32, u64::MAX >> 16, 1_u64);
            let mut values = [
                (&raw mut a).cast(),
                (&raw mut b).cast(),
                (&raw mut c).cast(),
            ];
            assert_eq!(launch(fill, CUstream::NULL, &mut values), OK);
            assert_eq!(cuCtxSynchronize(), OK);
        },
    );
}

#[test]
fn a_launch_beyond_the_devices_limits_is_refused() {
    alone(
        "a_launch_beyond_the_devices_limits_is_refused",
        "sm=4",
        || {
            start();
            let nothing = function("nothing");
            let shaped = |grid: [u32; 3], block: [u32; 3], shared: u32| {
                let none = CUstream::NULL;
                cuLaunchKernel(
                    nothing,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared,
                    none,
                    null_mut(),
                    null_mut(),
                )
            };
            for (grid, block) in [
                ([0, 1, 1], [1, 1, 1]),
                ([1, 65_536, 1], [1, 1, 1]),
                ([1, 1, 1], [1, 0, 1]),
                ([1, 1, 1], [1025, 1, 1]),
                ([1, 1, 1], [32, 33, 1]),
                ([1, 1, 1], [1, 1, 65]),
            ] {
                assert_eq!(
                    shaped(grid, block, 0),
                    CUresult::INVALID_VALUE,
                    "{grid:?} {block:?}"
                );
            }
            assert_eq!(shaped([0x7fff_ffff, 65_535, 65_535], [1024, 1, 1], 0), OK);
            assert_eq!(
                shaped([1, 1, 1], [1, 1, 1], 49_153),
                CUresult::INVALID_VALUE
            );
            let most = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
            assert_eq!(cuFuncSetAttribute(nothing, most, 65_536), OK);
            assert_eq!(shaped([1, 1, 1], [1, 1, 1], 49_153), OK);
        },
    );
}

#[test]
fn a_cooperative_launch_must_fit_on_the_device() {
    alone(
        "a_cooperative_launch_must_fit_on_the_device",
        "sm=4",
        || {
            start();
            let nothing = function("nothing");
            let together = |blocks| {
                cuLaunchCooperativeKernel(
                    nothing,
                    blocks,
                    1,
                    1,
                    1024,
                    1,
                    1,
                    0,
                    CUstream::NULL,
                    null_mut(),
                )
            };
            assert_eq!(together(8), OK);
            assert_eq!(together(9), CUresult::COOPERATIVE_LAUNCH_TOO_LARGE);
        },
    );
}

#[test]
fn launches_of_cuda_2_still_work() {
    alone("launches_of_cuda_2_still_work", "", || {
        start();
        let (fill, at) = (function("fill"), memory(4096));
        let mut bytes = [at.to_le_bytes(), 4_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat();
        assert_eq!(cuLaunchGrid(fill, 1, 1), CUresult::INVALID_VALUE);
        assert_eq!(cuFuncSetBlockShape(fill, 8, 1, 1), OK);
        assert_eq!(cuParamSetSize(fill, 20), OK);
        assert_eq!(cuParamSetv(fill, 0, bytes.as_mut_ptr().cast(), 20), OK);
        assert_eq!(cuLaunchGrid(fill, 1, 1), OK);
        assert_eq!(read(at, 4), [9; 4]);
        assert_eq!(cuFuncSetBlockShape(fill, 0, 1, 1), CUresult::INVALID_VALUE);
    });
}

#[test]
fn freeing_memory_waits_for_the_submitted_work() {
    alone("freeing_memory_waits_for_the_submitted_work", "", || {
        start();
        let (at, stream) = (memory(4 << 20), free_stream());
        spin(stream, 10 * MS);
        assert_eq!(fill(stream, at, 1024, 1), OK);
        assert_eq!(cuMemFree_v2(at), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
    });
}

#[test]
fn event_times_are_times_of_the_hardware() {
    alone("event_times_are_times_of_the_hardware", "", || {
        start();
        let (stream, begin, end) = (free_stream(), event(), event());
        let gate = Gate::close(stream);
        assert_eq!(cuEventRecord(begin, stream), OK);
        spin(stream, 3 * MS);
        assert_eq!(cuEventRecord(end, stream), OK);
        let mut time = 0.0;
        assert_eq!(
            cuEventElapsedTime(&raw mut time, begin, end),
            CUresult::NOT_READY
        );
        gate.open();
        assert_eq!(cuEventSynchronize(end), OK);
        assert_eq!(cuEventElapsedTime(&raw mut time, begin, end), OK);
        assert!((time - 3.0).abs() < 1e-3, "{time}");
        let (plain, unused) = (
            get(CUevent::NULL, |out| {
                cuEventCreate(out, CUevent_flags::DISABLE_TIMING.0)
            }),
            event(),
        );
        assert_eq!(cuEventRecord(plain, stream), OK);
        assert_eq!(
            cuEventElapsedTime(&raw mut time, begin, plain),
            CUresult::INVALID_HANDLE
        );
        assert_eq!(
            cuEventElapsedTime(&raw mut time, begin, unused),
            CUresult::INVALID_HANDLE
        );
        assert_eq!(cuEventDestroy_v2(begin), OK);
        assert_eq!(cuEventQuery(begin), CUresult::INVALID_HANDLE);
        assert_eq!(cuEventQuery(unused), OK);
    });
}

/// Free bytes as the driver reports them.
fn free() -> usize {
    let mut total = 0;
    get(0, |out| cuMemGetInfo_v2(out, &raw mut total))
}

#[test]
fn a_module_takes_its_memory_at_the_first_launch() {
    alone("a_module_takes_its_memory_at_the_first_launch", "", || {
        start();
        let before = free();
        let nothing = function("nothing");
        assert_eq!(free(), before);
        assert_eq!(launch(nothing, CUstream::NULL, &mut []), OK);
        let after = free();
        assert!(after < before, "{after} {before}");
        assert_eq!(launch(nothing, CUstream::NULL, &mut []), OK);
        assert_eq!(free(), after);
    });
}

#[test]
fn a_function_runs_only_in_its_own_context() {
    alone("a_function_runs_only_in_its_own_context", "", || {
        start();
        let nothing = function("nothing");
        let other = get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
        assert_eq!(
            launch(nothing, CUstream::NULL, &mut []),
            CUresult::INVALID_HANDLE
        );
        let own = function("nothing");
        assert_eq!(launch(own, CUstream::NULL, &mut []), OK);
        let mark = event();
        assert_eq!(cuCtxDestroy_v2(other), OK);
        start();
        assert_eq!(
            launch(own, CUstream::NULL, &mut []),
            CUresult::INVALID_HANDLE
        );
        assert_eq!(cuEventQuery(mark), CUresult::INVALID_HANDLE);
    });
}
