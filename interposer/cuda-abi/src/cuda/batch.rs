//! Batched and attributed copies, and on-device decompression.

use core::ffi::c_void;

use super::handles::{CUarray, CUdeviceptr};
use super::memory::CUmemLocation;
use crate::abi::c_enum;

c_enum! {
    /// Hints for a batched copy.
    pub struct CUmemcpyFlags(u32);
    "CU_MEMCPY_FLAG_" {
        DEFAULT = 0x0,
        PREFER_OVERLAP_WITH_COMPUTE = 0x1,
    }
}

c_enum! {
    /// When a batched copy may read its source.
    ///
    /// Part of [`CUmemcpyAttributes_v1`](crate::cuda::CUmemcpyAttributes_v1),
    /// [`CUDA_MEMCPY3D_BATCH_OP_v1`](crate::cuda::CUDA_MEMCPY3D_BATCH_OP_v1).
    pub struct CUmemcpySrcAccessOrder(u32);
    "CU_MEMCPY_SRC_ACCESS_ORDER_" {
        INVALID = 0,
        STREAM = 1,
        DURING_API_CALL = 2,
        ANY = 3,
        MAX = 0x7fffffff,
    }
}

/// In which order a batched copy may read its source, and hints where the memory is.
///
/// Argument of `cuMemcpyBatchAsync`, `cuMemcpyWithAttributesAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemcpyAttributes_v1 {
    pub srcAccessOrder: CUmemcpySrcAccessOrder,
    pub srcLocHint: CUmemLocation,
    pub dstLocHint: CUmemLocation,
    pub flags: u32,
}

/// The plain name of [`CUmemcpyAttributes_v1`].
pub type CUmemcpyAttributes = CUmemcpyAttributes_v1;

c_enum! {
    /// A pointer or an array.
    ///
    /// Part of [`CUmemcpy3DOperand_v1`](crate::cuda::CUmemcpy3DOperand_v1).
    pub struct CUmemcpy3DOperandType(u32);
    "CU_MEMCPY_OPERAND_TYPE_" {
        POINTER = 1,
        ARRAY = 2,
        MAX = 0x7fffffff,
    }
}

/// A place in an array, in elements.
///
/// Part of [`CUmemcpy3DOperand_v1_op_array`](crate::cuda::CUmemcpy3DOperand_v1_op_array).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUoffset3D_v1 {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// The plain name of [`CUoffset3D_v1`].
pub type CUoffset3D = CUoffset3D_v1;

/// A size in elements.
///
/// Part of [`CUDA_MEMCPY3D_BATCH_OP_v1`](crate::cuda::CUDA_MEMCPY3D_BATCH_OP_v1).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUextent3D_v1 {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// The plain name of [`CUextent3D_v1`].
pub type CUextent3D = CUextent3D_v1;

/// Member `op.ptr` of [`CUmemcpy3DOperand_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemcpy3DOperand_v1_op_ptr {
    pub ptr: CUdeviceptr,
    pub rowLength: usize,
    pub layerHeight: usize,
    pub locHint: CUmemLocation,
}

/// Member `op.array` of [`CUmemcpy3DOperand_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemcpy3DOperand_v1_op_array {
    pub array: CUarray,
    pub offset: CUoffset3D,
}

/// Member `op` of [`CUmemcpy3DOperand_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUmemcpy3DOperand_v1_op {
    pub ptr: CUmemcpy3DOperand_v1_op_ptr,
    pub array: CUmemcpy3DOperand_v1_op_array,
}
crate::abi::opaque_debug!(CUmemcpy3DOperand_v1_op);

/// One side of a batched 3D copy: a pointer or an array.
///
/// Part of [`CUDA_MEMCPY3D_BATCH_OP_v1`](crate::cuda::CUDA_MEMCPY3D_BATCH_OP_v1).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemcpy3DOperand_v1 {
    pub type_: CUmemcpy3DOperandType,
    pub op: CUmemcpy3DOperand_v1_op,
}

/// The plain name of [`CUmemcpy3DOperand_v1`].
pub type CUmemcpy3DOperand = CUmemcpy3DOperand_v1;

/// One copy of a batch of 3D copies.
///
/// Argument of `cuMemcpy3DBatchAsync`, `cuMemcpy3DWithAttributesAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_MEMCPY3D_BATCH_OP_v1 {
    pub src: CUmemcpy3DOperand,
    pub dst: CUmemcpy3DOperand,
    pub extent: CUextent3D,
    pub srcAccessOrder: CUmemcpySrcAccessOrder,
    pub flags: u32,
}

/// The plain name of [`CUDA_MEMCPY3D_BATCH_OP_v1`].
pub type CUDA_MEMCPY3D_BATCH_OP = CUDA_MEMCPY3D_BATCH_OP_v1;

c_enum! {
    /// A compression format; bits, where several are told.
    ///
    /// Part of [`CUmemDecompressParams`](crate::cuda::CUmemDecompressParams).
    pub struct CUmemDecompressAlgorithm(u32);
    "CU_MEM_DECOMPRESS_" {
        UNSUPPORTED = 0,
        ALGORITHM_DEFLATE = 1,
        ALGORITHM_SNAPPY = 2,
        ALGORITHM_LZ4 = 4,
    }
}

/// One range to decompress: compressed and uncompressed bytes.
///
/// Argument of `cuMemBatchDecompressAsync`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemDecompressParams {
    pub srcNumBytes: usize,
    pub dstNumBytes: usize,
    pub dstActBytes: *mut u32,
    pub src: *const c_void,
    pub dst: *mut c_void,
    pub algo: CUmemDecompressAlgorithm,
    pub padding: [u8; 20],
}
