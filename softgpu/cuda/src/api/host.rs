//! Pinned host memory.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult};
use softgpu::graph::forbidden::Unsafe;
use softgpu::memory::host;
use softgpu::{Result, context, exec};

use crate::abi::{out, required};

driver! {
    fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) { alloc(pp, bytesize as u64, 0) }
    fn cuMemAllocHost(pp: *mut *mut c_void, bytesize: u32) { alloc(pp, u64::from(bytesize), 0) }
    fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: u32) { alloc(pp, bytesize as u64, flags) }
    /// Freeing NULL succeeds, as with a real driver.
    fn cuMemFreeHost(p: *mut c_void) {
        context::current()?;
        if p.is_null() {
            return Ok(());
        }
        exec::capture_forbids(Unsafe::FreeHost)?;
        host::free(address(p))
    }
    fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: u32) { register(p, bytesize, flags) }
    fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: u32) { register(p, bytesize, flags) }
    fn cuMemHostUnregister(p: *mut c_void) {
        context::current()?;
        if p.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        exec::capture_forbids(Unsafe::FreeHost)?;
        host::unregister(address(p))
    }
    fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: u32) {
        out(pdptr, device_pointer(p, flags)?)
    }
    fn cuMemHostGetDevicePointer(pdptr: *mut CUdeviceptr_v1, p: *mut c_void, flags: u32) {
        out(pdptr, u32::try_from(device_pointer(p, flags)?).map_err(|_| CUresult::INVALID_VALUE)?)
    }
    fn cuMemHostGetFlags(p_flags: *mut u32, p: *mut c_void) {
        context::current()?;
        out(p_flags, host::flags(address(p))?)
    }
}

fn address(p: *mut c_void) -> u64 {
    p.expose_provenance() as u64
}

fn alloc(pp: *mut *mut c_void, size: u64, flags: u32) -> Result {
    required(pp)?;
    let context = context::current()?;
    exec::capture_forbids(Unsafe::AllocateHost)?;
    let at = host::alloc(&context, size, flags)?;
    let at = usize::try_from(at).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    out(pp, std::ptr::with_exposed_provenance_mut(at))
}

fn register(p: *mut c_void, size: usize, flags: u32) -> Result {
    let context = context::current()?;
    exec::capture_forbids(Unsafe::AllocateHost)?;
    host::register(&context, address(p), size as u64, flags)
}

fn device_pointer(p: *mut c_void, flags: u32) -> Result<u64> {
    context::current()?;
    if flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    host::device_pointer(address(p))
}
