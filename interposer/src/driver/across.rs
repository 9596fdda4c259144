//! Memsets and copies of the program's that are made for another context than the current one. As
//! [`calls`](crate::driver::calls).
//!
//! # Safety
//! Each function of a C name has the contract of that C function. The addresses are those of the
//! program's own call, which is under way: it keeps the contract of the function that it called,
//! and the functions here ask nothing more.
#![allow(unsafe_code, reason = "declares and calls C functions")]

use core::ffi::c_void;
use core::mem::MaybeUninit;

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls::driver;

driver! {
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream) -> CUresult;
    fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream) -> CUresult;
    fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER_v1, stream: CUstream) -> CUresult;
    fn cuMemcpy3DPeerAsync_ptsz(copy: *const CUDA_MEMCPY3D_PEER_v1, stream: CUstream) -> CUresult;
    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult;
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult;
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, count: usize, stream: CUstream) -> CUresult;
    fn cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, count: usize,
        stream: CUstream) -> CUresult;
    fn cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, count: usize,
        stream: CUstream) -> CUresult;
    fn cuMemsetD2D16Async(at: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize, stream: CUstream) -> CUresult;
    fn cuMemsetD2D32Async(at: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize, stream: CUstream) -> CUresult;
    fn cuMemsetD2D8Async(at: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize, stream: CUstream) -> CUresult;
    fn cuMemsetD16Async(at: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult;
    fn cuMemsetD32Async(at: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult;
    fn cuMemsetD8Async(at: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult;
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult;
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> CUresult;
    fn cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: u32) -> CUresult;
}

/// The elements of a memset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Byte(u8),
    Half(u16),
    Word(u32),
}

/// A memset or copy, as the program has called for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Fill {
        at: CUdeviceptr,
        value: Value,
        count: usize,
    },
    FillRows {
        at: CUdeviceptr,
        pitch: usize,
        value: Value,
        width: usize,
        rows: usize,
    },
    /// To this address of the host.
    ToHost {
        to: *mut c_void,
        from: CUdeviceptr,
        count: usize,
    },
    FromHost {
        to: CUdeviceptr,
        from: *const c_void,
        count: usize,
    },
    /// Either end may be on the host.
    Line {
        to: CUdeviceptr,
        from: CUdeviceptr,
        count: usize,
    },
    Rectangle(CUDA_MEMCPY2D_v2),
    Box(CUDA_MEMCPY3D_v2),
}

/// The driver's answers about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Device,
    /// Host memory that it knows.
    Pinned,
    /// Host memory that it does not.
    Pageable,
}

/// Which memory an address is in.
pub(crate) fn memory(at: CUdeviceptr) -> Memory {
    let mut kind = CUmemorytype::HOST;
    let attribute = CUpointer_attribute::MEMORY_TYPE;
    // SAFETY: writes to a local of the attribute's type, which outlives the call.
    match unsafe { cuPointerGetAttribute((&raw mut kind).cast(), attribute, at) } {
        CUresult::SUCCESS if kind == CUmemorytype::HOST => Memory::Pinned,
        CUresult::SUCCESS => Memory::Device,
        _ => Memory::Pageable,
    }
}

/// Makes a stream wait for an event of ours.
pub(crate) fn wait_event(stream: CUstream, event: CUevent, per_thread: bool) -> CUresult {
    // SAFETY: no pointers; a stream that lives, and an event of ours.
    unsafe {
        if per_thread {
            cuStreamWaitEvent_ptsz(stream, event, 0)
        } else {
            cuStreamWaitEvent(stream, event, 0)
        }
    }
}

/// An end of a description: its address, if that may be memory of a device.
fn address(kind: CUmemorytype, at: CUdeviceptr) -> Option<CUdeviceptr> {
    [CUmemorytype::DEVICE, CUmemorytype::UNIFIED]
        .contains(&kind)
        .then_some(at)
}

/// The same, if it may be memory of the host.
fn host(kind: CUmemorytype, host: *const c_void, at: CUdeviceptr) -> Option<CUdeviceptr> {
    match kind {
        CUmemorytype::HOST => Some(host.addr() as u64),
        CUmemorytype::UNIFIED => Some(at),
        _ => None,
    }
}

impl Operation {
    /// The addresses that may be memory of a device: where it writes, and where it reads.
    pub(crate) fn ends(&self) -> (Option<CUdeviceptr>, Option<CUdeviceptr>) {
        match *self {
            Self::Fill { at, .. } | Self::FillRows { at, .. } => (Some(at), None),
            Self::ToHost { from, .. } => (None, Some(from)),
            Self::FromHost { to, .. } => (Some(to), None),
            Self::Line { to, from, .. } => (Some(to), Some(from)),
            Self::Rectangle(copy) => (
                address(copy.dstMemoryType, copy.dstDevice),
                address(copy.srcMemoryType, copy.srcDevice),
            ),
            Self::Box(copy) => (
                address(copy.dstMemoryType, copy.dstDevice),
                address(copy.srcMemoryType, copy.srcDevice),
            ),
        }
    }

    /// The addresses that may be memory of the host, in the same order.
    pub(crate) fn hosts(&self) -> (Option<CUdeviceptr>, Option<CUdeviceptr>) {
        match *self {
            Self::Fill { .. } | Self::FillRows { .. } => (None, None),
            Self::ToHost { to, .. } => (Some(to.addr() as u64), None),
            Self::FromHost { from, .. } => (None, Some(from.addr() as u64)),
            Self::Line { to, from, .. } => (Some(to), Some(from)),
            Self::Rectangle(copy) => (
                host(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                host(copy.srcMemoryType, copy.srcHost, copy.srcDevice),
            ),
            Self::Box(copy) => (
                host(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                host(copy.srcMemoryType, copy.srcHost, copy.srcDevice),
            ),
        }
    }

    /// Has it made in a stream of ours, which is of the current context.
    pub(crate) fn made(&self, stream: CUstream) -> CUresult {
        // SAFETY: a stream of ours, and the addresses of the program's call (see the module's
        // page); descriptions are locals that outlive the call.
        unsafe {
            match *self {
                Self::Fill { at, value, count } => match value {
                    Value::Byte(value) => cuMemsetD8Async(at, value, count, stream),
                    Value::Half(value) => cuMemsetD16Async(at, value, count, stream),
                    Value::Word(value) => cuMemsetD32Async(at, value, count, stream),
                },
                Self::FillRows {
                    at,
                    pitch,
                    value,
                    width,
                    rows,
                } => match value {
                    Value::Byte(value) => cuMemsetD2D8Async(at, pitch, value, width, rows, stream),
                    Value::Half(value) => cuMemsetD2D16Async(at, pitch, value, width, rows, stream),
                    Value::Word(value) => cuMemsetD2D32Async(at, pitch, value, width, rows, stream),
                },
                Self::ToHost { to, from, count } => cuMemcpyDtoHAsync_v2(to, from, count, stream),
                Self::FromHost { to, from, count } => cuMemcpyHtoDAsync_v2(to, from, count, stream),
                Self::Line { to, from, count } => cuMemcpyAsync(to, from, count, stream),
                Self::Rectangle(copy) => cuMemcpy2DAsync_v2(&raw const copy, stream),
                Self::Box(copy) => cuMemcpy3DAsync_v2(&raw const copy, stream),
            }
        }
    }

    /// Has it made between memory of two contexts, in the program's stream. `None`: it is not
    /// between devices.
    pub(crate) fn made_between(
        &self,
        (to_context, from_context): (CUcontext, CUcontext),
        stream: CUstream,
        per_thread: bool,
    ) -> Option<CUresult> {
        if let Self::Line { to, from, count } = *self {
            let call = if per_thread {
                cuMemcpyPeerAsync_ptsz
            } else {
                cuMemcpyPeerAsync
            };
            // SAFETY: the program's stream and addresses; the contexts are those that own the
            // memory, or the driver refuses.
            return Some(unsafe { call(to, to_context, from, from_context, count, stream) });
        }
        let mut copy = self.as_box()?;
        (copy.dstContext, copy.srcContext) = (to_context, from_context);
        let call = if per_thread {
            cuMemcpy3DPeerAsync_ptsz
        } else {
            cuMemcpy3DPeerAsync
        };
        // SAFETY: as above; the description is a local that outlives the call.
        Some(unsafe { call(&raw const copy, stream) })
    }

    /// A description of it as a box, both ends of which are memory of devices.
    fn as_box(&self) -> Option<CUDA_MEMCPY3D_PEER_v1> {
        // SAFETY: zeros are a valid value of this C structure.
        let mut made: CUDA_MEMCPY3D_PEER_v1 = unsafe { MaybeUninit::zeroed().assume_init() };
        (made.srcMemoryType, made.dstMemoryType) = (CUmemorytype::DEVICE, CUmemorytype::DEVICE);
        match *self {
            Self::Rectangle(copy) => {
                (made.srcXInBytes, made.srcY) = (copy.srcXInBytes, copy.srcY);
                (made.srcDevice, made.srcPitch) = (copy.srcDevice, copy.srcPitch);
                made.srcHeight = copy.srcY.saturating_add(copy.Height);
                (made.dstXInBytes, made.dstY) = (copy.dstXInBytes, copy.dstY);
                (made.dstDevice, made.dstPitch) = (copy.dstDevice, copy.dstPitch);
                made.dstHeight = copy.dstY.saturating_add(copy.Height);
                (made.WidthInBytes, made.Height, made.Depth) = (copy.WidthInBytes, copy.Height, 1);
            }
            Self::Box(copy) => {
                (made.srcXInBytes, made.srcY) = (copy.srcXInBytes, copy.srcY);
                (made.srcZ, made.srcLOD) = (copy.srcZ, copy.srcLOD);
                (made.srcDevice, made.srcPitch) = (copy.srcDevice, copy.srcPitch);
                made.srcHeight = copy.srcHeight;
                (made.dstXInBytes, made.dstY) = (copy.dstXInBytes, copy.dstY);
                (made.dstZ, made.dstLOD) = (copy.dstZ, copy.dstLOD);
                (made.dstDevice, made.dstPitch) = (copy.dstDevice, copy.dstPitch);
                made.dstHeight = copy.dstHeight;
                (made.WidthInBytes, made.Height) = (copy.WidthInBytes, copy.Height);
                made.Depth = copy.Depth;
            }
            _ => return None,
        }
        Some(made)
    }
}
