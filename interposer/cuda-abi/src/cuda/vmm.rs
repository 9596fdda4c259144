//! Virtual memory management: physical allocations, access, mapping, multicast.

use core::ffi::c_void;

use super::handles::{CUarray, CUmemGenericAllocationHandle, CUmipmappedArray};
use super::memory::CUmemLocation;
use super::texture::CUresourcetype;
use crate::abi::c_enum;

c_enum! {
    /// How an allocation can be passed to another process; bits, where several are asked for.
    ///
    /// Argument of `cuMemExportToShareableHandle`, `cuMemImportFromShareableHandle`,
    /// `cuMemPoolExportToShareableHandle`, `cuMemPoolImportFromShareableHandle`.
    pub struct CUmemAllocationHandleType(u32);
    "CU_MEM_HANDLE_TYPE_" {
        NONE = 0,
        POSIX_FILE_DESCRIPTOR = 1,
        WIN32 = 2,
        WIN32_KMT = 4,
        FABRIC = 8,
        MAX = 0x7fffffff,
    }
}

c_enum! {
    /// The access that a mapping permits.
    ///
    /// Argument of `cuMemPoolGetAccess`.
    pub struct CUmemAccess_flags(u32);
    "CU_MEM_ACCESS_FLAGS_PROT_" {
        NONE = 0x0,
        READ = 0x1,
        READWRITE = 0x3,
        MAX = 0x7fffffff,
    }
}

c_enum! {
    /// Whether memory is pinned to its place, or managed.
    ///
    /// Argument of `cuMemGetDefaultMemPool`, `cuMemGetMemPool`, `cuMemSetMemPool`.
    pub struct CUmemAllocationType(u32);
    "CU_MEM_ALLOCATION_TYPE_" {
        INVALID = 0,
        PINNED = 1,
        MANAGED = 2,
        MAX = 0x7fffffff,
    }
}

c_enum! {
    /// Which granularity.
    ///
    /// Argument of `cuMemGetAllocationGranularity`.
    pub struct CUmemAllocationGranularity_flags(u32);
    "CU_MEM_ALLOC_GRANULARITY_" {
        MINIMUM = 0x0,
        RECOMMENDED = 0x1,
    }
}

c_enum! {
    /// The kind of handle for a range of addresses.
    ///
    /// Argument of `cuMemGetHandleForAddressRange`.
    pub struct CUmemRangeHandleType(u32);
    "CU_MEM_RANGE_HANDLE_TYPE_" {
        DMA_BUF_FD = 1,
        MAX = 0x7fffffff,
    }
}

c_enum! {
    /// How a range is handed out.
    pub struct CUmemRangeFlags(u32);
    "CU_MEM_RANGE_FLAG_" {
        DMA_BUF_MAPPING_TYPE_PCIE = 0x1,
    }
}

c_enum! {
    /// Which part of a sparse array.
    ///
    /// Part of [`CUarrayMapInfo_v1`](crate::cuda::CUarrayMapInfo_v1).
    pub struct CUarraySparseSubresourceType(u32);
    "CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_" {
        SPARSE_LEVEL = 0,
        MIPTAIL = 1,
    }
}

c_enum! {
    /// Map or unmap.
    ///
    /// Part of [`CUarrayMapInfo_v1`](crate::cuda::CUarrayMapInfo_v1).
    pub struct CUmemOperationType(u32);
    "CU_MEM_OPERATION_TYPE_" {
        MAP = 1,
        UNMAP = 2,
    }
}

c_enum! {
    /// The kind of memory that is mapped.
    ///
    /// Part of [`CUarrayMapInfo_v1`](crate::cuda::CUarrayMapInfo_v1).
    pub struct CUmemHandleType(u32);
    "CU_MEM_HANDLE_TYPE_" {
        GENERIC = 0,
    }
}

/// Member `resource` of [`CUarrayMapInfo_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarrayMapInfo_v1_resource {
    pub mipmap: CUmipmappedArray,
    pub array: CUarray,
}
crate::abi::opaque_debug!(CUarrayMapInfo_v1_resource);

/// Member `subresource.sparseLevel` of [`CUarrayMapInfo_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUarrayMapInfo_v1_subresource_sparseLevel {
    pub level: u32,
    pub layer: u32,
    pub offsetX: u32,
    pub offsetY: u32,
    pub offsetZ: u32,
    pub extentWidth: u32,
    pub extentHeight: u32,
    pub extentDepth: u32,
}

/// Member `subresource.miptail` of [`CUarrayMapInfo_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUarrayMapInfo_v1_subresource_miptail {
    pub layer: u32,
    pub offset: u64,
    pub size: u64,
}

/// Member `subresource` of [`CUarrayMapInfo_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarrayMapInfo_v1_subresource {
    pub sparseLevel: CUarrayMapInfo_v1_subresource_sparseLevel,
    pub miptail: CUarrayMapInfo_v1_subresource_miptail,
}
crate::abi::opaque_debug!(CUarrayMapInfo_v1_subresource);

/// Member `memHandle` of [`CUarrayMapInfo_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUarrayMapInfo_v1_memHandle {
    pub memHandle: CUmemGenericAllocationHandle,
}
crate::abi::opaque_debug!(CUarrayMapInfo_v1_memHandle);

/// One mapping or unmapping of physical memory in a sparse array.
///
/// Argument of `cuMemMapArrayAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUarrayMapInfo_v1 {
    pub resourceType: CUresourcetype,
    pub resource: CUarrayMapInfo_v1_resource,
    pub subresourceType: CUarraySparseSubresourceType,
    pub subresource: CUarrayMapInfo_v1_subresource,
    pub memOperationType: CUmemOperationType,
    pub memHandleType: CUmemHandleType,
    pub memHandle: CUarrayMapInfo_v1_memHandle,
    pub offset: u64,
    pub deviceBitMask: u32,
    pub flags: u32,
    pub reserved: [u32; 2],
}

/// The plain name of [`CUarrayMapInfo_v1`].
pub type CUarrayMapInfo = CUarrayMapInfo_v1;

c_enum! {
    /// Whether memory can be compressed.
    pub struct CUmemAllocationCompType(u32);
    "CU_MEM_ALLOCATION_COMP_" {
        NONE = 0,
        GENERIC = 1,
    }
}

/// Member `allocFlags` of [`CUmemAllocationProp_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemAllocationProp_v1_allocFlags {
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// The kind of physical memory that `cuMemCreate` makes, and its location.
///
/// Argument of `cuMemCreate`, `cuMemGetAllocationGranularity`,
/// `cuMemGetAllocationPropertiesFromHandle`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemAllocationProp_v1 {
    pub type_: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationProp_v1_allocFlags,
}

/// The plain name of [`CUmemAllocationProp_v1`].
pub type CUmemAllocationProp = CUmemAllocationProp_v1;

c_enum! {
    /// Which granularity of a multicast object.
    ///
    /// Argument of `cuMulticastGetGranularity`.
    pub struct CUmulticastGranularity_flags(u32);
    "CU_MULTICAST_GRANULARITY_" {
        MINIMUM = 0x0,
        RECOMMENDED = 0x1,
    }
}

/// A multicast object: how many devices, how many bytes.
///
/// Argument of `cuMulticastCreate`, `cuMulticastGetGranularity`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmulticastObjectProp_v1 {
    pub numDevices: u32,
    pub size: usize,
    pub handleTypes: u64,
    pub flags: u64,
}

/// The plain name of [`CUmulticastObjectProp_v1`].
pub type CUmulticastObjectProp = CUmulticastObjectProp_v1;

/// The access that a location has to a mapping.
///
/// Argument of `cuMemSetAccess`, `cuMemPoolSetAccess`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemAccessDesc_v1 {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}

/// The plain name of [`CUmemAccessDesc_v1`].
pub type CUmemAccessDesc = CUmemAccessDesc_v1;

/// `allocFlags.usage` of `cuMemCreate`: tiles for sparse arrays.
pub const CU_MEM_CREATE_USAGE_TILE_POOL: u16 = 0x1;
/// `allocFlags.usage` of `cuMemCreate`: for the decompression engine.
pub const CU_MEM_CREATE_USAGE_HW_DECOMPRESS: u16 = 0x2;
/// `allocFlags.usage` of `cuMemCreate`: GPUDirect RDMA over PCIe.
pub const CU_MEM_CREATE_USAGE_GPU_DIRECT_RDMA_OVER_PCIE: u16 = 0x4;
