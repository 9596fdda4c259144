//! Stream-ordered allocation from memory pools.

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::*;

use crate::account::Deadline;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts::ContextId;
use crate::driver::device::{self, DeviceKey};
use crate::driver::stream_ref::StreamRef;
use crate::entry::args::{AttributeOut, In, InOut, Out};
use crate::entry::hooks;
use crate::gate::seal;
use crate::holdings::arena::{self, Arena as _};
use crate::holdings::frees::{self, Freed};
use crate::holdings::pools::{self, Payer, PoolLocation, growth_of};
use crate::holdings::reclaim;
use crate::holdings::table::{self, Kind, Record};
use crate::hooks::early::Call;
use crate::hooks::pool_request::{ALLOCATIONS, Request, free_pooled};
use crate::hooks::{allocate, early, refusal};
use crate::residency::{memory, pool_facts, pooled};

hooks! {
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz(dptr: Out<'_, CUdeviceptr>, bytesize: usize, stream: CUstream) -> CUresult
        = |real(..), of| allocate(dptr, bytesize, of(stream), current, |at, bytes| real(at, bytes, stream));
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(dptr: Out<'_, CUdeviceptr>, bytesize: usize, pool: CUmemoryPool,
        stream: CUstream) -> CUresult
        = |real(..), of| allocate(dptr, bytesize, of(stream), |_| Some(pool), |at, bytes| real(at, bytes, pool, stream));
    fn cuMemFreeAsync | cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream) -> CUresult
        = |call, of| free_ordered(dptr, of(stream), call);
    fn cuMemPoolCreate(pool: Out<'_, CUmemoryPool>, props: In<'_, CUmemPoolProps>) -> CUresult = |call| created(pool, props, call());
    fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult = |call| destroy(pool, call);
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> CUresult = |call| trimmed(pool, keep, call);
    // Not `held`: the room that a pool is known to have is forgotten in each process.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult
        = |call| attribute_set(pool, attribute, call());
    #[held]
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: AttributeOut<'_>) -> CUresult
        = |call| attribute_of(pool, attribute, value, call());
    #[held]
    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: *const CUmemAccessDesc, count: usize) -> CUresult
        = |call| access_set(pool, call);
    // Where the memory of pools is that no hook saw made. A device's pools are its own.
    fn cuDeviceGetDefaultMemPool(pool: Out<'_, CUmemoryPool>, dev: CUdevice) -> CUresult = |call| named(pool, call(), || on(dev));
    fn cuDeviceGetMemPool(pool: Out<'_, CUmemoryPool>, dev: CUdevice) -> CUresult = |call| named(pool, call(), || on(dev));
    fn cuMemGetDefaultMemPool(pool: Out<'_, CUmemoryPool>, location: InOut<'_, CUmemLocation>, kind: CUmemAllocationType) -> CUresult
        = |call| named(pool, call(), || Some(pools::location_of(kind, location.read()?)));
    // Of the host it may be a device's own.
    fn cuMemGetMemPool(pool: Out<'_, CUmemoryPool>, location: InOut<'_, CUmemLocation>, kind: CUmemAllocationType) -> CUresult
        = |call| named(pool, call(), || Some(pools::location_of(kind, location.read()?)));
    // The exporter keeps paying for memory that other processes map.
    fn cuMemPoolExportPointer(data: *mut CUmemPoolPtrExportData, dptr: CUdeviceptr) -> CUresult = |call| call();
    fn cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: u64)
        -> CUresult = |call| call();
    fn cuMemPoolImportFromShareableHandle(pool: Out<'_, CUmemoryPool>, handle: *mut c_void, kind: CUmemAllocationHandleType,
        flags: u64) -> CUresult = |call| imported(pool, call());
    // An imported allocation is paid for by its exporter: its free credits nothing, because no
    // record of it is made.
    fn cuMemPoolImportPointer(dptr: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData) -> CUresult
        = |call| call();
}

/// The pool that is current on a device.
fn current(device: DeviceKey) -> Option<CUmemoryPool> {
    calls::device_pool(device::ordinal_of(device)?).ok()
}

/// Allocates from the pool that `pool` names for the stream's device.
fn allocate(
    dptr: Out<'_, CUdeviceptr>,
    bytes: usize,
    stream: StreamRef,
    pool: impl FnOnce(DeviceKey) -> Option<CUmemoryPool>,
    ask: impl Fn(Out<'_, CUdeviceptr>, usize) -> CUresult,
) -> CUresult {
    let call = || ask(dptr, bytes);
    if dptr.is_null() || bytes == 0 || stream.records() {
        return call();
    }
    // Without any device the driver will say so itself.
    let Some(device) = stream.device() else {
        return call();
    };
    if seal::may_move() {
        return movable(dptr, bytes, (stream, device), pool, &ask);
    }
    from_driver(dptr, bytes, (stream, device), pool(device), &ask)
}

/// Allocates where the process's memory may move: from a pool of ours, if it serves this one.
#[cold]
fn movable(
    dptr: Out<'_, CUdeviceptr>,
    bytes: usize,
    (stream, device): (StreamRef, DeviceKey),
    pool: impl FnOnce(DeviceKey) -> Option<CUmemoryPool>,
    ask: &dyn Fn(Out<'_, CUdeviceptr>, usize) -> CUresult,
) -> CUresult {
    let pool = pool(device);
    let served = pool.and_then(pool_facts::find);
    let Some(served) = served.filter(|served| pooled::can_serve(*served)) else {
        return from_driver(dptr, bytes, (stream, device), pool, ask);
    };
    if stream.fault().is_some() {
        return ask(dptr, bytes);
    }
    match pooled::allocate(served, stream, bytes as u64) {
        Ok(at) => {
            dptr.write(at);
            CUresult::SUCCESS
        }
        Err(why) => why,
    }
}

/// Allocates from a pool of the driver's.
#[inline]
fn from_driver(
    dptr: Out<'_, CUdeviceptr>,
    bytes: usize,
    (stream, device): (StreamRef, DeviceKey),
    pool: Option<CUmemoryPool>,
    ask: &dyn Fn(Out<'_, CUdeviceptr>, usize) -> CUresult,
) -> CUresult {
    let call = || ask(dptr, bytes);
    let refusal = || refused(bytes, stream, ask);
    let bytes = bytes as u64;
    match pool.map_or(Payer::Device(device), |pool| pools::payer(pool, device)) {
        Payer::Nobody => call(),
        Payer::Pool(pool) => Request {
            pool: &pool,
            dptr,
            bytes,
            stream,
            call: &call,
            refusal: &refusal,
        }
        .serve(),
        Payer::Device(device) => {
            let refusal = || {
                stream
                    .fault()
                    .map_or(CUresult::OUT_OF_MEMORY, |_| refusal())
            };
            unknown(device, dptr, bytes, call, refusal)
        }
    }
}

/// The result of an allocation above the quota whose stream or pool seems invalid. The driver is
/// not asked about a valid one: without memory it may wait for work before it answers.
#[cold]
fn refused(
    bytes: usize,
    stream: StreamRef,
    ask: &dyn Fn(Out<'_, CUdeviceptr>, usize) -> CUresult,
) -> CUresult {
    let mut at = 0;
    let asked = ask(Out::to(&mut at), refusal::impossible(bytes));
    if asked.is_success() {
        let _ = stream.free(at);
    }
    refusal::of(asked, || CUresult::OUT_OF_MEMORY)
}

/// Allocates from an unknown pool: the most it can grow by is the allocation's own charge.
fn unknown(
    device: DeviceKey,
    dptr: Out<'_, CUdeviceptr>,
    bytes: u64,
    call: impl Fn() -> CUresult,
    refusal: impl Fn() -> CUresult,
) -> CUresult {
    let (growth, deadline) = (growth_of(bytes), Deadline::new());
    let charge = match reclaim::reserve(device, growth, Call::Pool(bytes), &deadline, refusal) {
        Ok(charge) => charge,
        Err(answer) => return answer,
    };
    let answer = call();
    if let Some(address) = dptr.after(answer) {
        table::insert(
            address,
            Record::new(device, ContextId::NONE, Kind::PoolMemory, charge.keep()),
        );
    }
    answer
}

fn free_ordered(dptr: CUdeviceptr, stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    if stream.records() {
        return call();
    }
    if pooled::is_start(dptr) {
        // An invalid stream is the driver's to refuse.
        return match stream.fault() {
            Some(_) => call(),
            None => freed(pooled::free_in(dptr, stream)),
        };
    }
    if let Some(allocation) = ALLOCATIONS.take(dptr) {
        return free_pooled(dptr, allocation, Some(stream), call);
    }
    if let Some(answer) = allocate::small_freed_in(dptr, stream) {
        return answer;
    }
    let Some(record) = table::take(dptr) else {
        return free_unrecorded(dptr, call);
    };
    if record.kind() == Kind::Movable {
        let answer = memory::free_in(stream, record.device(), dptr, record.units());
        if answer.is_success() {
            early::freed();
        } else {
            table::put_back(dptr, record);
        }
        return answer;
    }
    // Linear memory may be freed in stream order too: it is the driver's again when the stream
    // comes to it.
    let answer = call();
    if answer.is_success() {
        early::freed();
        let freed = Freed::Linear(record.units());
        frees::freed_in(stream, stream.place(), record.device(), freed);
    } else {
        table::put_back(dptr, record);
    }
    answer
}

/// Frees an address that the pointer table does not have: an allocation of a pool or of a graph, or
/// one that no hook saw.
pub(super) fn free_unrecorded(dptr: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    if pooled::is_start(dptr) {
        return freed(pooled::free_now(dptr));
    }
    if let Some(allocation) = ALLOCATIONS.take(dptr) {
        return free_pooled(dptr, allocation, None, call);
    }
    let answer = call();
    if answer.is_success() {
        frees::freed();
    }
    answer
}

fn freed(answer: CUresult) -> CUresult {
    if answer.is_success() {
        early::freed();
    }
    answer
}

fn created(
    pool: Out<'_, CUmemoryPool>,
    props: In<'_, CUmemPoolProps>,
    answer: CUresult,
) -> CUresult {
    if let Some(handle) = pool.after(answer)
        && let Some(props) = props.read()
    {
        pool_facts::created(handle, &props);
        pools::enter(handle, pools::location_of(props.allocType, props.location));
    }
    answer
}

/// The driver has named the default or the current pool of a place.
fn named(
    pool: Out<'_, CUmemoryPool>,
    answer: CUresult,
    place: impl FnOnce() -> Option<PoolLocation>,
) -> CUresult {
    if let Some(handle) = pool.after(answer)
        && let Some(place) = place()
    {
        pools::meet(handle, place);
    }
    answer
}

fn on(device: CUdevice) -> Option<PoolLocation> {
    device::of_ordinal(device).map(PoolLocation::Device)
}

fn destroy(pool: CUmemoryPool, call: impl Fn() -> CUresult) -> CUresult {
    let going = pool_facts::going(pool);
    let answer = match pools::find(pool) {
        Some(known) => pools::destroy(&known, call),
        None => call(),
    };
    if answer.is_success() {
        pools::forget(pool);
        going.destroyed();
    }
    answer
}

fn trimmed(pool: CUmemoryPool, keep: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let known = pools::find(pool);
    let forget = || {
        if let Some(known) = &known {
            known.held().forget_room();
        }
    };
    forget();
    let answer = call();
    if answer.is_success() {
        pool_facts::trimmed(pool, keep as u64);
    }
    // Memory freed during the trim may have gone to the driver too.
    forget();
    if let Some(known) = known {
        arena::follow(&*known);
    }
    answer
}

fn attribute_set(pool: CUmemoryPool, attribute: CUmemPool_attribute, answer: CUresult) -> CUresult {
    if let Some(known) = pools::find(pool) {
        // Until now it may have kept less, or kept it for some streams.
        known.held().forget_room();
    }
    if answer.is_success() && seal::may_move() {
        pool_facts::attribute_set(pool, attribute);
    }
    answer
}

/// The attribute's value, of the driver's pool together with the segments that serve in its place.
fn attribute_of(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: AttributeOut<'_>,
    answer: CUresult,
) -> CUresult {
    if !answer.is_success() || !seal::may_move() {
        return answer;
    }
    if let Some((used, reserved)) = pool_facts::levels(pool) {
        let more = match attribute {
            CUmemPool_attribute::USED_MEM_CURRENT => used.now,
            CUmemPool_attribute::USED_MEM_HIGH => used.high,
            CUmemPool_attribute::RESERVED_MEM_CURRENT => reserved.now,
            CUmemPool_attribute::RESERVED_MEM_HIGH => reserved.high,
            _ => return answer,
        };
        let of_driver = unnoticed(|| calls::pool_attribute(pool, attribute)).unwrap_or(0);
        value.write_long(of_driver.saturating_add(more));
    }
    answer
}

fn access_set(pool: CUmemoryPool, call: impl FnOnce() -> CUresult) -> CUresult {
    if !seal::may_move() {
        return call();
    }
    seal::pass(|| {
        let _turn = pool_facts::changing_access();
        let answer = call();
        if answer.is_success() {
            pool_facts::access_set(pool);
        }
        answer
    })
}

/// An imported pool is paid for by its exporter, and nothing can be allocated from it.
fn imported(pool: Out<'_, CUmemoryPool>, answer: CUresult) -> CUresult {
    if let Some(pool) = pool.after(answer) {
        pools::enter(pool, PoolLocation::Elsewhere);
    }
    answer
}
