//! Texture, surface and tensor-map descriptors.

use super::array::CUarray_format;
use super::handles::{CUarray, CUdeviceptr, CUmipmappedArray};
use crate::abi::c_enum;

c_enum! {
    /// How a read outside a texture is resolved.
    ///
    /// Argument of `cuTexRefSetAddressMode`, `cuTexRefGetAddressMode`.
    pub struct CUaddress_mode(u32);
    "CU_TR_ADDRESS_MODE_" {
        WRAP = 0,
        CLAMP = 1,
        MIRROR = 2,
        BORDER = 3,
    }
}

c_enum! {
    /// How a texture is read between elements.
    ///
    /// Argument of `cuTexRefSetFilterMode`, `cuTexRefSetMipmapFilterMode`, `cuTexRefGetFilterMode`,
    /// `cuTexRefGetMipmapFilterMode`.
    pub struct CUfilter_mode(u32);
    "CU_TR_FILTER_MODE_" {
        POINT = 0,
        LINEAR = 1,
    }
}

c_enum! {
    /// The kind of resource.
    ///
    /// Part of [`CUDA_RESOURCE_DESC_v1`](crate::cuda::CUDA_RESOURCE_DESC_v1),
    /// [`CUarrayMapInfo_v1`](crate::cuda::CUarrayMapInfo_v1).
    pub struct CUresourcetype(u32);
    "CU_RESOURCE_TYPE_" {
        ARRAY = 0,
        MIPMAPPED_ARRAY = 1,
        LINEAR = 2,
        PITCH2D = 3,
    }
}

/// Member `res.array` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1_res_array {
    pub hArray: CUarray,
}

/// Member `res.mipmap` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1_res_mipmap {
    pub hMipmappedArray: CUmipmappedArray,
}

/// Member `res.linear` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1_res_linear {
    pub devPtr: CUdeviceptr,
    pub format: CUarray_format,
    pub numChannels: u32,
    pub sizeInBytes: usize,
}

/// Member `res.pitch2D` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1_res_pitch2D {
    pub devPtr: CUdeviceptr,
    pub format: CUarray_format,
    pub numChannels: u32,
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}

/// Member `res.reserved` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1_res_reserved {
    pub reserved: [i32; 32],
}

/// Member `res` of [`CUDA_RESOURCE_DESC_v1`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUDA_RESOURCE_DESC_v1_res {
    pub array: CUDA_RESOURCE_DESC_v1_res_array,
    pub mipmap: CUDA_RESOURCE_DESC_v1_res_mipmap,
    pub linear: CUDA_RESOURCE_DESC_v1_res_linear,
    pub pitch2D: CUDA_RESOURCE_DESC_v1_res_pitch2D,
    pub reserved: CUDA_RESOURCE_DESC_v1_res_reserved,
}
crate::abi::opaque_debug!(CUDA_RESOURCE_DESC_v1_res);

/// The resource behind a texture or surface object; `resType` tells which member is valid.
///
/// Argument of `cuTexObjectCreate`, `cuTexObjectGetResourceDesc`, `cuSurfObjectCreate`,
/// `cuSurfObjectGetResourceDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC_v1 {
    pub resType: CUresourcetype,
    pub res: CUDA_RESOURCE_DESC_v1_res,
    pub flags: u32,
}

/// The plain name of [`CUDA_RESOURCE_DESC_v1`].
pub type CUDA_RESOURCE_DESC = CUDA_RESOURCE_DESC_v1;

/// How a texture object reads.
///
/// Argument of `cuTexObjectCreate`, `cuTexObjectGetTextureDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_TEXTURE_DESC_v1 {
    pub addressMode: [CUaddress_mode; 3],
    pub filterMode: CUfilter_mode,
    pub flags: u32,
    pub maxAnisotropy: u32,
    pub mipmapFilterMode: CUfilter_mode,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [i32; 12],
}

/// The plain name of [`CUDA_TEXTURE_DESC_v1`].
pub type CUDA_TEXTURE_DESC = CUDA_TEXTURE_DESC_v1;

c_enum! {
    /// The format a texture sees.
    ///
    /// Part of [`CUDA_RESOURCE_VIEW_DESC_v1`](crate::cuda::CUDA_RESOURCE_VIEW_DESC_v1).
    pub struct CUresourceViewFormat(u32);
    "CU_RES_VIEW_FORMAT_" {
        NONE = 0,
        UINT_1X8 = 1,
        UINT_2X8 = 2,
        UINT_4X8 = 3,
        SINT_1X8 = 4,
        SINT_2X8 = 5,
        SINT_4X8 = 6,
        UINT_1X16 = 7,
        UINT_2X16 = 8,
        UINT_4X16 = 9,
        SINT_1X16 = 10,
        SINT_2X16 = 11,
        SINT_4X16 = 12,
        UINT_1X32 = 13,
        UINT_2X32 = 14,
        UINT_4X32 = 15,
        SINT_1X32 = 16,
        SINT_2X32 = 17,
        SINT_4X32 = 18,
        FLOAT_1X16 = 19,
        FLOAT_2X16 = 20,
        FLOAT_4X16 = 21,
        FLOAT_1X32 = 22,
        FLOAT_2X32 = 23,
        FLOAT_4X32 = 24,
        UNSIGNED_BC1 = 25,
        UNSIGNED_BC2 = 26,
        UNSIGNED_BC3 = 27,
        UNSIGNED_BC4 = 28,
        SIGNED_BC4 = 29,
        UNSIGNED_BC5 = 30,
        SIGNED_BC5 = 31,
        UNSIGNED_BC6H = 32,
        SIGNED_BC6H = 33,
        UNSIGNED_BC7 = 34,
    }
}

/// How a texture object sees its resource.
///
/// Argument of `cuTexObjectCreate`, `cuTexObjectGetResourceViewDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_RESOURCE_VIEW_DESC_v1 {
    pub format: CUresourceViewFormat,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: u32,
    pub lastMipmapLevel: u32,
    pub firstLayer: u32,
    pub lastLayer: u32,
    pub reserved: [u32; 16],
}

/// The plain name of [`CUDA_RESOURCE_VIEW_DESC_v1`].
pub type CUDA_RESOURCE_VIEW_DESC = CUDA_RESOURCE_VIEW_DESC_v1;

/// A tensor's layout as the copy engine of the multiprocessors takes it; opaque, 128-byte aligned
/// since CUDA 13 (64 before).
///
/// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`, `cuTensorMapEncodeIm2colWide`,
/// `cuTensorMapReplaceAddress` and 1 more.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub struct CUtensorMap {
    pub opaque: [u64; 16],
}

c_enum! {
    /// The elements of a tensor.
    ///
    /// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`,
    /// `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapDataType(u32);
    "CU_TENSOR_MAP_DATA_TYPE_" {
        UINT8 = 0,
        UINT16 = 1,
        UINT32 = 2,
        INT32 = 3,
        UINT64 = 4,
        INT64 = 5,
        FLOAT16 = 6,
        FLOAT32 = 7,
        FLOAT64 = 8,
        BFLOAT16 = 9,
        FLOAT32_FTZ = 10,
        TFLOAT32 = 11,
        TFLOAT32_FTZ = 12,
    }
    "CU_TENSOR_MAP_DATA_" {
        TYPE_16U4_ALIGN8B = 13,
        TYPE_16U4_ALIGN16B = 14,
        TYPE_16U6_ALIGN16B = 15,
    }
}

c_enum! {
    /// How a tensor is interleaved.
    ///
    /// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`,
    /// `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapInterleave(u32);
    "CU_TENSOR_MAP_INTERLEAVE_" {
        NONE = 0,
    }
    "CU_TENSOR_MAP_" {
        INTERLEAVE_16B = 1,
        INTERLEAVE_32B = 2,
    }
}

c_enum! {
    /// How a tensor is spread over the banks of shared memory.
    ///
    /// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`,
    /// `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapSwizzle(u32);
    "CU_TENSOR_MAP_SWIZZLE_" {
        NONE = 0,
    }
    "CU_TENSOR_MAP_" {
        SWIZZLE_32B = 1,
        SWIZZLE_64B = 2,
        SWIZZLE_128B = 3,
        SWIZZLE_128B_ATOM_32B = 4,
        SWIZZLE_128B_ATOM_32B_FLIP_8B = 5,
        SWIZZLE_128B_ATOM_64B = 6,
    }
}

c_enum! {
    /// How much is fetched into the L2 cache.
    ///
    /// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`,
    /// `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapL2promotion(u32);
    "CU_TENSOR_MAP_L2_PROMOTION_" {
        NONE = 0,
        L2_64B = 1,
        L2_128B = 2,
        L2_256B = 3,
    }
}

c_enum! {
    /// The fill value for reads outside a tensor.
    ///
    /// Argument of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`,
    /// `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapFloatOOBfill(u32);
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_" {
        NONE = 0,
        NAN_REQUEST_ZERO_FMA = 1,
    }
}

c_enum! {
    /// How a wide im2col box is laid out.
    ///
    /// Argument of `cuTensorMapEncodeIm2colWide`.
    pub struct CUtensorMapIm2ColWideMode(u32);
    "CU_TENSOR_MAP_IM2COL_WIDE_MODE_" {
        W = 0,
        W128 = 1,
    }
}

c_enum! {
    /// Which class of allocation a tensor lies in.
    ///
    /// Argument of `cuTensorMapSetAllocationClass`.
    pub struct CUtensorMapAllocClass(u32);
    "CU_TENSOR_MAP_ALLOC_CLASS_" {
        AUTO = 0,
        SMALL = 1,
        LARGE = 2,
    }
}

/// `cuTexRefSetArray`: take the format from the array.
pub const CU_TRSA_OVERRIDE_FORMAT: u32 = 0x01;
/// Texture flag: integers are not turned into floats.
pub const CU_TRSF_READ_AS_INTEGER: u32 = 0x01;
/// Texture flag: coordinates in [0, 1).
pub const CU_TRSF_NORMALIZED_COORDINATES: u32 = 0x02;
/// Texture flag: sRGB is made linear on reading.
pub const CU_TRSF_SRGB: u32 = 0x10;
/// Texture flag: no trilinear optimisation.
pub const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: u32 = 0x20;
/// Texture flag: filter across the faces of a cube map.
pub const CU_TRSF_SEAMLESS_CUBEMAP: u32 = 0x40;
