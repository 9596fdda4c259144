//! Kernels: each passes the gate.

use core::ffi::{c_int, c_uint, c_void};

use gpushare_cuda_abi::cuda::*;
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::stream_ref::StreamRef;
use crate::entry::args::In;
use crate::entry::hooks;
use crate::entry::lists::{Count, InSlice, recorded_by};
use crate::gate::{self, Key, Work, awaited};

hooks! {
    #[kernel]
    fn cuLaunchKernel | cuLaunchKernel_ptsz(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void)
        -> CUresult = |call, of| {
            let key = Key::kernel(function, [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared]);
            // The door has tried the way beside others.
            gate::pass_slowly(&Work::One(of(stream), key), call)
        };
    #[gate]
    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void)
        -> CUresult = |call, of| {
            let key = Key::kernel(function, [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared]);
            gate::pass(&Work::One(of(stream), key), call)
        };
    #[gate]
    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz(config: In<'_, CUlaunchConfig>, function: CUfunction, params: *mut *mut c_void,
        extra: *mut *mut c_void) -> CUresult = |call, of| {
            recorded_by(config).for_each(awaited::event_shared);
            gate::pass(&described(config.read(), function, of), call)
        };
    #[gate]
    fn cuLaunchCooperativeKernelMultiDevice(list: InSlice<'_, CUDA_LAUNCH_PARAMS>, count: Count<c_uint>, flags: c_uint) -> CUresult
        = |call| gate::pass(&Work::Several(&parts(list, count)), call);
    #[gate]
    fn cuMemBatchDecompressAsync | cuMemBatchDecompressAsync_ptsz(params: *mut CUmemDecompressParams, count: usize, flags: c_uint,
        error: *mut usize, stream: CUstream) -> CUresult
        = |call, of| gate::pass(&Work::One(of(stream), Key::other(DECOMPRESSION)), call);
    // Launches of CUDA 3 and before, whose shape and parameters were set in the function.
    #[gate]
    fn cuLaunch(function: CUfunction) -> CUresult = |call, of| gate::pass(&Work::One(of(CUstream::NULL), function.into()), call);
    #[gate]
    fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) -> CUresult
        = |call, of| gate::pass(&Work::One(of(CUstream::NULL), function.into()), call);
    #[gate]
    fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> CUresult
        = |call, of| gate::pass(&Work::One(of(stream), function.into()), call);
}

/// [`Key::other`] of a decompression.
const DECOMPRESSION: u32 = 1;

/// A launch with a description; without one it is for the driver to refuse.
fn described(
    config: Option<CUlaunchConfig>,
    function: CUfunction,
    of: fn(CUstream) -> StreamRef,
) -> Work<'static> {
    let Some(config) = config else {
        return Work::One(of(CUstream::NULL), function.into());
    };
    let shape = [
        config.gridDimX,
        config.gridDimY,
        config.gridDimZ,
        config.blockDimX,
        config.blockDimY,
        config.blockDimZ,
        config.sharedMemBytes,
    ];
    Work::One(of(config.hStream), Key::kernel(function, shape))
}

/// One launch for each of several devices. The driver refuses an invalid list.
fn parts(list: InSlice<'_, CUDA_LAUNCH_PARAMS>, count: Count<c_uint>) -> Vec<CUDA_LAUNCH_PARAMS> {
    if count.get() > MAX_DEVICES {
        return Vec::new();
    }
    list.entries(count).collect()
}
