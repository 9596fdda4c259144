//! Stream-ordered memory pools.

use core::ffi::c_void;

use super::memory::CUmemLocation;
use super::vmm::{CUmemAllocationHandleType, CUmemAllocationType};
use crate::abi::c_enum;

c_enum! {
    /// Attributes of a pool that can be queried or set; amounts of memory are in bytes.
    ///
    /// Argument of `cuMemPoolSetAttribute`, `cuMemPoolGetAttribute`.
    pub struct CUmemPool_attribute(u32);
    "CU_MEMPOOL_ATTR_" {
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        REUSE_ALLOW_OPPORTUNISTIC = 2,
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        RELEASE_THRESHOLD = 4,
        RESERVED_MEM_CURRENT = 5,
        RESERVED_MEM_HIGH = 6,
        USED_MEM_CURRENT = 7,
        USED_MEM_HIGH = 8,
        ALLOCATION_TYPE = 9,
        EXPORT_HANDLE_TYPES = 10,
        LOCATION_ID = 11,
        LOCATION_TYPE = 12,
        MAX_POOL_SIZE = 13,
        HW_DECOMPRESS_ENABLED = 14,
        LOCALITY_DOMAIN_ID = 15,
    }
}

/// The kind of memory that a pool holds, its location, and its largest size in bytes (0: the
/// driver's choice).
///
/// Argument of `cuMemPoolCreate`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemPoolProps_v1 {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub gpuDirectRDMACapable: u8,
    pub reserved: [u8; 53],
}

/// The plain name of [`CUmemPoolProps_v1`].
pub type CUmemPoolProps = CUmemPoolProps_v1;

/// An allocation of an exported pool, for another process.
///
/// Argument of `cuMemPoolExportPointer`, `cuMemPoolImportPointer`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemPoolPtrExportData_v1 {
    pub reserved: [u8; 64],
}

/// The plain name of [`CUmemPoolPtrExportData_v1`].
pub type CUmemPoolPtrExportData = CUmemPoolPtrExportData_v1;

c_enum! {
    /// Attributes of a device's graph memory, in bytes; high watermarks can be reset.
    ///
    /// Argument of `cuDeviceGetGraphMemAttribute`, `cuDeviceSetGraphMemAttribute`.
    pub struct CUgraphMem_attribute(u32);
    "CU_GRAPH_MEM_ATTR_" {
        USED_MEM_CURRENT = 0,
        USED_MEM_HIGH = 1,
        RESERVED_MEM_CURRENT = 2,
        RESERVED_MEM_HIGH = 3,
    }
}

/// `CUmemPoolProps::usage`: for the decompression engine.
pub const CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS: u16 = 0x2;
