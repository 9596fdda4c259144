//! The memory pools of this process: the device of each, its charge, and until when it can be
//! queried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use crate::account;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::{self, DeviceKey};
use crate::guest::fork::ForkLocal;
use crate::guest::frames::Undisturbed;
use crate::holdings::arena::{self, Arena, Held};

/// A pool of device memory.
#[derive(Debug)]
pub(crate) struct Pool {
    handle: CUmemoryPool,
    device: DeviceKey,
    held: Held,
    /// Allocations not yet freed.
    live: AtomicUsize,
    /// Frees under way. A destroyed pool keeps its memory until the last of them is over, and
    /// nothing is live.
    leaving: AtomicUsize,
    /// Whether the program has destroyed it. Locked while the driver is asked about the pool, so
    /// that it exists meanwhile.
    closed: Mutex<bool>,
}

/// A pool grows by multiples of this.
const STEP: u64 = 32 << 20;

/// The most a pool grows by for an allocation.
pub(crate) fn growth_of(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(STEP).unwrap_or(bytes)
}

/// Every pool seen so far; `None` for a pool without device memory.
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
            leaving: AtomicUsize::new(0),
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

    /// Whether the driver does not know the pool, or not any more.
    pub(crate) fn is_unknown(&self) -> bool {
        self.reserved().is_none()
    }

    /// One allocation more.
    pub(crate) fn one_more(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// An allocation is about to be freed.
    pub(crate) fn leaving(&self) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
    }

    /// The driver has refused that free.
    pub(crate) fn stayed(&self) {
        self.leaving.fetch_sub(1, Ordering::AcqRel);
    }

    /// As many frees are over.
    pub(crate) fn over(&self, count: usize) {
        self.leaving.fetch_sub(count, Ordering::AcqRel);
        self.credit_if_gone();
    }

    /// One allocation less: its free was accepted.
    pub(crate) fn one_less(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.credit_if_gone();
        arena::freed();
    }

    /// A destroyed pool's memory is freed with its last allocation.
    fn credit_if_gone(&self) {
        let empty =
            || self.live.load(Ordering::Acquire) == 0 && self.leaving.load(Ordering::Acquire) == 0;
        if empty() && *locked(&self.closed) {
            account::release(self.device, self.held.take());
        }
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
            // The pool exists while `closed` is locked and false. Memory in use stays.
            let _ = unnoticed(|| calls::trim_pool(self.handle, 0));
        }
    }
}

/// An attribute of a pool, 32 or 64 bits wide.
fn attribute_of(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
    unnoticed(|| calls::pool_attribute(pool, attribute)).ok()
}

/// Where an allocation from a pool is charged.
#[derive(Debug)]
pub(crate) enum Payer {
    /// To this pool.
    Pool(Arc<Pool>),
    /// Nowhere: the pool's memory is the host's, or another process's.
    Nobody,
    /// The pool is unknown: charged to the device, by the allocation's own size.
    Device(DeviceKey),
}

/// The account that pays for an allocation from a pool, in a stream of `device`. A pool not seen
/// before (a device's default) is looked up.
pub(crate) fn payer(handle: CUmemoryPool, device: DeviceKey) -> Payer {
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

/// Where a pool's memory is. Drivers before 13.0 cannot say: then it is the stream's device, to
/// which they give their default pools.
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

/// Registers a pool that the driver has just made; `None` for a pool without device memory, or of
/// another process.
pub(crate) fn enter(handle: CUmemoryPool, device: Option<DeviceKey>) {
    let made = device.map(|device| Pool::new(handle, device));
    let mut pools = pools();
    // A handle that is there already belonged to a pool that went without our hearing of it.
    pools.retain(|(known, _)| *known != handle);
    pools.push((handle, made));
}

/// The pool of a handle, if it was met before and its memory is a device's.
pub(crate) fn find(handle: CUmemoryPool) -> Option<Arc<Pool>> {
    pools()
        .iter()
        .find(|(known, _)| *known == handle)
        .and_then(|(_, pool)| pool.clone())
}

/// Destroys a pool by `call`. Its memory stays charged until its last allocation is freed and that
/// free is over.
pub(crate) fn destroy(pool: &Arc<Pool>, call: impl FnOnce() -> CUresult) -> CUresult {
    pool.trim();
    arena::follow(&**pool);
    // No handler runs while the lock is held in the driver: none can jump out of it, or wait for
    // it.
    let _undisturbed = Undisturbed::begin();
    let mut closed = locked(&pool.closed);
    let answer = call();
    if answer.is_success() {
        *closed = true;
        drop(closed);
        pools().retain(|(_, known)| !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, pool)));
        pool.credit_if_gone();
    }
    answer
}
