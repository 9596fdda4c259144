//! Stream-ordered allocation from memory pools.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::cell::Cell;
use core::ffi::c_void;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::*;

use crate::account::{self, Charge, Deadline};
use crate::driver::calls;
use crate::driver::contexts::ContextId;
use crate::driver::device::{self, DeviceKey};
use crate::driver::ordered::Ordered;
use crate::entry::hooks;
use crate::holdings::arena;
use crate::holdings::arena::Arena as _;
use crate::holdings::frees::{self, Freed};
use crate::holdings::objects::Map;
use crate::holdings::pools::{self, Payer, Pool, growth_of};
use crate::holdings::reclaim::{self, Found};
use crate::holdings::table::{self, Kind, Record};
use crate::hooks::early;
use crate::hooks::refusal;

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
    from_current(
        dptr,
        bytesize,
        Ordered::legacy(stream),
        |at, bytes| unsafe { real(at, bytes, stream) },
    )
}

fn alloc_per_thread(
    real: cuMemAllocAsync,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    from_current(
        dptr,
        bytesize,
        Ordered::per_thread(stream),
        |at, bytes| unsafe { real(at, bytes, stream) },
    )
}

/// From the pool that is current on the stream's device.
fn from_current(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: Ordered,
    call: impl Fn(*mut CUdeviceptr, usize) -> CUresult,
) -> CUresult {
    let current = |device| {
        let mut pool = CUmemoryPool::NULL;
        let ordinal = device::ordinal_of(device)?;
        // SAFETY: an out parameter that outlives the call.
        let answer = unsafe { calls::cuDeviceGetMemPool(&raw mut pool, ordinal) };
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
    from_pool(
        dptr,
        bytesize,
        pool,
        Ordered::legacy(stream),
        |at, bytes| unsafe { real(at, bytes, pool, stream) },
    )
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
        |at, bytes| unsafe { real(at, bytes, pool, stream) },
    )
}

fn from_pool(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: Ordered,
    call: impl Fn(*mut CUdeviceptr, usize) -> CUresult,
) -> CUresult {
    allocate(dptr, bytes, stream, |_| Some(pool), call)
}

/// Allocates from the pool that `pool` names for the stream's device.
fn allocate(
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: Ordered,
    pool: impl FnOnce(DeviceKey) -> Option<CUmemoryPool>,
    ask: impl Fn(*mut CUdeviceptr, usize) -> CUresult,
) -> CUresult {
    let call = || ask(dptr, bytes);
    if dptr.is_null() || bytes == 0 || stream.records() {
        return call();
    }
    // Without any device the driver will say so itself.
    let Some(device) = stream.device() else {
        return call();
    };
    let refusal = || refused(bytes, stream, &ask);
    let bytes = bytes as u64;
    match pool(device).map_or(Payer::Device(device), |pool| pools::payer(pool, device)) {
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

/// What an allocation above the quota is told whose stream or pool seems to be none. A right one is
/// not asked about: a driver that has no memory may wait for work before it says so.
#[cold]
fn refused(
    bytes: usize,
    stream: Ordered,
    ask: &dyn Fn(*mut CUdeviceptr, usize) -> CUresult,
) -> CUresult {
    let mut at = 0;
    let asked = ask(&raw mut at, refusal::impossible(bytes));
    if asked.is_success() {
        let _ = stream.free(at);
    }
    refusal::of(asked, || CUresult::OUT_OF_MEMORY)
}

/// Allocates from a pool that cannot be told: the most it can grow by is the allocation's own charge.
fn unknown(
    device: DeviceKey,
    dptr: *const CUdeviceptr,
    bytes: u64,
    call: impl Fn() -> CUresult,
    refusal: impl Fn() -> CUresult,
) -> CUresult {
    let charge = match reclaim::reserve(device, growth_of(bytes), &Deadline::new(), refusal) {
        Ok(charge) => charge,
        Err(answer) => return answer,
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

/// An allocation from a pool whose growth is followed.
struct Request<'a, F: Fn() -> CUresult> {
    pool: &'a Arc<Pool>,
    dptr: *mut CUdeviceptr,
    bytes: u64,
    stream: Ordered,
    call: &'a F,
    refusal: &'a dyn Fn() -> CUresult,
}

impl<F: Fn() -> CUresult> Request<'_, F> {
    /// Books the growth that the allocation may cause; where that does not fit, uses room that the pool certainly has.
    fn serve(&self) -> CUresult {
        let (device, growth) = (self.pool.device(), growth_of(self.bytes));
        let call = Deadline::new();
        if let Ok(charge) = account::charge(device, growth, &call) {
            return self.booked(charge, &call);
        }
        if self.stream.fault().is_some() || self.pool.is_unknown() {
            match (self.refusal)() {
                CUresult::OUT_OF_MEMORY => {}
                wrong => return wrong,
            }
        }
        if let Some(answer) = self.in_room(false) {
            return answer;
        }
        let stream = self.stream.id(self.stream.place());
        let mut room = || self.in_room(true);
        match reclaim::reserve_or(device, growth, Some(stream), &call, &mut room) {
            Ok(Found::Booked(charge)) => self.booked(charge, &call),
            Ok(Found::Otherwise(answer)) => answer,
            Err(refused) => refused.into(),
        }
    }

    /// Allocates with the growth booked, and follows the pool.
    fn booked(&self, charge: Charge, call: &Deadline) -> CUresult {
        let shrunk = self.pool.held().enter(&charge);
        let reused = Cell::new(false);
        let answer = reclaim::insist(self.pool.device(), self.bytes, call, || {
            let address = || self.address();
            let (answer, known) = self.pool.allocate(self.bytes, shrunk, self.call, &address);
            reused.set(known);
            answer
        });
        if !answer.is_success() {
            let _ = arena::after(&**self.pool, charge);
            return answer;
        }
        self.enter();
        let charge = if reused.get() {
            match arena::after_reuse(&**self.pool, charge, shrunk) {
                Ok(()) => return answer,
                Err(charge) => charge,
            }
        } else {
            charge
        };
        match arena::after(&**self.pool, charge) {
            Ok(_) => answer,
            Err(refused) => {
                self.take_back();
                refused.into()
            }
        }
    }

    /// Allocates without booking anything, if the pool has room. `None` if it has not.
    fn in_room(&self, trim: bool) -> Option<CUresult> {
        let stream = self.stream.id(self.stream.place());
        let nothing = account::charge_nothing(self.pool.device()).ok()?;
        let answer = self
            .pool
            .allocate_in_room(self.bytes, stream, trim, self.call, &|| self.address());
        if answer.is_some_and(CUresult::is_success) {
            self.enter();
        }
        // What was trimmed, or let go of meanwhile, is given back too.
        match arena::after(&**self.pool, nothing) {
            Ok(0) => answer,
            followed => {
                // Another thread's growth is booked by that thread: this was ours.
                if answer.is_some() {
                    self.pool.surprised();
                }
                match (followed, answer) {
                    (Err(refused), Some(CUresult::SUCCESS)) => {
                        self.take_back();
                        Some(refused.into())
                    }
                    (_, answer) => answer,
                }
            }
        }
    }

    fn address(&self) -> u64 {
        // SAFETY: asked only after the driver accepted the pointer and wrote it.
        unsafe { *self.dptr }
    }

    fn enter(&self) {
        let allocation = Allocation {
            pool: Arc::clone(self.pool),
            bytes: self.bytes,
        };
        ALLOCATIONS.insert(self.address(), allocation);
    }

    /// Undoes an allocation that the program has not been told of.
    fn take_back(&self) {
        let address = self.address();
        let Some(allocation) = ALLOCATIONS.take(address) else {
            return;
        };
        let free = || self.stream.free(address);
        if free_pooled(address, allocation, Some(self.stream), free).is_success() {
            self.pool.trim();
            arena::follow(&**self.pool);
            // SAFETY: the driver wrote to it a moment ago.
            unsafe { *self.dptr = 0 };
        }
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
        early::freed();
        frees::freed_in(
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
        frees::freed();
    }
    answer
}

fn free_pooled(
    dptr: CUdeviceptr,
    allocation: Allocation,
    stream: Option<Ordered>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let (pool, bytes) = (Arc::clone(&allocation.pool), allocation.bytes);
    let mark = pool.leaving(dptr, bytes);
    let answer = call();
    if !answer.is_success() {
        pool.stayed(dptr, bytes, mark);
        ALLOCATIONS.insert(dptr, allocation);
        return answer;
    }
    early::freed();
    match stream {
        Some(stream) => {
            let freed = Freed::Pool(allocation.pool, dptr, bytes, mark);
            frees::freed_in(stream, stream.place(), pool.device(), freed);
        }
        None => pool.freed(dptr, bytes, mark),
    }
    pool.one_less();
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
