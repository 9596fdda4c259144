//! Allocations from a pool, and their allocation and free in stream order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::CUresult;

use super::home::{Home, Segment};
use super::model::{GRANULE, STEP, Ticket};
use super::{Pool, PoolState};
use crate::Result;
use crate::context::Context;
use crate::exec::{self, Cost, Op, StreamRef};
use crate::graph::forbidden::Unsafe;
use crate::memory::managed::Managed;
use crate::memory::phys::Region;
use crate::memory::table::{self, Record, What};
use crate::spec::Order;
use crate::va;
use crate::world::{Device, process};

/// One allocation of a pool.
#[derive(Debug)]
pub(crate) struct PoolBlock {
    pool: Arc<Pool>,
    len: u64,
    /// Memory of another process's pool. This process only maps it.
    borrowed: Option<Region>,
    /// The segment it is a part of, if its memory is managed.
    managed: Option<Arc<Managed>>,
    /// Its stream has reached the allocation.
    is_valid: AtomicBool,
}

impl PoolBlock {
    pub(super) fn borrowed(pool: Arc<Pool>, len: u64, region: Region) -> Self {
        Self {
            pool,
            len,
            borrowed: Some(region),
            managed: None,
            is_valid: AtomicBool::new(true),
        }
    }

    /// The managed memory that it is a part of.
    pub(crate) fn managed(&self) -> Option<&Arc<Managed>> {
        self.managed.as_ref()
    }

    /// Whether its memory is the host's.
    pub(crate) fn is_on_host(&self) -> bool {
        self.pool.home == Home::Host
    }

    /// Whether a copy or memset of this device may access it, by the pool's rights.
    pub(crate) fn admits(&self, ordinal: u32, access: va::Access) -> bool {
        if !self.pool.is_on_device() {
            return true;
        }
        let state = self.pool.lock();
        let mask = match access {
            va::Access::Read => state.readers,
            va::Access::Write => state.writers,
        };
        mask & (1 << ordinal) != 0
    }

    /// Its pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_borrowed(&self) -> bool {
        self.borrowed.is_some()
    }
}

/// Allocates in stream order. For 0 bytes the address is 0, and nothing is submitted.
///
/// # Errors
/// `INVALID_VALUE` for an imported pool, `OUT_OF_MEMORY`; the errors of capture, and
/// `NOT_SUPPORTED` for capturing an allocation of host or managed memory.
pub fn alloc_async(
    context: &Arc<Context>,
    stream: &StreamRef,
    pool: &Arc<Pool>,
    size: u64,
) -> Result<u64> {
    if pool.imported.is_some() {
        return Err(CUresult::INVALID_VALUE);
    }
    if size == 0 {
        return Ok(0);
    }
    if exec::is_capturing(stream)? {
        if !pool.is_on_device() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        return crate::graph::capture_alloc(context, stream, &pool.props.0, size);
    }
    crate::graph::capture::check_submit(stream)?;
    exec::capture_forbids(Unsafe::Ordered)?;
    let len = size
        .checked_next_multiple_of(GRANULE)
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    let _order = pool.in_order();
    let device = Arc::clone(pool.home.owner(&pool.device, stream.context().device()));
    let base = place(context, stream, pool, &device, len)?;
    let (ordinal, id) = (device.ordinal(), table::fresh_id());
    let block = Arc::new(PoolBlock {
        pool: Arc::clone(pool),
        len,
        borrowed: None,
        managed: pool.lock().managed_at(base),
        is_valid: AtomicBool::new(false),
    });
    let what = What::Pool(Arc::clone(&block));
    table::enter(
        base,
        Record {
            size,
            id,
            device: ordinal,
            context: 0,
            what,
        },
    );
    let publisher = Arc::clone(pool);
    let publish = move || {
        let state = publisher.lock();
        let (readers, writers) = (state.readers, state.writers);
        drop(state);
        let range = publisher.home.range(ordinal, size, readers, writers);
        va::publish(base, range)
    };
    // Space whose free is under way is still published for the allocation before.
    let at_once = pool.device.spec().order == Order::Lenient && va::find(base).is_none();
    if at_once {
        publish()?;
    }
    let op = Op::plain(Cost::Instant, move || {
        if !at_once {
            publish()?;
        }
        block.is_valid.store(true, Ordering::Release);
        Ok(())
    });
    exec::submit(context, stream, op).inspect_err(|_| {
        if table::remove_if(base, |now| now.id == id).is_some() {
            pool.lock().model.free_now(base, len);
        }
    })?;
    Ok(base)
}

/// Finds space. Each step releases or waits for more memory than the one before.
fn place(
    context: &Arc<Context>,
    stream: &StreamRef,
    pool: &Arc<Pool>,
    device: &Arc<Device>,
    len: u64,
) -> Result<u64> {
    let take = || pool.lock().take_or_grow(pool, device, stream.id(), len);
    match take() {
        Err(CUresult::OUT_OF_MEMORY) => {}
        other => return other,
    }
    // Memory whose free is pending may be used after a dependency on the free. Waiting for the
    // context's work is the strongest dependency. It is the driver's own wait, not a call of the
    // program's: a stream that captures has no work, and its capture stays valid.
    let wait = {
        let state = pool.lock();
        state.internal_dependencies && state.model.has_pending()
    };
    if wait {
        exec::settled(context)?;
    }
    pool.lock().model.synchronised();
    match take() {
        Err(CUresult::OUT_OF_MEMORY) if super::release_all(&pool.device) => take(),
        other => other,
    }
}

impl PoolState {
    fn managed_at(&self, address: u64) -> Option<Arc<Managed>> {
        let mut segments = self.segments.values();
        segments.find_map(|segment| segment.managed_of(address).cloned())
    }

    fn take_or_grow(
        &mut self,
        pool: &Pool,
        device: &Arc<Device>,
        stream: u64,
        len: u64,
    ) -> Result<u64> {
        if let Some(base) = self.model.take(stream, len) {
            return Ok(base);
        }
        let segment = len
            .checked_next_multiple_of(STEP)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        let most = pool.props.0.maxSize as u64;
        let limit = most.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        let grown = self.model.usage().reserved.saturating_add(segment);
        if most != 0 && grown > limit {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        let memory = Segment::new(pool.home, device, segment)?;
        let base = memory.base();
        self.segments.insert(base, memory);
        Ok(self.model.grow(base, segment, len))
    }
}

/// A free in progress. The space is freed once, whether the free runs or its context is destroyed
/// first.
struct Freeing {
    pool: Arc<Pool>,
    base: u64,
    ticket: Option<Ticket>,
    done: AtomicBool,
    /// Keeps another process's memory mapped until the free is done.
    _block: Arc<PoolBlock>,
}

impl Freeing {
    fn finish(&self) {
        if self.done.swap(true, Ordering::AcqRel) {
            return;
        }
        va::retract(self.base);
        if let Some(ticket) = self.ticket {
            self.pool.lock().model.free_executed(ticket);
        }
        if self.pool.destroyed.load(Ordering::Acquire) {
            self.pool.release(0);
        }
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Frees in stream order. Address 0 is accepted and ignored. A free that is refused takes nothing.
///
/// # Errors
/// `INVALID_VALUE` if the address is not the start of an allocation that this function can free;
/// the errors of capture, and of a lost context.
pub fn free_async(context: &Arc<Context>, stream: &StreamRef, address: u64) -> Result {
    if address == 0 {
        return Ok(());
    }
    if exec::is_capturing(stream)? {
        return crate::graph::capture_free(context, stream, address);
    }
    exec::capture_forbids(Unsafe::Ordered)?;
    let record = table::expect(address)?;
    let id = record.id;
    exec::ready(context, stream)?;
    match record.what {
        What::Pool(block) => {
            let pool = Arc::clone(block.pool());
            let order = Arc::clone(&pool);
            let _order = order.in_order();
            table::forget_if(address, |now| now.id == id).ok_or(CUresult::INVALID_VALUE)?;
            let ticket = (!block.is_borrowed()).then(|| {
                pool.lock()
                    .model
                    .free_submitted(stream.id(), address, block.len())
            });
            let freeing = Freeing {
                pool,
                base: address,
                ticket,
                done: AtomicBool::new(false),
                _block: block,
            };
            let free = move || {
                freeing.finish();
                Ok(())
            };
            exec::append(stream, Op::plain(Cost::Instant, free));
            Ok(())
        }
        What::Graph => {
            let memory = crate::graph::allocation::at(address)?;
            if !memory.submit_free() {
                return Err(CUresult::INVALID_VALUE);
            }
            let free = move || {
                memory.free();
                Ok(())
            };
            exec::append(stream, Op::plain(Cost::Instant, free));
            Ok(())
        }
        What::Small(..) | What::Large(_) => crate::memory::linear::free_async(stream, address, id),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Frees at once: `cuMemFree` of a pool's pointer. The driver takes all accesses for complete and
/// waits for none. Only of an allocation that its stream has not reached the work is waited for: no
/// document says what the driver does then.
pub(crate) fn free_now(address: u64, block: &Arc<PoolBlock>) -> Result {
    let pool = block.pool();
    if !block.is_valid.load(Ordering::Acquire) {
        if pool.is_on_device() {
            exec::drain_device(pool.device.ordinal());
        } else {
            for device in process()?.devices() {
                exec::drain_device(device.ordinal());
            }
        }
    }
    let ours = |now: &Record| matches!(&now.what, What::Pool(other) if Arc::ptr_eq(other, block));
    table::remove_if(address, ours).ok_or(CUresult::INVALID_VALUE)?;
    if !block.is_borrowed() {
        pool.lock().model.free_now(address, block.len());
        if pool.destroyed.load(Ordering::Acquire) {
            pool.release(0);
        }
    }
    Ok(())
}
