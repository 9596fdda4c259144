//! Memsets and copies. A large one within a device passes the gate as a kernel does. A copy from or
//! to the host does not, because copy engines execute it. It may wait for other work, and other
//! work for it, so the gate is told of it.
//!
//! While the gate is unbound, a small one, and each one with an end on the host, costs one load and
//! a check of its size before the driver's call.

mod describe;
mod elsewhere;

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::*;

use crate::driver::across::Value;
use crate::driver::calls;
use crate::driver::contexts;
use crate::driver::device::{self, DeviceKey};
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::entry::args::In;
use crate::entry::hooks;
use crate::gate::{self, Key, Work, apart, awaited, seal};
use crate::holdings::table::{self, Kind};
use crate::residency::{memory, slabs};
use describe::{box_v1, box_v2, peers, rectangle_v1, rectangle_v2};
use elsewhere::What;

/// Operations on at least this many bytes of a device count. Below, even a device that moves 300
/// GB/s, with a read and a write for each byte, needs 7 us. That is about the host's time for the
/// call and the program's work between two of them. So smaller ones cannot keep a device busy, and
/// recording each would cost more than it takes.
pub(super) const BULK: usize = 1 << 20;

/// NVIDIA's programming guide counts copies of at most so much from the host among the calls that
/// return before the device is done.
const SENT_ALONG: usize = 64 << 10;

/// [`Key::other`] of a memset: this, and the logarithm of its size.
const MEMSET: u32 = 2 << 8;
/// The same of a copy within a device.
const COPY: u32 = 3 << 8;
/// The same of a copy by a description, of rows or boxes.
const BOX: u32 = 4 << 8;

/// Where a memset or copy works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// On memory of one device alone, as far as is known the stream's. The kind is for estimates.
    Within(u32),
    /// On memory of this device alone.
    On(DeviceKey, u32),
    /// Between addresses, one of which the library's tables do not know.
    Somewhere(CUdeviceptr, CUdeviceptr, u32),
    /// From the host to a device.
    FromHost,
    /// To the host, from wherever.
    ToHost,
    /// That is not known, between devices, or on another one than the stream's.
    Unknown,
}

/// A memset or copy.
#[derive(Clone, Copy, Debug)]
struct Move<'a> {
    stream: StreamRef,
    ends: Ends,
    /// The function is documented as synchronous in NVIDIA's reference.
    now: bool,
    what: What<'a>,
}

hooks! {
    #[small(BULK > count as usize)]
    fn cuMemsetD8(at: CUdeviceptr_v1, value: u8, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(count as usize, call);
    #[small(BULK > times(count as usize, 2))]
    fn cuMemsetD16(at: CUdeviceptr_v1, value: u16, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(times(count as usize, 2), call);
    #[small(BULK > times(count as usize, 4))]
    fn cuMemsetD32(at: CUdeviceptr_v1, value: u32, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(times(count as usize, 4), call);
    #[small(BULK > count)]
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds(at: CUdeviceptr, value: u8, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Fill(at, Value::Byte(value), count)).made(count, call);
    #[small(BULK > times(count, 2))]
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds(at: CUdeviceptr, value: u16, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Fill(at, Value::Half(value), count)).made(times(count, 2), call);
    #[small(BULK > times(count, 4))]
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds(at: CUdeviceptr, value: u32, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Fill(at, Value::Word(value), count)).made(times(count, 4), call);
    #[small(BULK > count)]
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz(at: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Fill(at, Value::Byte(value), count)).made(count, call);
    #[small(BULK > times(count, 2))]
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz(at: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Fill(at, Value::Half(value), count)).made(times(count, 2), call);
    #[small(BULK > times(count, 4))]
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz(at: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Fill(at, Value::Word(value), count)).made(times(count, 4), call);
    #[small(BULK > times(width as usize, rows as usize))]
    fn cuMemsetD2D8(at: CUdeviceptr_v1, pitch: u32, value: u8, width: u32, rows: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(times(width as usize, rows as usize), call);
    #[small(BULK > times(2 * width as usize, rows as usize))]
    fn cuMemsetD2D16(at: CUdeviceptr_v1, pitch: u32, value: u16, width: u32, rows: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(times(2 * width as usize, rows as usize), call);
    #[small(BULK > times(4 * width as usize, rows as usize))]
    fn cuMemsetD2D32(at: CUdeviceptr_v1, pitch: u32, value: u32, width: u32, rows: u32) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).made(times(4 * width as usize, rows as usize), call);
    #[small(BULK > times(width, rows))]
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(at: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Byte(value), width, rows)).made(times(width, rows), call);
    #[small(BULK > times(times(width, 2), rows))]
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(at: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Half(value), width, rows)).made(times(times(width, 2), rows), call);
    #[small(BULK > times(times(width, 4), rows))]
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(at: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize) -> CUresult
        = |call, of| now(of, Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Word(value), width, rows)).made(times(times(width, 4), rows), call);
    #[small(BULK > times(width, rows))]
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(at: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Byte(value), width, rows)).made(times(width, rows), call);
    #[small(BULK > times(times(width, 2), rows))]
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(at: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Half(value), width, rows)).made(times(times(width, 2), rows), call);
    #[small(BULK > times(times(width, 4), rows))]
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(at: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(MEMSET)).of(What::Rows(at, pitch, Value::Word(value), width, rows)).made(times(times(width, 4), rows), call);
    #[small(BULK > count)]
    fn cuMemcpy | cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUresult
        = |call, of| now(of, between(to, from, COPY)).of(What::Line(to, from, count)).made(count, call);
    #[small(BULK > count)]
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), between(to, from, COPY)).of(What::Line(to, from, count)).made(count, call);
    #[small(BULK > size)]
    fn cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, size: usize,
        attributes: *mut CUmemcpyAttributes, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), between(to, from, COPY)).made(size, call);
    #[small(BULK > count as usize)]
    fn cuMemcpyDtoD(to: CUdeviceptr_v1, from: CUdeviceptr_v1, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count as usize, call);
    #[small(BULK > count)]
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUresult
        = |call, of| now(of, declared(to, from)).of(What::Line(to, from, count)).made(count, call);
    #[small(BULK > count as usize)]
    fn cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, count: u32, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::Within(COPY)).made(count as usize, call);
    #[small(BULK > count)]
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), declared(to, from)).of(What::Line(to, from, count)).made(count, call);
    #[small(BULK > count)]
    fn cuMemcpyPeer | cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, count: usize) -> CUresult
        = |call, of| now(of, contexts_of(to_context, from_context, COPY)).made(count, call);
    #[small(BULK > count)]
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), contexts_of(to_context, from_context, COPY)).made(count, call);
    #[small(BULK > count as usize)]
    fn cuMemcpyDtoA(to: CUarray, offset: u32, from: CUdeviceptr_v1, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count as usize, call);
    #[small(BULK > count)]
    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds(to: CUarray, offset: usize, from: CUdeviceptr, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count, call);
    #[small(BULK > count as usize)]
    fn cuMemcpyAtoD(to: CUdeviceptr_v1, from: CUarray, offset: u32, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count as usize, call);
    #[small(BULK > count)]
    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, offset: usize, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count, call);
    #[small(BULK > count as usize)]
    fn cuMemcpyAtoA(to: CUarray, to_offset: u32, from: CUarray, from_offset: u32, count: u32) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count as usize, call);
    #[small(BULK > count)]
    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, count: usize) -> CUresult
        = |call, of| now(of, Ends::Within(COPY)).made(count, call);
    #[small(BULK > rectangle_v1(copy).bytes)]
    fn cuMemcpy2D(copy: In<'_, CUDA_MEMCPY2D_v1>) -> CUresult
        = |call, of| now(of, rectangle_v1(copy).ends(BOX)).made(rectangle_v1(copy).bytes, call);
    #[small(BULK > rectangle_v1(copy).bytes)]
    fn cuMemcpy2DUnaligned(copy: In<'_, CUDA_MEMCPY2D_v1>) -> CUresult
        = |call, of| now(of, rectangle_v1(copy).ends(BOX)).made(rectangle_v1(copy).bytes, call);
    #[small(BULK > rectangle_v1(copy).bytes)]
    fn cuMemcpy2DAsync(copy: In<'_, CUDA_MEMCPY2D_v1>, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), rectangle_v1(copy).ends(BOX)).made(rectangle_v1(copy).bytes, call);
    #[small(BULK > rectangle_v2(copy).bytes)]
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(copy: In<'_, CUDA_MEMCPY2D_v2>) -> CUresult
        = |call, of| now(of, rectangle_v2(copy).ends(BOX)).of(What::Rectangle(copy)).made(rectangle_v2(copy).bytes, call);
    #[small(BULK > rectangle_v2(copy).bytes)]
    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(copy: In<'_, CUDA_MEMCPY2D_v2>) -> CUresult
        = |call, of| now(of, rectangle_v2(copy).ends(BOX)).of(What::Rectangle(copy)).made(rectangle_v2(copy).bytes, call);
    #[small(BULK > rectangle_v2(copy).bytes)]
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(copy: In<'_, CUDA_MEMCPY2D_v2>, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), rectangle_v2(copy).ends(BOX)).of(What::Rectangle(copy)).made(rectangle_v2(copy).bytes, call);
    #[small(BULK > box_v1(copy).bytes)]
    fn cuMemcpy3D(copy: In<'_, CUDA_MEMCPY3D_v1>) -> CUresult
        = |call, of| now(of, box_v1(copy).ends(BOX)).made(box_v1(copy).bytes, call);
    #[small(BULK > box_v1(copy).bytes)]
    fn cuMemcpy3DAsync(copy: In<'_, CUDA_MEMCPY3D_v1>, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), box_v1(copy).ends(BOX)).made(box_v1(copy).bytes, call);
    #[small(BULK > box_v2(copy).bytes)]
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(copy: In<'_, CUDA_MEMCPY3D_v2>) -> CUresult
        = |call, of| now(of, box_v2(copy).ends(BOX)).of(What::Box(copy)).made(box_v2(copy).bytes, call);
    #[small(BULK > box_v2(copy).bytes)]
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(copy: In<'_, CUDA_MEMCPY3D_v2>, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), box_v2(copy).ends(BOX)).of(What::Box(copy)).made(box_v2(copy).bytes, call);
    #[small(BULK > peers(copy).bytes)]
    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(copy: In<'_, CUDA_MEMCPY3D_PEER_v1>) -> CUresult
        = |call, of| now(of, peers(copy).ends(BOX)).made(peers(copy).bytes, call);
    #[small(BULK > peers(copy).bytes)]
    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(copy: In<'_, CUDA_MEMCPY3D_PEER_v1>, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), peers(copy).ends(BOX)).made(peers(copy).bytes, call);
    #[small(true)]
    fn cuMemcpyHtoD(to: CUdeviceptr_v1, from: *const c_void, count: u32) -> CUresult
        = |call, of| now(of, Ends::FromHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, count: usize) -> CUresult
        = |call, of| now(of, Ends::FromHost).of(What::FromHost(to, from, count)).made(count, call);
    #[small(true)]
    fn cuMemcpyHtoDAsync(to: CUdeviceptr_v1, from: *const c_void, count: u32, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::FromHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::FromHost).of(What::FromHost(to, from, count)).made(count, call);
    #[small(true)]
    fn cuMemcpyDtoH(to: *mut c_void, from: CUdeviceptr_v1, count: u32) -> CUresult
        = |call, of| now(of, Ends::ToHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, count: usize) -> CUresult
        = |call, of| now(of, Ends::ToHost).of(What::ToHost(to, from, count)).made(count, call);
    #[small(true)]
    fn cuMemcpyDtoHAsync(to: *mut c_void, from: CUdeviceptr_v1, count: u32, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::ToHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::ToHost).of(What::ToHost(to, from, count)).made(count, call);
    #[small(true)]
    fn cuMemcpyHtoA(to: CUarray, offset: u32, from: *const c_void, count: u32) -> CUresult
        = |call, of| now(of, Ends::FromHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds(to: CUarray, offset: usize, from: *const c_void, count: usize) -> CUresult
        = |call, of| now(of, Ends::FromHost).made(count, call);
    #[small(true)]
    fn cuMemcpyHtoAAsync(to: CUarray, offset: u32, from: *const c_void, count: u32, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::FromHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, offset: usize, from: *const c_void, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::FromHost).made(count, call);
    #[small(true)]
    fn cuMemcpyAtoH(to: *mut c_void, from: CUarray, offset: u32, count: u32) -> CUresult
        = |call, of| now(of, Ends::ToHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, offset: usize, count: usize) -> CUresult
        = |call, of| now(of, Ends::ToHost).made(count, call);
    #[small(true)]
    fn cuMemcpyAtoHAsync(to: *mut c_void, from: CUarray, offset: u32, count: u32, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::ToHost).made(count as usize, call);
    #[small(true)]
    fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, offset: usize, count: usize, stream: CUstream) -> CUresult
        = |call, of| later(of(stream), Ends::ToHost).made(count, call);
}

fn times(bytes: usize, count: usize) -> usize {
    bytes.saturating_mul(count)
}

fn now(of: fn(CUstream) -> StreamRef, ends: Ends) -> Move<'static> {
    Move {
        stream: of(CUstream::NULL),
        ends,
        now: true,
        what: What::Other,
    }
}

fn later(stream: StreamRef, ends: Ends) -> Move<'static> {
    Move {
        stream,
        ends,
        now: false,
        what: What::Other,
    }
}

/// The device on which memory of this library's tables lies. Managed memory may be anywhere.
fn device_of(address: CUdeviceptr) -> Option<DeviceKey> {
    if let Some(device) = slabs::device_of(address) {
        return Some(device);
    }
    let (_, record) = table::find(address)?;
    (record.kind() != Kind::Managed).then(|| record.device())
}

/// Of a copy that says nothing of its ends.
fn between(to: CUdeviceptr, from: CUdeviceptr, kind: u32) -> Ends {
    match (device_of(to), device_of(from)) {
        (Some(to), Some(from)) if to == from => Ends::On(to, kind),
        (Some(_), Some(_)) => Ends::Unknown,
        _ => Ends::Somewhere(to, from, kind),
    }
}

/// Of a copy that says that both are on devices: within one, unless two are known.
fn declared(to: CUdeviceptr, from: CUdeviceptr) -> Ends {
    match (device_of(to), device_of(from)) {
        (Some(to), Some(from)) if to != from => Ends::Unknown,
        (Some(device), _) | (None, Some(device)) => Ends::On(device, COPY),
        (None, None) => Ends::Within(COPY),
    }
}

/// The device on which memory of any kind lies that is not managed. The driver knows pools, graphs,
/// mappings and modules.
fn located(address: CUdeviceptr) -> Option<DeviceKey> {
    let known = device_of(address).or_else(|| memory::device_of(address, 1));
    known.or_else(|| {
        let mut ordinal = None;
        // What is away is no memory to the driver.
        let _ = seal::pass(|| {
            ordinal = calls::device_at(address);
            CUresult::SUCCESS
        });
        device::of_ordinal(ordinal?)
    })
}

/// Of a copy between contexts.
fn contexts_of(to: CUcontext, from: CUcontext, kind: u32) -> Ends {
    match (contexts::of(to), contexts::of(from)) {
        (Some(to), Some(from)) if to.device == from.device => Ends::On(to.device, kind),
        _ => Ends::Unknown,
    }
}

impl Move<'_> {
    /// It is this one.
    fn of(self, what: What<'_>) -> Move<'_> {
        let Self {
            stream, ends, now, ..
        } = self;
        Move {
            stream,
            ends,
            now,
            what,
        }
    }

    /// Makes it, `bytes` of it, by `call`, in the context that reaches its memory.
    fn made(self, bytes: usize, call: impl Fn() -> CUresult) -> CUresult {
        let call = || {
            if bytes > 0 && seal::is_spread() {
                elsewhere::made(self.stream, self.now, self.what, &call)
            } else {
                call()
            }
        };
        let is_large = bytes >= BULK;
        match self.settled(is_large) {
            Ends::Within(kind) if is_large => {
                // By kind, and by how often one can be halved.
                let key = Key::other(kind | bytes.ilog2());
                gate::pass(&Work::One(self.stream, key), call)
            }
            Ends::Within(_) => seal::pass_work(call),
            _ => {
                if is_large {
                    apart::comes(self.stream, !self.now);
                }
                if self.now && self.completes(bytes) {
                    awaited::copying(self.stream, || seal::pass_work(call))
                } else {
                    seal::pass_work(call)
                }
            }
        }
    }

    /// Where it works, as far as that matters: a small one is not looked up.
    fn settled(&self, is_large: bool) -> Ends {
        match self.ends {
            Ends::On(_, kind) if !is_large => Ends::Within(kind),
            Ends::On(device, kind) => self.at_home(device, kind),
            Ends::Somewhere(to, from, kind) if is_large => match located(to) {
                Some(device) if located(from) == Some(device) => self.at_home(device, kind),
                _ => Ends::Unknown,
            },
            Ends::Somewhere(..) => Ends::Unknown,
            Ends::Within(kind) if is_large && contexts::on_several_devices() => {
                let device = self.what.fills().and_then(device_of);
                device.map_or(self.ends, |device| self.at_home(device, kind))
            }
            ends => ends,
        }
    }

    /// Of one on this device's memory. The gate of the stream's device knows nothing of another
    /// one's.
    fn at_home(&self, device: DeviceKey, kind: u32) -> Ends {
        let is_here = |stream: StreamRef| {
            let place = streams::locate(stream);
            place.is_none_or(|here| here.device == device)
        };
        if !contexts::on_several_devices() || is_here(self.stream) {
            Ends::Within(kind)
        } else {
            Ends::Unknown
        }
    }

    /// Whether all work before it is complete when the driver returns from it, a synchronous one.
    fn completes(self, bytes: usize) -> bool {
        match self.ends {
            Ends::ToHost => bytes > 0,
            Ends::FromHost => bytes > SENT_ALONG,
            Ends::Within(_) | Ends::On(..) | Ends::Somewhere(..) | Ends::Unknown => false,
        }
    }
}
