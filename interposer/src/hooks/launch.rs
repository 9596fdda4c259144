//! Kernels: each passes the gate.
//!
//! # Safety
//! The driver is called with the program's own arguments; of these only what says where a launch goes is read, as the driver will.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::{c_uint, c_void};

use gpushare_cuda_abi::cuda::*;
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::ordered::Ordered;
use crate::entry::hooks;
use crate::gate::{self, Key, Work};

hooks! {
    #[kernel]
    fn cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) -> CUresult = kernel;
    #[kernel_ptsz]
    fn cuLaunchKernel_ptsz(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) -> CUresult
        = kernel_per_thread;
    #[gate]
    fn cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        -> CUresult = kernel_ex;
    #[gate]
    fn cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void)
        -> CUresult = kernel_ex_per_thread;
    #[gate]
    fn cuLaunchCooperativeKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void) -> CUresult = cooperative;
    #[gate]
    fn cuLaunchCooperativeKernel_ptsz(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void) -> CUresult = cooperative_per_thread;
    #[gate]
    fn cuLaunchCooperativeKernelMultiDevice(list: *mut CUDA_LAUNCH_PARAMS, count: c_uint, flags: c_uint) -> CUresult = several;
    #[gate]
    fn cuMemBatchDecompressAsync(params: *mut CUmemDecompressParams, count: usize, flags: c_uint, error: *mut usize, stream: CUstream)
        -> CUresult = decompress;
    #[gate]
    fn cuMemBatchDecompressAsync_ptsz(params: *mut CUmemDecompressParams, count: usize, flags: c_uint, error: *mut usize,
        stream: CUstream) -> CUresult = decompress_per_thread;
}

/// [`Key::Other`] of a decompression.
const DECOMPRESSION: u32 = 1;

fn kernel(
    real: cuLaunchKernel,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let work = Work::One(Ordered::legacy(stream), Key::kernel(function, shape));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params,
            extra,
        )
    })
}

fn kernel_per_thread(
    real: cuLaunchKernel,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let work = Work::One(Ordered::per_thread(stream), Key::kernel(function, shape));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params,
            extra,
        )
    })
}

fn kernel_ex(
    real: cuLaunchKernelEx,
    config: *const CUlaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let work = Work::One(Ordered::legacy(stream_of(config)), key_of(config, function));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe { real(config, function, params, extra) })
}

fn kernel_ex_per_thread(
    real: cuLaunchKernelEx,
    config: *const CUlaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let work = Work::One(
        Ordered::per_thread(stream_of(config)),
        key_of(config, function),
    );
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe { real(config, function, params, extra) })
}

fn stream_of(config: *const CUlaunchConfig) -> CUstream {
    if config.is_null() {
        return CUstream::NULL;
    }
    // SAFETY: the program's own argument; null is for the driver to refuse.
    unsafe { (*config).hStream }
}

fn key_of(config: *const CUlaunchConfig, function: CUfunction) -> Key {
    if config.is_null() {
        return function.into();
    }
    // SAFETY: the program's own argument; null is for the driver to refuse.
    let config = unsafe { &*config };
    let shape = [
        config.gridDimX,
        config.gridDimY,
        config.gridDimZ,
        config.blockDimX,
        config.blockDimY,
        config.blockDimZ,
        config.sharedMemBytes,
    ];
    Key::kernel(function, shape)
}

fn cooperative(
    real: cuLaunchCooperativeKernel,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
) -> CUresult {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let work = Work::One(Ordered::legacy(stream), Key::kernel(function, shape));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params,
        )
    })
}

fn cooperative_per_thread(
    real: cuLaunchCooperativeKernel,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
) -> CUresult {
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared];
    let work = Work::One(Ordered::per_thread(stream), Key::kernel(function, shape));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params,
        )
    })
}

/// One launch for each of several devices. What is no list of that is for the driver to refuse.
fn several(
    real: cuLaunchCooperativeKernelMultiDevice,
    list: *mut CUDA_LAUNCH_PARAMS,
    count: c_uint,
    flags: c_uint,
) -> CUresult {
    let parts = match usize::try_from(count) {
        // SAFETY: as many parts as the program says, which the driver is about to read.
        Ok(count @ 1..=MAX_DEVICES) if !list.is_null() => unsafe {
            core::slice::from_raw_parts(list.cast_const(), count)
        },
        _ => &[],
    };
    // SAFETY: the program's own arguments.
    gate::pass(&Work::Several(parts), || unsafe {
        real(list, count, flags)
    })
}

fn decompress(
    real: cuMemBatchDecompressAsync,
    params: *mut CUmemDecompressParams,
    count: usize,
    flags: c_uint,
    error: *mut usize,
    stream: CUstream,
) -> CUresult {
    let work = Work::One(Ordered::legacy(stream), Key::Other(DECOMPRESSION));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(params, count, flags, error, stream)
    })
}

fn decompress_per_thread(
    real: cuMemBatchDecompressAsync,
    params: *mut CUmemDecompressParams,
    count: usize,
    flags: c_uint,
    error: *mut usize,
    stream: CUstream,
) -> CUresult {
    let work = Work::One(Ordered::per_thread(stream), Key::Other(DECOMPRESSION));
    // SAFETY: the program's own arguments.
    gate::pass(&work, || unsafe {
        real(params, count, flags, error, stream)
    })
}
