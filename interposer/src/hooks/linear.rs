//! Linear and pitched memory: `cuMemAlloc`, `cuMemAllocPitch`, `cuMemFree`.
//!
//! Charged by size rounded up to 512 bytes; pitched memory by pitch times height; memory that can
//! move by what it takes of the device. Arguments that the driver will refuse (a null result
//! pointer, zero bytes) go to it uncharged, so that its own error is returned.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult};

use super::early::Call;
use super::{allocate, movable, refusal};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::holdings::table::{self, Kind, Record};

hooks! {
    fn cuMemAlloc(dptr: Out<'_, CUdeviceptr_v1>, bytesize: u32) -> CUresult = |call| alloc_v1(dptr, bytesize, call);
    fn cuMemAlloc_v2(dptr: Out<'_, CUdeviceptr>, bytesize: usize) -> CUresult = |call| alloc(dptr, bytesize, call);
    fn cuMemAllocPitch(
        dptr: Out<'_, CUdeviceptr_v1>, pitch: Out<'_, u32>, width: u32, height: u32, element: u32,
    ) -> CUresult = |call| alloc_pitch_v1((dptr, pitch), (width, height, element), call);
    fn cuMemAllocPitch_v2(
        dptr: Out<'_, CUdeviceptr>, pitch: Out<'_, usize>, width: usize, height: usize, element: u32,
    ) -> CUresult = |call| alloc_pitch((dptr, pitch), (width, height, element), call);
    fn cuMemFree(dptr: CUdeviceptr_v1) -> CUresult = |call| allocate::free(dptr.into(), call);
    fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult = |call| allocate::free(dptr, call);
}

/// Distance between rows that every driver is known to choose a multiple of.
const PITCH: u64 = 512;

#[inline]
fn alloc(dptr: Out<'_, CUdeviceptr>, bytesize: usize, ask: impl Fn() -> CUresult) -> CUresult {
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    let refusal = || refused(bytesize);
    let by = Call::Linear(bytesize as u64);
    if let Some(answer) = movable::allocate(dptr, bytesize as u64, by, &refusal) {
        return answer;
    }
    allocate::pointer(Kind::Linear, bytesize as u64, by, refusal, ask, || {
        dptr.read_back()
    })
}

/// The result of `cuMemAlloc` above the quota.
#[cold]
fn refused(bytesize: usize) -> CUresult {
    refusal::of_size_only(undone(calls::allocate(refusal::impossible(bytesize))))
}

/// Frees memory that the driver should not have granted.
fn undone(asked: Result<CUdeviceptr, CUresult>) -> CUresult {
    match asked {
        Ok(at) => {
            let _ = calls::free(at);
            CUresult::SUCCESS
        }
        Err(answer) => answer,
    }
}

fn alloc_v1(dptr: Out<'_, CUdeviceptr_v1>, bytesize: u32, ask: impl Fn() -> CUresult) -> CUresult {
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    let refusal = || refused(bytesize as usize);
    let by = Call::Linear(bytesize.into());
    allocate::pointer(Kind::Linear, bytesize.into(), by, refusal, ask, || {
        dptr.read_back().map(u64::from)
    })
}

fn alloc_pitch(
    (dptr, pitch): (Out<'_, CUdeviceptr>, Out<'_, usize>),
    (width, height, element): (usize, usize, u32),
    ask: impl Fn() -> CUresult,
) -> CUresult {
    if dptr.is_null() || pitch.is_null() {
        return ask();
    }
    let shape = (width as u64, height as u64, element);
    let refusal = || pitched_refused(shape.0, shape.1, element);
    if let Some(answer) = movable::pitched((dptr, pitch), (width, height, element), &refusal) {
        return answer;
    }
    pitched(shape, ask, || {
        Some((dptr.read_back()?, pitch.read_back()? as u64))
    })
}

fn alloc_pitch_v1(
    (dptr, pitch): (Out<'_, CUdeviceptr_v1>, Out<'_, u32>),
    (width, height, element): (u32, u32, u32),
    ask: impl Fn() -> CUresult,
) -> CUresult {
    if dptr.is_null() || pitch.is_null() {
        return ask();
    }
    pitched((width.into(), height.into(), element), ask, || {
        Some((dptr.read_back()?.into(), pitch.read_back()?.into()))
    })
}

/// Books the pitch that every known driver returns, then corrects it to the returned one.
fn pitched(
    (width, height, element): (u64, u64, u32),
    ask: impl Fn() -> CUresult,
    result: impl FnOnce() -> Option<(u64, u64)>,
) -> CUresult {
    if width == 0 || height == 0 {
        return ask();
    }
    let bytes = width
        .checked_next_multiple_of(PITCH)
        .and_then(|row| row.checked_mul(height));
    let bytes = bytes.unwrap_or(u64::MAX);
    let refusal = |_| pitched_refused(width, height, element);
    allocate::booked(bytes, Call::Other, refusal, ask, |here, mut charge| {
        let Some((address, pitch)) = result() else {
            return CUresult::SUCCESS;
        };
        if let Err(refused) = charge.settle_or_refuse(pitch.saturating_mul(height)) {
            let _ = unnoticed(|| calls::free(address));
            return refused.into();
        }
        table::insert(
            address,
            Record::new(here.device, here.context, Kind::Pitched, charge.keep()),
        );
        CUresult::SUCCESS
    })
}

/// The result of `cuMemAllocPitch` above the quota. The driver is asked for so many rows that the
/// size is impossible, but does not overflow.
#[cold]
fn pitched_refused(width: u64, height: u64, element: u32) -> CUresult {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let ask = |width: u64, height: u64, element| {
        let row = width.checked_next_multiple_of(PITCH).unwrap_or(width);
        let rows = height.max(refusal::IMPOSSIBLE as u64 / row);
        let asked = calls::allocate_pitch(bytes(width), bytes(rows), element);
        undone(asked.map(|(at, _)| at))
    };
    refusal::of(ask(width, height, element), || ask(PITCH, 1, 4))
}
