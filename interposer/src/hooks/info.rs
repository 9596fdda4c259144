//! What a program is told about memory: the container's instead of the device's.
//!
//! # Safety
//! The driver is called with the program's own arguments; results are corrected only where the driver wrote them.
#![allow(
    unsafe_code,
    reason = "calls the driver and corrects what it wrote through the program's pointers"
)]

use gpushare_cuda_abi::cuda::{CUdevice, CUresult};

use crate::account::views::{self, Memory};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts;
use crate::driver::device;
use crate::entry::hooks;

hooks! {
    fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice) -> CUresult = total_v1;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> CUresult = total;
    fn cuMemGetInfo(free: *mut u32, total: *mut u32) -> CUresult = info_v1;
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult = info;
}

fn total(real: cuDeviceTotalMem_v2, bytes: *mut usize, dev: CUdevice) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(bytes, dev) };
    if answer.is_success()
        && let Some(total) = device::of_ordinal(dev).and_then(views::total)
    {
        put(bytes, total);
    }
    answer
}

fn total_v1(real: cuDeviceTotalMem, bytes: *mut u32, dev: CUdevice) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(bytes, dev) };
    if answer.is_success()
        && let Some(total) = device::of_ordinal(dev).and_then(views::total)
    {
        put(bytes, total);
    }
    answer
}

fn info(real: cuMemGetInfo_v2, free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(free, total) };
    // A pointer that the driver has written through twice says nothing of what is free.
    let physical = if free.is_null() || core::ptr::eq(free, total) {
        None
    } else {
        // SAFETY: not null, and the driver has written it if it succeeded.
        answer.is_success().then(|| unsafe { *free } as u64)
    };
    if answer.is_success()
        && let Some(seen) = seen(physical)
    {
        put(free, seen.free);
        put(total, seen.total);
    }
    answer
}

fn info_v1(real: cuMemGetInfo, free: *mut u32, total: *mut u32) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(free, total) };
    if answer.is_success()
        && let Some(seen) = seen(None)
    {
        put(free, seen.free);
        put(total, seen.total);
    }
    answer
}

/// What the program may see of the current context's device, of which `physical` bytes are free where that is known; `None`
/// where there is no limit, or nothing to see.
fn seen(physical: Option<u64>) -> Option<Memory> {
    let here = contexts::here()?;
    views::memory(here.device, physical.or_else(asked_apart)?)
}

/// What the device has free, where the program's own pointers do not say it.
#[cold]
fn asked_apart() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: out parameters that outlive the call.
    let answer = unnoticed(|| unsafe { calls::cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    answer.is_success().then_some(free as u64)
}

/// Writes a number where the driver has written one; a driver that accepts null is given null.
fn put<T: TryFrom<u64> + Bounded>(place: *mut T, bytes: u64) {
    if !place.is_null() {
        // SAFETY: the program's pointer, through which the driver has just written.
        unsafe { *place = T::try_from(bytes).unwrap_or(T::MOST) };
    }
}

/// Sizes of the old interface end at 4 GiB.
trait Bounded {
    const MOST: Self;
}

impl Bounded for u32 {
    const MOST: Self = Self::MAX;
}

impl Bounded for usize {
    const MOST: Self = Self::MAX;
}
