//! The three functions of `cudaProfiler.h`: there is nothing to profile, and they say yes as a
//! driver without a profiler does.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::context;

driver! {
    /// Gone since CUDA 12.
    fn cuProfilerInitialize(config: *const c_char, output: *const c_char, mode: u32) {
        let _ = (config, output, mode);
        Err(CUresult::NOT_SUPPORTED)
    }
    fn cuProfilerStart() { context::current().map(|_| ()) }
    fn cuProfilerStop() { context::current().map(|_| ()) }
}
