//! The memory pools of this process: where each lies, what it is charged with, and until when it can be asked.
//!
//! # Safety
//! The driver is asked only about pools that exist: one the program has destroyed is marked before its handle means nothing.
#![allow(unsafe_code, reason = "asks the driver about pools")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use super::arena::{self, Arena, Held};
use super::reclaim;
use crate::account;
use crate::device::{self, DeviceKey};
use crate::driver;
use crate::fork::ForkLocal;

/// A pool whose memory is a device's.
#[derive(Debug)]
pub(super) struct Pool {
    handle: CUmemoryPool,
    device: DeviceKey,
    held: Held,
    /// Allocations not yet freed. A destroyed pool keeps its memory until the last of them is.
    live: AtomicUsize,
    /// Whether the program has destroyed it. Locked while the driver is asked about the pool, so that it exists meanwhile.
    closed: Mutex<bool>,
}

/// Every pool met so far; `None` for one whose memory is not a device's.
type Met = Vec<(CUmemoryPool, Option<Arc<Pool>>)>;

static POOLS: ForkLocal<Mutex<Met>> = ForkLocal::new();
fn pools() -> MutexGuard<'static, Met> {
    locked(POOLS.get_or(Mutex::default))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows every pool to `visit`, without holding the list.
pub(crate) fn each(visit: &dyn Fn(&dyn Arena)) {
    let all: Vec<_> = pools()
        .iter()
        .filter_map(|(_, pool)| pool.clone())
        .collect();
    for pool in all {
        visit(&*pool);
    }
}

impl Pool {
    fn new(handle: CUmemoryPool, device: DeviceKey) -> Arc<Self> {
        Arc::new(Self {
            handle,
            device,
            held: Held::default(),
            live: AtomicUsize::new(0),
            closed: Mutex::new(false),
        })
    }

    fn attribute(&self, attribute: CUmemPool_attribute) -> Option<u64> {
        let closed = locked(&self.closed);
        if *closed {
            None
        } else {
            attribute_of(self.handle, attribute)
        }
    }

    /// One allocation more.
    pub(super) fn one_more(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// One allocation less. The last one of a destroyed pool takes the pool's memory with it.
    pub(super) fn freed_one(&self) {
        let last = self.live.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && *locked(&self.closed) {
            account::release(self.device, self.held.take());
        }
        reclaim::freed();
    }
}

impl Arena for Pool {
    fn device(&self) -> DeviceKey {
        self.device
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn reserved(&self) -> Option<u64> {
        self.attribute(CUmemPool_attribute::RESERVED_MEM_CURRENT)
    }

    fn used(&self) -> Option<u64> {
        self.attribute(CUmemPool_attribute::USED_MEM_CURRENT)
    }

    fn trim(&self) {
        let closed = locked(&self.closed);
        if !*closed {
            // SAFETY: the pool exists while `closed` is locked and false. What is in use stays.
            let _ = unsafe { driver::cuMemPoolTrimTo(self.handle, 0) };
        }
    }
}

/// An attribute of a pool, 32 or 64 bits wide.
fn attribute_of(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
    let mut value = 0_u64;
    // SAFETY: no attribute asked for here is wider than `value`; of a narrower one the rest stays zero.
    let answer = unsafe { driver::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
    answer.is_success().then_some(value)
}

/// Where an allocation from a pool is charged.
#[derive(Debug)]
pub(super) enum Payer {
    /// To this pool.
    Pool(Arc<Pool>),
    /// Nowhere: the pool's memory is the host's, or another process's.
    Nobody,
    /// The pool cannot be told: to the device, by its own size.
    Device(DeviceKey),
}

/// Who pays for an allocation from a pool, in a stream of `device`. A pool not met before (a device's default) is looked up.
pub(super) fn payer(handle: CUmemoryPool, device: DeviceKey) -> Payer {
    let find = |pools: &[(CUmemoryPool, Option<Arc<Pool>>)]| {
        pools
            .iter()
            .find(|(known, _)| *known == handle)
            .map(|(_, pool)| pool.clone())
    };
    // A statement of its own, so that the list is unlocked again before it is looked at further.
    let known = find(&pools());
    let pool = match known {
        Some(known) => known,
        None => {
            let met = match location(handle, device) {
                Location::Device(device) => Some(Pool::new(handle, device)),
                Location::Elsewhere => None,
                Location::Unknown => return Payer::Device(device),
            };
            let mut pools = pools();
            match find(&pools) {
                Some(known) => known,
                None => {
                    pools.push((handle, met.clone()));
                    met
                }
            }
        }
    };
    pool.map_or(Payer::Nobody, Payer::Pool)
}

enum Location {
    Device(DeviceKey),
    Elsewhere,
    Unknown,
}

/// Where a pool's memory is. Drivers before 13.0 cannot say: then it is the stream's device, to which they give their default pools.
fn location(handle: CUmemoryPool, of_stream: DeviceKey) -> Location {
    let Some(kind) = attribute_of(handle, CUmemPool_attribute::LOCATION_TYPE) else {
        return Location::Device(of_stream);
    };
    if kind != u64::from(CUmemLocationType::DEVICE.0) {
        return Location::Elsewhere;
    }
    let ordinal = attribute_of(handle, CUmemPool_attribute::LOCATION_ID);
    let device = ordinal.and_then(|ordinal| device::of_ordinal(CUdevice::try_from(ordinal).ok()?));
    device.map_or(Location::Unknown, Location::Device)
}

/// Enters a pool the driver has just made; `None` for one whose memory is not a device's or is another process's.
pub(super) fn enter(handle: CUmemoryPool, device: Option<DeviceKey>) {
    let made = device.map(|device| Pool::new(handle, device));
    let mut pools = pools();
    // A handle that is there already belonged to a pool that went without our hearing of it.
    pools.retain(|(known, _)| *known != handle);
    pools.push((handle, made));
}

/// The pool of a handle, if it was met before and its memory is a device's.
pub(super) fn find(handle: CUmemoryPool) -> Option<Arc<Pool>> {
    pools()
        .iter()
        .find(|(known, _)| *known == handle)
        .and_then(|(_, pool)| pool.clone())
}

/// Destroys a pool by `call`. What its living allocations hold stays charged until the last of them is freed.
pub(super) fn destroy(pool: &Arc<Pool>, call: impl FnOnce() -> CUresult) -> CUresult {
    pool.trim();
    arena::follow(&**pool);
    let mut closed = locked(&pool.closed);
    let answer = call();
    if answer.is_success() {
        *closed = true;
        drop(closed);
        pools().retain(|(_, known)| !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, pool)));
        if pool.live.load(Ordering::Acquire) == 0 {
            account::release(pool.device, pool.held.take());
        }
    }
    answer
}
