//! Memsets and copies. What is large and stays within a device passes the gate as a kernel does.
//! What comes from or goes to the host does not: copy engines move it. Work may wait for it, and it
//! for work, which the gate is told.
//!
//! While everything is free a small one, and each one with an end on the host, is the driver's own
//! behind one load and its size.
//!
//! # Safety
//! The driver is called with the program's own arguments; of a description only what says where, how much and from where to where is read,
//! as the driver will.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

mod describe;

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::*;

use crate::driver::contexts;
use crate::driver::device::DeviceKey;
use crate::driver::ordered::Ordered;
use crate::gate::{self, Key, Work, apart, awaited};
use crate::holdings::table::{self, Kind};
use describe::{box_v1, box_v2, peers, rectangle_v1, rectangle_v2};

/// What works on so many bytes of a device counts. Below, even a device that moves 300 GB/s, with a
/// read and a write for each byte, is done in 7 us; that is about what the call takes on the host
/// with what the program does between two of them. So smaller ones cannot keep a device busy, and
/// each would cost more to note than it takes.
pub(super) const BULK: usize = 1 << 20;

/// NVIDIA's programming guide counts copies of at most so much from the host among the calls that
/// return before the device is done.
const SENT_ALONG: usize = 64 << 10;

/// [`Key::Other`] of a memset: this, and the logarithm of its size.
const MEMSET: u32 = 2 << 8;
/// The same of a copy within a device.
const COPY: u32 = 3 << 8;
/// The same of a copy by a description, of rows or boxes.
const BOX: u32 = 4 << 8;

/// Where a memset or copy works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// On memory of the stream's device alone. With what it is in estimates.
    Within(u32),
    /// From the host to a device.
    FromHost,
    /// To the host, from wherever.
    ToHost,
    /// That is not known, or between devices.
    Unknown,
}

/// A memset or copy.
#[derive(Clone, Copy, Debug)]
struct Move {
    stream: Ordered,
    ends: Ends,
    /// The function is of those that NVIDIA's reference calls synchronous.
    now: bool,
}

/// Exports hooks of memsets and copies. A row is `fn name | twin (args) -> CUresult [bytes] = |of|
/// what;`: `of` makes a stream of a handle, as the function understands it, and `what` is a
/// [`Move`]. `[SMALL; bytes]`: while everything is free its size does not matter.
macro_rules! moves {
    ($(fn $name:ident $(| $twin:ident)? ($($args:tt)*) -> CUresult [$($bytes:tt)*] = |$of:ident| $what:expr;)*) => {
        $(
            moves!(@sized $name legacy ($($args)*) [$($bytes)*] $of $what);
            moves!(@twin ($($twin)?) ($($args)*) [$($bytes)*] $of $what);
        )*
        /// The rows of this family.
        pub(crate) const HOOKS: &[crate::entry::Hook] = &[$(
            crate::entry::hooks!(@row [] $name),
            $(crate::entry::hooks!(@row [] $twin),)?
        )*];
    };
    (@twin () $args:tt $bytes:tt $of:ident $what:expr) => {};
    (@twin ($twin:ident) $args:tt $bytes:tt $of:ident $what:expr) => {
        moves!(@sized $twin per_thread $args $bytes $of $what);
    };
    (@sized $name:ident $default:ident $args:tt [SMALL; $bytes:expr] $of:ident $what:expr) => {
        moves!(@export $name $default $args [0] [$bytes] $of $what);
    };
    (@sized $name:ident $default:ident $args:tt [$bytes:expr] $of:ident $what:expr) => {
        moves!(@export $name $default $args [$bytes] [$bytes] $of $what);
    };
    (@export $name:ident $default:ident ($($arg:ident: $ty:ty),* $(,)?) [$free:expr] [$bytes:expr] $of:ident $what:expr) => {
        crate::entry::hooks!(@type ($($ty),*) [CUresult] $name);

        #[doc = concat!("`", stringify!($name), "` as programs see it.")]
        ///
        /// # Safety
        /// As the C function.
        #[allow(non_snake_case, reason = "the C function's name")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            crate::entry::hooks!(@slot $name);
            fn body(real: $name, $($arg: $ty),*) -> CUresult {
                let $of = Ordered::$default;
                let (what, bytes): (Move, usize) = ($what, $bytes);
                // SAFETY: the program's own arguments.
                what.made(bytes, || unsafe { real($($arg),*) })
            }
            crate::entry::hooks!(@slowly ($($arg: $ty),*) [CUresult] [body]);

            #[inline(never)]
            extern "C" fn largely($($arg: $ty),*) -> CUresult {
                let frame = crate::guest::frames::Frame::new();
                if let Some(real) = SLOT.known()
                    && let Some(inside) = gate::fast(&frame)
                {
                    // SAFETY: the program's arguments, passed on as they came.
                    let answer = unsafe { real($($arg),*) };
                    inside.leave();
                    return answer;
                }
                slowly($($arg),*)
            }

            if let Some(real) = SLOT.known()
                && gate::is_free()
                && $free < BULK
            {
                // SAFETY: the program's arguments, passed on as they came.
                return unsafe { real($($arg),*) };
            }
            largely($($arg),*)
        }
    };
}

moves! {
    fn cuMemsetD8(at: CUdeviceptr_v1, value: u8, count: u32) -> CUresult [count as usize] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD16(at: CUdeviceptr_v1, value: u16, count: u32) -> CUresult [times(count as usize, 2)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD32(at: CUdeviceptr_v1, value: u32, count: u32) -> CUresult [times(count as usize, 4)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds(at: CUdeviceptr, value: u8, count: usize) -> CUresult [count]
        = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds(at: CUdeviceptr, value: u16, count: usize) -> CUresult [times(count, 2)]
        = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds(at: CUdeviceptr, value: u32, count: usize) -> CUresult [times(count, 4)]
        = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz(at: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult [count]
        = |of| later(of(stream), Ends::Within(MEMSET));
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz(at: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult [times(count, 2)]
        = |of| later(of(stream), Ends::Within(MEMSET));
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz(at: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult [times(count, 4)]
        = |of| later(of(stream), Ends::Within(MEMSET));
    fn cuMemsetD2D8(at: CUdeviceptr_v1, pitch: u32, value: u8, width: u32, rows: u32) -> CUresult [times(width as usize, rows as usize)]
        = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D16(at: CUdeviceptr_v1, pitch: u32, value: u16, width: u32, rows: u32) -> CUresult
        [times(2 * width as usize, rows as usize)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D32(at: CUdeviceptr_v1, pitch: u32, value: u32, width: u32, rows: u32) -> CUresult
        [times(4 * width as usize, rows as usize)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(at: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize) -> CUresult
        [times(width, rows)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(at: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize) -> CUresult
        [times(times(width, 2), rows)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(at: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize) -> CUresult
        [times(times(width, 4), rows)] = |of| now(of, Ends::Within(MEMSET));
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(at: CUdeviceptr, pitch: usize, value: u8, width: usize, rows: usize, stream: CUstream)
        -> CUresult [times(width, rows)] = |of| later(of(stream), Ends::Within(MEMSET));
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(at: CUdeviceptr, pitch: usize, value: u16, width: usize, rows: usize, stream: CUstream)
        -> CUresult [times(times(width, 2), rows)] = |of| later(of(stream), Ends::Within(MEMSET));
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(at: CUdeviceptr, pitch: usize, value: u32, width: usize, rows: usize, stream: CUstream)
        -> CUresult [times(times(width, 4), rows)] = |of| later(of(stream), Ends::Within(MEMSET));

    fn cuMemcpy | cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUresult [count] = |of| now(of, between(to, from));
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult [count]
        = |of| later(of(stream), between(to, from));
    fn cuMemcpyDtoD(to: CUdeviceptr_v1, from: CUdeviceptr_v1, count: u32) -> CUresult [count as usize] = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUresult [count]
        = |of| now(of, declared(to, from));
    fn cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, count: u32, stream: CUstream) -> CUresult [count as usize]
        = |of| later(of(stream), Ends::Within(COPY));
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult
        [count] = |of| later(of(stream), declared(to, from));
    fn cuMemcpyPeer | cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, count: usize)
        -> CUresult [count] = |of| now(of, contexts_of(to_context, from_context, COPY));
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext,
        count: usize, stream: CUstream) -> CUresult [count] = |of| later(of(stream), contexts_of(to_context, from_context, COPY));
    fn cuMemcpyDtoA(to: CUarray, offset: u32, from: CUdeviceptr_v1, count: u32) -> CUresult [count as usize]
        = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds(to: CUarray, offset: usize, from: CUdeviceptr, count: usize) -> CUresult [count]
        = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyAtoD(to: CUdeviceptr_v1, from: CUarray, offset: u32, count: u32) -> CUresult [count as usize]
        = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, offset: usize, count: usize) -> CUresult [count]
        = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyAtoA(to: CUarray, to_offset: u32, from: CUarray, from_offset: u32, count: u32) -> CUresult [count as usize]
        = |of| now(of, Ends::Within(COPY));
    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, count: usize) -> CUresult
        [count] = |of| now(of, Ends::Within(COPY));
    fn cuMemcpy2D(copy: *const CUDA_MEMCPY2D_v1) -> CUresult [rectangle_v1(copy).bytes] = |of| now(of, rectangle_v1(copy).ends(BOX));
    fn cuMemcpy2DUnaligned(copy: *const CUDA_MEMCPY2D_v1) -> CUresult [rectangle_v1(copy).bytes]
        = |of| now(of, rectangle_v1(copy).ends(BOX));
    fn cuMemcpy2DAsync(copy: *const CUDA_MEMCPY2D_v1, stream: CUstream) -> CUresult [rectangle_v1(copy).bytes]
        = |of| later(of(stream), rectangle_v1(copy).ends(BOX));
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D_v2) -> CUresult [rectangle_v2(copy).bytes]
        = |of| now(of, rectangle_v2(copy).ends(BOX));
    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D_v2) -> CUresult [rectangle_v2(copy).bytes]
        = |of| now(of, rectangle_v2(copy).ends(BOX));
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D_v2, stream: CUstream) -> CUresult
        [rectangle_v2(copy).bytes] = |of| later(of(stream), rectangle_v2(copy).ends(BOX));
    fn cuMemcpy3D(copy: *const CUDA_MEMCPY3D_v1) -> CUresult [box_v1(copy).bytes] = |of| now(of, box_v1(copy).ends(BOX));
    fn cuMemcpy3DAsync(copy: *const CUDA_MEMCPY3D_v1, stream: CUstream) -> CUresult [box_v1(copy).bytes]
        = |of| later(of(stream), box_v1(copy).ends(BOX));
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D_v2) -> CUresult [box_v2(copy).bytes]
        = |of| now(of, box_v2(copy).ends(BOX));
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D_v2, stream: CUstream) -> CUresult [box_v2(copy).bytes]
        = |of| later(of(stream), box_v2(copy).ends(BOX));
    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(copy: *const CUDA_MEMCPY3D_PEER_v1) -> CUresult [peers(copy).bytes]
        = |of| now(of, peers(copy).ends(BOX));
    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(copy: *const CUDA_MEMCPY3D_PEER_v1, stream: CUstream) -> CUresult
        [peers(copy).bytes] = |of| later(of(stream), peers(copy).ends(BOX));

    fn cuMemcpyHtoD(to: CUdeviceptr_v1, from: *const c_void, count: u32) -> CUresult [SMALL; count as usize] = |of| now(of, Ends::FromHost);
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, count: usize) -> CUresult [SMALL; count]
        = |of| now(of, Ends::FromHost);
    fn cuMemcpyHtoDAsync(to: CUdeviceptr_v1, from: *const c_void, count: u32, stream: CUstream) -> CUresult [SMALL; count as usize]
        = |of| later(of(stream), Ends::FromHost);
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, count: usize, stream: CUstream) -> CUresult
        [SMALL; count] = |of| later(of(stream), Ends::FromHost);
    fn cuMemcpyDtoH(to: *mut c_void, from: CUdeviceptr_v1, count: u32) -> CUresult [SMALL; count as usize] = |of| now(of, Ends::ToHost);
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, count: usize) -> CUresult [SMALL; count]
        = |of| now(of, Ends::ToHost);
    fn cuMemcpyDtoHAsync(to: *mut c_void, from: CUdeviceptr_v1, count: u32, stream: CUstream) -> CUresult [SMALL; count as usize]
        = |of| later(of(stream), Ends::ToHost);
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, count: usize, stream: CUstream) -> CUresult
        [SMALL; count] = |of| later(of(stream), Ends::ToHost);
    fn cuMemcpyHtoA(to: CUarray, offset: u32, from: *const c_void, count: u32) -> CUresult [SMALL; count as usize]
        = |of| now(of, Ends::FromHost);
    fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds(to: CUarray, offset: usize, from: *const c_void, count: usize) -> CUresult [SMALL; count]
        = |of| now(of, Ends::FromHost);
    fn cuMemcpyHtoAAsync(to: CUarray, offset: u32, from: *const c_void, count: u32, stream: CUstream) -> CUresult [SMALL; count as usize]
        = |of| later(of(stream), Ends::FromHost);
    fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, offset: usize, from: *const c_void, count: usize, stream: CUstream)
        -> CUresult [SMALL; count] = |of| later(of(stream), Ends::FromHost);
    fn cuMemcpyAtoH(to: *mut c_void, from: CUarray, offset: u32, count: u32) -> CUresult [SMALL; count as usize]
        = |of| now(of, Ends::ToHost);
    fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, offset: usize, count: usize) -> CUresult [SMALL; count]
        = |of| now(of, Ends::ToHost);
    fn cuMemcpyAtoHAsync(to: *mut c_void, from: CUarray, offset: u32, count: u32, stream: CUstream) -> CUresult [SMALL; count as usize]
        = |of| later(of(stream), Ends::ToHost);
    fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, offset: usize, count: usize, stream: CUstream)
        -> CUresult [SMALL; count] = |of| later(of(stream), Ends::ToHost);
}

fn times(bytes: usize, count: usize) -> usize {
    bytes.saturating_mul(count)
}

fn now(of: fn(CUstream) -> Ordered, ends: Ends) -> Move {
    Move {
        stream: of(CUstream::NULL),
        ends,
        now: true,
    }
}

fn later(stream: Ordered, ends: Ends) -> Move {
    Move {
        stream,
        ends,
        now: false,
    }
}

/// The device on which memory of this library's table lies. Managed memory may be anywhere.
fn device_of(address: CUdeviceptr) -> Option<DeviceKey> {
    let (_, record) = table::find(address)?;
    (record.kind() != Kind::Managed).then(|| record.device())
}

/// Of a copy that says nothing of its ends.
fn between(to: CUdeviceptr, from: CUdeviceptr) -> Ends {
    match (device_of(to), device_of(from)) {
        (Some(to), Some(from)) if to == from => Ends::Within(COPY),
        _ => Ends::Unknown,
    }
}

/// Of a copy that says that both are on devices: within one, unless two are known.
fn declared(to: CUdeviceptr, from: CUdeviceptr) -> Ends {
    match (device_of(to), device_of(from)) {
        (Some(to), Some(from)) if to != from => Ends::Unknown,
        _ => Ends::Within(COPY),
    }
}

/// Of a copy between contexts.
fn contexts_of(to: CUcontext, from: CUcontext, kind: u32) -> Ends {
    match (contexts::of(to), contexts::of(from)) {
        (Some(to), Some(from)) if to.device == from.device => Ends::Within(kind),
        _ => Ends::Unknown,
    }
}

impl Move {
    /// Makes it, `bytes` of it, by `call`.
    fn made(self, bytes: usize, mut call: impl FnMut() -> CUresult) -> CUresult {
        let is_large = bytes >= BULK;
        match self.ends {
            Ends::Within(kind) if is_large => {
                // By kind, and by how often one can be halved.
                let key = Key::Other(kind | bytes.ilog2());
                gate::pass(&Work::One(self.stream, key), call)
            }
            Ends::Within(_) => call(),
            Ends::FromHost | Ends::ToHost | Ends::Unknown => {
                if is_large {
                    apart::comes(self.stream, !self.now);
                }
                if self.now && self.completes(bytes) {
                    awaited::copying(self.stream, call)
                } else {
                    call()
                }
            }
        }
    }

    /// Whether all work before it is complete when the driver returns from it, a synchronous one.
    fn completes(self, bytes: usize) -> bool {
        match self.ends {
            Ends::ToHost => bytes > 0,
            Ends::FromHost => bytes > SENT_ALONG,
            Ends::Within(_) | Ends::Unknown => false,
        }
    }
}
