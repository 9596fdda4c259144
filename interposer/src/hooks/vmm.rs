//! Physical memory (`cuMemCreate`) and what holds it: handles, mappings, bindings, tiles of sparse
//! arrays.
//!
//! It is charged to the device named in its properties, by its size, and credited when the last
//! handle and the last hold is gone. At a location of a type that is not known it is charged to the
//! current context's device. Memory on the host is not charged; imported memory is charged to its
//! exporter.

use core::ffi::{c_int, c_void};

use gpushare_cuda_abi::cuda::{
    CUarrayMapInfo, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUmemOperationType, CUmemRangeHandleType, CUresult, CUstream,
};

use crate::account;
use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::entry::args::{In, Opaque, Out, Plain as _, mapped, region};
use crate::entry::hooks;
use crate::entry::lists::{Count, InSlice};
use crate::guest::descriptor;
pub(super) use crate::holdings::objects::physical::physical;
use crate::holdings::objects::physical::tiles::{self, Region};
use crate::holdings::objects::physical::{Binding, Credit, Holding, Holds, credit_closed};
use crate::holdings::reclaim;
use crate::hooks::early::{self, Call};
use crate::hooks::{ipc, plain, refusal};
use crate::residency::own;

hooks! {
    fn cuMemCreate(
        handle: Out<'_, CUmemGenericAllocationHandle>, size: usize, prop: In<'_, CUmemAllocationProp>, flags: u64,
    ) -> CUresult = |real(..)| create(handle, (size, prop, flags), real);
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult
        = |call| release(handle, || own::release(handle).unwrap_or_else(call));
    fn cuMemMap(
        ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64,
    ) -> CUresult = |real(..)| {
        let call = |handle| real(ptr, size, offset, handle, flags);
        let holding = physical().holding(handle);
        held(holding, Binding::Address(ptr), size as u64, || {
            plain::not_ours(ptr, size as u64, || own::map((ptr, size as u64), handle, call))
        })
    };
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult
        = |call| plain::not_ours(ptr, size as u64, || unmap(ptr, size, || own::unmap(ptr, size as u64, call)));
    fn cuMemRetainAllocationHandle(handle: Out<'_, CUmemGenericAllocationHandle>, addr: *mut c_void) -> CUresult
        = |call| {
            let at = addr.expose_provenance() as u64;
            let call = || referred(handle, Some(at), call());
            retained(handle, at, plain::not_ours(at, 1, || own::at_address(at, call)))
        };
    fn cuMemImportFromShareableHandle(
        handle: Out<'_, CUmemGenericAllocationHandle>, os_handle: *mut c_void, kind: CUmemAllocationHandleType,
    ) -> CUresult = |call| imported(handle, (os_handle, kind), || referred(handle, None, call()));
    fn cuMemExportToShareableHandle(
        shareable: Opaque<'_, c_void>, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64,
    ) -> CUresult = |real(..)| {
        let answer = own::with_handle(handle, true, |handle| real(shareable, handle, kind, flags));
        exported(handle, (shareable, kind), answer)
    };
    #[held]
    fn cuMemGetAllocationPropertiesFromHandle(
        prop: Opaque<'_, CUmemAllocationProp>, handle: CUmemGenericAllocationHandle,
    ) -> CUresult = |real(..)| own::with_handle(handle, false, |handle| real(prop, handle));
    fn cuMemGetHandleForAddressRange(
        handle: Opaque<'_, c_void>, dptr: CUdeviceptr, size: usize, kind: CUmemRangeHandleType, flags: u64,
    ) -> CUresult = |call| {
        let answer = plain::not_shared(dptr, size as u64, || own::exporting(dptr, size as u64, call));
        range_exported((handle, kind), (dptr, size as u64), ipc::exported(dptr, answer))
    };
    fn cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz(
        infos: InSlice<'_, CUarrayMapInfo>, count: Count<u32>, stream: CUstream,
    ) -> CUresult = |call| map_tiles(infos, count, call);
}

/// Puts holds back after a refusal, or credits memory whose last holds they were.
pub(super) fn settle(holds: Holds, undone: bool) {
    if !undone {
        return physical().not_undone(holds);
    }
    let credits = physical().undone(holds);
    credit(credits);
}

/// Makes a call that maps or binds memory at a place.
pub(super) fn held(
    holding: Option<Holding>,
    place: Binding,
    size: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let answer = call();
    is_held(holding, place, size, answer);
    answer
}

/// That call has been made.
fn is_held(holding: Option<Holding>, place: Binding, size: u64, answer: CUresult) {
    let Some(holding) = holding else { return };
    let gone = match answer.is_success() {
        true => physical().held(holding, place, size),
        false => physical().not_held(holding),
    };
    credit(gone);
}

/// Credits memory that nothing holds any more.
pub(super) fn credit(gone: Vec<Credit>) {
    gone.into_iter()
        .for_each(|(device, units)| account::release(device, units));
}

fn create(
    handle: Out<'_, CUmemGenericAllocationHandle>,
    (size, prop, flags): (usize, In<'_, CUmemAllocationProp>, u64),
    real: impl Fn(
        Out<'_, CUmemGenericAllocationHandle>,
        usize,
        In<'_, CUmemAllocationProp>,
        u64,
    ) -> CUresult,
) -> CUresult {
    let ask = || real(handle, size, prop, flags);
    let own = |props: &CUmemAllocationProp, device| {
        let mut made = 0;
        let answer = own::create(device, props, size as u64, || {
            real(Out::to(&mut made), size, prop, flags).ok()?;
            Ok(made)
        });
        match answer {
            Ok(made) => {
                handle.write(made);
                CUresult::SUCCESS
            }
            Err(why) => why,
        }
    };
    if handle.is_null() || size == 0 {
        return ask();
    }
    let Some(props) = prop.read() else {
        return ask();
    };
    let Some(device) = device::charged_at(props.location) else {
        return ask();
    };
    let call = account::Deadline::new();
    let refusal = || {
        refused(&props, device, |prop, asked| {
            let (size, flags) = asked.unwrap_or((size, flags));
            let mut handle = 0;
            let size = refusal::impossible(size);
            let asked = real(Out::to(&mut handle), size, In::to(prop), flags);
            if asked.is_success() {
                let _ = calls::release_physical(handle);
            }
            asked
        })
    };
    let (bytes, by) = (size as u64, Call::Physical(size as u64));
    let charge = match reclaim::reserve(device, bytes, by, &call, refusal) {
        Ok(charge) => charge,
        Err(answer) => return answer,
    };
    let answer = reclaim::insist(device, bytes, by, &call, || own(&props, device));
    if let Some(handle) = handle.after(answer) {
        physical().created(handle, device, charge.keep());
    }
    answer
}

/// The result of `cuMemCreate` above the quota. `ask` calls it with an impossible size: with the
/// program's own size and flags, or with others.
#[cold]
fn refused(
    prop: &CUmemAllocationProp,
    device: DeviceKey,
    ask: impl Fn(&CUmemAllocationProp, Option<(usize, u64)>) -> CUresult,
) -> CUresult {
    refusal::of(ask(prop, None), || {
        let mut plain = CUmemAllocationProp::zeroed();
        plain.type_ = CUmemAllocationType::PINNED;
        // A location of a type that is not known may be what is wrong.
        let (type_, id) = (CUmemLocationType::DEVICE, device::ordinal_of(device));
        plain.location = id.map_or(prop.location, |id| CUmemLocation { type_, id });
        ask(&plain, Some((refusal::IMPOSSIBLE, 0)))
    })
}

fn release(handle: CUmemGenericAllocationHandle, call: impl FnOnce() -> CUresult) -> CUresult {
    let reference = physical().releasing(handle);
    let answer = call();
    match reference {
        Some(reference) if answer.is_success() => {
            early::freed();
            let gone = physical().released(reference);
            credit(gone);
            credit_closed();
        }
        Some(reference) => physical().not_released(reference),
        None => {}
    }
    answer
}

fn unmap(ptr: CUdeviceptr, size: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let end = ptr.saturating_add(size as u64);
    let holds = physical().undoing(Binding::Address(ptr), Binding::Address(end));
    let answer = call();
    settle(holds, answer.is_success());
    credit_closed();
    answer
}

/// A handle that the driver has returned for memory that exists: the program gets its own number
/// for memory that can move.
fn referred(
    handle: Out<'_, CUmemGenericAllocationHandle>,
    at: Option<u64>,
    answer: CUresult,
) -> CUresult {
    if let Some(real) = handle.after(answer) {
        handle.write(own::referred(at, real));
    }
    answer
}

fn retained(
    handle: Out<'_, CUmemGenericAllocationHandle>,
    address: u64,
    answer: CUresult,
) -> CUresult {
    if let Some(handle) = handle.after(answer) {
        physical().retained(handle, address);
    }
    answer
}

/// Memory of a file of its own is held while the driver is asked: it may be in no other way.
fn imported(
    handle: Out<'_, CUmemGenericAllocationHandle>,
    (file, kind): (*mut c_void, CUmemAllocationHandleType),
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let own = match c_int::try_from(file.addr()) {
        Ok(number) if is_file(kind) => physical().holding_file(number),
        _ => None,
    };
    let answer = call();
    let gone = match (handle.after(answer), own) {
        (Some(handle), own) => physical().imported(handle, own),
        (None, Some(own)) => physical().not_held(own),
        (None, None) => Vec::new(),
    };
    credit(gone);
    answer
}

fn exported(
    handle: CUmemGenericAllocationHandle,
    (shareable, kind): (Opaque<'_, c_void>, CUmemAllocationHandleType),
    answer: CUresult,
) -> CUresult {
    if answer.is_success() {
        let file = is_file(kind).then(|| answered(shareable)).flatten();
        let gone = physical().exported(handle, file);
        credit(gone);
    }
    answer
}

/// A DMA buffer holds the memory that it is of.
fn range_exported(
    (handle, kind): (Opaque<'_, c_void>, CUmemRangeHandleType),
    range: (CUdeviceptr, u64),
    answer: CUresult,
) -> CUresult {
    if answer.is_success()
        && kind == CUmemRangeHandleType::DMA_BUF_FD
        && let Some(file) = answered(handle)
    {
        let gone = physical().range_exported(range, file);
        credit(gone);
    }
    answer
}

/// The file that the driver has answered: its number, device and inode.
fn answered(handle: Opaque<'_, c_void>) -> Option<(c_int, (u64, u64))> {
    let number = handle.descriptor()?;
    Some((number, descriptor::identity(number).ok()?))
}

fn is_file(kind: CUmemAllocationHandleType) -> bool {
    kind == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR
}

fn map_tiles(
    infos: InSlice<'_, CUarrayMapInfo>,
    count: Count<u32>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // Memory for tiles is made as such, and keeps the driver's handle.
    if infos
        .entries(count)
        .any(|info| own::is_number(mapped(&info).1))
    {
        return CUresult::INVALID_VALUE;
    }
    let holding = |info: CUarrayMapInfo| {
        let maps = info.memOperationType == CUmemOperationType::MAP;
        let holding = maps.then(|| physical().holding(mapped(&info).1)).flatten();
        (info, holding)
    };
    let tiles: Vec<_> = infos.entries(count).map(holding).collect();
    let answer = call();
    for (info, holding) in tiles {
        let (array, _) = mapped(&info);
        let (of, from, extent) = region(&info);
        let region = Region::new(of, from, extent);
        let gone = match holding {
            Some(holding) if answer.is_success() => physical().tiles_held(holding, array, region),
            Some(holding) => physical().not_held(holding),
            // Memory that is not known may be behind them.
            None if answer.is_success() => physical().tiles_gone(array, &region),
            None => Vec::new(),
        };
        credit(gone);
    }
    answer
}

/// The tiles of a sparse array that is about to be destroyed.
pub(super) fn unmapping_tiles(array: u64) -> Holds {
    let (first, last) = tiles::all(array);
    physical().undoing(first, last)
}
