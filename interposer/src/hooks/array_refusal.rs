//! The result of creating an array over the quota: depends on whether it could be created at all.
//!
//! The driver calls extents above a device's own invalid, so that no array of one row or of one
//! plane is larger than a device. Extents and shape are therefore looked at here, by the table of
//! `cuArray3DCreate`; format and channels the driver is asked about, with the largest layered array
//! it has, which no device has room for: half a tebi of elements and more.

use gpushare_cuda_abi::cuda::{
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUarray_format as Format,
    CUdevice_attribute as Attribute, CUresult,
};

use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::hooks::array_size::Shape;
use crate::hooks::refusal;

/// Every flag that an array may have in this release.
const KNOWN_FLAGS: u32 = 0x1ff;
/// No extent is as large.
const TOO_WIDE: u64 = 1 << 40;

/// The result for an array of this shape that does not fit its quota on `device`.
#[cold]
pub(super) fn refused(shape: Shape, device: DeviceKey) -> CUresult {
    let most = |attribute| most(device, attribute);
    let layers = [
        most(Attribute::MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
        most(Attribute::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
        most(Attribute::MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    ];
    // A device that does not say how large it can be is no device to guess about.
    if layers.contains(&u64::MAX) {
        return CUresult::OUT_OF_MEMORY;
    }
    let control = Shape {
        width: layers[0],
        height: layers[1],
        depth: layers[2],
        format: Format::FLOAT,
        channels: 1,
        flags: CUDA_ARRAY3D_LAYERED,
    };
    refusal::of(ask(probe(shape, control, &most)), || ask(control))
}

/// `control` with the possibly invalid parts of `shape`.
fn probe(shape: Shape, control: Shape, most: &dyn Fn(Attribute) -> u64) -> Shape {
    let (format, channels) = if is_planar(shape.format) {
        (control.format, control.channels)
    } else {
        (shape.format, shape.channels)
    };
    let width = if can_be(shape, most) {
        control.width
    } else {
        TOO_WIDE
    };
    Shape {
        width,
        format,
        channels,
        flags: control.flags | shape.flags & !KNOWN_FLAGS,
        ..control
    }
}

/// Formats of video pictures, whose arrays have no layers: this way the driver cannot be asked
/// about them.
fn is_planar(format: Format) -> bool {
    matches!(format.0, 81..=94 | 159..=169 | 176..=181)
}

/// Whether the shape has extents that the documentation of `cuArray3DCreate` allows.
fn can_be(shape: Shape, most: &dyn Fn(Attribute) -> u64) -> bool {
    let Shape {
        width,
        height,
        depth,
        ..
    } = shape;
    let layered = shape.flags & CUDA_ARRAY3D_LAYERED != 0;
    let within = |extents: [(u64, Attribute); 3]| {
        extents
            .iter()
            .all(|(extent, attribute)| *extent <= most(*attribute))
    };
    if shape.flags & CUDA_ARRAY3D_CUBEMAP != 0 {
        let side = if layered {
            Attribute::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        } else {
            Attribute::MAXIMUM_TEXTURECUBEMAP_WIDTH
        };
        let cubes = if layered {
            depth > 0
                && depth.is_multiple_of(6)
                && depth <= most(Attribute::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS)
        } else {
            depth == 6
        };
        return width == height && width <= most(side) && cubes;
    }
    match (height, depth, layered) {
        (0, 0, false) => width <= most(Attribute::MAXIMUM_TEXTURE1D_WIDTH),
        (_, 0, false) => {
            width <= most(Attribute::MAXIMUM_TEXTURE2D_WIDTH)
                && height <= most(Attribute::MAXIMUM_TEXTURE2D_HEIGHT)
        }
        (_, 0, true) | (0, _, false) => false,
        (0, layers, true) => {
            width <= most(Attribute::MAXIMUM_TEXTURE1D_LAYERED_WIDTH)
                && layers <= most(Attribute::MAXIMUM_TEXTURE1D_LAYERED_LAYERS)
        }
        (_, layers, true) => within([
            (width, Attribute::MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
            (height, Attribute::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
            (layers, Attribute::MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
        ]),
        _ => {
            within([
                (width, Attribute::MAXIMUM_TEXTURE3D_WIDTH),
                (height, Attribute::MAXIMUM_TEXTURE3D_HEIGHT),
                (depth, Attribute::MAXIMUM_TEXTURE3D_DEPTH),
            ]) || within([
                (width, Attribute::MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
                (height, Attribute::MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
                (depth, Attribute::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
            ])
        }
    }
}

/// A device's own extent; above all extents where it does not say.
fn most(device: DeviceKey, attribute: Attribute) -> u64 {
    let known = device::ordinal_of(device)
        .and_then(|ordinal| calls::device_attribute(attribute, ordinal).ok());
    let known = known.and_then(|known| u64::try_from(known).ok());
    known.filter(|known| *known > 0).unwrap_or(u64::MAX)
}

fn ask(shape: Shape) -> CUresult {
    let extent = |extent| usize::try_from(extent).unwrap_or(usize::MAX);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent(shape.width),
        Height: extent(shape.height),
        Depth: extent(shape.depth),
        Format: shape.format,
        NumChannels: shape.channels,
        Flags: shape.flags,
    };
    match calls::create_array(&descriptor) {
        Ok(array) => {
            let _ = calls::destroy_array(array);
            CUresult::SUCCESS
        }
        Err(answer) => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: u64, height: u64, depth: u64, flags: u32) -> Shape {
        Shape {
            width,
            height,
            depth,
            format: Format::FLOAT,
            channels: 1,
            flags,
        }
    }

    /// A device of 1000 in every extent, 2000 deep by the other rule.
    fn most(attribute: Attribute) -> u64 {
        if attribute == Attribute::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE {
            2000
        } else {
            1000
        }
    }

    #[test]
    fn extents_within_the_devices_can_be() {
        for (width, height, depth, flags) in [
            (1000, 0, 0, 0),
            (1000, 1000, 0, 0),
            (10, 10, 2000, 0),
            (10, 0, 10, CUDA_ARRAY3D_LAYERED),
            (10, 10, 1000, CUDA_ARRAY3D_LAYERED),
            (10, 10, 6, CUDA_ARRAY3D_CUBEMAP),
            (10, 10, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        ] {
            assert!(can_be(shape(width, height, depth, flags), &most));
        }
    }

    #[test]
    fn extents_beyond_them_and_shapes_that_are_none_cannot() {
        for (width, height, depth, flags) in [
            (1001, 0, 0, 0),
            (10, 1001, 0, 0),
            (10, 10, 2001, 0),
            (10, 0, 10, 0),
            (10, 10, 0, CUDA_ARRAY3D_LAYERED),
            (10, 10, 1001, CUDA_ARRAY3D_LAYERED),
            (10, 11, 6, CUDA_ARRAY3D_CUBEMAP),
            (10, 10, 5, CUDA_ARRAY3D_CUBEMAP),
            (10, 10, 8, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        ] {
            assert!(!can_be(shape(width, height, depth, flags), &most));
        }
    }

    #[test]
    fn video_formats_are_not_asked_about_with_layers() {
        let control = shape(7, 7, 7, CUDA_ARRAY3D_LAYERED);
        let asked = |format| {
            let picture = Shape {
                format,
                channels: 3,
                ..shape(8, 8, 0, 0)
            };
            probe(picture, control, &most)
        };
        assert_eq!(asked(Format::NV12), control);
        assert_eq!(asked(Format(77)).format, Format(77));
        assert_eq!(asked(Format::HALF).channels, 3);
    }
}
