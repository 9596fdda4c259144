//! The driver's functions for memory that moves: addresses, physical memory, mappings, copies, and
//! host memory that copies reach fast. As [`calls`](crate::driver::calls).
//!
//! # Safety
//! Each function of a C name has the contract of that C function. The pointers that are passed to
//! the driver are to locals that outlive the call, or name host memory that stays mapped while
//! any of it is used ([`residency`](crate::residency)).
#![allow(unsafe_code, reason = "declares and calls C functions")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls::{self, Asked, driver};

driver! {
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> CUresult;
    fn cuMemAdvise(at: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> CUresult;
    fn cuMemAllocManaged(at: *mut CUdeviceptr, size: usize, flags: u32) -> CUresult;
    fn cuMemPrefetchAsync(at: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream) -> CUresult;
    fn cuMemAddressFree(at: CUdeviceptr, size: usize) -> CUresult;
    fn cuMemAddressReserve(at: *mut CUdeviceptr, size: usize, alignment: usize, near: CUdeviceptr, flags: u64) -> CUresult;
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64) -> CUresult;
    fn cuMemGetAllocationGranularity(size: *mut usize, prop: *const CUmemAllocationProp, kind: CUmemAllocationGranularity_flags) -> CUresult;
    fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, at: CUdeviceptr) -> CUresult;
    fn cuMemHostUnregister(at: *mut c_void) -> CUresult;
    fn cuMemHostRegister_v2(at: *mut c_void, size: usize, flags: u32) -> CUresult;
    fn cuMemMap(at: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) -> CUresult;
    fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) -> CUresult;
    fn cuMemSetAccess(at: CUdeviceptr, size: usize, list: *const CUmemAccessDesc, count: usize) -> CUresult;
    fn cuMemUnmap(at: CUdeviceptr, size: usize) -> CUresult;
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult;
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, count: usize, stream: CUstream) -> CUresult;
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult;
    fn cuStreamSynchronize(stream: CUstream) -> CUresult;
}

/// `CU_MEMHOSTREGISTER_PORTABLE` of cuda.h: pinned for all contexts.
const PORTABLE: u32 = 1;

/// The properties of physical memory: plain memory of a device.
fn plain(device: CUdevice) -> CUmemAllocationProp {
    // SAFETY: zeros are a valid value of this C structure.
    let mut prop: CUmemAllocationProp = unsafe { MaybeUninit::zeroed().assume_init() };
    prop.type_ = CUmemAllocationType::PINNED;
    prop.location.type_ = CUmemLocationType::DEVICE;
    prop.location.id = device;
    prop
}

/// The devices on which memory is made for the decompression engine, a bit each.
static ENGINES: AtomicU64 = AtomicU64::new(0);

fn engine_bit(device: CUdevice) -> u64 {
    let shift = u32::try_from(device).unwrap_or(u32::MAX);
    1_u64.checked_shl(shift).unwrap_or(0)
}

/// The properties of memory that a decompression engine takes.
fn decompressed(device: CUdevice) -> CUmemAllocationProp {
    let mut prop = plain(device);
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    prop
}

/// The same as memory of `cuMemAlloc` is: the device's decompression engine takes it, if there is
/// one. [`granularity`] has found that out.
fn linear(device: CUdevice) -> CUmemAllocationProp {
    if ENGINES.load(Ordering::Relaxed) & engine_bit(device) == 0 {
        plain(device)
    } else {
        decompressed(device)
    }
}

fn granularity_of(prop: &CUmemAllocationProp) -> Asked<usize> {
    let mut size = 0;
    let kind = CUmemAllocationGranularity_flags::MINIMUM;
    // SAFETY: writes to a local and reads a reference, which outlive the call.
    unsafe { cuMemGetAllocationGranularity(&raw mut size, prop, kind) }.ok()?;
    Ok(size)
}

/// Makes and releases the least memory for a decompression engine. Returns its granularity.
fn try_engine(device: CUdevice) -> Asked<usize> {
    let prop = decompressed(device);
    let size = granularity_of(&prop)?;
    match create_of(&prop, size) {
        Ok(handle) => {
            let _ = calls::release_physical(handle);
        }
        // Not for what it is made for.
        Err(CUresult::OUT_OF_MEMORY) => {}
        Err(why) => return Err(why),
    }
    Ok(size)
}

/// The granularity of physical memory on a device, in bytes: its sizes are multiples of this. It is
/// asked for once before memory is made: where the driver refuses memory for the decompression
/// engine that it tells of, [`create_linear`] makes plain memory.
pub(crate) fn granularity(device: CUdevice) -> Asked<usize> {
    let attribute = CUdevice_attribute::MEM_DECOMPRESS_ALGORITHM_MASK;
    if calls::device_attribute(attribute, device).is_ok_and(|algorithms| algorithms != 0) {
        match try_engine(device) {
            Ok(size) => {
                ENGINES.fetch_or(engine_bit(device), Ordering::Relaxed);
                return Ok(size);
            }
            Err(why) => tracing::warn!(
                ?why,
                device,
                "the driver makes no memory for the decompression engine: memory is made without"
            ),
        }
    }
    ENGINES.fetch_and(!engine_bit(device), Ordering::Relaxed);
    granularity_of(&plain(device))
}

/// Allocates managed memory in the current context.
pub(crate) fn allocate_managed(bytes: usize) -> Asked<CUdeviceptr> {
    let mut at = 0;
    // SAFETY: writes to a local that outlives the call.
    unsafe { cuMemAllocManaged(&raw mut at, bytes, CUmemAttach_flags::GLOBAL.0) }.ok()?;
    Ok(at)
}

/// Gives advice about managed memory of ours.
pub(crate) fn advise(
    at: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Asked<()> {
    // SAFETY: numbers; the driver refuses what is not managed memory.
    unsafe { cuMemAdvise(at, bytes, advice, device) }.ok()
}

/// Has managed memory of ours moved to a device or to the host, in the order of a stream.
pub(crate) fn prefetch(at: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream) -> Asked<()> {
    // SAFETY: numbers; the driver refuses what is not managed memory. The bytes stay the same.
    unsafe { cuMemPrefetchAsync(at, bytes, to, stream) }.ok()
}

/// Reserves addresses.
pub(crate) fn reserve(bytes: usize) -> Asked<CUdeviceptr> {
    let mut at = 0;
    // SAFETY: writes to a local that outlives the call.
    unsafe { cuMemAddressReserve(&raw mut at, bytes, 0, 0, 0) }.ok()?;
    Ok(at)
}

/// Gives reserved addresses back, where nothing is mapped any more.
pub(crate) fn free_addresses(at: CUdeviceptr, bytes: usize) -> Asked<()> {
    // SAFETY: numbers; a reservation of ours, which no other code knows after this.
    unsafe { cuMemAddressFree(at, bytes) }.ok()
}

/// Makes physical memory that is like that of `cuMemAlloc`.
pub(crate) fn create_linear(device: CUdevice, bytes: usize) -> Asked<CUmemGenericAllocationHandle> {
    create_of(&linear(device), bytes)
}

/// Makes physical memory that is like that of pools.
pub(crate) fn create(device: CUdevice, bytes: usize) -> Asked<CUmemGenericAllocationHandle> {
    create_of(&plain(device), bytes)
}

/// The same that can be exported in these ways, and reached by other devices on the bus.
pub(crate) fn create_as(
    device: CUdevice,
    bytes: usize,
    handle_types: u32,
    rdma: u8,
) -> Asked<CUmemGenericAllocationHandle> {
    let mut prop = plain(device);
    prop.requestedHandleTypes = CUmemAllocationHandleType(handle_types);
    prop.allocFlags.gpuDirectRDMACapable = rdma;
    create_of(&prop, bytes)
}

fn create_of(prop: &CUmemAllocationProp, bytes: usize) -> Asked<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // SAFETY: writes to a local and reads a reference, which outlive the call.
    unsafe { cuMemCreate(&raw mut handle, bytes, prop, 0) }.ok()?;
    Ok(handle)
}

/// Maps physical memory of ours at addresses of ours. Nothing may access it yet.
pub(crate) fn map(
    at: CUdeviceptr,
    bytes: usize,
    handle: CUmemGenericAllocationHandle,
) -> Asked<()> {
    // SAFETY: numbers; the driver refuses what is not reserved or mapped already.
    unsafe { cuMemMap(at, bytes, 0, handle, 0) }.ok()
}

/// Undoes mappings of ours.
pub(crate) fn unmap(at: CUdeviceptr, bytes: usize) -> Asked<()> {
    // SAFETY: numbers; the caller has seen to it that nothing uses the memory.
    unsafe { cuMemUnmap(at, bytes) }.ok()
}

/// Lets these devices read and write mappings of ours.
pub(crate) fn give_access(at: CUdeviceptr, bytes: usize, devices: &[CUdevice]) -> Asked<()> {
    access(at, bytes, devices, CUmemAccess_flags::READWRITE)
}

/// Takes that right from a device.
pub(crate) fn take_access(at: CUdeviceptr, bytes: usize, device: CUdevice) -> Asked<()> {
    access(at, bytes, &[device], CUmemAccess_flags::NONE)
}

/// Gives each of these devices its rights at mappings.
pub(crate) fn set_rights(at: CUdeviceptr, bytes: usize, rights: &[(CUdevice, u64)]) -> Asked<()> {
    for (device, flags) in rights {
        let flags = if *flags == u64::from(CUmemAccess_flags::READWRITE.0) {
            CUmemAccess_flags::READWRITE
        } else {
            CUmemAccess_flags::READ
        };
        access(at, bytes, &[*device], flags)?;
    }
    Ok(())
}

/// The rights of a device at a mapping.
pub(crate) fn access_of(at: CUdeviceptr, device: CUdevice) -> Asked<u64> {
    let (mut flags, location) = (0, plain(device).location);
    // SAFETY: writes to a local and reads another, which outlive the call.
    unsafe { cuMemGetAccess(&raw mut flags, &raw const location, at) }.ok()?;
    Ok(flags)
}

fn access(
    at: CUdeviceptr,
    bytes: usize,
    devices: &[CUdevice],
    flags: CUmemAccess_flags,
) -> Asked<()> {
    let describe = |device: &CUdevice| CUmemAccessDesc {
        location: plain(*device).location,
        flags,
    };
    let list: Vec<CUmemAccessDesc> = devices.iter().map(describe).collect();
    // SAFETY: the list outlives the call and is as long as stated.
    unsafe { cuMemSetAccess(at, bytes, list.as_ptr(), list.len()) }.ok()
}

/// Has a stream copy from memory of ours to `host`, in the host store.
pub(crate) fn to_host(host: usize, at: CUdeviceptr, bytes: usize, stream: CUstream) -> Asked<()> {
    let host = core::ptr::with_exposed_provenance_mut(host);
    // SAFETY: a piece of the host store that nothing else uses, unmapped only when it is free.
    unsafe { cuMemcpyDtoHAsync_v2(host, at, bytes, stream) }.ok()
}

/// The same the other way.
pub(crate) fn to_device(at: CUdeviceptr, host: usize, bytes: usize, stream: CUstream) -> Asked<()> {
    let host = core::ptr::with_exposed_provenance(host);
    // SAFETY: a piece of the host store that nothing else uses, unmapped only when it is free.
    unsafe { cuMemcpyHtoDAsync_v2(at, host, bytes, stream) }.ok()
}

/// Waits for a stream: one of ours, or for a call of the program's that waits.
pub(crate) fn await_stream(stream: CUstream) -> Asked<()> {
    // SAFETY: a stream of ours that lives, or the program's, which does while its call lasts.
    unsafe { cuStreamSynchronize(stream) }.ok()
}

/// Pins a range of the host store, so that copies reach it fast.
pub(crate) fn register_host(host: usize, bytes: usize) -> Asked<()> {
    let host = core::ptr::with_exposed_provenance_mut(host);
    // SAFETY: a range of the host store, unmapped only when all of it is free.
    unsafe { cuMemHostRegister_v2(host, bytes, PORTABLE) }.ok()
}

/// Undoes that. No copy to or from the range is under way.
pub(crate) fn unregister_host(host: usize) -> Asked<()> {
    let host = core::ptr::with_exposed_provenance_mut(host);
    // SAFETY: a range of the host store; the caller has seen to it that nothing uses it.
    unsafe { cuMemHostUnregister(host) }.ok()
}

/// The driver's number of the allocation or mapping at an address.
pub(crate) fn buffer_id(at: CUdeviceptr) -> Asked<u64> {
    let mut number = 0_u64;
    let attribute = CUpointer_attribute::BUFFER_ID;
    // SAFETY: writes to a local of the attribute's type, which outlives the call.
    unsafe { cuPointerGetAttribute((&raw mut number).cast(), attribute, at) }.ok()?;
    Ok(number)
}

/// The rights of a device at a pool's memory.
pub(crate) fn pool_access(pool: CUmemoryPool, device: CUdevice) -> Asked<u64> {
    let (mut flags, mut location) = (CUmemAccess_flags::NONE, plain(device).location);
    // SAFETY: writes to a local and reads another, which outlive the call.
    unsafe { cuMemPoolGetAccess(&raw mut flags, pool, &raw mut location) }.ok()?;
    Ok(u64::from(flags.0))
}

/// The pool that a device has by itself.
pub(crate) fn default_pool(device: CUdevice) -> Asked<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: writes to a local that outlives the call.
    unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, device) }.ok()?;
    Ok(pool)
}
