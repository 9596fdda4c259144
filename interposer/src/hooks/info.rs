//! What a program is told about memory: the container's instead of the device's.
//!
//! # Safety
//! The driver is called with the program's own arguments; results are corrected only where the driver wrote them.
#![allow(
    unsafe_code,
    reason = "calls the driver and corrects what it wrote through the program's pointers"
)]

use gpushare_cuda_abi::cuda::{CUdevice, CUresult};

use crate::captures::unnoticed;
use crate::entry::hooks;
use crate::views::{self, Memory};
use crate::{contexts, device, driver};

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
    if answer.is_success()
        && let Some(seen) = seen()
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
        && let Some(seen) = seen()
    {
        put(free, seen.free);
        put(total, seen.total);
    }
    answer
}

/// What the program may see of the current context's device; `None` where there is no limit, or nothing to see.
fn seen() -> Option<Memory> {
    let here = contexts::here()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: out parameters that outlive the call. Asked apart, because the program's own pointers may be null.
    unnoticed(|| unsafe { driver::cuMemGetInfo_v2(&raw mut free, &raw mut total) })
        .ok()
        .ok()?;
    views::memory(here.device, free as u64)
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
