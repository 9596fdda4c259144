//! Linear and pitched memory: `cuMemAlloc`, `cuMemAllocPitch`, `cuMemFree`.
//!
//! Charged by size rounded up to 512 bytes; pitched memory by pitch times height. Arguments the driver will refuse (no place for the
//! result, no bytes) go to it uncharged, so that it says what it always says.
//!
//! # Safety
//! The driver is called with the program's own arguments; results are read only after the driver has said that it wrote them.
#![allow(
    unsafe_code,
    reason = "calls the driver and reads what it wrote through the program's pointers"
)]

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult};

use super::{allocate, refusal};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::entry::hooks;
use crate::holdings::table::{self, Kind, Record};

hooks! {
    fn cuMemAlloc(dptr: *mut CUdeviceptr_v1, bytesize: u32) -> CUresult = alloc_v1;
    fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult = alloc;
    fn cuMemAllocPitch(
        dptr: *mut CUdeviceptr_v1, pitch: *mut u32, width: u32, height: u32, element: u32,
    ) -> CUresult = alloc_pitch_v1;
    fn cuMemAllocPitch_v2(
        dptr: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) -> CUresult = alloc_pitch;
    fn cuMemFree(dptr: CUdeviceptr_v1) -> CUresult = free_v1;
    fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult = free;
}

/// Distance between rows that every driver is known to choose a multiple of.
const PITCH: u64 = 512;

#[inline]
fn alloc(real: cuMemAlloc_v2, dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(dptr, bytesize) };
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    // SAFETY: the driver has written the address.
    allocate::pointer(
        Kind::Linear,
        bytesize as u64,
        || refused(bytesize),
        ask,
        || unsafe { *dptr },
    )
}

/// What `cuMemAlloc` says above the quota.
#[cold]
fn refused(bytesize: usize) -> CUresult {
    let mut at = 0;
    // SAFETY: an out parameter that outlives the call.
    let asked = unsafe { calls::cuMemAlloc_v2(&raw mut at, refusal::impossible(bytesize)) };
    undone(asked, at);
    refusal::of_size_only(asked)
}

/// Frees what was asked for and should not have been had.
fn undone(asked: CUresult, at: CUdeviceptr) {
    if asked.is_success() {
        // SAFETY: the driver has just returned it, and the program has not seen it.
        let _ = unsafe { calls::cuMemFree_v2(at) };
    }
}

fn alloc_v1(real: cuMemAlloc, dptr: *mut CUdeviceptr_v1, bytesize: u32) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(dptr, bytesize) };
    if dptr.is_null() || bytesize == 0 {
        return ask();
    }
    let refusal = || refused(bytesize as usize);
    allocate::pointer(Kind::Linear, bytesize.into(), refusal, ask, || {
        // SAFETY: the driver has written the address.
        unsafe { *dptr }.into()
    })
}

fn alloc_pitch(
    real: cuMemAllocPitch_v2,
    dptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(dptr, pitch, width, height, element) };
    if dptr.is_null() || pitch.is_null() {
        return ask();
    }
    // SAFETY: the driver has written both.
    pitched((width as u64, height as u64, element), ask, || unsafe {
        (*dptr, *pitch as u64)
    })
}

fn alloc_pitch_v1(
    real: cuMemAllocPitch,
    dptr: *mut CUdeviceptr_v1,
    pitch: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(dptr, pitch, width, height, element) };
    if dptr.is_null() || pitch.is_null() {
        return ask();
    }
    // SAFETY: the driver has written both.
    pitched((width.into(), height.into(), element), ask, || unsafe {
        ((*dptr).into(), (*pitch).into())
    })
}

/// Books the pitch every known driver returns, then corrects it to the one that was returned.
fn pitched(
    (width, height, element): (u64, u64, u32),
    ask: impl Fn() -> CUresult,
    result: impl FnOnce() -> (u64, u64),
) -> CUresult {
    if width == 0 || height == 0 {
        return ask();
    }
    let bytes = width
        .checked_next_multiple_of(PITCH)
        .and_then(|row| row.checked_mul(height));
    let bytes = bytes.unwrap_or(u64::MAX);
    let refusal = |_| pitched_refused(width, height, element);
    allocate::booked(bytes, refusal, ask, |here, mut charge| {
        let (address, pitch) = result();
        if let Err(refused) = charge.settle(pitch.saturating_mul(height)) {
            // SAFETY: the driver has just returned it, and the program has not seen it.
            let _ = unnoticed(|| unsafe { calls::cuMemFree_v2(address) });
            return refused.into();
        }
        table::insert(
            address,
            Record::new(here.device, here.context, Kind::Pitched, charge.keep()),
        );
        CUresult::SUCCESS
    })
}

/// What `cuMemAllocPitch` says above the quota: asked with as many rows as make an impossible size,
/// without running over.
#[cold]
fn pitched_refused(width: u64, height: u64, element: u32) -> CUresult {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let ask = |width: u64, height: u64, element| {
        let row = width.checked_next_multiple_of(PITCH).unwrap_or(width);
        let rows = height.max(refusal::IMPOSSIBLE as u64 / row);
        let (mut at, mut pitch) = (0, 0);
        // SAFETY: out parameters that outlive the call.
        let asked = unsafe {
            calls::cuMemAllocPitch_v2(
                &raw mut at,
                &raw mut pitch,
                bytes(width),
                bytes(rows),
                element,
            )
        };
        undone(asked, at);
        asked
    };
    refusal::of(ask(width, height, element), || ask(PITCH, 1, 4))
}

#[inline]
fn free(real: cuMemFree_v2, dptr: CUdeviceptr) -> CUresult {
    // SAFETY: the program's argument.
    allocate::free(dptr, || unsafe { real(dptr) })
}

fn free_v1(real: cuMemFree, dptr: CUdeviceptr_v1) -> CUresult {
    // SAFETY: the program's argument.
    allocate::free(dptr.into(), || unsafe { real(dptr) })
}
