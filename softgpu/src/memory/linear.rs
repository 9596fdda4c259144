//! `cuMemAlloc` and its variants: small allocations are carved from blocks, large ones have their
//! own pages.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::blocks::{GRANULE, LARGE, round_up};
use super::heap::Heap;
use super::phys::Region;
use super::table::{self, Record, What};
use crate::Result;
use crate::context::{self, Context};
use crate::exec::{Cost, Op, StreamRef};
use crate::spec::Free;
use crate::va::Range;
use crate::world::Kind;
use crate::{exec, memory, va};

/// Rows of a pitched allocation start at multiples of this many bytes (the alignment recorded for
/// `cuMemAllocPitch`).
pub const PITCH: u64 = 512;
/// The maximum pitch, as the device attribute reports it.
pub const MAX_PITCH: u64 = i32::MAX as u64;

/// The heap of a context's small linear allocations.
#[derive(Debug, Default)]
struct LinearHeap(OnceLock<Arc<Heap>>);

fn heap(context: &Context) -> Arc<Heap> {
    let slot = context.ext::<LinearHeap>();
    Arc::clone(
        slot.0
            .get_or_init(|| Arc::new(Heap::new(context.device(), Kind::Linear))),
    )
}

/// Allocates `size` bytes of device memory.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes, `OUT_OF_MEMORY` if the device lacks the memory.
pub fn alloc(context: &Context, size: u64) -> Result<u64> {
    if size == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let heap = heap(context);
    match try_alloc(context, &heap, size) {
        Err(CUresult::OUT_OF_MEMORY) if returns(context) | heap.trim() => {
            try_alloc(context, &heap, size)
        }
        other => other,
    }
}

/// Has memory returned that was freed under work which is over.
fn returns(context: &Context) -> bool {
    let is_late = context.device().spec().free == Free::Now;
    if is_late {
        exec::apply_finished(context.device().ordinal());
    }
    is_late
}

fn try_alloc(context: &Context, heap: &Arc<Heap>, size: u64) -> Result<u64> {
    let device = context.device();
    let len = round_up(size, GRANULE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let (base, what) = if len < LARGE {
        (heap.take(len)?, What::Small(Arc::clone(heap), len))
    } else {
        let region = Region::new(device, Kind::Linear, len)?.noted(device, Kind::Linear, len);
        (region.base(), What::Large(Arc::new(region)))
    };
    let ordinal = device.ordinal();
    let record = Record {
        size,
        id: table::fresh_id(),
        device: ordinal,
        context: context.id(),
        what,
    };
    table::insert(base, record, Range::on_device(ordinal, size))?;
    Ok(base)
}

/// Allocates `height` rows of `width` bytes. Returns the address and the pitch.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes, rows that are too long or an element size other than 4, 8 or 16
/// bytes, `OUT_OF_MEMORY` if the device lacks the memory.
pub fn alloc_pitch(context: &Context, width: u64, height: u64, element: u32) -> Result<(u64, u64)> {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUresult::INVALID_VALUE);
    }
    let pitch = round_up(width, PITCH).ok_or(CUresult::OUT_OF_MEMORY)?;
    if pitch > MAX_PITCH {
        return Err(CUresult::INVALID_VALUE);
    }
    let size = pitch.checked_mul(height).ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok((alloc(context, size)?, pitch))
}

/// Frees device memory of any allocating function, after all work on its device; with `free=now` in
/// SPEC it returns at once, and the memory later. Address 0 is accepted and ignored.
///
/// # Errors
/// `INVALID_VALUE` if the address is not the start of an allocation.
pub fn free(address: u64) -> Result {
    if address == 0 {
        return Ok(());
    }
    let record = table::expect(address)?;
    match record.what {
        What::Small(..) | What::Large(_) | What::Managed(_) => {}
        What::Pool(block) => return memory::pool::free_now(address, &block),
        What::Graph => return memory::graph::free_now(address),
        What::Mapped(_) | What::Host(_) | What::Imported(_) | What::Module(_) => {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    let id = record.id;
    let context = context::live()
        .into_iter()
        .find(|live| live.id() == record.context);
    if let Some(context) = context.filter(|live| live.device().spec().free == Free::Now) {
        let free = freeing(address, id)?;
        exec::behind_device(&context, free);
        return Ok(());
    }
    exec::drain_device(record.device);
    let record = table::remove_if(address, |now| now.id == id).ok_or(CUresult::INVALID_VALUE)?;
    give_back(address, record);
    Ok(())
}

/// A free of linear memory in a stream's order. The memory is given back once, whether the stream
/// reaches the free or its context is destroyed first.
struct Freeing {
    base: u64,
    record: Mutex<Option<Record>>,
}

impl Freeing {
    fn finish(&self) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = record.take() {
            va::retract(self.base);
            give_back(self.base, record);
        }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Frees linear memory in stream order. It is no allocation from now on, and its bytes are there
/// until the stream reaches the free. The caller has checked that the stream is
/// [ready](exec::ready).
pub(crate) fn free_async(stream: &StreamRef, address: u64, id: u64) -> Result {
    let free = freeing(address, id)?;
    exec::append(stream, Op::plain(Cost::Instant, free));
    Ok(())
}

/// Takes an allocation out of the table; the effect gives its memory back.
fn freeing(address: u64, id: u64) -> Result<impl Fn() -> Result + Send + Sync + 'static> {
    let record = table::forget_if(address, |now| now.id == id).ok_or(CUresult::INVALID_VALUE)?;
    let freeing = Freeing {
        base: address,
        record: Mutex::new(Some(record)),
    };
    Ok(move || {
        freeing.finish();
        Ok(())
    })
}

/// Gives an allocation's memory back that is out of the table.
fn give_back(base: u64, record: Record) {
    match record.what {
        What::Small(heap, len) => heap.give(base, len),
        What::Managed(managed) => managed.freed(),
        _ => {}
    }
}

/// Base and size of the allocation (or mapping) that contains `address`.
///
/// # Errors
/// `NOT_FOUND` if there is none.
pub fn address_range(address: u64) -> Result<(u64, u64)> {
    table::find(address)
        .map(|(base, record)| (base, record.size))
        .ok_or(CUresult::NOT_FOUND)
}
