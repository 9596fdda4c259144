//! Stream-ordered memory: pools, allocations in stream order, graph memory.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool, CUresult, CUstream,
};
use softgpu::exec;
use softgpu::graph::forbidden::Unsafe;
use softgpu::memory::graph;
use softgpu::memory::pool::{self, Value};
use softgpu::{Result, world};

use super::vmm::{descriptor, device_of, flags_of};
use crate::abi::{input, inputs, out, required};

driver! {
    fn cuMemAllocAsync twin cuMemAllocAsync_ptsz (d: DefaultStream; dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) {
        required(dptr)?;
        let context = exec::context_for(h_stream)?;
        let stream = exec::resolve(&context, h_stream, d)?;
        let pool = pool::current(stream.context().device())?;
        out(dptr, pool::alloc_async(&context, &stream, &pool, bytesize as u64)?)
    }
    fn cuMemAllocFromPoolAsync twin cuMemAllocFromPoolAsync_ptsz (d: DefaultStream; dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, h_stream: CUstream) {
        required(dptr)?;
        let context = exec::context_for(h_stream)?;
        let stream = exec::resolve(&context, h_stream, d)?;
        out(dptr, pool::alloc_async(&context, &stream, &pool::get(number(pool))?, bytesize as u64)?)
    }
    fn cuMemFreeAsync twin cuMemFreeAsync_ptsz (d: DefaultStream; dptr: CUdeviceptr, h_stream: CUstream) {
        let context = exec::context_for(h_stream)?;
        let stream = exec::resolve(&context, h_stream, d)?;
        pool::free_async(&context, &stream, dptr)
    }
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) {
        exec::capture_forbids(Unsafe::Pool)?;
        required(pool)?;
        out(pool, handle(pool::create(&input(pool_props)?)?))
    }
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        exec::capture_forbids(Unsafe::Pool)?;
        pool::destroy(number(pool))
    }
    fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) {
        exec::capture_forbids(Unsafe::Pool)?;
        pool::trim(number(pool), min_bytes_to_keep as u64)
    }
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        exec::capture_forbids(Unsafe::PoolAttribute)?;
        let value = match pool::width(attr).ok_or(CUresult::INVALID_VALUE)? {
            Value::Int(_) => Value::Int(input(value.cast::<i32>())?),
            Value::Long(_) => Value::Long(input(value.cast::<u64>())?),
        };
        pool::set_attribute(number(pool), attr, value)
    }
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        exec::capture_forbids(Unsafe::PoolAttribute)?;
        match pool::attribute(number(pool), attr)? {
            Value::Int(answer) => out(value.cast::<i32>(), answer),
            Value::Long(answer) => out(value.cast::<u64>(), answer),
        }
    }
    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) {
        exec::capture_forbids(Unsafe::Pool)?;
        let rights = inputs(map, count)?.iter().map(descriptor).collect::<Result<Vec<_>>>()?;
        pool::set_access(number(pool), &rights)
    }
    fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, location: *mut CUmemLocation) {
        exec::capture_forbids(Unsafe::Pool)?;
        let location = input(location)?;
        let rights = match location.type_ {
            CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA => pool::host_access(number(mem_pool))?,
            _ => pool::access(number(mem_pool), device_of(&location)?.ordinal())?,
        };
        out(flags, flags_of(rights))
    }
    fn cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType, flags: u64) {
        exec::capture_forbids(Unsafe::Pool)?;
        required(handle_out)?;
        posix_only(handle_type, flags)?;
        out(handle_out.cast::<i32>(), pool::export(number(pool))?.into_raw_fd())
    }
    fn cuMemPoolImportFromShareableHandle(pool_out: *mut CUmemoryPool, handle_in: *mut c_void, handle_type: CUmemAllocationHandleType, flags: u64) {
        exec::capture_forbids(Unsafe::Pool)?;
        required(pool_out)?;
        posix_only(handle_type, flags)?;
        out(pool_out, handle(pool::import(crate::abi::descriptor(handle_in)?)?))
    }
    fn cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) {
        exec::capture_forbids(Unsafe::Pool)?;
        required(share_data_out)?;
        out(share_data_out, pool::export_pointer(ptr)?)
    }
    fn cuMemPoolImportPointer(ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, share_data: *mut CUmemPoolPtrExportData) {
        exec::capture_forbids(Unsafe::Pool)?;
        required(ptr_out)?;
        out(ptr_out, pool::import_pointer(number(pool), &input(share_data)?)?)
    }
    fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) {
        let device = world::process()?.device(dev)?;
        out(pool_out, handle(pool::default(device)?.handle()))
    }
    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) {
        let device = world::process()?.device(dev)?;
        out(pool, handle(pool::current(device)?.handle()))
    }
    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        pool::set_current(world::process()?.device(dev)?, number(pool))
    }
    fn cuMemGetDefaultMemPool(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) {
        required(pool_out)?;
        out(pool_out, handle(pool::default_at(input(location)?, kind)?.handle()))
    }
    fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) {
        required(pool)?;
        out(pool, handle(pool::current_at(input(location)?, kind)?.handle()))
    }
    fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) {
        pool::set_current_at(input(location)?, kind, number(pool))
    }
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        out(value.cast::<u64>(), graph::attribute(world::process()?.device(device)?, attr)?)
    }
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        graph::reset(world::process()?.device(device)?, attr, input(value.cast::<u64>())?)
    }
    fn cuDeviceGraphMemTrim(device: CUdevice) {
        graph::trim(world::process()?.device(device)?);
        Ok(())
    }
}

fn number(pool: CUmemoryPool) -> usize {
    pool.0.addr()
}

fn handle(number: usize) -> CUmemoryPool {
    CUmemoryPool(std::ptr::without_provenance_mut(number))
}

/// Accepts only file descriptors for sharing, and no flags.
pub(super) fn posix_only(kind: CUmemAllocationHandleType, flags: u64) -> Result {
    match kind {
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR if flags == 0 => Ok(()),
        CUmemAllocationHandleType::WIN32
        | CUmemAllocationHandleType::WIN32_KMT
        | CUmemAllocationHandleType::FABRIC => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
