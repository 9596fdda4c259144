//! Graphs: node and edge types, instantiation, update, capture into a graph.

use super::handles::{CUgraphNode, CUstream};
use crate::abi::c_enum;

c_enum! {
    /// The kind of conditional node.
    ///
    /// Part of [`CUDA_CONDITIONAL_NODE_PARAMS`](crate::cuda::CUDA_CONDITIONAL_NODE_PARAMS).
    pub struct CUgraphConditionalNodeType(u32);
    "CU_GRAPH_COND_TYPE_" {
        IF = 0,
        WHILE = 1,
        SWITCH = 2,
    }
}

c_enum! {
    /// The kind of operation of a graph node.
    ///
    /// Argument of `cuGraphNodeGetType`.
    pub struct CUgraphNodeType(u32);
    "CU_GRAPH_NODE_TYPE_" {
        KERNEL = 0,
        MEMCPY = 1,
        MEMSET = 2,
        HOST = 3,
        GRAPH = 4,
        EMPTY = 5,
        WAIT_EVENT = 6,
        EVENT_RECORD = 7,
        EXT_SEMAS_SIGNAL = 8,
        EXT_SEMAS_WAIT = 9,
        MEM_ALLOC = 10,
        MEM_FREE = 11,
        BATCH_MEM_OP = 12,
        CONDITIONAL = 13,
        MEMCPY_BATCH = 14,
        RESERVED_16 = 16,
        EXTERNAL_ENGINE = 17,
        FABRIC_CPY_BATCH = 18,
    }
}

c_enum! {
    /// The kind of dependency between two nodes.
    pub struct CUgraphDependencyType(u32);
    "CU_GRAPH_DEPENDENCY_TYPE_" {
        DEFAULT = 0,
        PROGRAMMATIC = 1,
    }
}

/// The ports and the type of a graph's edge: the condition for which its end node waits.
///
/// Argument of `cuStreamBeginCaptureToGraph`, `cuStreamGetCaptureInfo`,
/// `cuStreamUpdateCaptureDependencies`, `cuGraphGetEdges` and 5 more.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUgraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub type_: u8,
    pub reserved: [u8; 5],
}

c_enum! {
    /// How an instantiation went.
    ///
    /// Part of [`CUDA_GRAPH_INSTANTIATE_PARAMS`](crate::cuda::CUDA_GRAPH_INSTANTIATE_PARAMS).
    pub struct CUgraphInstantiateResult(u32);
    "CUDA_GRAPH_INSTANTIATE_" {
        SUCCESS = 0,
        ERROR = 1,
        INVALID_STRUCTURE = 2,
        NODE_OPERATION_NOT_SUPPORTED = 3,
        MULTIPLE_CTXS_NOT_SUPPORTED = 4,
        CONDITIONAL_HANDLE_UNUSED = 5,
    }
}

/// How a graph is instantiated, and how that went.
///
/// Argument of `cuGraphInstantiateWithParams`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult,
}

c_enum! {
    /// How an update of an executable graph went.
    ///
    /// Argument of `cuGraphExecUpdate`.
    pub struct CUgraphExecUpdateResult(u32);
    "CU_GRAPH_EXEC_UPDATE_" {
        SUCCESS = 0,
        ERROR = 1,
        ERROR_TOPOLOGY_CHANGED = 2,
        ERROR_NODE_TYPE_CHANGED = 3,
        ERROR_FUNCTION_CHANGED = 4,
        ERROR_PARAMETERS_CHANGED = 5,
        ERROR_NOT_SUPPORTED = 6,
        ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
        ERROR_ATTRIBUTES_CHANGED = 8,
    }
}

/// How an update of an executable graph went, and where it stopped.
///
/// Argument of `cuGraphExecUpdate`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUgraphExecUpdateResultInfo_v1 {
    pub result: CUgraphExecUpdateResult,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

/// The plain name of [`CUgraphExecUpdateResultInfo_v1`].
pub type CUgraphExecUpdateResultInfo = CUgraphExecUpdateResultInfo_v1;

c_enum! {
    /// Whether a child graph is copied or moved into its parent.
    ///
    /// Part of [`CUDA_CHILD_GRAPH_NODE_PARAMS`](crate::cuda::CUDA_CHILD_GRAPH_NODE_PARAMS).
    pub struct CUgraphChildGraphNodeOwnership(i32);
    "CU_GRAPH_CHILD_GRAPH_OWNERSHIP_" {
        CLONE = 0,
        MOVE = 1,
        INVALID = -1,
    }
}

c_enum! {
    /// The details that a drawing of a graph shows.
    pub struct CUgraphDebugDot_flags(u32);
    "CU_GRAPH_DEBUG_DOT_FLAGS_" {
        VERBOSE = 0x1,
        RUNTIME_TYPES = 0x2,
        KERNEL_NODE_PARAMS = 0x4,
        MEMCPY_NODE_PARAMS = 0x8,
        MEMSET_NODE_PARAMS = 0x10,
        HOST_NODE_PARAMS = 0x20,
        EVENT_NODE_PARAMS = 0x40,
        EXT_SEMAS_SIGNAL_NODE_PARAMS = 0x80,
        EXT_SEMAS_WAIT_NODE_PARAMS = 0x100,
        KERNEL_NODE_ATTRIBUTES = 0x200,
        HANDLES = 0x400,
        MEM_ALLOC_NODE_PARAMS = 0x800,
        MEM_FREE_NODE_PARAMS = 0x1000,
        BATCH_MEM_OP_NODE_PARAMS = 0x2000,
        EXTRA_TOPO_INFO = 0x4000,
        CONDITIONAL_NODE_PARAMS = 0x8000,
        MEMCPY_BATCH_NODE_PARAMS = 0x10000,
        FABRIC_CPY_BATCH_NODE_PARAMS = 0x20000,
    }
}

c_enum! {
    /// How a user object is destroyed.
    pub struct CUuserObject_flags(u32);
    "CU_USER_OBJECT_" {
        NO_DESTRUCTOR_SYNC = 0x1,
    }
}

c_enum! {
    /// Whether a graph takes over the caller's references.
    pub struct CUuserObjectRetain_flags(u32);
    "CU_GRAPH_USER_OBJECT_" {
        MOVE = 0x1,
    }
}

c_enum! {
    /// How a graph is instantiated.
    pub struct CUgraphInstantiate_flags(u32);
    "CUDA_GRAPH_INSTANTIATE_FLAG_" {
        AUTO_FREE_ON_LAUNCH = 0x1,
        UPLOAD = 0x2,
        DEVICE_LAUNCH = 0x4,
        USE_NODE_PRIORITY = 0x8,
    }
}

c_enum! {
    /// Whether a recapture may update a node.
    pub struct CUgraphRecaptureStatus(u32);
    "CU_GRAPH_RECAPTURE_" {
        ELIGIBLE_FOR_UPDATE = 0,
        INELIGIBLE_FOR_UPDATE = 1,
        ERROR = 2,
    }
}

/// `cuGraphConditionalHandleCreate`: the default value is assigned at each launch.
pub const CU_GRAPH_COND_ASSIGN_DEFAULT: u32 = 0x1;
/// An edge that leaves a kernel node when the kernel has finished.
pub const CU_GRAPH_KERNEL_NODE_PORT_DEFAULT: u8 = 0;
/// An edge that leaves a kernel node when all blocks have triggered or exited.
pub const CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: u8 = 1;
/// An edge that leaves a kernel node when all blocks have begun.
pub const CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: u8 = 2;
