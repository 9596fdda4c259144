//! Linear and pitched memory.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult};
use softgpu::graph::forbidden::Unsafe;
use softgpu::memory::linear;
use softgpu::{Result, context, exec};

use crate::abi::{out, out_if, required};

driver! {
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) {
        required(dptr)?;
        out(dptr, alloc(bytesize as u64)?)
    }
    /// The interface of CUDA 2 with 32-bit addresses.
    fn cuMemAlloc(dptr: *mut CUdeviceptr_v1, bytesize: u32) {
        required(dptr)?;
        out(dptr, narrow(alloc(u64::from(bytesize))?)?)
    }
    fn cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, p_pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: u32) {
        required(dptr)?;
        required(p_pitch)?;
        let (address, pitch) = alloc_pitch(width_in_bytes as u64, height as u64, element_size_bytes)?;
        out(p_pitch, usize::try_from(pitch).map_err(|_| CUresult::OUT_OF_MEMORY)?)?;
        out(dptr, address)
    }
    fn cuMemAllocPitch(dptr: *mut CUdeviceptr_v1, p_pitch: *mut u32, width_in_bytes: u32, height: u32, element_size_bytes: u32) {
        required(dptr)?;
        required(p_pitch)?;
        let (address, pitch) = alloc_pitch(u64::from(width_in_bytes), u64::from(height), element_size_bytes)?;
        let address = narrow(address)?;
        out(p_pitch, u32::try_from(pitch).map_err(|_| CUresult::OUT_OF_MEMORY)?)?;
        out(dptr, address)
    }
    fn cuMemFree_v2(dptr: CUdeviceptr) { free(dptr) }
    fn cuMemFree(dptr: CUdeviceptr_v1) { free(u64::from(dptr)) }
    fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) {
        context::current()?;
        let (base, size) = linear::address_range(dptr)?;
        out_if(pbase, base);
        out_if(psize, usize::try_from(size).map_err(|_| CUresult::INVALID_VALUE)?);
        Ok(())
    }
    fn cuMemGetAddressRange(pbase: *mut CUdeviceptr_v1, psize: *mut u32, dptr: CUdeviceptr_v1) {
        context::current()?;
        let (base, size) = linear::address_range(u64::from(dptr))?;
        out_if(pbase, u32::try_from(base).map_err(|_| CUresult::INVALID_VALUE)?);
        out_if(psize, u32::try_from(size).map_err(|_| CUresult::INVALID_VALUE)?);
        Ok(())
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (left, all) = info()?;
        out_if(free, usize::try_from(left).unwrap_or(usize::MAX));
        out_if(total, usize::try_from(all).unwrap_or(usize::MAX));
        Ok(())
    }
    fn cuMemGetInfo(free: *mut u32, total: *mut u32) {
        let (left, all) = info()?;
        out_if(free, u32::try_from(left).unwrap_or(u32::MAX));
        out_if(total, u32::try_from(all).unwrap_or(u32::MAX));
        Ok(())
    }
}

fn alloc(size: u64) -> Result<u64> {
    let context = context::current()?;
    exec::capture_forbids(Unsafe::Allocate)?;
    linear::alloc(&context, size)
}

fn alloc_pitch(width: u64, height: u64, element: u32) -> Result<(u64, u64)> {
    let context = context::current()?;
    exec::capture_forbids(Unsafe::Allocate)?;
    linear::alloc_pitch(&context, width, height, element)
}

/// A 32-bit address for a caller of CUDA 2's interface. Memory at a larger address is freed again.
fn narrow(address: u64) -> Result<CUdeviceptr_v1> {
    CUdeviceptr_v1::try_from(address).map_err(|_| {
        linear::free(address)
            .err()
            .unwrap_or(CUresult::OUT_OF_MEMORY)
    })
}

/// Memory is freed in its own context, with any context current or none (NVIDIA/cuda-python, pull
/// request 2750).
fn free(address: u64) -> Result {
    let has_none = context::current_named().is_none();
    if address == 0 || !has_none {
        context::current()?;
    }
    if address == 0 {
        return Ok(());
    }
    exec::capture_forbids(Unsafe::Free)?;
    linear::free(address)
}

fn info() -> Result<(u64, u64)> {
    let context = context::current()?;
    let device = context.device();
    Ok((device.free_bytes()?, device.capacity()))
}
