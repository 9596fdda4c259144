//! The memory that a program sees: the tenant's instead of the device's.

use gpushare_cuda_abi::cuda::{CUdevice, CUresult};

use crate::account::views::{self, Memory};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts;
use crate::driver::device;
use crate::entry::args::{Out, Plain};
use crate::entry::hooks;
use crate::holdings::objects::physical;
use crate::residency::managed;

hooks! {
    fn cuDeviceTotalMem(bytes: Out<'_, u32>, dev: CUdevice) -> CUresult = |call| total(bytes, dev, call());
    fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, dev: CUdevice) -> CUresult = |call| total(bytes, dev, call());
    fn cuMemGetInfo(free: Out<'_, u32>, total: Out<'_, u32>) -> CUresult = |call| info_v1(free, total, call());
    fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) -> CUresult = |call| info(free, total, call());
}

fn total<T: Bounded>(bytes: Out<'_, T>, dev: CUdevice, answer: CUresult) -> CUresult {
    if answer.is_success()
        && let Some(total) = device::of_ordinal(dev).and_then(views::total)
    {
        put(bytes, total);
    }
    answer
}

fn info(free: Out<'_, usize>, total: Out<'_, usize>, answer: CUresult) -> CUresult {
    // If both pointers are the same, the value that the driver wrote is not the free memory.
    let physical = if free.is(total) {
        None
    } else {
        free.after(answer).map(|free| free as u64)
    };
    told(free, total, physical, answer)
}

fn info_v1(free: Out<'_, u32>, total: Out<'_, u32>, answer: CUresult) -> CUresult {
    told(free, total, None, answer)
}

#[inline]
fn told<T: Bounded>(
    free: Out<'_, T>,
    total: Out<'_, T>,
    physical: Option<u64>,
    answer: CUresult,
) -> CUresult {
    if answer.is_success()
        && let Some(seen) = seen(physical)
    {
        put(free, seen.free);
        put(total, seen.total);
    }
    answer
}

/// The program's view of the current context's device, of which `physical` bytes are free where
/// that is known. `None` without a limit, or without a context.
fn seen(physical: Option<u64>) -> Option<Memory> {
    let here = contexts::here()?;
    physical::credit_closed();
    if managed::may_exceed(here.device) {
        return views::memory(here.device, u64::MAX);
    }
    views::memory(here.device, physical.or_else(asked_apart)?)
}

/// The device's free memory, where the program's own pointers do not give it.
#[cold]
fn asked_apart() -> Option<u64> {
    let (free, _) = unnoticed(calls::memory_info).ok()?;
    Some(free as u64)
}

/// Writes a number where the driver has written one; a driver that accepts null is given null.
fn put<T: Bounded>(place: Out<'_, T>, bytes: u64) {
    place.write(T::try_from(bytes).unwrap_or(T::MOST));
}

/// Sizes of the old interface end at 4 GiB.
trait Bounded: TryFrom<u64> + Plain {
    const MOST: Self;
}

impl Bounded for u32 {
    const MOST: Self = Self::MAX;
}

impl Bounded for usize {
    const MOST: Self = Self::MAX;
}
