//! Green contexts and the device resources they are made of.

use super::handles::CUdevice;
use crate::abi::c_enum;

c_enum! {
    /// How a green context is made.
    pub struct CUgreenCtxCreate_flags(u32);
    "CU_GREEN_CTX_" {
        NONE = 0x0,
        DEFAULT_STREAM = 0x1,
    }
}

c_enum! {
    /// How a group of multiprocessors is made.
    pub struct CUdevSmResourceGroup_flags(u32);
    "CU_DEV_SM_RESOURCE_GROUP_" {
        DEFAULT = 0x0,
        BACKFILL = 0x1,
        LOCALITY_DOMAIN_ID = 0x2,
        LOCALITY_DOMAIN_SUPPLEMENTAL_SMS = 0x4,
    }
}

c_enum! {
    /// How multiprocessors are split.
    pub struct CUdevSmResourceSplitByCount_flags(u32);
    "CU_DEV_SM_RESOURCE_SPLIT_" {
        IGNORE_SM_COSCHEDULING = 0x1,
        MAX_POTENTIAL_CLUSTER_SIZE = 0x2,
    }
}

c_enum! {
    /// The kind of device resource.
    ///
    /// Argument of `cuDeviceGetDevResource`, `cuCtxGetDevResource`, `cuGreenCtxGetDevResource`,
    /// `cuStreamGetDevResource`.
    pub struct CUdevResourceType(u32);
    "CU_DEV_RESOURCE_TYPE_" {
        INVALID = 0,
        SM = 1,
        WORKQUEUE_CONFIG = 1000,
        WORKQUEUE = 0x2710,
    }
}

/// A number of multiprocessors and how they are grouped.
///
/// Part of [`CUdevResource_v1_anon`](crate::cuda::CUdevResource_v1_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUdevSmResource {
    pub smCount: u32,
    pub minSmPartitionSize: u32,
    pub smCoscheduledAlignment: u32,
    pub flags: u32,
    pub localityDomainId: u32,
}

c_enum! {
    /// The contexts that share queues of work.
    ///
    /// Part of [`CUdevWorkqueueConfigResource`](crate::cuda::CUdevWorkqueueConfigResource).
    pub struct CUdevWorkqueueConfigScope(u32);
    "CU_WORKQUEUE_SCOPE_" {
        DEVICE_CTX = 0,
        GREEN_CTX_BALANCED = 1,
    }
}

/// How many queues of work may be open.
///
/// Part of [`CUdevResource_v1_anon`](crate::cuda::CUdevResource_v1_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUdevWorkqueueConfigResource {
    pub device: CUdevice,
    pub wqConcurrencyLimit: u32,
    pub sharingScope: CUdevWorkqueueConfigScope,
}

/// A queue of work; opaque.
///
/// Part of [`CUdevResource_v1_anon`](crate::cuda::CUdevResource_v1_anon).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUdevWorkqueueResource {
    pub reserved: [u8; 40],
}

/// One group of multiprocessors to split off.
///
/// Argument of `cuDevSmResourceSplit`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CU_DEV_SM_RESOURCE_GROUP_PARAMS {
    pub smCount: u32,
    pub coscheduledSmCount: u32,
    pub preferredCoscheduledSmCount: u32,
    pub flags: u32,
    pub localityDomainId: u32,
    pub reserved: [u32; 11],
}

/// The unnamed union of [`CUdevResource_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUdevResource_v1_anon {
    pub sm: CUdevSmResource,
    pub wqConfig: CUdevWorkqueueConfigResource,
    pub wq: CUdevWorkqueueResource,
    pub _oversize: [u8; 40],
}
crate::abi::opaque_debug!(CUdevResource_v1_anon);

/// A part of a device; `type_` tells which member of `anon` is valid.
///
/// Argument of `cuDeviceGetDevResource`, `cuCtxGetDevResource`, `cuGreenCtxGetDevResource`,
/// `cuDevSmResourceSplitByCount` and 3 more.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUdevResource_v1 {
    pub type_: CUdevResourceType,
    pub _internal_padding: [u8; 92],
    pub anon: CUdevResource_v1_anon,
    pub nextResource: *mut Self,
}

/// The plain name of [`CUdevResource_v1`].
pub type CUdevResource = CUdevResource_v1;
