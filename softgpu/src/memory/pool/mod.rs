//! Stream-ordered memory: pools that grow in steps and release memory at a synchronisation.
//!
//! An allocation is valid from its execution in stream order to the execution of its free; an
//! access before or after faults. [`model`] is the pool's bookkeeping: its memory and its reuse.

mod alloc;
mod attribute;
mod current;
#[cfg(test)]
mod history;
mod home;
mod model;
mod pending;
mod share;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUmemPoolProps, CUresult};

pub(crate) use alloc::PoolBlock;
pub(crate) use alloc::free_now;
pub use alloc::{alloc_async, free_async};
pub use attribute::{Value, attribute, set_attribute, width};
pub use current::{current, current_at, default, default_at, set_current, set_current_at};
pub use share::{export, export_pointer, import, import_pointer};

use super::table::{self, What};
use super::vmm::{Rights, reachable};
use crate::Result;
use crate::exec::Raw;
use crate::handle::Handles;
use crate::va;
use crate::world::{Device, process};
use home::{Home, Segment};
use model::Model;
pub(crate) use model::STEP;

static POOLS: Handles<Pool> = Handles::new();

/// A memory pool.
#[derive(Debug)]
pub struct Pool {
    handle: usize,
    /// Its device; the first one if its memory is not a device's own.
    device: Arc<Device>,
    home: Home,
    props: Raw<CUmemPoolProps>,
    default: bool,
    /// The identity of another process's pool, if the pool was imported. An imported pool allocates
    /// nothing.
    imported: Option<Vec<u8>>,
    destroyed: AtomicBool,
    state: Mutex<PoolState>,
    /// Held from the decision about an allocation's place, or about a free, until the operation is
    /// in the stream. Space that one thread frees in a stream can be allocated at once by another
    /// thread in the same stream. The lock makes the allocation follow the free in the stream.
    order: Mutex<()>,
}

#[derive(Debug)]
struct PoolState {
    model: Model,
    /// Base address → memory.
    segments: HashMap<u64, Segment>,
    readers: u32,
    writers: u32,
    /// Reuse across event dependencies and across internal dependencies. Queries return the values
    /// as set. Reuse across event dependencies is never done, which is always legal.
    follow_events: bool,
    internal_dependencies: bool,
}

impl Pool {
    fn enter(
        device: &Arc<Device>,
        home: Home,
        props: CUmemPoolProps,
        default: bool,
        imported: Option<Vec<u8>>,
    ) -> Arc<Self> {
        let own = home.first_rights(device);
        let state = PoolState {
            model: Model::default(),
            segments: HashMap::new(),
            readers: own,
            writers: own,
            follow_events: true,
            internal_dependencies: true,
        };
        let pool = Arc::new(Self {
            handle: POOLS.fresh(),
            device: Arc::clone(device),
            home,
            props: Raw(props),
            default,
            imported,
            destroyed: AtomicBool::new(false),
            state: Mutex::new(state),
            order: Mutex::default(),
        });
        POOLS.insert_at(pool.handle, Arc::clone(&pool));
        pool
    }

    /// Its handle.
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// The handle types it can be exported as.
    pub(crate) fn handle_types(&self) -> u32 {
        self.props.0.handleTypes.0
    }

    /// Whether its memory is a device's own: neither the host's nor managed.
    pub fn is_on_device(&self) -> bool {
        self.home == Home::Device
    }

    /// The device its memory is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases free segments until only `keep` bytes are reserved, as far as possible.
    fn release(&self, keep: u64) -> bool {
        let mut state = self.lock();
        if self.destroyed.load(Ordering::Acquire) {
            // It goes with its last free.
            state.model.observed();
        }
        let released = state.model.release(keep);
        let segments: Vec<Segment> = released
            .iter()
            .filter_map(|base| state.segments.remove(base))
            .collect();
        // With the lock held, so that a caller sees less reserved memory only after the device's
        // counters show it as free.
        let any = !segments.is_empty();
        segments.into_iter().for_each(Segment::give_back);
        drop(state);
        any
    }
}

/// Creates a pool.
///
/// # Errors
/// `INVALID_VALUE` for a location that is no device of this process, for other illegal properties,
/// and for places that drivers of this version do not have; `NOT_SUPPORTED` for handle types other
/// than a file descriptor, pools of a host's node that can be exported, and managed memory if a
/// device's does not move.
pub fn create(props: &CUmemPoolProps) -> Result<usize> {
    let (device, home) = home::of(props)?;
    Ok(Pool::enter(&device, home, *props, false, None).handle)
}

/// The pool of a handle.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool.
pub fn get(handle: usize) -> Result<Arc<Pool>> {
    POOLS.get(handle).ok_or(CUresult::INVALID_VALUE)
}

/// Destroys a pool. Its memory is released when the last allocation in it is freed.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool, and for a default pool.
pub fn destroy(handle: usize) -> Result {
    let pool = get(handle)?;
    if pool.default {
        return Err(CUresult::INVALID_VALUE);
    }
    POOLS.remove(handle).ok_or(CUresult::INVALID_VALUE)?;
    pool.destroyed.store(true, Ordering::Release);
    current::gone(&pool);
    pool.release(0);
    Ok(())
}

/// Releases unused memory of a pool, down to `keep` bytes: of what was freed in a stream's order
/// only that of which the host has seen, by a wait, that the free is over.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool.
pub fn trim(handle: usize, keep: u64) -> Result {
    get(handle)?.release(keep);
    Ok(())
}

/// Called when the host has waited for a stream, an event or a context of this device. Pools of the
/// device and those of no device release unused memory above their threshold.
pub fn synchronised(device: &Device) {
    for (_, pool) in POOLS.all() {
        if !pool.is_on_device() || pool.device.ordinal() == device.ordinal() {
            let mut state = pool.lock();
            state.model.synchronised();
            let threshold = state.model.threshold;
            drop(state);
            pool.release(threshold);
        }
    }
}

/// Releases all unused memory of a device's pools, after an allocation has found no memory: the
/// driver looks by itself which frees are over.
pub(crate) fn release_all(device: &Device) -> bool {
    let here = |pool: &Arc<Pool>| pool.is_on_device() && pool.device.ordinal() == device.ordinal();
    let pools: Vec<_> = POOLS
        .all()
        .into_iter()
        .map(|(_, pool)| pool)
        .filter(here)
        .collect();
    pools.iter().fold(false, |any, pool| {
        pool.lock().model.observed();
        pool.release(0) | any
    })
}

/// Sets devices' access rights for all current and later memory of a pool.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool, and for reducing the rights of the pool's own
/// device; `INVALID_DEVICE` for an unknown device, and for one that cannot access the pool's.
pub fn set_access(handle: usize, rights: &[(u32, Rights)]) -> Result {
    let pool = get(handle)?;
    if pool.is_on_device() {
        reachable(&pool.device, rights)?;
    }
    for (ordinal, right) in rights {
        process()?.device(i32::try_from(*ordinal).unwrap_or(-1))?;
        let is_own = pool.is_on_device() && *ordinal == pool.device.ordinal();
        if is_own && *right != Rights::ReadWrite {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    let mut state = pool.lock();
    let (mut readers, mut writers) = (state.readers, state.writers);
    for (ordinal, right) in rights {
        right.apply(*ordinal, &mut readers, &mut writers);
    }
    (state.readers, state.writers) = (readers, writers);
    drop(state);
    // Managed memory is accessed without rights; they are only told.
    if matches!(pool.home, Home::Managed(_)) {
        return Ok(());
    }
    for base in
        table::starts(|record| matches!(&record.what, What::Pool(block) if block.is_of(&pool)))
    {
        va::set_access(base, readers, writers);
    }
    Ok(())
}

/// The access rights that one device was given. Managed memory is accessed without any.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool.
pub fn access(handle: usize, ordinal: u32) -> Result<Rights> {
    let pool = get(handle)?;
    let state = pool.lock();
    Ok(Rights::of(ordinal, state.readers, state.writers))
}

/// The access rights of the host.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no pool, `NOT_SUPPORTED` for one of device memory.
pub fn host_access(handle: usize) -> Result<Rights> {
    match get(handle)?.home {
        Home::Device => Err(CUresult::NOT_SUPPORTED),
        Home::Host => Ok(Rights::ReadWrite),
        Home::Managed(_) => Ok(Rights::None),
    }
}
