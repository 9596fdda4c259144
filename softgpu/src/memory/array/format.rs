//! Texel formats: the bytes of one element, and the rows of all planes.

use gpushare_cuda_abi::cuda::CUarray_format as Format;

/// The storage of one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Texel {
    /// Bytes of one element (for compressed formats, of one 4x4 block).
    pub(super) bytes: u64,
    /// Width and height of a block: 4 for compressed formats, else 1.
    pub(super) block: u64,
    /// Rows of all planes, in halves of the first plane's rows: 2 for one plane, 3 for 4:2:0.
    pub(super) half_planes: u64,
}

/// The storage of `format` with `channels` channels; `None` if the API has no such combination or
/// this device does not support the format.
pub(super) fn texel(format: Format, channels: u32) -> Option<Texel> {
    let plain = |channel: u64| {
        matches!(channels, 1 | 2 | 4).then_some(Texel {
            bytes: channel * u64::from(channels),
            block: 1,
            half_planes: 2,
        })
    };
    let fixed = |wanted: u32, bytes| {
        (channels == wanted).then_some(Texel {
            bytes,
            block: 1,
            half_planes: 2,
        })
    };
    let compressed = |bytes| {
        Some(Texel {
            bytes,
            block: 4,
            half_planes: 2,
        })
    };
    match format {
        Format::UNSIGNED_INT8 | Format::SIGNED_INT8 => plain(1),
        Format::UNSIGNED_INT16 | Format::SIGNED_INT16 | Format::HALF => plain(2),
        Format::UNSIGNED_INT32 | Format::SIGNED_INT32 | Format::FLOAT => plain(4),
        Format::UNORM_INT8X1 | Format::SNORM_INT8X1 => fixed(1, 1),
        Format::UNORM_INT8X2 | Format::SNORM_INT8X2 => fixed(2, 2),
        Format::UNORM_INT8X4 | Format::SNORM_INT8X4 => fixed(4, 4),
        Format::UNORM_INT16X1 | Format::SNORM_INT16X1 => fixed(1, 2),
        Format::UNORM_INT16X2 | Format::SNORM_INT16X2 => fixed(2, 4),
        Format::UNORM_INT16X4 | Format::SNORM_INT16X4 => fixed(4, 8),
        Format::BC1_UNORM | Format::BC1_UNORM_SRGB | Format::BC4_UNORM | Format::BC4_SNORM => {
            compressed(8)
        }
        Format::BC2_UNORM
        | Format::BC2_UNORM_SRGB
        | Format::BC3_UNORM
        | Format::BC3_UNORM_SRGB
        | Format::BC5_UNORM
        | Format::BC5_SNORM
        | Format::BC6H_UF16
        | Format::BC6H_SF16
        | Format::BC7_UNORM
        | Format::BC7_UNORM_SRGB => compressed(16),
        Format::NV12 => (channels == 3).then_some(Texel {
            bytes: 1,
            block: 1,
            half_planes: 3,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, texel};

    #[test]
    fn channels_multiply_the_bytes_and_three_channels_are_refused() {
        assert_eq!(texel(Format::FLOAT, 4).unwrap().bytes, 16);
        assert_eq!(texel(Format::UNSIGNED_INT8, 1).unwrap().bytes, 1);
        assert_eq!(texel(Format::FLOAT, 3), None);
    }

    #[test]
    fn an_nv12_frame_has_one_and_a_half_times_the_rows() {
        assert_eq!(texel(Format::NV12, 3).unwrap().half_planes, 3);
        assert_eq!(texel(Format::NV12, 1), None);
    }
}
