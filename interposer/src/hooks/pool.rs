//! Stream-ordered allocation from memory pools.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::c_void;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::*;

use super::arena;
use super::arena::Arena as _;
use super::holes::Hole;
use super::ordered::Ordered;
use super::pools::{self, Payer, Pool};
use super::reclaim::{self, Freed};
use crate::account::{self, Charge, Refused};
use crate::contexts::ContextId;
use crate::device::{self, DeviceKey};
use crate::driver;
use crate::entry::hooks;
use crate::objects::Map;
use crate::table::{self, Kind, Record};

hooks! {
    fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream) -> CUresult = alloc;
    fn cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream) -> CUresult = alloc_per_thread;
    fn cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream) -> CUresult
        = alloc_from;
    fn cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream)
        -> CUresult = alloc_from_per_thread;
    fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) -> CUresult = free;
    fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream) -> CUresult = free_per_thread;
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) -> CUresult = create;
    fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult = destroy;
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> CUresult = trim;
    fn cuMemPoolExportPointer(data: *mut CUmemPoolPtrExportData, dptr: CUdeviceptr) -> CUresult = export_pointer;
    fn cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: u64)
        -> CUresult = export_pool;
    fn cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, handle: *mut c_void, kind: CUmemAllocationHandleType,
        flags: u64) -> CUresult = import_pool;
    fn cuMemPoolImportPointer(dptr: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData) -> CUresult
        = import_pointer;
}

/// A pool grows by multiples of this.
const STEP: u64 = 32 << 20;

/// The most a pool grows by for an allocation.
fn pool_growth(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(STEP).unwrap_or(bytes)
}

/// Every allocation made from a pool, by address.
static ALLOCATIONS: Map<Allocation> = Map::new();

/// An allocation and its size in bytes.
#[derive(Debug)]
struct Allocation {
    pool: Arc<Pool>,
    bytes: u64,
}

fn alloc(
    real: cuMemAllocAsync,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    from_current(dptr, bytesize, Ordered::legacy(stream), || unsafe {
        real(dptr, bytesize, stream)
    })
}

fn alloc_per_thread(
    real: cuMemAllocAsync,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    from_current(dptr, bytesize, Ordered::per_thread(stream), || unsafe {
        real(dptr, bytesize, stream)
    })
}

/// From the pool that is current on the stream's device.
fn from_current(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: Ordered,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let current = |device| {
        let mut pool = CUmemoryPool::NULL;
        let ordinal = device::ordinal_of(device)?;
        // SAFETY: an out parameter that outlives the call.
        let answer = unsafe { driver::cuDeviceGetMemPool(&raw mut pool, ordinal) };
        answer.is_success().then_some(pool)
    };
    allocate(dptr, bytes, stream, current, call)
}

fn alloc_from(
    real: cuMemAllocFromPoolAsync,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    from_pool(dptr, bytesize, pool, Ordered::legacy(stream), || unsafe {
        real(dptr, bytesize, pool, stream)
    })
}

fn alloc_from_per_thread(
    real: cuMemAllocFromPoolAsync,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    from_pool(
        dptr,
        bytesize,
        pool,
        Ordered::per_thread(stream),
        || unsafe { real(dptr, bytesize, pool, stream) },
    )
}

fn from_pool(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: Ordered,
    call: impl Fn() -> CUresult,
) -> CUresult {
    allocate(dptr, bytes, stream, |_| Some(pool), call)
}

/// Allocates from the pool that `pool` names for the stream's device.
fn allocate(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: Ordered,
    pool: impl FnOnce(DeviceKey) -> Option<CUmemoryPool>,
    call: impl Fn() -> CUresult,
) -> CUresult {
    if dptr.is_null() || bytes == 0 || stream.records() {
        return call();
    }
    // Without any device the driver will say so itself.
    let Some(device) = stream.device() else {
        return call();
    };
    let bytes = bytes as u64;
    match pool(device).map_or(Payer::Device(device), |pool| pools::payer(pool, device)) {
        Payer::Nobody => call(),
        Payer::Pool(pool) => from(&pool, dptr, bytes, stream, &call),
        Payer::Device(device) => unknown(device, dptr, bytes, call),
    }
}

/// Allocates from a pool that cannot be told: the most it can grow by is the allocation's own charge.
fn unknown(
    device: DeviceKey,
    dptr: *const CUdeviceptr,
    bytes: u64,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let charge = match reclaim::reserve(device, pool_growth(bytes)) {
        Ok(charge) => charge,
        Err(refused) => return refused.into(),
    };
    let answer = call();
    if answer.is_success() {
        // SAFETY: the driver wrote it.
        let address = unsafe { *dptr };
        table::insert(
            address,
            Record::new(device, ContextId::NONE, Kind::PoolMemory, charge.keep()),
        );
    }
    answer
}

fn from(
    pool: &Arc<Pool>,
    dptr: *mut CUdeviceptr,
    bytes: u64,
    stream: Ordered,
    call: &impl Fn() -> CUresult,
) -> CUresult {
    let (charge, room) = match book(pool, bytes, stream) {
        Ok(booked) => booked,
        Err(refused) => return refused.into(),
    };
    // A pool may grow though it has room: then once more, with the growth booked.
    let answer = once(pool, dptr, bytes, stream, (charge, room), call).or_else(|_| {
        let charge = reclaim::reserve_slowly(pool.device(), pool_growth(bytes), None)?;
        once(pool, dptr, bytes, stream, (charge, None), call)
    });
    answer.unwrap_or_else(CUresult::from)
}

/// Books the growth that an allocation may cause; where that does not fit, sets aside room that the pool has.
fn book(pool: &Pool, bytes: u64, stream: Ordered) -> Result<(Charge, Option<Hole>), Refused> {
    let (device, growth) = (pool.device(), pool_growth(bytes));
    if let Ok(charge) = account::charge(device, growth) {
        return Ok((charge, None));
    }
    let room = || {
        pool.room(bytes, growth, stream)
            .map(|room| Ok((account::charge(device, 0)?, Some(room))))
    };
    room().unwrap_or_else(|| {
        let grown =
            reclaim::reserve_slowly(device, growth, Some(stream)).map(|charge| (charge, None));
        grown.or_else(|refused| room().unwrap_or(Err(refused)))
    })
}

/// Allocates and follows the pool.
///
/// # Errors
/// [`Refused`] if the pool grew beyond the limit; the allocation is undone then.
fn once(
    pool: &Arc<Pool>,
    dptr: *mut CUdeviceptr,
    bytes: u64,
    stream: Ordered,
    (charge, room): (Charge, Option<Hole>),
    call: &impl Fn() -> CUresult,
) -> Result<CUresult, Refused> {
    pool.held().enter(&charge);
    let answer = reclaim::insist(pool.device(), bytes, call);
    if !answer.is_success() {
        pool.unused_room(room);
        let _ = arena::after(&**pool, charge);
        if room.is_some() {
            pool.relied(pool_growth(bytes));
        }
        return Ok(answer);
    }
    // SAFETY: the driver wrote it.
    let address = unsafe { *dptr };
    // In this order: a call that relies on room now must either see this allocation, or be seen by `after` and be paid for by it.
    let new = pool.one_more(address, bytes, room);
    let allocation = Allocation {
        pool: Arc::clone(pool),
        bytes,
    };
    ALLOCATIONS.insert(address, allocation);
    let followed = arena::after(&**pool, charge);
    if new && followed == Ok(pool_growth(bytes)) {
        pool.grew(address, bytes, pool_growth(bytes));
    }
    if room.is_some() {
        pool.relied(pool_growth(bytes));
        arena::follow(&**pool);
    }
    followed
        .map(|_| answer)
        .inspect_err(|_| take_back(pool, address, bytes, dptr, stream))
}

/// Undoes an allocation that the program has not been told of.
fn take_back(
    pool: &Pool,
    address: CUdeviceptr,
    bytes: u64,
    dptr: *mut CUdeviceptr,
    stream: Ordered,
) {
    if stream.free(address).is_success() && ALLOCATIONS.take(address).is_some() {
        reclaim::freed_in(
            stream,
            stream.place(),
            pool.device(),
            Freed::Pool(address, bytes),
        );
        pool.freed_one(address, bytes);
        pool.trim();
        arena::follow(pool);
        // SAFETY: the driver wrote to it a moment ago.
        unsafe { *dptr = 0 };
    }
}

fn free(real: cuMemFreeAsync, dptr: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    free_ordered(dptr, Ordered::legacy(stream), || unsafe {
        real(dptr, stream)
    })
}

fn free_per_thread(real: cuMemFreeAsync, dptr: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    free_ordered(dptr, Ordered::per_thread(stream), || unsafe {
        real(dptr, stream)
    })
}

fn free_ordered(dptr: CUdeviceptr, stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    if stream.records() {
        return call();
    }
    if let Some(allocation) = ALLOCATIONS.take(dptr) {
        return free_pooled(dptr, allocation, Some(stream), call);
    }
    let Some(record) = table::take(dptr) else {
        return free_unrecorded(dptr, call);
    };
    // Linear memory may be freed in stream order too: it is the driver's again when the stream comes to it.
    let answer = call();
    if answer.is_success() {
        reclaim::freed_in(
            stream,
            stream.place(),
            record.device(),
            Freed::Linear(record.units()),
        );
    } else {
        table::put_back(dptr, record);
    }
    answer
}

/// Frees an address that the pointer table does not know: an allocation of a pool or of a graph, or none of ours.
pub(super) fn free_unrecorded(dptr: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(allocation) = ALLOCATIONS.take(dptr) {
        return free_pooled(dptr, allocation, None, call);
    }
    let answer = call();
    if answer.is_success() {
        reclaim::freed();
    }
    answer
}

fn free_pooled(
    dptr: CUdeviceptr,
    allocation: Allocation,
    stream: Option<Ordered>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let answer = call();
    if !answer.is_success() {
        ALLOCATIONS.insert(dptr, allocation);
        return answer;
    }
    let (pool, bytes) = (allocation.pool, allocation.bytes);
    if let Some(stream) = stream {
        reclaim::freed_in(
            stream,
            stream.place(),
            pool.device(),
            Freed::Pool(dptr, bytes),
        );
    }
    pool.freed_one(dptr, bytes);
    answer
}

fn create(
    real: cuMemPoolCreate,
    pool: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(pool, props) };
    if answer.is_success() {
        // SAFETY: the driver accepted both and wrote the pool.
        let (handle, location) = unsafe { (*pool, (*props).location) };
        let on_device = location.type_ == CUmemLocationType::DEVICE;
        pools::enter(
            handle,
            on_device.then(|| device::of_ordinal(location.id)).flatten(),
        );
    }
    answer
}

fn destroy(real: cuMemPoolDestroy, pool: CUmemoryPool) -> CUresult {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(pool) };
    match pools::find(pool) {
        Some(known) => pools::destroy(&known, call),
        None => call(),
    }
}

fn trim(real: cuMemPoolTrimTo, pool: CUmemoryPool, keep: usize) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(pool, keep) };
    if let Some(known) = pools::find(pool) {
        arena::follow(&*known);
    }
    answer
}

/// The exporter goes on paying for what others map.
fn export_pointer(
    real: cuMemPoolExportPointer,
    data: *mut CUmemPoolPtrExportData,
    dptr: CUdeviceptr,
) -> CUresult {
    // SAFETY: the program's own arguments.
    unsafe { real(data, dptr) }
}

/// The exporter goes on paying for what others map.
fn export_pool(
    real: cuMemPoolExportToShareableHandle,
    handle: *mut c_void,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's own arguments.
    unsafe { real(handle, pool, kind, flags) }
}

/// An imported pool is paid for by its exporter, and nothing can be allocated from it.
fn import_pool(
    real: cuMemPoolImportFromShareableHandle,
    pool: *mut CUmemoryPool,
    handle: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(pool, handle, kind, flags) };
    if answer.is_success() {
        // SAFETY: the driver wrote it.
        pools::enter(unsafe { *pool }, None);
    }
    answer
}

/// An imported allocation is paid for by its exporter: its free credits nothing, because no record of it is made.
fn import_pointer(
    real: cuMemPoolImportPointer,
    dptr: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> CUresult {
    // SAFETY: the program's own arguments.
    unsafe { real(dptr, pool, data) }
}
