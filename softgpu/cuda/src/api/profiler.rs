//! The functions of `cudaProfiler.h`. There is no profiler; start and stop succeed, as with a real
//! driver without a profiler.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::context;

driver! {
    /// Removed with CUDA 12.
    fn cuProfilerInitialize(config: *const c_char, output: *const c_char, mode: u32) {
        let _ = (config, output, mode);
        Err(CUresult::NOT_SUPPORTED)
    }
    fn cuProfilerStart() { context::current().map(|_| ()) }
    fn cuProfilerStop() { context::current().map(|_| ()) }
}
