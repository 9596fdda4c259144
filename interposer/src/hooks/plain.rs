//! Calls about memory that can move. A program gets the answers that it would get for plain memory.
//! It may not change the mappings, which are this library's own.
//!
//! Where the process's memory cannot move, the driver is called at once. Questions about movable
//! memory wait while the process is sealed: what is not mapped has no answer.

use core::ffi::{c_uint, c_void};

use gpushare_cuda_abi::cuda::*;

use crate::driver::contexts;
use crate::driver::vmm;
use crate::entry::args::{AttributeOut, In, Opaque, Out};
use crate::entry::hooks;
use crate::entry::lists::{AttributeOuts, Count, InSlice};
use crate::gate::seal;
use crate::hooks::early;
use crate::residency::memory::{self, Allocation, Found};
use crate::residency::{own, peers, unshared};

hooks! {
    #[held]
    fn cuMemGetAddressRange(base: Out<'_, CUdeviceptr_v1>, size: Out<'_, c_uint>, at: CUdeviceptr_v1) -> CUresult = |call| call();
    #[held]
    fn cuMemGetAddressRange_v2(base: Out<'_, CUdeviceptr>, size: Out<'_, usize>, at: CUdeviceptr) -> CUresult
        = |real(..)| range(base, size, at, |at| real(base, size, at));
    #[held]
    fn cuPointerGetAttribute(data: AttributeOut<'_>, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult
        = |real(..)| attribute_of(data, attribute, at, real);
    #[held]
    fn cuPointerGetAttributes(count: Count<c_uint>, list: InSlice<'_, CUpointer_attribute>, data: AttributeOuts<'_>, at: CUdeviceptr)
        -> CUresult = |real(..)| attributes_of((count, list, data), at, |at| real(count, list, data, at));
    #[held]
    fn cuPointerSetAttribute(value: In<'_, u32>, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult
        = |real(..)| set_attribute(attribute, at, |at| real(value, attribute, at));
    // Also seen where memory cannot move: it is the end of an allocation in pieces.
    fn cuMemSetAccess(at: CUdeviceptr, size: usize, list: *const CUmemAccessDesc, count: usize) -> CUresult
        = |call| not_ours(at, size as u64, || accessible(own::set_access(at, size as u64, call)));
    #[held]
    fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, at: CUdeviceptr) -> CUresult
        = |call| not_ours(at, 1, || own::at_address(at, call));
    #[held]
    fn cuMemAddressFree(at: CUdeviceptr, size: usize) -> CUresult = |call| not_ours(at, size as u64, || own::over(at, size as u64, call));
    #[held]
    fn cuMemRangeGetAttribute(data: Opaque<'_, c_void>, size: usize, attribute: CUmem_range_attribute, at: CUdeviceptr, count: usize)
        -> CUresult = |real(..)| no_managed(at, count as u64, |at| real(data, size, attribute, at, count));
    #[held]
    fn cuMemRangeGetAttributes(data: Opaque<'_, *mut c_void>, sizes: Opaque<'_, usize>,
        list: Opaque<'_, CUmem_range_attribute>, attributes: usize, at: CUdeviceptr, count: usize) -> CUresult = |real(..)| no_managed(at, count as u64, |at| real(data, sizes, list, attributes, at, count));
    #[held]
    fn cuMemGetLocationInfo(at: CUdeviceptr, size: usize, summary: usize, sampling: usize, places: Opaque<'_, CUmemLocation>) -> CUresult
        = |real(..)| no_managed(at, size as u64, |at| real(at, size, summary, sampling, places));
    #[held]
    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz(stream: CUstream, at: CUdeviceptr, size: usize, flags: c_uint)
        -> CUresult = |real(..)| no_managed(at, size as u64, |at| real(stream, at, size, flags));
    #[held]
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult = |call| peer_changes(peer, true, call);
    #[held]
    fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult = |call| peer_changes(peer, false, call);
}

/// Memory that the program has made and mapped may be used: an allocation is complete, of however
/// many pieces.
fn accessible(answer: CUresult) -> CUresult {
    if answer.is_success() {
        early::pieces_end();
    }
    answer
}

/// Makes a call about a range of addresses that the program has mapped. Where it reaches movable
/// memory the answer is the driver's for plain memory: nothing is mapped there that the program may
/// touch. The driver, which knows of our mappings, might agree to a range that begins elsewhere.
pub(super) fn not_ours(at: CUdeviceptr, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if memory::is_in(at, bytes) {
        CUresult::INVALID_VALUE
    } else {
        call()
    }
}

/// Makes a call about a range of addresses that only managed memory allows. The driver is asked
/// about memory that is not allocated instead of movable memory, which to the program is plain: it
/// refuses both.
pub(super) fn no_managed(
    at: CUdeviceptr,
    bytes: u64,
    ask: impl FnOnce(CUdeviceptr) -> CUresult,
) -> CUresult {
    ask(if memory::is_in(at, bytes) {
        NOWHERE
    } else {
        at
    })
}

/// The same of a list of ranges.
pub(super) fn none_managed(
    (at, sizes, count): (InSlice<'_, CUdeviceptr>, InSlice<'_, usize>, Count<usize>),
    ask: impl FnOnce(InSlice<'_, CUdeviceptr>) -> CUresult,
) -> CUresult {
    if !seal::may_move() {
        return ask(at);
    }
    let is_ours = |(at, bytes): (CUdeviceptr, usize)| memory::is_in(at, bytes as u64);
    if !at.entries(count).zip(sizes.entries(count)).any(is_ours) {
        return ask(at);
    }
    let ranges = at.entries(count).zip(sizes.entries(count));
    let told = ranges.map(|range| if is_ours(range) { NOWHERE } else { range.0 });
    ask(InSlice::of(&told.collect::<Vec<_>>()))
}

/// Makes a call that lets another process or device refer to memory, which movable memory cannot
/// support: what it refers to is another memory after each move.
pub(super) fn not_shared(at: CUdeviceptr, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(device) = memory::device_of(at, bytes) else {
        return call();
    };
    unshared::refused(device);
    CUresult::NOT_SUPPORTED
}

/// The same for legacy IPC, which refuses memory of pools anyway.
pub(super) fn not_opened(at: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    if is_pools(at) {
        CUresult::INVALID_VALUE
    } else {
        not_shared(at, 1, call)
    }
}

/// The same for a binding, for which the driver takes memory of pools and refuses that of
/// `cuMemAlloc`.
pub(super) fn not_bound(at: CUdeviceptr, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if is_pools(at) {
        not_shared(at, bytes, call)
    } else {
        not_ours(at, bytes, call)
    }
}

/// Whether movable memory at an address is a pool's.
fn is_pools(at: CUdeviceptr) -> bool {
    matches!(memory::find(at), Some(Found::Allocation(found)) if found.pool != CUmemoryPool::NULL)
}

/// An address at which no driver has anything: what it answers there it answers for memory that is
/// not allocated.
const NOWHERE: CUdeviceptr = 512;

fn range(
    base: Out<'_, CUdeviceptr>,
    size: Out<'_, usize>,
    at: CUdeviceptr,
    ask: impl Fn(CUdeviceptr) -> CUresult,
) -> CUresult {
    match memory::find(at) {
        None => own::at_address(at, || ask(at)),
        Some(Found::Nothing) => ask(NOWHERE),
        // The driver says first whether the call is good: the context may be lost.
        Some(Found::Allocation(found)) => seal::pass(|| {
            let answer = ask(at);
            if answer.is_success() {
                base.write(found.start);
                size.write(usize::try_from(found.bytes).unwrap_or(usize::MAX));
            }
            answer
        }),
    }
}

/// Writes the attribute's value for plain memory, where the driver would describe a mapping.
fn tell(data: AttributeOut<'_>, attribute: CUpointer_attribute, found: &Allocation) {
    match attribute {
        CUpointer_attribute::CONTEXT => data.write_long(found.handle.0.expose_provenance() as u64),
        CUpointer_attribute::RANGE_START_ADDR | CUpointer_attribute::MAPPING_BASE_ADDR => {
            data.write_long(found.start);
        }
        CUpointer_attribute::RANGE_SIZE | CUpointer_attribute::MAPPING_SIZE => {
            data.write_long(found.bytes);
        }
        CUpointer_attribute::MEMPOOL_HANDLE => {
            data.write_long(found.pool.0.expose_provenance() as u64)
        }
        // One number for the whole allocation: that of its first chunk, which is new after each
        // move, or its own in a slab.
        CUpointer_attribute::BUFFER_ID => {
            if let Some(number) =
                memory::number_now(found).or_else(|| vmm::buffer_id(found.start).ok())
            {
                data.write_long(number);
            }
        }
        CUpointer_attribute::IS_MANAGED if found.is_managed => data.write_no(),
        CUpointer_attribute::HOST_POINTER if found.is_managed => data.write_long(0),
        _ => {}
    }
}

fn attribute_of(
    data: AttributeOut<'_>,
    attribute: CUpointer_attribute,
    at: CUdeviceptr,
    real: impl Fn(AttributeOut<'_>, CUpointer_attribute, CUdeviceptr) -> CUresult,
) -> CUresult {
    match memory::find(at) {
        None => own::at_address(at, || real(data, attribute, at)),
        Some(Found::Nothing) => real(data, attribute, NOWHERE),
        // Plain memory has none.
        Some(Found::Allocation(found))
            if found.is_managed && attribute == CUpointer_attribute::HOST_POINTER =>
        {
            CUresult::INVALID_VALUE
        }
        Some(Found::Allocation(found)) => seal::pass(|| {
            let answer = real(data, attribute, at);
            if answer.is_success() {
                tell(data, attribute, &found);
            }
            answer
        }),
    }
}

fn attributes_of(
    (count, list, data): (
        Count<c_uint>,
        InSlice<'_, CUpointer_attribute>,
        AttributeOuts<'_>,
    ),
    at: CUdeviceptr,
    ask: impl Fn(CUdeviceptr) -> CUresult,
) -> CUresult {
    match memory::find(at) {
        None => own::at_address(at, || ask(at)),
        Some(Found::Nothing) => ask(NOWHERE),
        Some(Found::Allocation(found)) => seal::pass(|| {
            let answer = ask(at);
            if answer.is_success() {
                for (attribute, place) in list.entries(count).zip(data.entries(count)) {
                    tell(place, attribute, &found);
                }
            }
            answer
        }),
    }
}

/// `SYNC_MEMOPS`, the only attribute that can be set, is not for mapped memory, which movable
/// memory is: it is for devices that are told where memory is, and would not hold after a move (ADR
/// 172).
fn set_attribute(
    attribute: CUpointer_attribute,
    at: CUdeviceptr,
    ask: impl Fn(CUdeviceptr) -> CUresult,
) -> CUresult {
    let is_sync = attribute == CUpointer_attribute::SYNC_MEMOPS;
    match memory::find(at) {
        Some(Found::Nothing) => ask(NOWHERE),
        Some(Found::Allocation(found))
            if is_sync && (found.serial.is_some() || !found.is_managed) =>
        {
            CUresult::NOT_SUPPORTED
        }
        None if is_sync && own::holds(at) => CUresult::NOT_SUPPORTED,
        None if !own::holds(at) => ask(at),
        _ => seal::pass(|| ask(at)),
    }
}

/// Peer access reaches the memory of plain allocations by itself, that of mappings by name.
fn peer_changes(peer: CUcontext, may: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    seal::pass(|| {
        let answer = call();
        if answer.is_success()
            && seal::may_move()
            && let Some(here) = contexts::here()
        {
            peers::changed(here, peer, may);
        }
        answer
    })
}
