//! Copies that are described in memory: how much, and between what.

use gpushare_cuda_abi::cuda::*;

use crate::entry::args::In;

use super::{Ends, between, contexts_of, times};

/// The content of a description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    /// How much.
    pub(super) bytes: usize,
    to: Side,
    from: Side,
    /// The contexts, where they are given.
    contexts: Option<(CUcontext, CUcontext)>,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
struct Side {
    kind: CUmemorytype,
    address: CUdeviceptr,
}

/// A description that no driver accepts.
const NOTHING: Described = Described {
    bytes: 0,
    to: Side {
        kind: CUmemorytype::HOST,
        address: 0,
    },
    from: Side {
        kind: CUmemorytype::HOST,
        address: 0,
    },
    contexts: None,
};

impl Side {
    /// Its address, unless that has no meaning.
    fn address(self) -> Option<CUdeviceptr> {
        (self.kind != CUmemorytype::ARRAY).then_some(self.address)
    }

    /// Whether it is said to be on a device.
    fn is_device(self) -> bool {
        [CUmemorytype::DEVICE, CUmemorytype::ARRAY].contains(&self.kind)
    }

    fn is_host(self) -> bool {
        self.kind == CUmemorytype::HOST
    }
}

impl Described {
    /// Where it works; `kind` is for estimates.
    pub(super) fn ends(&self, kind: u32) -> Ends {
        let Self { to, from, .. } = *self;
        if to.is_host() {
            Ends::ToHost
        } else if from.is_host() {
            Ends::FromHost
        } else if let Some((to_context, from_context)) = self.contexts
            && to.is_device()
            && from.is_device()
        {
            contexts_of(to_context, from_context, kind)
        } else {
            // Of an array the other end tells where it is.
            let first = to.address().or_else(|| from.address());
            let (Some(first), Some(last)) = (first, from.address().or(first)) else {
                return Ends::Within(kind);
            };
            match between(first, last, kind) {
                Ends::Somewhere(..) if to.is_device() && from.is_device() => Ends::Within(kind),
                ends => ends,
            }
        }
    }
}

/// Of `cuMemcpy2D` with 32-bit sizes.
pub(super) fn rectangle_v1(copy: In<'_, CUDA_MEMCPY2D_v1>) -> Described {
    copy.read().map_or(NOTHING, |copy| Described {
        bytes: times(copy.WidthInBytes as usize, copy.Height as usize),
        to: side(copy.dstMemoryType, copy.dstDevice.into()),
        from: side(copy.srcMemoryType, copy.srcDevice.into()),
        contexts: None,
    })
}

/// Of `cuMemcpy2D`.
pub(super) fn rectangle_v2(copy: In<'_, CUDA_MEMCPY2D_v2>) -> Described {
    copy.read().map_or(NOTHING, |copy| Described {
        bytes: times(copy.WidthInBytes, copy.Height),
        to: side(copy.dstMemoryType, copy.dstDevice),
        from: side(copy.srcMemoryType, copy.srcDevice),
        contexts: None,
    })
}

/// Of `cuMemcpy3D` with 32-bit sizes.
pub(super) fn box_v1(copy: In<'_, CUDA_MEMCPY3D_v1>) -> Described {
    copy.read().map_or(NOTHING, |copy| Described {
        bytes: times(
            times(copy.WidthInBytes as usize, copy.Height as usize),
            copy.Depth as usize,
        ),
        to: side(copy.dstMemoryType, copy.dstDevice.into()),
        from: side(copy.srcMemoryType, copy.srcDevice.into()),
        contexts: None,
    })
}

/// Of `cuMemcpy3D`.
pub(super) fn box_v2(copy: In<'_, CUDA_MEMCPY3D_v2>) -> Described {
    copy.read().map_or(NOTHING, |copy| Described {
        bytes: times(times(copy.WidthInBytes, copy.Height), copy.Depth),
        to: side(copy.dstMemoryType, copy.dstDevice),
        from: side(copy.srcMemoryType, copy.srcDevice),
        contexts: None,
    })
}

/// Of `cuMemcpy3DPeer`.
pub(super) fn peers(copy: In<'_, CUDA_MEMCPY3D_PEER_v1>) -> Described {
    copy.read().map_or(NOTHING, |copy| Described {
        bytes: times(times(copy.WidthInBytes, copy.Height), copy.Depth),
        to: side(copy.dstMemoryType, copy.dstDevice),
        from: side(copy.srcMemoryType, copy.srcDevice),
        contexts: Some((copy.dstContext, copy.srcContext)),
    })
}

fn side(kind: CUmemorytype, address: CUdeviceptr) -> Side {
    Side { kind, address }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: u32 = 0x400;

    fn rectangle(to: CUmemorytype, from: CUmemorytype) -> CUDA_MEMCPY2D_v2 {
        CUDA_MEMCPY2D_v2 {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from,
            srcHost: core::ptr::null(),
            srcDevice: 0x7000_0000,
            srcArray: CUarray::NULL,
            srcPitch: 4096,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to,
            dstHost: core::ptr::null_mut(),
            dstDevice: 0x7100_0000,
            dstArray: CUarray::NULL,
            dstPitch: 4096,
            WidthInBytes: 1024,
            Height: 300,
        }
    }

    /// A box with these fields besides.
    macro_rules! boxed {
        ($of:ident, $to:expr, $from:expr, $($more:ident: $value:expr),*) => {
            $of {
                srcXInBytes: 0,
                srcY: 0,
                srcZ: 0,
                srcLOD: 0,
                srcMemoryType: $from,
                srcHost: core::ptr::null(),
                srcDevice: 0x7000_0000,
                srcArray: CUarray::NULL,
                srcPitch: 4096,
                srcHeight: 30,
                dstXInBytes: 0,
                dstY: 0,
                dstZ: 0,
                dstLOD: 0,
                dstMemoryType: $to,
                dstHost: core::ptr::null_mut(),
                dstDevice: 0x7100_0000,
                dstArray: CUarray::NULL,
                dstPitch: 4096,
                dstHeight: 30,
                WidthInBytes: 1024,
                Height: 30,
                Depth: 10,
                $($more: $value),*
            }
        };
    }

    /// Copies of the same bytes between the same ends, by each kind of description. The last one
    /// has contexts, which are not known.
    fn all(to: CUmemorytype, from: CUmemorytype) -> [Described; 4] {
        let null = core::ptr::null_mut();
        let wide = boxed!(CUDA_MEMCPY3D_v2, to, from, reserved0: null, reserved1: null);
        let narrow = boxed!(CUDA_MEMCPY3D_v1, to, from, reserved0: null, reserved1: null);
        let (here, there) = (CUcontext::NULL, CUcontext::NULL);
        let peer = boxed!(CUDA_MEMCPY3D_PEER_v1, to, from, srcContext: here, dstContext: there);
        [
            rectangle_v2(In::to(&rectangle(to, from))),
            box_v1(In::to(&narrow)),
            box_v2(In::to(&wide)),
            peers(In::to(&peer)),
        ]
    }

    #[test]
    fn a_copy_is_within_a_device_if_both_ends_are_said_to_be_there() {
        use CUmemorytype as Type;
        let (to, from) = (0x7100_0000, 0x7000_0000);
        let unknown = Ends::Somewhere(to, from, KIND);
        let in_array = Ends::Somewhere(from, from, KIND);
        for (to, from, expected) in [
            (Type::DEVICE, Type::DEVICE, Ends::Within(KIND)),
            (Type::ARRAY, Type::DEVICE, Ends::Within(KIND)),
            (Type::HOST, Type::DEVICE, Ends::ToHost),
            (Type::DEVICE, Type::HOST, Ends::FromHost),
            (Type::HOST, Type::HOST, Ends::ToHost),
            (Type::DEVICE, Type::UNIFIED, unknown),
            // It is where the array is, or refused.
            (Type::ARRAY, Type::UNIFIED, in_array),
        ] {
            for (index, described) in all(to, from).into_iter().enumerate() {
                let expected = match expected {
                    Ends::Within(_) if index == 3 => Ends::Unknown,
                    expected => expected,
                };
                assert_eq!(described.ends(KIND), expected, "{index}: {to:?} {from:?}");
                assert_eq!(described.bytes, 1024 * 300, "{index}");
            }
        }
    }

    #[test]
    fn what_no_driver_accepts_has_no_size() {
        assert_eq!(rectangle_v2(In::none()).bytes, 0);
        assert_eq!(peers(In::none()).bytes, 0);
        let mut copy = rectangle(CUmemorytype::DEVICE, CUmemorytype::DEVICE);
        copy.Height = usize::MAX;
        assert_eq!(rectangle_v2(In::to(&copy)).bytes, usize::MAX);
    }
}
