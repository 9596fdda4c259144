//! `cuMemAlloc` and `cuMemAllocPitch` of memory that can move to the host.
//!
//! `None` from a function here: the allocation is made as plain memory.

use core::cell::Cell;

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUresult, CUstream};

use super::allocate;
use super::early::Call;
use crate::account;
use crate::driver::captures;
use crate::driver::contexts::{self, Here};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::entry::args::Out;
use crate::gate::{seal, work};
use crate::holdings::table::Kind;
use crate::residency::slabs::{self, Grown};
use crate::residency::{memory, pitch};

/// Allocates `bytes` where the process's memory may move, `by` the program's call. `refusal` gives
/// its result above the quota.
#[inline]
pub(super) fn allocate(
    dptr: Out<'_, CUdeviceptr>,
    bytes: u64,
    by: Call,
    refusal: &dyn Fn() -> CUresult,
) -> Option<CUresult> {
    if !seal::may_move() {
        return None;
    }
    if bytes < memory::LEAST
        && let Ok(few) = u32::try_from(bytes)
        && let Some(at) = slabs::take_at_once(few)
    {
        dptr.write(at);
        return Some(CUresult::SUCCESS);
    }
    of_any_size(dptr, bytes, by, refusal)
}

#[cold]
#[inline(never)]
fn of_any_size(
    dptr: Out<'_, CUdeviceptr>,
    bytes: u64,
    by: Call,
    refusal: &dyn Fn() -> CUresult,
) -> Option<CUresult> {
    let here = contexts::here()?;
    // Such memory is made without a context, so its functions do not say that this one is lost.
    // Only work that was submitted can lose it.
    if !work::is_done(here.device.index())
        && let Some(lost) = StreamRef::legacy(CUstream::NULL).fault()
    {
        return Some(lost);
    }
    if bytes < memory::LEAST {
        let few = u32::try_from(bytes).ok()?;
        return small(here, dptr, few, by, refusal);
    }
    let size = memory::size_of(bytes, here.device)?;
    let ask = || match memory::allocate(here, bytes, size) {
        Ok(at) => {
            dptr.write(at);
            CUresult::SUCCESS
        }
        Err(why) => why,
    };
    let address = || dptr.read_back();
    Some(allocate::pointer(
        Kind::Movable,
        size,
        by,
        refusal,
        ask,
        address,
    ))
}

/// Allocates a part of a slab. A slab is charged as a whole when it is made, and what is in it is
/// not charged again. Where the limit has no room for one, the allocation is made as plain memory.
fn small(
    here: Here,
    dptr: Out<'_, CUdeviceptr>,
    bytes: u32,
    by: Call,
    refusal: &dyn Fn() -> CUresult,
) -> Option<CUresult> {
    // While a stream captures, small allocations are the driver's.
    if captures::none_seen()
        && let Some(at) = slabs::take(here, bytes)
    {
        dptr.write(at);
        return Some(CUresult::SUCCESS);
    }
    let size = slabs::size_on(here.device)?;
    if !fits(here.device, size) {
        slabs::spare(here.device, false);
        if !fits(here.device, size) {
            return None;
        }
    }
    let made = Cell::new(Grown::default());
    let ask = || match slabs::grow(here, bytes, size) {
        Ok(grown) => {
            made.set(grown);
            CUresult::SUCCESS
        }
        Err(why) => why,
    };
    let answer = allocate::booked(
        size,
        by,
        |_| refusal(),
        ask,
        |here, charge| {
            let grown = made.get();
            slabs::charged(here.device, grown, charge.keep());
            dptr.write(grown.at);
            CUresult::SUCCESS
        },
    );
    // Where mappings cannot be made, plain memory may.
    let is_answer = answer.is_success() || answer == CUresult::OUT_OF_MEMORY;
    is_answer.then_some(answer)
}

/// Whether a tenant's limit has room for so much.
fn fits(device: DeviceKey, bytes: u64) -> bool {
    account::quota_status(device).is_some_and(|status| {
        let limit = status.limit.unwrap_or(u64::MAX);
        status.charged.saturating_add(bytes) <= limit
    })
}

/// Allocates rows of the driver's pitch.
#[inline]
pub(super) fn pitched(
    (dptr, pitch): (Out<'_, CUdeviceptr>, Out<'_, usize>),
    shape: (usize, usize, u32),
    refusal: &dyn Fn() -> CUresult,
) -> Option<CUresult> {
    if seal::may_move() {
        with_pitch((dptr, pitch), shape, refusal)
    } else {
        None
    }
}

#[cold]
fn with_pitch(
    (dptr, pitch): (Out<'_, CUdeviceptr>, Out<'_, usize>),
    (width, height, element): (usize, usize, u32),
    refusal: &dyn Fn() -> CUresult,
) -> Option<CUresult> {
    let row = pitch::of(contexts::here()?, width, element)?;
    let bytes = (row as u64).checked_mul(height as u64);
    let bytes = bytes.filter(|bytes| *bytes > 0)?;
    let answer = allocate(dptr, bytes, Call::Other, refusal)?;
    if answer.is_success() {
        pitch.write(row);
    }
    Some(answer)
}
