//! Launch configuration, launch attributes and cooperative launch parameters.

use core::ffi::{c_char, c_void};

use super::handles::{CUevent, CUfunction, CUgraphDeviceNode, CUstream};
use crate::abi::c_enum;

c_enum! {
    /// How a host node waits for the host.
    pub struct CUhostTaskSyncMode(u32);
    "CU_HOST_TASK_" {
        BLOCKING = 0,
        SPINWAIT = 1,
    }
}

c_enum! {
    /// How the L2 cache treats an access.
    ///
    /// Part of [`CUaccessPolicyWindow_v1`](crate::cuda::CUaccessPolicyWindow_v1).
    pub struct CUaccessProperty(u32);
    "CU_ACCESS_PROPERTY_" {
        NORMAL = 0,
        STREAMING = 1,
        PERSISTING = 2,
    }
}

/// A range of addresses that the L2 cache should keep (or not).
///
/// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUaccessPolicyWindow_v1 {
    pub base_ptr: *mut c_void,
    pub num_bytes: usize,
    pub hitRatio: f32,
    pub hitProp: CUaccessProperty,
    pub missProp: CUaccessProperty,
}

/// The plain name of [`CUaccessPolicyWindow_v1`].
pub type CUaccessPolicyWindow = CUaccessPolicyWindow_v1;

c_enum! {
    /// How the host waits for a stream.
    ///
    /// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
    pub struct CUsynchronizationPolicy(u32);
    "CU_SYNC_POLICY_" {
        AUTO = 1,
        SPIN = 2,
        YIELD = 3,
        BLOCKING_SYNC = 4,
    }
}

c_enum! {
    /// How clusters of blocks are spread.
    ///
    /// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
    pub struct CUclusterSchedulingPolicy(u32);
    "CU_CLUSTER_SCHEDULING_POLICY_" {
        DEFAULT = 0,
        SPREAD = 1,
        LOAD_BALANCING = 2,
        RUBIN_DSMEM_LOCALITY = 3,
    }
}

c_enum! {
    /// A logical memory synchronisation domain.
    ///
    /// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
    pub struct CUlaunchMemSyncDomain(u32);
    "CU_LAUNCH_MEM_SYNC_DOMAIN_" {
        DEFAULT = 0,
        REMOTE = 1,
    }
}

/// Which physical memory synchronisation domain each logical one means.
///
/// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchMemSyncDomainMap {
    pub default_: u8,
    pub remote: u8,
}

c_enum! {
    /// Whether a cluster size must run on every device of the architecture.
    ///
    /// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
    pub struct CUlaunchAttributePortableClusterMode(u32);
    "CU_LAUNCH_PORTABLE_CLUSTER_MODE_" {
        DEFAULT = 0,
        REQUIRE_PORTABLE = 1,
        ALLOW_NON_PORTABLE = 2,
    }
}

c_enum! {
    /// How much shared memory a launch may take.
    ///
    /// Part of [`CUlaunchAttributeValue`](crate::cuda::CUlaunchAttributeValue).
    pub struct CUsharedMemoryMode(u32);
    "CU_SHARED_MEMORY_MODE_" {
        DEFAULT = 0,
        REQUIRE_PORTABLE = 1,
        ALLOW_NON_PORTABLE = 2,
        ALLOW_OVERSIZED_SHARED_MEMORY = 3,
        PREFER_OVERSIZED_SHARED_MEMORY = 4,
    }
}

c_enum! {
    /// Which attribute of a launch, a kernel node or a stream.
    ///
    /// Argument of `cuGraphKernelNodeGetAttribute`, `cuGraphKernelNodeSetAttribute`,
    /// `cuStreamGetAttribute`, `cuStreamSetAttribute`.
    pub struct CUlaunchAttributeID(u32);
    "CU_LAUNCH_ATTRIBUTE_" {
        IGNORE = 0,
        ACCESS_POLICY_WINDOW = 1,
        COOPERATIVE = 2,
        SYNCHRONIZATION_POLICY = 3,
        CLUSTER_DIMENSION = 4,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
        PROGRAMMATIC_STREAM_SERIALIZATION = 6,
        PROGRAMMATIC_EVENT = 7,
        PRIORITY = 8,
        MEM_SYNC_DOMAIN_MAP = 9,
        MEM_SYNC_DOMAIN = 10,
        PREFERRED_CLUSTER_DIMENSION = 11,
        LAUNCH_COMPLETION_EVENT = 12,
        DEVICE_UPDATABLE_KERNEL_NODE = 13,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 14,
        NVLINK_UTIL_CENTRIC_SCHEDULING = 16,
        PORTABLE_CLUSTER_SIZE_MODE = 17,
        SHARED_MEMORY_MODE = 18,
        MAX = 19,
    }
}

/// Member `clusterDim` of [`CUlaunchAttributeValue`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttributeValue_clusterDim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// Member `programmaticEvent` of [`CUlaunchAttributeValue`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttributeValue_programmaticEvent {
    pub event: CUevent,
    pub flags: i32,
    pub triggerAtBlockStart: i32,
}

/// Member `launchCompletionEvent` of [`CUlaunchAttributeValue`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttributeValue_launchCompletionEvent {
    pub event: CUevent,
    pub flags: i32,
}

/// Member `preferredClusterDim` of [`CUlaunchAttributeValue`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttributeValue_preferredClusterDim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// Member `deviceUpdatableKernelNode` of [`CUlaunchAttributeValue`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttributeValue_deviceUpdatableKernelNode {
    pub deviceUpdatable: i32,
    pub devNode: CUgraphDeviceNode,
}

/// The value of a launch attribute; its id tells which member is valid.
///
/// Part of [`CUlaunchAttribute`](crate::cuda::CUlaunchAttribute).
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUlaunchAttributeValue {
    pub pad: [c_char; 64],
    pub accessPolicyWindow: CUaccessPolicyWindow,
    pub cooperative: i32,
    pub syncPolicy: CUsynchronizationPolicy,
    pub clusterDim: CUlaunchAttributeValue_clusterDim,
    pub clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
    pub programmaticStreamSerializationAllowed: i32,
    pub programmaticEvent: CUlaunchAttributeValue_programmaticEvent,
    pub launchCompletionEvent: CUlaunchAttributeValue_launchCompletionEvent,
    pub priority: i32,
    pub memSyncDomainMap: CUlaunchMemSyncDomainMap,
    pub memSyncDomain: CUlaunchMemSyncDomain,
    pub preferredClusterDim: CUlaunchAttributeValue_preferredClusterDim,
    pub deviceUpdatableKernelNode: CUlaunchAttributeValue_deviceUpdatableKernelNode,
    pub sharedMemCarveout: u32,
    pub nvlinkUtilCentricScheduling: u32,
    pub portableClusterSizeMode: CUlaunchAttributePortableClusterMode,
    pub sharedMemoryMode: CUsharedMemoryMode,
}
crate::abi::opaque_debug!(CUlaunchAttributeValue);

/// The plain name of [`CUlaunchAttributeValue`].
pub type CUkernelNodeAttrValue_v1 = CUlaunchAttributeValue;

/// The plain name of [`CUlaunchAttributeValue`].
pub type CUstreamAttrValue_v1 = CUlaunchAttributeValue;

/// One attribute of a launch.
///
/// Part of [`CUlaunchConfig`](crate::cuda::CUlaunchConfig).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: [c_char; 4],
    pub value: CUlaunchAttributeValue,
}

/// Grid, block, shared memory in bytes, stream and attributes of a launch.
///
/// Argument of `cuLaunchKernelEx`, `cuOccupancyMaxPotentialClusterSize`,
/// `cuOccupancyMaxActiveClusters`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlaunchConfig {
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: u32,
}

/// One device's part of a cooperative launch on several devices.
///
/// Argument of `cuLaunchCooperativeKernelMultiDevice`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_LAUNCH_PARAMS_v1 {
    pub function: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub hStream: CUstream,
    pub kernelParams: *mut *mut c_void,
}

/// The plain name of [`CUDA_LAUNCH_PARAMS_v1`].
pub type CUDA_LAUNCH_PARAMS = CUDA_LAUNCH_PARAMS_v1;

/// Ends the `extra` list of `cuLaunchKernel`.
pub const CU_LAUNCH_PARAM_END: *mut c_void = core::ptr::without_provenance_mut(0);
/// In `extra`: the next entry points to the packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
/// In `extra`: the next entry points to the size of the packed parameters, a `size_t`.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);
/// `cuLaunchCooperativeKernelMultiDevice`: do not wait for earlier work on the other devices.
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC: u32 = 0x01;
/// `cuLaunchCooperativeKernelMultiDevice`: later work does not wait for the other devices.
pub const CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC: u32 = 0x02;
