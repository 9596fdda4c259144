//! Calls about memory that can move. A program gets the answers that it would get for plain memory.
//! It may not change the mappings, which are this library's own.
//!
//! Where the process's memory cannot move, the driver is called at once. Questions about movable
//! memory wait while the process is sealed: what is not mapped has no answer.

use core::ffi::c_uint;

use gpushare_cuda_abi::cuda::*;

use crate::driver::contexts;
use crate::entry::args::{AttributeOut, In, Out};
use crate::entry::hooks;
use crate::entry::lists::{AttributeOuts, Count, InSlice};
use crate::gate::seal;
use crate::residency::memory::{self, Block};
use crate::residency::own;

hooks! {
    #[held]
    fn cuMemGetAddressRange(base: Out<'_, CUdeviceptr_v1>, size: Out<'_, c_uint>, at: CUdeviceptr_v1) -> CUresult = |call| call();
    #[held]
    fn cuMemGetAddressRange_v2(base: Out<'_, CUdeviceptr>, size: Out<'_, usize>, at: CUdeviceptr) -> CUresult
        = |call| range(base, size, at, call);
    #[held]
    fn cuPointerGetAttribute(data: AttributeOut<'_>, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult
        = |real(..)| attribute_of(data, attribute, at, real);
    #[held]
    fn cuPointerGetAttributes(count: Count<c_uint>, list: InSlice<'_, CUpointer_attribute>, data: AttributeOuts<'_>, at: CUdeviceptr)
        -> CUresult = |call| attributes_of((count, list, data), at, call);
    #[held]
    fn cuPointerSetAttribute(value: In<'_, u32>, attribute: CUpointer_attribute, at: CUdeviceptr) -> CUresult
        = |call| set_attribute(value, attribute, at, call);
    #[held]
    fn cuMemSetAccess(at: CUdeviceptr, size: usize, list: *const CUmemAccessDesc, count: usize) -> CUresult
        = |call| not_ours(at, || own::set_access(at, size as u64, call));
    #[held]
    fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, at: CUdeviceptr) -> CUresult
        = |call| not_ours(at, || own::at_address(at, false, call));
    #[held]
    fn cuMemAddressFree(at: CUdeviceptr, size: usize) -> CUresult = |call| not_ours(at, || own::over(at, size as u64, call));
    #[held]
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> CUresult = |call| peer_changes(peer, true, call);
    #[held]
    fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult = |call| peer_changes(peer, false, call);
}

/// Makes a call about addresses that the program has mapped. At those of movable memory the answer
/// is the driver's for plain memory: nothing is mapped there that the program may touch.
pub(super) fn not_ours(at: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    if memory::holds(at) {
        CUresult::INVALID_VALUE
    } else {
        call()
    }
}

/// Makes a call that lets another process or device refer to memory, which movable memory cannot
/// support: what it refers to is another memory after each move.
pub(super) fn not_shared(at: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    if !memory::holds(at) {
        return call();
    }
    memory::say_unshared();
    CUresult::NOT_SUPPORTED
}

fn range(
    base: Out<'_, CUdeviceptr>,
    size: Out<'_, usize>,
    at: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some((start, block)) = memory::find(at) else {
        return own::at_address(at, false, call);
    };
    base.write(start);
    size.write(usize::try_from(block.bytes).unwrap_or(usize::MAX));
    CUresult::SUCCESS
}

/// The attribute's value for plain memory, where the driver would describe a mapping.
fn told(attribute: CUpointer_attribute, base: u64, block: &Block) -> Option<u64> {
    match attribute {
        CUpointer_attribute::CONTEXT => Some(block.handle.0.expose_provenance() as u64),
        CUpointer_attribute::RANGE_START_ADDR | CUpointer_attribute::MAPPING_BASE_ADDR => {
            Some(base)
        }
        CUpointer_attribute::RANGE_SIZE | CUpointer_attribute::MAPPING_SIZE => Some(block.bytes),
        _ => None,
    }
}

fn attribute_of(
    data: AttributeOut<'_>,
    attribute: CUpointer_attribute,
    at: CUdeviceptr,
    real: impl Fn(AttributeOut<'_>, CUpointer_attribute, CUdeviceptr) -> CUresult,
) -> CUresult {
    let Some((base, block)) = memory::find(at) else {
        return own::at_address(at, false, || real(data, attribute, at));
    };
    // One number for the whole allocation: that of its first chunk, which is new after each move.
    if block.is_managed() && attribute == CUpointer_attribute::HOST_POINTER {
        // Plain memory has none.
        return CUresult::INVALID_VALUE;
    }
    let asked = if attribute == CUpointer_attribute::BUFFER_ID {
        base
    } else {
        at
    };
    seal::pass(|| {
        let answer = real(data, attribute, asked);
        if answer.is_success()
            && let Some(value) = told(attribute, base, &block)
        {
            data.write_long(value);
        }
        if answer.is_success() && is_denied(attribute, &block) {
            data.write_no();
        }
        answer
    })
}

/// Whether the answer is no for plain memory, and yes for the managed memory that it is.
fn is_denied(attribute: CUpointer_attribute, block: &Block) -> bool {
    block.is_managed() && attribute == CUpointer_attribute::IS_MANAGED
}

fn attributes_of(
    (count, list, data): (
        Count<c_uint>,
        InSlice<'_, CUpointer_attribute>,
        AttributeOuts<'_>,
    ),
    at: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some((base, block)) = memory::find(at) else {
        return own::at_address(at, false, call);
    };
    seal::pass(|| {
        let answer = call();
        if answer.is_success() {
            for (attribute, place) in list.entries(count).zip(data.entries(count)) {
                if let Some(value) = told(attribute, base, &block) {
                    place.write_long(value);
                } else if is_denied(attribute, &block) {
                    place.write_no();
                } else if block.is_managed() && attribute == CUpointer_attribute::HOST_POINTER {
                    place.write_long(0);
                }
            }
        }
        answer
    })
}

/// `SYNC_MEMOPS`, the only attribute that can be set, holds for the whole allocation and after each
/// move.
fn set_attribute(
    value: In<'_, u32>,
    attribute: CUpointer_attribute,
    at: CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let is_block = memory::holds(at);
    if !is_block && !own::holds(at) {
        return call();
    }
    seal::pass(|| {
        let answer = call();
        if answer.is_success()
            && attribute == CUpointer_attribute::SYNC_MEMOPS
            && let Some(on) = value.read()
        {
            if is_block {
                memory::sync_memops(at, on != 0);
            } else {
                own::sync_memops(at, on != 0);
            }
        }
        answer
    })
}

/// Peer access reaches the memory of plain allocations by itself, that of mappings by name.
fn peer_changes(peer: CUcontext, may: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    seal::pass(|| {
        let answer = call();
        if answer.is_success()
            && seal::may_move()
            && let Some(here) = contexts::here()
        {
            memory::peer_changed(here, peer, may);
        }
        answer
    })
}
