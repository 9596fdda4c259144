//! Physical memory (`cuMemCreate`) and what holds it: handles, mappings, bindings, tiles of sparse arrays.
//!
//! It is charged to the device named in its properties, by its size, and credited when the last handle and the last hold is gone.
//! Memory on the host is not charged; imported memory is charged to its exporter.
//!
//! # Safety
//! The driver is called with the program's own arguments; properties are read where the driver would read them, results after the
//! driver has said that it wrote them.
#![allow(
    unsafe_code,
    reason = "calls the driver and reads through the program's pointers"
)]

use core::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{
    CUarrayMapInfo, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUmemOperationType, CUmemRangeHandleType, CUresult, CUstream,
};

use crate::account;
use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::entry::hooks;
use crate::guest::fork::ForkLocal;
use crate::holdings::objects::physical::{Holds, Physical, Place};
use crate::holdings::table::{self, Record};
use crate::hooks::refusal;

hooks! {
    fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64,
    ) -> CUresult = create;
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult = release;
    fn cuMemMap(
        ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64,
    ) -> CUresult = map;
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult = unmap;
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) -> CUresult = retain;
    fn cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void, kind: CUmemAllocationHandleType,
    ) -> CUresult = import;
    fn cuMemExportToShareableHandle(
        shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64,
    ) -> CUresult = export;
    fn cuMemGetHandleForAddressRange(
        handle: *mut c_void, dptr: CUdeviceptr, size: usize, kind: CUmemRangeHandleType, flags: u64,
    ) -> CUresult = export_range;
    fn cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz(
        infos: *mut CUarrayMapInfo, count: u32, stream: CUstream,
    ) -> CUresult = map_tiles;
}

static PHYSICAL: ForkLocal<Mutex<Physical>> = ForkLocal::new();

/// The books of physical memory. No driver call while they are held.
pub(super) fn physical() -> MutexGuard<'static, Physical> {
    PHYSICAL
        .get_or(Default::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Puts holds back after a refusal, or credits what they were the last of.
pub(super) fn settle(holds: Holds, undone: bool) {
    if !undone {
        return physical().not_undone(holds);
    }
    let credits = physical().undone(holds);
    credits
        .into_iter()
        .for_each(|(device, units)| account::release(device, units));
}

/// The device that memory at `location` is charged to; none for the host's.
fn device_of(location: CUmemLocation) -> Option<DeviceKey> {
    match location.type_ {
        CUmemLocationType::DEVICE => device::of_ordinal(location.id),
        // The device is in the low byte, which part of it in the next.
        CUmemLocationType::DEVICE_LOCALITY_DOMAIN => device::of_ordinal(location.id & 0xff),
        _ => None,
    }
}

fn create(
    real: cuMemCreate,
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(handle, size, prop, flags) };
    // SAFETY: null, or the program's properties.
    let device = unsafe { prop.as_ref() }.and_then(|prop| device_of(prop.location));
    let Some(device) = device.filter(|_| !handle.is_null() && size > 0) else {
        return ask();
    };
    let call = account::Deadline::new();
    // SAFETY: `device` was read from it.
    let refusal = || refused(real, size, unsafe { &*prop }, flags);
    let charge = match crate::holdings::reclaim::reserve(device, size as u64, &call, refusal) {
        Ok(charge) => charge,
        Err(answer) => return answer,
    };
    let answer = crate::holdings::reclaim::insist(device, size as u64, &call, ask);
    if answer.is_success() {
        // SAFETY: the driver has written the handle.
        physical().created(unsafe { *handle }, device, charge.keep());
    }
    answer
}

/// What `cuMemCreate` says above the quota.
#[cold]
fn refused(real: cuMemCreate, size: usize, prop: &CUmemAllocationProp, flags: u64) -> CUresult {
    let ask = |size: usize, prop: &CUmemAllocationProp, flags| {
        let mut handle = 0;
        // SAFETY: an out parameter and properties that outlive the call.
        let asked = unsafe { real(&raw mut handle, refusal::impossible(size), prop, flags) };
        if asked.is_success() {
            // SAFETY: the driver has just returned it, and the program has not seen it.
            let _ = unsafe { calls::cuMemRelease(handle) };
        }
        asked
    };
    refusal::of(ask(size, prop, flags), || {
        // SAFETY: zeroed is a valid value of this C struct: no handle types, no flags.
        let mut plain: CUmemAllocationProp = unsafe { core::mem::zeroed() };
        plain.type_ = CUmemAllocationType::PINNED;
        plain.location = prop.location;
        ask(refusal::IMPOSSIBLE, &plain, 0)
    })
}

fn release(real: cuMemRelease, handle: CUmemGenericAllocationHandle) -> CUresult {
    let reference = physical().releasing(handle);
    // SAFETY: the program's argument.
    let answer = unsafe { real(handle) };
    match reference {
        Some(reference) if answer.is_success() => {
            crate::hooks::early::freed();
            let credit = physical().released(reference);
            if let Some((device, units)) = credit {
                account::release(device, units);
            }
        }
        Some(reference) => physical().not_released(reference),
        // It may have been a multicast object's, whose bindings go with it.
        None if answer.is_success() => crate::hooks::binding::multicast_gone(handle),
        None => {}
    }
    answer
}

fn map(
    real: cuMemMap,
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(ptr, size, offset, handle, flags) };
    if answer.is_success() {
        physical().held_by_handle(handle, Place::Address(ptr), size as u64);
    }
    answer
}

fn unmap(real: cuMemUnmap, ptr: CUdeviceptr, size: usize) -> CUresult {
    let end = ptr.saturating_add(size as u64);
    let holds = physical().undoing(Place::Address(ptr), Place::Address(end));
    // SAFETY: the program's arguments.
    let answer = unsafe { real(ptr, size) };
    settle(holds, answer.is_success());
    answer
}

fn retain(
    real: cuMemRetainAllocationHandle,
    handle: *mut CUmemGenericAllocationHandle,
    addr: *mut c_void,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(handle, addr) };
    if answer.is_success() {
        // SAFETY: the driver has written the handle.
        physical().retained(unsafe { *handle }, addr.expose_provenance() as u64);
    }
    answer
}

fn import(
    real: cuMemImportFromShareableHandle,
    handle: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(handle, os_handle, kind) };
    if answer.is_success() {
        // SAFETY: the driver has written the handle.
        physical().imported(unsafe { *handle });
    }
    answer
}

fn export(
    real: cuMemExportToShareableHandle,
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(shareable, handle, kind, flags) };
    if answer.is_success() {
        physical().exported(handle);
    }
    answer
}

fn export_range(
    real: cuMemGetHandleForAddressRange,
    handle: *mut c_void,
    dptr: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(handle, dptr, size, kind, flags) };
    if answer.is_success()
        && let Some((start, _)) = table::find(dptr)
    {
        table::update(start, Record::exported);
    }
    answer
}

fn map_tiles(
    real: cuMemMapArrayAsync,
    infos: *mut CUarrayMapInfo,
    count: u32,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(infos, count, stream) };
    if !answer.is_success() || infos.is_null() {
        return answer;
    }
    for at in 0..count as usize {
        // SAFETY: the driver has read `count` entries.
        let info = unsafe { &*infos.add(at) };
        // SAFETY: both members are the handle's address, and an allocation's handle is the only one there is.
        let (array, memory) = unsafe {
            (
                info.resource.array.0.expose_provenance() as u64,
                info.memHandle.memHandle,
            )
        };
        let place = Place::Array(array, fingerprint(info));
        if info.memOperationType == CUmemOperationType::MAP {
            physical().held_by_handle(memory, place, 1);
        } else {
            let holds = physical().undoing(
                place,
                Place::Array(array, fingerprint(info).saturating_add(1)),
            );
            settle(holds, true);
        }
    }
    answer
}

/// Tells the regions of a sparse array apart, so that an unmap finds its map.
fn fingerprint(info: &CUarrayMapInfo) -> u64 {
    // SAFETY: the larger member of plain numbers; the program has set all bytes that its kind of subresource has, and the bytes it
    // has not set only make two fingerprints differ, which keeps a charge until the array goes.
    let level = unsafe { info.subresource.sparseLevel };
    let parts = [
        level.level,
        level.layer,
        level.offsetX,
        level.offsetY,
        level.offsetZ,
    ];
    let mix = |hash: u64, part: u32| (hash ^ u64::from(part)).wrapping_mul(0x0100_0000_01b3);
    parts
        .into_iter()
        .chain([info.subresourceType.0])
        .fold(0xcbf2_9ce4_8422_2325, mix)
        >> 1
}

/// The tiles of a sparse array that is about to be destroyed.
pub(super) fn unmapping_tiles(array: u64) -> Holds {
    physical().undoing(Place::Array(array, 0), Place::Array(array, u64::MAX))
}
