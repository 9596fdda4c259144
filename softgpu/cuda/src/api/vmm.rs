//! Virtual memory management.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_v1_allocFlags,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUmemRangeHandleType, CUresult,
};
use softgpu::memory::vmm::{self, GRANULARITY, Properties, Rights};
use softgpu::{Device, Result, world};

use super::pool::posix_only;
use crate::abi::{input, inputs, out, required};

driver! {
    fn cuMemAddressReserve(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64) {
        required(ptr)?;
        no_flags(flags)?;
        out(ptr, vmm::address_reserve(size as u64, alignment as u64, addr)?)
    }
    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) { vmm::address_free(ptr, size as u64) }
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64) {
        required(handle)?;
        no_flags(flags)?;
        let prop = input(prop)?;
        let device = pinned_on(&prop)?;
        let properties = Properties {
            size: size as u64,
            handle_types: prop.requestedHandleTypes.0,
            rdma: prop.allocFlags.gpuDirectRDMACapable != 0,
            usage: prop.allocFlags.usage,
        };
        out(handle, vmm::create(&device, properties)? as u64)
    }
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) { vmm::release(number(handle)?) }
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) {
        required(handle)?;
        out(handle, vmm::retain(addr.addr() as u64)? as u64)
    }
    fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) {
        no_flags(flags)?;
        vmm::map(ptr, size as u64, offset as u64, number(handle)?)
    }
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) { vmm::unmap(ptr, size as u64) }
    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) {
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        // A device that is none is an invalid value here, not an invalid device.
        let no_device = |error| if error == CUresult::INVALID_DEVICE { CUresult::INVALID_VALUE } else { error };
        let rights = inputs(desc, count)?.iter().map(descriptor).collect::<Result<Vec<_>>>().map_err(no_device)?;
        vmm::set_access(ptr, size as u64, &rights)
    }
    fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr) {
        required(flags)?;
        let device = device_of(&input(location)?)?;
        out(flags, u64::from(flags_of(vmm::access(ptr, device.ordinal())?).0))
    }
    fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) {
        required(granularity)?;
        pinned_on(&input(prop)?)?;
        match option {
            CUmemAllocationGranularity_flags::MINIMUM | CUmemAllocationGranularity_flags::RECOMMENDED => {
                out(granularity, usize::try_from(GRANULARITY).map_err(|_| CUresult::INVALID_VALUE)?)
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
    fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) {
        required(prop)?;
        let (ordinal, properties) = vmm::properties(number(handle)?)?;
        out(prop, CUmemAllocationProp {
            type_: CUmemAllocationType::PINNED,
            requestedHandleTypes: CUmemAllocationHandleType(properties.handle_types),
            location: CUmemLocation { type_: CUmemLocationType::DEVICE, id: i32::try_from(ordinal).unwrap_or(0) },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_v1_allocFlags {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(properties.rdma),
                usage: properties.usage,
                reserved: [0; 4],
            },
        })
    }
    fn cuMemExportToShareableHandle(shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle, handle_type: CUmemAllocationHandleType, flags: u64) {
        required(shareable_handle)?;
        posix_only(handle_type, flags)?;
        out(shareable_handle.cast::<i32>(), vmm::export(number(handle)?)?.into_raw_fd())
    }
    /// The pointer's value is the descriptor.
    fn cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void, sh_handle_type: CUmemAllocationHandleType) {
        required(handle)?;
        posix_only(sh_handle_type, 0)?;
        out(handle, vmm::import(crate::abi::descriptor(os_handle)?)? as u64)
    }
    /// This device exports no DMA buffers, as its attribute reports.
    fn cuMemGetHandleForAddressRange(handle: *mut c_void, _dptr: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType, _flags: u64) {
        required(handle)?;
        if size == 0 || handle_type != CUmemRangeHandleType::DMA_BUF_FD {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(CUresult::NOT_SUPPORTED)
    }
}

fn no_flags(flags: u64) -> Result {
    if flags == 0 {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

fn number(handle: CUmemGenericAllocationHandle) -> Result<usize> {
    usize::try_from(handle).map_err(|_| CUresult::INVALID_VALUE)
}

/// The device of allocation properties; only pinned device memory is supported.
fn pinned_on(prop: &CUmemAllocationProp) -> Result<Arc<Device>> {
    match prop.type_ {
        CUmemAllocationType::PINNED => device_of(&prop.location),
        CUmemAllocationType::MANAGED => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The device of a location.
///
/// # Errors
/// `INVALID_DEVICE` for a device that this process does not see, `NOT_SUPPORTED` for host memory.
pub(super) fn device_of(location: &CUmemLocation) -> Result<Arc<Device>> {
    match location.type_ {
        CUmemLocationType::DEVICE => world::process()?.device(location.id as CUdevice).cloned(),
        CUmemLocationType::HOST
        | CUmemLocationType::HOST_NUMA
        | CUmemLocationType::HOST_NUMA_CURRENT => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The access right of an API flag.
pub(super) fn rights_of(flags: CUmemAccess_flags) -> Result<Rights> {
    match flags {
        CUmemAccess_flags::NONE => Ok(Rights::None),
        CUmemAccess_flags::READ => Ok(Rights::Read),
        CUmemAccess_flags::READWRITE => Ok(Rights::ReadWrite),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The API flag of an access right.
pub(super) fn flags_of(rights: Rights) -> CUmemAccess_flags {
    match rights {
        Rights::None => CUmemAccess_flags::NONE,
        Rights::Read => CUmemAccess_flags::READ,
        Rights::ReadWrite => CUmemAccess_flags::READWRITE,
    }
}

/// A device and its access right.
pub(super) fn descriptor(desc: &CUmemAccessDesc) -> Result<(u32, Rights)> {
    Ok((device_of(&desc.location)?.ordinal(), rights_of(desc.flags)?))
}
