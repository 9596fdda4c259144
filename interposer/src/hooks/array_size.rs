//! How many bytes an array takes, from its descriptor.
//!
//! The rule, from the block-linear layout NVIDIA documents for its surfaces: rows are padded to 64
//! bytes; arrays with a height are padded to 8 rows, from 128 rows on to 128; the whole to 512
//! bytes. Each plane of a video format is such an array. Formats this release does not know count
//! 16 bytes an element.

use gpushare_cuda_abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_DESCRIPTOR_v2, CUDA_ARRAY3D_DEFERRED_MAPPING,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR_v2, CUDA_ARRAY3D_LAYERED,
    CUDA_ARRAY3D_SPARSE, CUarray_format as Format,
};

/// An array's descriptor in any of its forms. A dimension it has not is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) depth: u64,
    pub(super) format: Format,
    pub(super) channels: u32,
    pub(super) flags: u32,
}

impl From<&CUDA_ARRAY_DESCRIPTOR_v1> for Shape {
    fn from(d: &CUDA_ARRAY_DESCRIPTOR_v1) -> Self {
        let (width, height) = (d.Width.into(), d.Height.into());
        Self {
            width,
            height,
            depth: 0,
            format: d.Format,
            channels: d.NumChannels,
            flags: 0,
        }
    }
}

impl From<&CUDA_ARRAY_DESCRIPTOR_v2> for Shape {
    fn from(d: &CUDA_ARRAY_DESCRIPTOR_v2) -> Self {
        let (width, height) = (d.Width as u64, d.Height as u64);
        Self {
            width,
            height,
            depth: 0,
            format: d.Format,
            channels: d.NumChannels,
            flags: 0,
        }
    }
}

impl From<&CUDA_ARRAY3D_DESCRIPTOR_v1> for Shape {
    fn from(d: &CUDA_ARRAY3D_DESCRIPTOR_v1) -> Self {
        let (width, height, depth) = (d.Width.into(), d.Height.into(), d.Depth.into());
        Self {
            width,
            height,
            depth,
            format: d.Format,
            channels: d.NumChannels,
            flags: d.Flags,
        }
    }
}

impl From<&CUDA_ARRAY3D_DESCRIPTOR_v2> for Shape {
    fn from(d: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Self {
        let (width, height, depth) = (d.Width as u64, d.Height as u64, d.Depth as u64);
        Self {
            width,
            height,
            depth,
            format: d.Format,
            channels: d.NumChannels,
            flags: d.Flags,
        }
    }
}

/// Bytes of one element, elements to the side of a compressed block, and the planes.
struct Texel(u64, u64, Planes);

/// How many columns and rows of the array share one of a plane.
type Planes = &'static [(u64, u64)];

const ONE_PLANE: Planes = &[(1, 1)];
// The second plane of a semi-planar format has pairs of elements: of half the columns at 4:2:0 and
// 4:2:2, of all at 4:4:4.
const SEMIPLANAR_420: Planes = &[(1, 1), (1, 2)];
const SEMIPLANAR_422: Planes = &[(1, 1), (1, 1)];
const PLANAR_420: Planes = &[(1, 1), (2, 2), (2, 2)];
const PLANAR_422: Planes = &[(1, 1), (2, 1), (2, 1)];
/// Also the semi-planar one.
const PLANAR_444: Planes = &[(1, 1), (1, 1), (1, 1)];

fn texel(format: Format, channels: u32) -> Texel {
    let channels = u64::from(channels.clamp(1, 4));
    let bytes = match format {
        Format::UNSIGNED_INT8 | Format::SIGNED_INT8 => channels,
        Format::UNSIGNED_INT16 | Format::SIGNED_INT16 | Format::HALF => 2 * channels,
        Format::UNSIGNED_INT32 | Format::SIGNED_INT32 | Format::FLOAT => 4 * channels,
        Format::UNORM_INT8X1 | Format::SNORM_INT8X1 => 1,
        Format::UNORM_INT8X2
        | Format::SNORM_INT8X2
        | Format::UNORM_INT16X1
        | Format::SNORM_INT16X1 => 2,
        Format::UNORM_INT8X4
        | Format::SNORM_INT8X4
        | Format::UNORM_INT16X2
        | Format::SNORM_INT16X2 => 4,
        Format::UNORM_INT16X4 | Format::SNORM_INT16X4 => 8,
        Format::UNORM_INT_101010_2 => 4,
        Format::BC1_UNORM | Format::BC1_UNORM_SRGB | Format::BC4_UNORM | Format::BC4_SNORM => {
            return Texel(8, 4, ONE_PLANE);
        }
        Format(number) if (Format::BC1_UNORM.0..=Format::BC7_UNORM_SRGB.0).contains(&number) => {
            return Texel(16, 4, ONE_PLANE);
        }
        Format::YUY2 => 2,
        Format::Y210 | Format::Y216 | Format::AYUV | Format::Y410 => 4,
        // Of four components, though two elements of 4:2:2 could share them.
        Format::UINT8_PACKED_422 | Format::UINT8_PACKED_444 => 4,
        Format::Y416 => 8,
        format => return planar(format).unwrap_or(Texel(16, 1, ONE_PLANE)),
    };
    Texel(bytes, 1, ONE_PLANE)
}

/// A video format of several planes; `None` for other formats.
fn planar(format: Format) -> Option<Texel> {
    let (bytes, planes) = match format {
        Format::NV12 | Format::UINT8_SEMIPLANAR_420 => (1, SEMIPLANAR_420),
        Format::P010 | Format::P016 | Format::UINT16_SEMIPLANAR_420 => (2, SEMIPLANAR_420),
        Format::NV16 | Format::UINT8_SEMIPLANAR_422 => (1, SEMIPLANAR_422),
        Format::P210 | Format::P216 | Format::UINT16_SEMIPLANAR_422 => (2, SEMIPLANAR_422),
        Format::UINT8_PLANAR_420 => (1, PLANAR_420),
        Format::UINT16_PLANAR_420 => (2, PLANAR_420),
        Format::UINT8_PLANAR_422 => (1, PLANAR_422),
        Format::UINT16_PLANAR_422 => (2, PLANAR_422),
        Format::Y444_PLANAR8
        | Format::YUV444_8bit_SemiPlanar
        | Format::UINT8_SEMIPLANAR_444
        | Format::UINT8_PLANAR_444 => (1, PLANAR_444),
        Format::Y444_PLANAR10
        | Format::YUV444_16bit_SemiPlanar
        | Format::UINT16_SEMIPLANAR_444
        | Format::UINT16_PLANAR_444 => (2, PLANAR_444),
        _ => return None,
    };
    Some(Texel(bytes, 1, planes))
}

/// Whether the memory of an array is mapped into it later.
pub(super) fn is_mapped_into(shape: Shape) -> bool {
    shape.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0
}

/// Bytes of an array of this shape, or of a mipmapped array with `levels` of them; the driver
/// clamps the number, and makes one level for 0. `None` where it owns none: no width, sparse, or
/// mapped later.
pub(super) fn bytes_of(shape: Shape, levels: u32) -> Option<u64> {
    if shape.width == 0 || is_mapped_into(shape) {
        return None;
    }
    let layered = shape.flags & CUDA_ARRAY3D_LAYERED != 0;
    let largest = shape
        .width
        .max(shape.height)
        .max(if layered { 0 } else { shape.depth });
    let levels = levels.clamp(1, u64::BITS - largest.leading_zeros());
    let halved = |extent: u64, level: u32| {
        if extent == 0 {
            0
        } else {
            (extent >> level).max(1)
        }
    };
    let level = |level| {
        let depth = if layered {
            shape.depth
        } else {
            halved(shape.depth, level)
        };
        one_level(Shape {
            width: halved(shape.width, level),
            height: halved(shape.height, level),
            depth,
            ..shape
        })
    };
    Some((0..levels).map(level).fold(0, u64::saturating_add))
}

fn one_level(shape: Shape) -> u64 {
    let Texel(bytes, block, planes) = texel(shape.format, shape.channels);
    let plane = |&(columns, rows): &(u64, u64)| {
        let pitch = shape
            .width
            .div_ceil(columns)
            .div_ceil(block)
            .saturating_mul(bytes)
            .div_ceil(64)
            .saturating_mul(64);
        let rows = match shape.height.div_ceil(rows).div_ceil(block) {
            0 => 1,
            rows @ 1..=120 => rows.next_multiple_of(8),
            rows => rows.div_ceil(128).saturating_mul(128),
        };
        pitch.saturating_mul(rows)
    };
    let bytes = planes
        .iter()
        .map(plane)
        .fold(0, u64::saturating_add)
        .saturating_mul(shape.depth.max(1));
    bytes.div_ceil(512).saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: u64, height: u64, depth: u64) -> Shape {
        Shape {
            width,
            height,
            depth,
            format: Format::FLOAT,
            channels: 1,
            flags: 0,
        }
    }

    #[test]
    fn rows_and_heights_are_padded() {
        assert_eq!(bytes_of(shape(16, 0, 0), 1), Some(512));
        assert_eq!(bytes_of(shape(17, 1, 0), 1), Some(128 * 8));
        assert_eq!(bytes_of(shape(1024, 1024, 0), 1), Some(4 << 20));
        assert_eq!(bytes_of(shape(64, 129, 3), 1), Some(256 * 256 * 3));
    }

    #[test]
    fn a_mipmap_is_the_sum_of_the_levels_it_can_have() {
        let base = shape(1024, 1024, 0);
        let three = [1024, 512, 256]
            .map(|side| bytes_of(shape(side, side, 0), 1).unwrap())
            .iter()
            .sum();
        assert_eq!(bytes_of(base, 3), Some(three));
        assert_eq!(bytes_of(base, 11), bytes_of(base, 1000));
        assert_eq!(bytes_of(base, 0), bytes_of(base, 1));
    }

    #[test]
    fn arrays_that_own_no_memory_are_not_charged() {
        for flags in [CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING] {
            assert_eq!(
                bytes_of(
                    Shape {
                        flags,
                        ..shape(64, 64, 0)
                    },
                    1
                ),
                None
            );
        }
        assert_eq!(bytes_of(shape(0, 64, 0), 1), None);
    }

    #[test]
    fn sizes_beyond_all_bounds_saturate() {
        assert!(bytes_of(shape(u64::MAX, u64::MAX, 2), 1).unwrap() > u64::MAX / 2);
    }

    #[test]
    fn compressed_and_planar_formats_count_their_blocks() {
        assert_eq!(of(Format::BC1_UNORM, 64), 128 * 16);
        assert_eq!(of(Format::BC7_UNORM, 64), 256 * 16);
        assert_eq!(of(Format::NV12, 64), 64 * 96);
    }
    /// Of a square of `side`.
    fn of(format: Format, side: u64) -> u64 {
        let shape = Shape {
            format,
            ..shape(side, side, 0)
        };
        bytes_of(shape, 1).unwrap()
    }

    #[test]
    fn packed_video_formats_count_the_bytes_of_an_element() {
        let bytes = [
            (Format::YUY2, 2),
            (Format::Y210, 4),
            (Format::Y216, 4),
            (Format::AYUV, 4),
            (Format::Y410, 4),
            (Format::Y416, 8),
            (Format::UINT8_PACKED_422, 4),
            (Format::UINT8_PACKED_444, 4),
        ];
        for (format, bytes) in bytes {
            assert_eq!(of(format, 64), bytes * 64 * 64, "{format:?}");
        }
    }

    #[test]
    fn video_formats_of_several_planes_count_each_plane() {
        let bytes = [
            (Format::NV16, 2),
            (Format::P210, 4),
            (Format::P216, 4),
            (Format::UINT8_SEMIPLANAR_422, 2),
            (Format::UINT16_SEMIPLANAR_422, 4),
            (Format::UINT8_PLANAR_422, 2),
            (Format::UINT16_PLANAR_422, 4),
            (Format::Y444_PLANAR8, 3),
            (Format::Y444_PLANAR10, 6),
            (Format::YUV444_8bit_SemiPlanar, 3),
            (Format::YUV444_16bit_SemiPlanar, 6),
            (Format::UINT8_SEMIPLANAR_444, 3),
            (Format::UINT16_SEMIPLANAR_444, 6),
            (Format::UINT8_PLANAR_444, 3),
            (Format::UINT16_PLANAR_444, 6),
        ];
        for (format, bytes) in bytes {
            assert_eq!(of(format, 128), bytes * 128 * 128, "{format:?}");
        }
    }

    #[test]
    fn each_plane_is_padded_by_itself() {
        assert_eq!(of(Format::NV16, 20), 64 * (24 + 24));
        assert_eq!(of(Format::UINT8_PLANAR_422, 64), 64 * (64 + 64 + 64));
        assert_eq!(of(Format::UINT8_PLANAR_444, 130), 192 * 3 * 256);
        assert_eq!(of(Format::NV12, 20), 64 * (24 + 16));
        assert_eq!(of(Format::UINT8_PLANAR_420, 64), 64 * (64 + 32 + 32));
    }

    #[test]
    fn an_unknown_format_counts_sixteen_bytes_an_element() {
        assert_eq!(of(Format(12_345), 64), 16 * 64 * 64);
    }
}
