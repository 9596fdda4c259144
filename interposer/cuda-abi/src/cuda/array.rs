//! Array and mipmapped-array descriptors, formats, sizes.

use crate::abi::c_enum;

c_enum! {
    /// The format of an array's elements.
    ///
    /// Argument of `cuDeviceGetTexture1DLinearMaxWidth`, `cuTexRefSetFormat`, `cuTexRefGetFormat`.
    pub struct CUarray_format(u32);
    "CU_AD_FORMAT_" {
        UNSIGNED_INT8 = 1,
        UNSIGNED_INT16 = 2,
        UNSIGNED_INT32 = 3,
        SIGNED_INT8 = 8,
        SIGNED_INT16 = 9,
        SIGNED_INT32 = 10,
        HALF = 16,
        FLOAT = 32,
        NV12 = 176,
        UNORM_INT8X1 = 192,
        UNORM_INT8X2 = 193,
        UNORM_INT8X4 = 194,
        UNORM_INT16X1 = 195,
        UNORM_INT16X2 = 196,
        UNORM_INT16X4 = 197,
        SNORM_INT8X1 = 198,
        SNORM_INT8X2 = 199,
        SNORM_INT8X4 = 200,
        SNORM_INT16X1 = 201,
        SNORM_INT16X2 = 202,
        SNORM_INT16X4 = 203,
        BC1_UNORM = 145,
        BC1_UNORM_SRGB = 146,
        BC2_UNORM = 147,
        BC2_UNORM_SRGB = 148,
        BC3_UNORM = 149,
        BC3_UNORM_SRGB = 150,
        BC4_UNORM = 151,
        BC4_SNORM = 152,
        BC5_UNORM = 153,
        BC5_SNORM = 154,
        BC6H_UF16 = 155,
        BC6H_SF16 = 156,
        BC7_UNORM = 157,
        BC7_UNORM_SRGB = 158,
        P010 = 159,
        P016 = 161,
        NV16 = 162,
        P210 = 163,
        P216 = 164,
        YUY2 = 165,
        Y210 = 166,
        Y216 = 167,
        AYUV = 168,
        Y410 = 169,
        Y416 = 177,
        Y444_PLANAR8 = 178,
        Y444_PLANAR10 = 179,
        YUV444_8bit_SemiPlanar = 180,
        YUV444_16bit_SemiPlanar = 181,
        UNORM_INT_101010_2 = 80,
        UINT8_PACKED_422 = 81,
        UINT8_PACKED_444 = 82,
        UINT8_SEMIPLANAR_420 = 83,
        UINT16_SEMIPLANAR_420 = 84,
        UINT8_SEMIPLANAR_422 = 85,
        UINT16_SEMIPLANAR_422 = 86,
        UINT8_SEMIPLANAR_444 = 87,
        UINT16_SEMIPLANAR_444 = 88,
        UINT8_PLANAR_420 = 89,
        UINT16_PLANAR_420 = 90,
        UINT8_PLANAR_422 = 91,
        UINT16_PLANAR_422 = 92,
        UINT8_PLANAR_444 = 93,
        UINT16_PLANAR_444 = 94,
        MAX = 0x7fffffff,
    }
}

c_enum! {
    /// A face of a cube map.
    pub struct CUarray_cubemap_face(u32);
    "CU_CUBEMAP_FACE_" {
        POSITIVE_X = 0,
        NEGATIVE_X = 1,
        POSITIVE_Y = 2,
        NEGATIVE_Y = 3,
        POSITIVE_Z = 4,
        NEGATIVE_Z = 5,
    }
}

/// A 1D or 2D array: elements and rows (`Height` 0 for 1D).
///
/// Argument of `cuArrayCreate`, `cuArrayGetDescriptor`, `cuTexRefSetAddress2D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR_v2 {
    pub Width: usize,
    pub Height: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
}

/// The plain name of [`CUDA_ARRAY_DESCRIPTOR_v2`].
pub type CUDA_ARRAY_DESCRIPTOR = CUDA_ARRAY_DESCRIPTOR_v2;

/// An array of up to three dimensions, or layered, or of cube maps, as `Flags` say.
///
/// Argument of `cuArray3DCreate`, `cuArray3DGetDescriptor`, `cuMipmappedArrayCreate`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR_v2 {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
    pub Flags: u32,
}

/// The plain name of [`CUDA_ARRAY3D_DESCRIPTOR_v2`].
pub type CUDA_ARRAY3D_DESCRIPTOR = CUDA_ARRAY3D_DESCRIPTOR_v2;

/// Member `tileExtent` of [`CUDA_ARRAY_SPARSE_PROPERTIES_v1`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_SPARSE_PROPERTIES_v1_tileExtent {
    pub width: u32,
    pub height: u32,
    pub depth: u32,
}

/// How a sparse array is cut into tiles.
///
/// Argument of `cuArrayGetSparseProperties`, `cuMipmappedArrayGetSparseProperties`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_SPARSE_PROPERTIES_v1 {
    pub tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_v1_tileExtent,
    pub miptailFirstLevel: u32,
    pub miptailSize: u64,
    pub flags: u32,
    pub reserved: [u32; 4],
}

/// The plain name of [`CUDA_ARRAY_SPARSE_PROPERTIES_v1`].
pub type CUDA_ARRAY_SPARSE_PROPERTIES = CUDA_ARRAY_SPARSE_PROPERTIES_v1;

/// Bytes and alignment an array with deferred mapping needs.
///
/// Argument of `cuArrayGetMemoryRequirements`, `cuMipmappedArrayGetMemoryRequirements`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_MEMORY_REQUIREMENTS_v1 {
    pub size: usize,
    pub alignment: usize,
    pub reserved: [u32; 4],
}

/// The plain name of [`CUDA_ARRAY_MEMORY_REQUIREMENTS_v1`].
pub type CUDA_ARRAY_MEMORY_REQUIREMENTS = CUDA_ARRAY_MEMORY_REQUIREMENTS_v1;

/// A 1D or 2D array with the 32-bit sizes of CUDA 2.
///
/// Argument of `cuArrayCreate`, `cuArrayGetDescriptor`, `cuTexRefSetAddress2D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR_v1 {
    pub Width: u32,
    pub Height: u32,
    pub Format: CUarray_format,
    pub NumChannels: u32,
}

/// An array of up to three dimensions with the 32-bit sizes of CUDA 2.
///
/// Argument of `cuArray3DCreate`, `cuArray3DGetDescriptor`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
    pub Width: u32,
    pub Height: u32,
    pub Depth: u32,
    pub Format: CUarray_format,
    pub NumChannels: u32,
    pub Flags: u32,
}

/// Array flag: `Depth` counts layers.
pub const CUDA_ARRAY3D_LAYERED: u32 = 0x01;
/// Array flag: surface references can be bound.
pub const CUDA_ARRAY3D_SURFACE_LDST: u32 = 0x02;
/// Array flag: six faces of a cube (`Depth` is 6, or a multiple with `LAYERED`).
pub const CUDA_ARRAY3D_CUBEMAP: u32 = 0x04;
/// Array flag: texture gather is used on it.
pub const CUDA_ARRAY3D_TEXTURE_GATHER: u32 = 0x08;
/// Array flag: a depth texture.
pub const CUDA_ARRAY3D_DEPTH_TEXTURE: u32 = 0x10;
/// Array flag: a colour target of graphics.
pub const CUDA_ARRAY3D_COLOR_ATTACHMENT: u32 = 0x20;
/// Array flag: no physical memory until `cuMemMapArrayAsync` maps some.
pub const CUDA_ARRAY3D_SPARSE: u32 = 0x40;
/// Array flag: no physical memory until it is mapped whole.
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: u32 = 0x80;
/// Array flag: used by video encoders and decoders.
pub const CUDA_ARRAY3D_VIDEO_ENCODE_DECODE: u32 = 0x100;
/// `CUDA_ARRAY_SPARSE_PROPERTIES::flags`: one mip tail for all layers.
pub const CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL: u32 = 0x1;
