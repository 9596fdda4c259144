//! Calls that set or read attributes and access of pools whose memory can move
//! ([`pooled`](super::pooled)).

use std::time::Duration;

use gpushare_cuda_abi::cuda::*;

use super::managed;
use super::memory::blocks;
use super::pool_books::{Level, PoolBooks};
use super::pooled::{Pool, PoolId, released, tidy};
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::{self, DeviceKey};
use crate::driver::vmm;
use crate::gate::seal;
use crate::guest::fork::ForkLocal;
use crate::guest::timed_lock::{TimedLock, TimedLockGuard};
use crate::holdings::frees;

/// For how long a thread waits for another that changes the rights at a pool's memory.
const TURN: Duration = Duration::from_secs(1);

fn pool_of(handle: CUmemoryPool, device: DeviceKey, ordinal: CUdevice, most: u64) -> Pool {
    Pool {
        handle,
        device,
        ordinal,
        books: PoolBooks::default(),
        most,
        growing: 0,
        threshold: attribute(handle, CUmemPool_attribute::RELEASE_THRESHOLD),
        access: access_of(handle),
        is_destroyed: false,
    }
}

fn attribute(handle: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
    unnoticed(|| calls::pool_attribute(handle, attribute)).unwrap_or(0)
}

/// The rights of devices at a pool's memory, as the driver says.
fn access_of(handle: CUmemoryPool) -> Vec<(CUdevice, u64)> {
    let count = unnoticed(calls::device_count).unwrap_or(0);
    let asked = (0..count).map(|ordinal| {
        let rights = unnoticed(|| vmm::pool_access(handle, ordinal));
        (ordinal, rights.unwrap_or(0))
    });
    asked.filter(|(_, rights)| *rights != 0).collect()
}

/// Whether pools can be served here: managed memory is not.
fn may_serve() -> bool {
    seal::may_move() && !managed::is_on()
}

/// The program has made a pool.
pub(crate) fn created(handle: CUmemoryPool, props: &CUmemPoolProps) {
    if !may_serve() {
        return;
    }
    let is_plain = props.allocType == CUmemAllocationType::PINNED
        && props.handleTypes == CUmemAllocationHandleType::NONE
        && props.location.type_ == CUmemLocationType::DEVICE
        && props.win32SecurityAttributes.is_null()
        && props.usage == 0
        && props.gpuDirectRDMACapable == 0;
    let device = device::of_ordinal(props.location.id).filter(|_| is_plain);
    let pool = device.map(|device| {
        let most = props.maxSize as u64;
        pool_of(handle, device, props.location.id, most)
    });
    let pooled = &mut blocks().pooled;
    match pool {
        Some(pool) => {
            pooled.enter(pool);
        }
        None => {
            pooled.handles.insert(handle.0.addr(), None);
        }
    }
}

/// The pool of a handle, if it is served here now. A device's default pool is met here first.
pub(crate) fn find(handle: CUmemoryPool) -> Option<PoolId> {
    if !may_serve() {
        return None;
    }
    let known = blocks().pooled.handles.get(&handle.0.addr()).copied();
    known.unwrap_or_else(|| meet(handle))
}

#[cold]
fn meet(handle: CUmemoryPool) -> Option<PoolId> {
    let count = unnoticed(calls::device_count).ok()?;
    let is_its = |ordinal: &CUdevice| unnoticed(|| vmm::default_pool(*ordinal)) == Ok(handle);
    // Another one is imported, or no pool at all.
    let ordinal = (0..count).find(is_its)?;
    let pool = pool_of(handle, device::of_ordinal(ordinal)?, ordinal, 0);
    let pooled = &mut blocks().pooled;
    let known = pooled.handles.get(&handle.0.addr()).copied();
    known.unwrap_or_else(|| Some(pooled.enter(pool)))
}

/// A pool that the driver is asked to destroy. As soon as it has, the handle may be another pool's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    handle: usize,
    /// What the handle was known for, if anything.
    known: Option<Option<PoolId>>,
}

/// The program is about to destroy a pool.
pub(crate) fn going(handle: CUmemoryPool) -> Going {
    let handle = handle.0.addr();
    let known = if seal::may_move() {
        blocks().pooled.handles.get(&handle).copied()
    } else {
        None
    };
    Going { handle, known }
}

impl Going {
    /// The driver has destroyed it. Its allocations live on.
    pub(crate) fn destroyed(self) {
        let Some(known) = self.known else { return };
        blocks().pooled.destroyed(self.handle, known);
        frees::settle();
        tidy();
    }
}

/// The program has trimmed a pool.
pub(crate) fn trimmed(handle: CUmemoryPool, keep: u64) {
    let Some(id) = find(handle) else { return };
    frees::settle();
    released(|of, pool| {
        if of != id {
            return u64::MAX;
        }
        pool.books.synchronised();
        keep
    });
}

/// Bytes that a pool uses and has reserved here.
pub(crate) fn levels(handle: CUmemoryPool) -> Option<(Level, Level)> {
    let id = find(handle)?;
    let blocks = blocks();
    let books = &blocks.pooled.pools.get(&id)?.books;
    Some((books.used, books.reserved))
}

/// The program has set an attribute of a pool.
pub(crate) fn attribute_set(handle: CUmemoryPool, which: CUmemPool_attribute) {
    let Some(id) = find(handle) else { return };
    let value = attribute(handle, which);
    let mut blocks = blocks();
    let Some(pool) = blocks.pooled.pools.get_mut(&id) else {
        return;
    };
    match which {
        CUmemPool_attribute::RELEASE_THRESHOLD => {
            pool.threshold = value;
            // The next wait is followed.
            frees::freed();
        }
        CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC => pool.books.opportunistic = value != 0,
        CUmemPool_attribute::USED_MEM_HIGH => pool.books.used.lower(),
        CUmemPool_attribute::RESERVED_MEM_HIGH => pool.books.reserved.lower(),
        _ => {}
    }
}

/// A thread's turn at changing the rights of devices at pools' memory: what one thread reads of
/// them behind its change must be what its change left. A call that was left by a jump keeps its
/// turn, so the wait is bounded.
pub(crate) fn changing_access() -> Option<TimedLockGuard<'static>> {
    static TURNS: ForkLocal<TimedLock> = ForkLocal::new();
    TURNS.get_or(TimedLock::default).take(TURN)
}

/// The program has changed the rights of devices at a pool's memory. Inside a passage of the seal,
/// and in a turn ([`changing_access`]).
pub(crate) fn access_set(handle: CUmemoryPool) {
    let Some(id) = find(handle) else { return };
    let mut now = access_of(handle);
    let (mut before, segments) = {
        let mut blocks = blocks();
        let segments = blocks.map.iter();
        let segments = segments.filter(|(_, block)| block.pool == Some(id));
        let segments: Vec<(u64, u64)> = segments.map(|(at, block)| (*at, block.reserved)).collect();
        let Some(pool) = blocks.pooled.pools.get_mut(&id) else {
            return;
        };
        (core::mem::replace(&mut pool.access, now.clone()), segments)
    };
    // The driver may refuse those of a lost device, and with them those of the devices behind it.
    for rights in [&mut now, &mut before] {
        rights.retain(|(device, _)| !blocks().is_lost(*device));
    }
    for (at, bytes) in segments {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut done = vmm::set_rights(at, bytes, &now);
        for (device, _) in &before {
            if !now.iter().any(|(other, _)| other == device) {
                let taken = vmm::take_access(at, bytes, *device);
                done = done.and(taken);
            }
        }
        if let Err(why) = done {
            tracing::warn!(?why, "the access to a pool's memory was not changed");
        }
    }
}
