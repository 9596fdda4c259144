//! Conversion between transfers and the API's descriptions of copies.

use gpushare_cuda_abi::cuda::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUarray, CUcontext, CUmemorytype,
    CUresult,
};

use super::{Place, Shape, Side, Transfer};
use crate::Result;
use crate::memory::linear::MAX_PITCH;

/// The place that an API description names.
fn place(kind: CUmemorytype, host: usize, device: u64, array: CUarray) -> Result<Place> {
    match kind {
        CUmemorytype::HOST => Ok(Place::unified(host as u64)),
        CUmemorytype::DEVICE => Ok(Place::Address(device)),
        CUmemorytype::UNIFIED => Ok(Place::unified(device)),
        CUmemorytype::ARRAY => Ok(Place::Array(array.0.addr())),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The API's four fields of a place.
fn fields(place: &Place) -> (CUmemorytype, usize, u64, CUarray) {
    match place {
        Place::Pageable(address) => (CUmemorytype::HOST, *address, 0, CUarray::NULL),
        Place::Staged(bytes) => (
            CUmemorytype::HOST,
            bytes.as_ptr().expose_provenance(),
            0,
            CUarray::NULL,
        ),
        Place::Address(address) => (CUmemorytype::DEVICE, 0, *address, CUarray::NULL),
        Place::Array(handle) => (
            CUmemorytype::ARRAY,
            0,
            0,
            CUarray(std::ptr::without_provenance_mut(*handle)),
        ),
    }
}

impl Transfer {
    /// From the description of a 3D copy.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an unknown memory type, or a level of detail other than 0.
    pub fn from_3d(copy: &CUDA_MEMCPY3D_v2) -> Result<Self> {
        let src = place(
            copy.srcMemoryType,
            copy.srcHost.addr(),
            copy.srcDevice,
            copy.srcArray,
        )?;
        let dst = place(
            copy.dstMemoryType,
            copy.dstHost.addr(),
            copy.dstDevice,
            copy.dstArray,
        )?;
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self {
            src: Side {
                place: src,
                x: copy.srcXInBytes as u64,
                y: copy.srcY as u64,
                z: copy.srcZ as u64,
                pitch: copy.srcPitch as u64,
                rows: copy.srcHeight as u64,
                by: None,
            },
            dst: Side {
                place: dst,
                x: copy.dstXInBytes as u64,
                y: copy.dstY as u64,
                z: copy.dstZ as u64,
                pitch: copy.dstPitch as u64,
                rows: copy.dstHeight as u64,
                by: None,
            },
            shape: Shape {
                width: copy.WidthInBytes as u64,
                height: copy.Height as u64,
                depth: copy.Depth as u64,
            },
        })
    }

    /// From the description of a 2D copy.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an unknown memory type, or a pitch of device memory above the maximum.
    pub fn from_2d(copy: &CUDA_MEMCPY2D_v2) -> Result<Self> {
        let src = place(
            copy.srcMemoryType,
            copy.srcHost.addr(),
            copy.srcDevice,
            copy.srcArray,
        )?;
        let dst = place(
            copy.dstMemoryType,
            copy.dstHost.addr(),
            copy.dstDevice,
            copy.dstArray,
        )?;
        // A 2D copy with a pitch above the maximum is refused; a 3D copy is not.
        let device = |place: &Place| matches!(place, Place::Address(_));
        if device(&src) && copy.srcPitch as u64 > MAX_PITCH
            || device(&dst) && copy.dstPitch as u64 > MAX_PITCH
        {
            return Err(CUresult::INVALID_VALUE);
        }
        let side = |place, x: usize, y: usize, pitch: usize| Side {
            place,
            x: x as u64,
            y: y as u64,
            z: 0,
            pitch: pitch as u64,
            rows: y.saturating_add(copy.Height) as u64,
            by: None,
        };
        Ok(Self {
            src: side(src, copy.srcXInBytes, copy.srcY, copy.srcPitch),
            dst: side(dst, copy.dstXInBytes, copy.dstY, copy.dstPitch),
            shape: Shape {
                width: copy.WidthInBytes as u64,
                height: copy.Height as u64,
                depth: 1,
            },
        })
    }

    /// From the description of a copy between contexts, without these: the caller looks them up,
    /// for [`between`](Self::between).
    ///
    /// # Errors
    /// As [`from_3d`](Self::from_3d).
    pub fn from_3d_peer(copy: &CUDA_MEMCPY3D_PEER_v1) -> Result<Self> {
        Self::from_3d(&CUDA_MEMCPY3D_v2 {
            srcXInBytes: copy.srcXInBytes,
            srcY: copy.srcY,
            srcZ: copy.srcZ,
            srcLOD: copy.srcLOD,
            srcMemoryType: copy.srcMemoryType,
            srcHost: copy.srcHost,
            srcDevice: copy.srcDevice,
            srcArray: copy.srcArray,
            reserved0: CUcontext::NULL.0,
            srcPitch: copy.srcPitch,
            srcHeight: copy.srcHeight,
            dstXInBytes: copy.dstXInBytes,
            dstY: copy.dstY,
            dstZ: copy.dstZ,
            dstLOD: copy.dstLOD,
            dstMemoryType: copy.dstMemoryType,
            dstHost: copy.dstHost,
            dstDevice: copy.dstDevice,
            dstArray: copy.dstArray,
            reserved1: CUcontext::NULL.0,
            dstPitch: copy.dstPitch,
            dstHeight: copy.dstHeight,
            WidthInBytes: copy.WidthInBytes,
            Height: copy.Height,
            Depth: copy.Depth,
        })
    }

    /// The API's description, for queries of a graph node's parameters.
    pub fn to_3d(&self) -> CUDA_MEMCPY3D_v2 {
        let (src_kind, src_host, src_device, src_array) = fields(&self.src.place);
        let (dst_kind, dst_host, dst_device, dst_array) = fields(&self.dst.place);
        CUDA_MEMCPY3D_v2 {
            srcXInBytes: narrow(self.src.x),
            srcY: narrow(self.src.y),
            srcZ: narrow(self.src.z),
            srcLOD: 0,
            srcMemoryType: src_kind,
            srcHost: std::ptr::with_exposed_provenance(src_host),
            srcDevice: src_device,
            srcArray: src_array,
            reserved0: std::ptr::null_mut(),
            srcPitch: narrow(self.src.pitch),
            srcHeight: narrow(self.src.rows),
            dstXInBytes: narrow(self.dst.x),
            dstY: narrow(self.dst.y),
            dstZ: narrow(self.dst.z),
            dstLOD: 0,
            dstMemoryType: dst_kind,
            dstHost: std::ptr::with_exposed_provenance_mut(dst_host),
            dstDevice: dst_device,
            dstArray: dst_array,
            reserved1: std::ptr::null_mut(),
            dstPitch: narrow(self.dst.pitch),
            dstHeight: narrow(self.dst.rows),
            WidthInBytes: narrow(self.shape.width),
            Height: narrow(self.shape.height),
            Depth: narrow(self.shape.depth),
        }
    }
}

fn narrow(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
