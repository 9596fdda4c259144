//! The size of an array, and the layout of its rows.
//!
//! The model is the block-linear layout of NVIDIA's documentation of its surface formats: rows are
//! padded to 64 bytes, and two-dimensional arrays to whole blocks of 8 to 128 rows. So an array of
//! 1 by 1 takes 512 bytes, and an array of 100 rows as much as one of 104 rows. Rows are stored one
//! after the other; a GPU would tile them, but only the driver can see the difference.

use super::format::Texel;

/// Bytes of a row of a block.
const GOB_WIDTH: u64 = 64;
/// Rows of the smallest block.
const GOB_HEIGHT: u64 = 8;
/// The largest block, in smallest blocks.
const MAX_BLOCK: u64 = 16;
/// The size of every array is a multiple of this.
const ALIGN: u64 = 512;

/// The memory of one array or mipmap level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a row without padding.
    pub(crate) width: u64,
    /// Rows without padding, planes included.
    pub(crate) height: u64,
    /// Slices, layers or faces.
    pub(crate) depth: u64,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Bytes from slice to slice.
    pub(crate) slice: u64,
    /// The total size in bytes, a multiple of 512.
    pub(crate) size: u64,
}

/// The layout of `width` by `height` by `depth` elements. 0 means that the array lacks the
/// dimension. `None` on overflow.
pub(super) fn layout(texel: Texel, width: u64, height: u64, depth: u64) -> Option<Layout> {
    let bytes = width.div_ceil(texel.block).checked_mul(texel.bytes)?;
    let rows = height.max(1).div_ceil(texel.block) * texel.half_planes / 2;
    let depth = depth.max(1);
    let pitch = bytes.checked_next_multiple_of(GOB_WIDTH)?;
    let padded = if height == 0 { 1 } else { pad_rows(rows) };
    let slice = pitch.checked_mul(padded)?;
    let size = slice.checked_mul(depth)?.checked_next_multiple_of(ALIGN)?;
    Some(Layout {
        width: bytes,
        height: rows,
        depth,
        pitch,
        slice,
        size,
    })
}

fn pad_rows(rows: u64) -> u64 {
    let gobs = rows.div_ceil(GOB_HEIGHT);
    let block = gobs.next_power_of_two().min(MAX_BLOCK);
    // Arrays of less than 16 blocks' rows are padded to the smallest block, larger ones to the
    // largest.
    let block = if gobs < MAX_BLOCK { 1 } else { block };
    gobs.next_multiple_of(block) * GOB_HEIGHT
}

#[cfg(test)]
mod tests {
    use super::{Layout, Texel, layout};

    const BYTE: Texel = Texel {
        bytes: 1,
        block: 1,
        half_planes: 2,
    };

    fn size(width: u64, height: u64, depth: u64) -> u64 {
        layout(BYTE, width, height, depth).map_or(0, |layout: Layout| layout.size)
    }

    #[test]
    fn the_smallest_arrays_take_512_bytes() {
        assert_eq!(size(1, 0, 0), 512);
        assert_eq!(size(1, 1, 0), 512);
    }

    #[test]
    fn rows_are_padded_to_blocks() {
        assert_eq!(size(64, 100, 0), 64 * 104);
        assert_eq!(size(64, 129, 0), 64 * 256);
        assert_eq!(size(65, 8, 0), 128 * 8);
    }

    #[test]
    fn the_size_is_the_slice_size_times_the_depth() {
        assert_eq!(size(64, 8, 10), 64 * 8 * 10);
    }

    #[test]
    fn a_size_that_overflows_has_no_layout() {
        assert_eq!(layout(BYTE, u64::MAX, 2, 2), None);
        assert_eq!(layout(BYTE, 1 << 40, 1 << 30, 1), None);
    }

    #[test]
    fn compressed_blocks_are_four_by_four() {
        let block = Texel {
            bytes: 8,
            block: 4,
            half_planes: 2,
        };
        let found = layout(block, 64, 64, 0).unwrap();
        assert_eq!((found.width, found.height), (128, 16));
    }
}
