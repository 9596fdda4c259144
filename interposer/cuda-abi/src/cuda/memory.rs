//! Copy descriptors, host memory flags, pointer attributes, advice.

use core::ffi::c_void;

use super::handles::{CUarray, CUcontext, CUdeviceptr, CUdeviceptr_v1};
use crate::abi::c_enum;

c_enum! {
    /// Which streams may use a managed allocation.
    pub struct CUmemAttach_flags(u32);
    "CU_MEM_ATTACH_" {
        GLOBAL = 0x1,
        HOST = 0x2,
        SINGLE = 0x4,
    }
}

c_enum! {
    /// Attributes of an address that can be queried or set.
    ///
    /// Argument of `cuPointerGetAttribute`, `cuPointerSetAttribute`, `cuPointerGetAttributes`.
    pub struct CUpointer_attribute(u32);
    "CU_POINTER_ATTRIBUTE_" {
        CONTEXT = 1,
        MEMORY_TYPE = 2,
        DEVICE_POINTER = 3,
        HOST_POINTER = 4,
        P2P_TOKENS = 5,
        SYNC_MEMOPS = 6,
        BUFFER_ID = 7,
        IS_MANAGED = 8,
        DEVICE_ORDINAL = 9,
        IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        RANGE_START_ADDR = 11,
        RANGE_SIZE = 12,
        MAPPED = 13,
        ALLOWED_HANDLE_TYPES = 14,
        IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        ACCESS_FLAGS = 16,
        MEMPOOL_HANDLE = 17,
        MAPPING_SIZE = 18,
        MAPPING_BASE_ADDR = 19,
        MEMORY_BLOCK_ID = 20,
        IS_HW_DECOMPRESS_CAPABLE = 21,
        LOCALITY_DOMAIN_ORDINAL = 22,
    }
}

c_enum! {
    /// The kind of memory.
    ///
    /// Part of [`CUDA_MEMCPY2D_v2`](crate::cuda::CUDA_MEMCPY2D_v2),
    /// [`CUDA_MEMCPY3D_v2`](crate::cuda::CUDA_MEMCPY3D_v2),
    /// [`CUDA_MEMCPY3D_PEER_v1`](crate::cuda::CUDA_MEMCPY3D_PEER_v1).
    pub struct CUmemorytype(u32);
    "CU_MEMORYTYPE_" {
        HOST = 1,
        DEVICE = 2,
        ARRAY = 3,
        UNIFIED = 4,
    }
}

c_enum! {
    /// Advice about managed memory.
    ///
    /// Argument of `cuMemAdvise`.
    pub struct CUmem_advise(u32);
    "CU_MEM_ADVISE_" {
        SET_READ_MOSTLY = 1,
        UNSET_READ_MOSTLY = 2,
        SET_PREFERRED_LOCATION = 3,
        UNSET_PREFERRED_LOCATION = 4,
        SET_ACCESSED_BY = 5,
        UNSET_ACCESSED_BY = 6,
    }
}

c_enum! {
    /// Attributes of a range of managed memory that can be queried.
    ///
    /// Argument of `cuMemRangeGetAttribute`, `cuMemRangeGetAttributes`.
    pub struct CUmem_range_attribute(u32);
    "CU_MEM_RANGE_ATTRIBUTE_" {
        READ_MOSTLY = 1,
        PREFERRED_LOCATION = 2,
        ACCESSED_BY = 3,
        LAST_PREFETCH_LOCATION = 4,
        PREFERRED_LOCATION_TYPE = 5,
        PREFERRED_LOCATION_ID = 6,
        LAST_PREFETCH_LOCATION_TYPE = 7,
        LAST_PREFETCH_LOCATION_ID = 8,
    }
}

/// A copy of a rectangle; everything is counted in bytes and rows, and the memory types tell which
/// of host, device and array is valid.
///
/// Argument of `cuMemcpy2D`, `cuMemcpy2DUnaligned`, `cuMemcpy2DAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY2D_v2 {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// The plain name of [`CUDA_MEMCPY2D_v2`].
pub type CUDA_MEMCPY2D = CUDA_MEMCPY2D_v2;

/// A copy of a box; bytes, rows and slices.
///
/// Argument of `cuMemcpy3D`, `cuMemcpy3DAsync`, `cuGraphAddMemcpyNode`,
/// `cuGraphMemcpyNodeGetParams` and 2 more.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY3D_v2 {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

/// The plain name of [`CUDA_MEMCPY3D_v2`].
pub type CUDA_MEMCPY3D = CUDA_MEMCPY3D_v2;

/// A copy of a box from one context to another.
///
/// Argument of `cuMemcpy3DPeer`, `cuMemcpy3DPeerAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY3D_PEER_v1 {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcContext: CUcontext,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstContext: CUcontext,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

/// The plain name of [`CUDA_MEMCPY3D_PEER_v1`].
pub type CUDA_MEMCPY3D_PEER = CUDA_MEMCPY3D_PEER_v1;

/// Tokens for an old way of third-party device access.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_POINTER_ATTRIBUTE_P2P_TOKENS_v1 {
    pub p2pToken: u64,
    pub vaSpaceToken: u32,
}

/// The plain name of [`CUDA_POINTER_ATTRIBUTE_P2P_TOKENS_v1`].
pub type CUDA_POINTER_ATTRIBUTE_P2P_TOKENS = CUDA_POINTER_ATTRIBUTE_P2P_TOKENS_v1;

c_enum! {
    /// The access that the context has to an address.
    pub struct CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS(u32);
    "CU_POINTER_ATTRIBUTE_ACCESS_FLAG_" {
        NONE = 0,
        READ = 1,
        READWRITE = 3,
    }
}

c_enum! {
    /// The kind of location.
    ///
    /// Part of [`CUmemLocation_v1`](crate::cuda::CUmemLocation_v1).
    pub struct CUmemLocationType(u32);
    "CU_MEM_LOCATION_TYPE_" {
        INVALID = 0,
        NONE = 0,
        DEVICE = 1,
        HOST = 2,
        HOST_NUMA = 3,
        HOST_NUMA_CURRENT = 4,
        INVISIBLE = 5,
        DEVICE_LOCALITY_DOMAIN = 6,
        MAX = 0x7fffffff,
    }
}

/// Where memory is. `id` is a device ordinal or a host NUMA node as `type_` says; for the types of
/// CUDA 13.5 that name a part of a device, its low byte is the device and the next byte the part.
///
/// Argument of `cuMemGetAccess`, `cuMemPoolGetAccess`, `cuMemGetDefaultMemPool`, `cuMemGetMemPool`
/// and 6 more.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemLocation_v1 {
    pub type_: CUmemLocationType,
    pub id: i32,
}

/// The plain name of [`CUmemLocation_v1`].
pub type CUmemLocation = CUmemLocation_v1;

c_enum! {
    /// How writes of other devices can be flushed.
    pub struct CUflushGPUDirectRDMAWritesOptions(u32);
    "CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_" {
        HOST = 1,
        MEMOPS = 2,
    }
}

c_enum! {
    /// The devices that see writes of other devices in order without a flush.
    pub struct CUGPUDirectRDMAWritesOrdering(u32);
    "CU_GPU_DIRECT_RDMA_WRITES_ORDERING_" {
        NONE = 0,
        OWNER = 100,
        ALL_DEVICES = 200,
    }
}

c_enum! {
    /// For whom writes are flushed.
    ///
    /// Argument of `cuFlushGPUDirectRDMAWrites`.
    pub struct CUflushGPUDirectRDMAWritesScope(u32);
    "CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_" {
        OWNER = 100,
        ALL_DEVICES = 200,
    }
}

c_enum! {
    /// Whose writes are flushed.
    ///
    /// Argument of `cuFlushGPUDirectRDMAWrites`.
    pub struct CUflushGPUDirectRDMAWritesTarget(u32);
    "CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_" {
        CURRENT_CTX = 0,
    }
}

/// A copy of a rectangle with the 32-bit sizes and addresses of CUDA 2.
///
/// Argument of `cuMemcpy2D`, `cuMemcpy2DUnaligned`, `cuMemcpy2DAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY2D_v1 {
    pub srcXInBytes: u32,
    pub srcY: u32,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr_v1,
    pub srcArray: CUarray,
    pub srcPitch: u32,
    pub dstXInBytes: u32,
    pub dstY: u32,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr_v1,
    pub dstArray: CUarray,
    pub dstPitch: u32,
    pub WidthInBytes: u32,
    pub Height: u32,
}

/// A copy of a box with the 32-bit sizes and addresses of CUDA 2.
///
/// Argument of `cuMemcpy3D`, `cuMemcpy3DAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY3D_v1 {
    pub srcXInBytes: u32,
    pub srcY: u32,
    pub srcZ: u32,
    pub srcLOD: u32,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr_v1,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: u32,
    pub srcHeight: u32,
    pub dstXInBytes: u32,
    pub dstY: u32,
    pub dstZ: u32,
    pub dstLOD: u32,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr_v1,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: u32,
    pub dstHeight: u32,
    pub WidthInBytes: u32,
    pub Height: u32,
    pub Depth: u32,
}

/// `cuMemHostAlloc`: pinned for every context, not only the current one.
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 0x01;
/// `cuMemHostAlloc`: mapped into the device's address space.
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 0x02;
/// `cuMemHostAlloc`: write-combined.
pub const CU_MEMHOSTALLOC_WRITECOMBINED: u32 = 0x04;
/// `cuMemHostRegister`: pinned for every context.
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 0x01;
/// `cuMemHostRegister`: mapped into the device's address space.
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 0x02;
/// `cuMemHostRegister`: the range is another device's I/O memory.
pub const CU_MEMHOSTREGISTER_IOMEMORY: u32 = 0x04;
/// `cuMemHostRegister`: the device only reads it.
pub const CU_MEMHOSTREGISTER_READ_ONLY: u32 = 0x08;
