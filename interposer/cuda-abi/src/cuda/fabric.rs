//! Logical endpoints, cliques and fabric copies (CUDA 13.3 and later).

use super::handles::{CUdevice, CUdeviceptr, CUlogicalEndpointId};
use super::memory::CUmemLocation;
use crate::abi::c_enum;

c_enum! {
    /// The kind of pointer or endpoint that the devices of a clique can reach.
    ///
    /// Part of [`CUcliqueInfo`](crate::cuda::CUcliqueInfo).
    pub struct CUcliqueType(u32);
    "CU_CLIQUE_TYPE_" {
        UNICAST_POINTER = 0,
        MULTICAST_POINTER = 1,
        UNICAST_LOGICAL_ENDPOINT = 2,
        MULTICAST_LOGICAL_ENDPOINT = 3,
    }
}

/// A set of devices that reach each other.
///
/// Argument of `cuDeviceGetCliqueInfo`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUcliqueInfo {
    pub type_: CUcliqueType,
    pub id: u32,
}

c_enum! {
    /// How an endpoint can be passed on.
    ///
    /// Argument of `cuLogicalEndpointExport`, `cuLogicalEndpointImport`.
    pub struct CUlogicalEndpointIpcHandleType(u32);
    "CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_" {
        NONE = 0,
        FABRIC = 1,
    }
}

/// A logical endpoint that can travel between nodes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlogicalEndpointFabricHandle {
    pub data: [u8; 64],
}

c_enum! {
    /// One device or many.
    ///
    /// Part of [`CUlogicalEndpointProp`](crate::cuda::CUlogicalEndpointProp).
    pub struct CUlogicalEndpointType(u32);
    "CU_LOGICAL_ENDPOINT_TYPE_" {
        INVALID = 0,
        UNICAST = 1,
        MULTICAST = 2,
    }
}

c_enum! {
    /// Whether an endpoint counts its operations.
    pub struct CUlogicalEndpointFlag(u32);
    "CU_LOGICAL_ENDPOINT_FLAG_" {
        NONE = 0,
        COUNTED_OPS = 1,
    }
}

/// Member `unicast` of [`CUlogicalEndpointProp`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlogicalEndpointProp_anon_unicast {
    pub device: CUdevice,
}

/// Member `multicast` of [`CUlogicalEndpointProp`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlogicalEndpointProp_anon_multicast {
    pub numDevices: u32,
}

/// The unnamed union of [`CUlogicalEndpointProp`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUlogicalEndpointProp_anon {
    pub unicast: CUlogicalEndpointProp_anon_unicast,
    pub multicast: CUlogicalEndpointProp_anon_multicast,
}
crate::abi::opaque_debug!(CUlogicalEndpointProp_anon);

/// The properties of a logical endpoint.
///
/// Argument of `cuLogicalEndpointCreate`, `cuLogicalEndpointGetLimits`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlogicalEndpointProp {
    pub type_: CUlogicalEndpointType,
    pub anon: CUlogicalEndpointProp_anon,
    pub size: u64,
    pub ipcHandleTypes: u32,
    pub flags: u32,
}

c_enum! {
    /// A pointer or an endpoint.
    ///
    /// Part of [`CUfabricCpyOperand`](crate::cuda::CUfabricCpyOperand).
    pub struct CUfabricCpyOperandType(u32);
    "CU_FABRIC_COPY_OPERAND_TYPE_" {
        POINTER = 1,
        LOGICAL_ENDPOINT = 2,
        MAX = 0x7fffffff,
    }
}

/// Member `op.ptr` of [`CUfabricCpyOperand`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUfabricCpyOperand_op_ptr {
    pub ptr: CUdeviceptr,
    pub locHint: CUmemLocation,
}

/// Member `op.le` of [`CUfabricCpyOperand`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUfabricCpyOperand_op_le {
    pub id: CUlogicalEndpointId,
    pub offset: u64,
}

/// Member `op` of [`CUfabricCpyOperand`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUfabricCpyOperand_op {
    pub ptr: CUfabricCpyOperand_op_ptr,
    pub le: CUfabricCpyOperand_op_le,
}
crate::abi::opaque_debug!(CUfabricCpyOperand_op);

/// One side of a fabric copy.
///
/// Part of [`CUDA_FABRIC_COPY_BATCH_OP_v1`](crate::cuda::CUDA_FABRIC_COPY_BATCH_OP_v1).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUfabricCpyOperand {
    pub type_: CUfabricCpyOperandType,
    pub op: CUfabricCpyOperand_op,
}

/// One copy of a batch of fabric copies; `size` in bytes.
///
/// Argument of `cuFabricCpyBatchAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_FABRIC_COPY_BATCH_OP_v1 {
    pub src: CUfabricCpyOperand,
    pub dst: CUfabricCpyOperand,
    pub size: usize,
    pub flags: u32,
}

/// The plain name of [`CUDA_FABRIC_COPY_BATCH_OP_v1`].
pub type CUDA_FABRIC_COPY_BATCH_OP = CUDA_FABRIC_COPY_BATCH_OP_v1;
