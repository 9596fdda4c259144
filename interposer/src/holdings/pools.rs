//! The memory pools of this process: the device of each, its charge, and until when it can be
//! queried.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use crate::account;
use crate::driver::calls;
use crate::driver::captures::{self, unnoticed};
use crate::driver::device::{self, DeviceKey};
use crate::driver::vmm;
use crate::guest::fork::ForkLocal;
use crate::guest::frames::Undisturbed;
use crate::holdings::arena::{self, Arena, Held};

/// A pool of memory that is charged to a device.
#[derive(Debug)]
pub(crate) struct Pool {
    handle: CUmemoryPool,
    device: DeviceKey,
    held: Held,
    /// Allocations not yet freed.
    live: AtomicUsize,
    /// The driver has grown it although it had room: that is not relied on any more.
    misled: AtomicBool,
    /// Frees under way. A destroyed pool keeps its memory until the last of them is over, and
    /// nothing is live.
    leaving: AtomicUsize,
    /// Whether the program has destroyed it. Locked while the driver is asked about the pool, so
    /// that it exists meanwhile.
    closed: Mutex<bool>,
}

/// A pool grows by multiples of this, and so does the memory that the driver keeps for graphs.
const STEP: u64 = 32 << 20;

/// The most a pool grows by for an allocation, or the memory for graphs for a graph's allocations.
pub(crate) fn growth_of(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(STEP).unwrap_or(bytes)
}

/// Where a pool's memory is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolLocation {
    /// On a device, or managed memory that belongs there.
    Device(DeviceKey),
    /// Managed memory that belongs to no device: it may come onto any.
    Anywhere,
    /// On the host, or another process's.
    Elsewhere,
}

/// A pool that was seen.
#[derive(Debug, Clone)]
enum Seen {
    /// Its memory is charged.
    Charged(Arc<Pool>),
    /// It will be, once an allocation names a device.
    Anywhere,
    /// Nothing of it is.
    Elsewhere,
}

impl Seen {
    fn at(handle: CUmemoryPool, place: PoolLocation) -> Self {
        match place {
            PoolLocation::Device(device) => Self::Charged(Pool::new(handle, device)),
            PoolLocation::Anywhere => Self::Anywhere,
            PoolLocation::Elsewhere => Self::Elsewhere,
        }
    }

    fn charged(&self) -> Option<&Arc<Pool>> {
        match self {
            Self::Charged(pool) => Some(pool),
            Self::Anywhere | Self::Elsewhere => None,
        }
    }
}

/// Every pool seen so far.
type Met = Vec<(CUmemoryPool, Seen)>;

/// Where the memory of a pool of this type and location is. Managed memory is charged wherever its
/// pages are: a program may bring all of it onto a device.
pub(crate) fn location_of(kind: CUmemAllocationType, location: CUmemLocation) -> PoolLocation {
    let is_managed = kind == CUmemAllocationType::MANAGED;
    match location.type_ {
        host if device::is_host(host) && !is_managed => PoolLocation::Elsewhere,
        _ => device::of_location(location).map_or(PoolLocation::Anywhere, PoolLocation::Device),
    }
}

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
        .filter_map(|(_, seen)| seen.charged().cloned())
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
            misled: AtomicBool::new(false),
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

    /// The driver's error for an allocation from the pool outside a capture, if a capture forbids
    /// it: asked in the thread's own mode by a call that captures forbid alike and that takes no
    /// memory, so that it ends the captures which the allocation would end.
    pub(crate) fn refused_by_capture(&self) -> Option<CUresult> {
        if captures::none_seen() {
            return None;
        }
        let closed = locked(&self.closed);
        let reserved = CUmemPool_attribute::RESERVED_MEM_CURRENT;
        let refused = CUresult::STREAM_CAPTURE_UNSUPPORTED;
        let forbids = !*closed && calls::pool_attribute(self.handle, reserved) == Err(refused);
        forbids.then_some(refused)
    }

    /// One allocation more.
    pub(crate) fn one_more(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
    }

    /// The bytes up to which memory that was freed stays in the pool, where any stream can have it
    /// once its free is over, unless the pool is trimmed. `None` where that is less than the pool
    /// may have reserved, which is `limit` at most: the driver gives memory back, when it
    /// synchronises, only of a pool that has more reserved than its threshold. Its room is
    /// forgotten then. `None` too where the driver does not tell the threshold, reuse is off, or
    /// the pool has misled.
    pub(crate) fn keeps(&self, limit: u64) -> Option<u64> {
        let threshold = self.attribute(CUmemPool_attribute::RELEASE_THRESHOLD);
        let kept = threshold.filter(|kept| self.has_kept(*kept, limit))?;
        let reuse = self.attribute(CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC);
        let is_relied_on = !self.misled.load(Ordering::Relaxed) && reuse.is_some_and(|on| on > 0);
        is_relied_on.then_some(kept)
    }

    /// Whether the pool had no more reserved than it keeps, by all calls that are over. Else its
    /// room is forgotten.
    pub(crate) fn has_kept(&self, kept: u64, limit: u64) -> bool {
        let has = kept >= self.held.most().min(limit);
        if !has {
            self.held.forget_room();
        }
        has
    }

    /// The driver has grown the pool although it had room.
    pub(crate) fn has_misled(&self) {
        self.misled.store(true, Ordering::Relaxed);
    }

    /// An allocation is about to be freed.
    pub(crate) fn leaving(&self) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
    }

    /// The driver has refused that free.
    pub(crate) fn stayed(&self) {
        self.leaving.fetch_sub(1, Ordering::AcqRel);
    }

    /// As many frees are over: the driver may give their memory back when it synchronises next. A
    /// synchronisation that began before this was known may have been too early.
    pub(crate) fn over(&self, count: usize) {
        self.leaving.fetch_sub(count, Ordering::AcqRel);
        self.credit_if_gone();
        arena::freed();
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
        self.held.forget_room();
        let closed = locked(&self.closed);
        if !*closed {
            // The pool exists while `closed` is locked and false. Memory in use stays.
            let _ = unnoticed(|| calls::trim_pool(self.handle, 0));
        }
        drop(closed);
        // Memory freed during the trim may have gone to the driver too.
        self.held.forget_room();
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
/// before (a device's default) is looked up. The first device that allocates from a pool which
/// belongs to none pays for all of it.
pub(crate) fn payer(handle: CUmemoryPool, device: DeviceKey) -> Payer {
    // A statement of its own, so that the list is unlocked again before it is looked at further.
    let seen = seen(&pools(), handle);
    let place = match seen {
        Some(Seen::Charged(pool)) => return Payer::Pool(pool),
        Some(Seen::Elsewhere) => return Payer::Nobody,
        Some(Seen::Anywhere) => PoolLocation::Device(device),
        None => match location(handle, device) {
            Some(PoolLocation::Anywhere) => PoolLocation::Device(device),
            Some(place) => place,
            None => return Payer::Device(device),
        },
    };
    let mut pools = pools();
    // Another thread may have been here meanwhile.
    let found = match self::seen(&pools, handle) {
        Some(Seen::Anywhere) | None => {
            let met = Seen::at(handle, place);
            pools.retain(|(known, _)| *known != handle);
            pools.push((handle, met.clone()));
            met
        }
        Some(seen) => seen,
    };
    found
        .charged()
        .map_or(Payer::Nobody, |pool| Payer::Pool(Arc::clone(pool)))
}

fn seen(pools: &Met, handle: CUmemoryPool) -> Option<Seen> {
    let mut pools = pools.iter();
    let found = pools.find(|(known, _)| *known == handle);
    found.map(|(_, seen)| seen.clone())
}

/// The first driver that tells where a pool's memory is: 13.2 (cuda.h of 13.2,
/// `CU_MEMPOOL_ATTR_LOCATION_TYPE`).
const TELLS_LOCATION: i32 = 13_020;

/// Where a pool's memory is, as the driver says; `None` for a device that is not known. Drivers
/// before 13.2 cannot say: then it is the device that has the pool for its own.
fn location(handle: CUmemoryPool, of_stream: DeviceKey) -> Option<PoolLocation> {
    let attribute = |which| u32::try_from(attribute_of(handle, which)?).ok();
    // To ask an older driver is an error, which the program's tools would show as its own.
    let tells = unnoticed(calls::driver_version).is_ok_and(|version| version >= TELLS_LOCATION);
    let told = tells.then(|| attribute(CUmemPool_attribute::LOCATION_TYPE));
    let Some(where_) = told.flatten() else {
        let owner = owner(handle, Some(of_stream));
        return Some(PoolLocation::Device(owner.unwrap_or(of_stream)));
    };
    let kind = attribute(CUmemPool_attribute::ALLOCATION_TYPE)
        .map_or(CUmemAllocationType::PINNED, CUmemAllocationType);
    let id = attribute(CUmemPool_attribute::LOCATION_ID).map_or(-1, u32::cast_signed);
    let location = CUmemLocation {
        type_: CUmemLocationType(where_),
        id,
    };
    match location_of(kind, location) {
        PoolLocation::Anywhere if location.type_ == CUmemLocationType::DEVICE => None,
        place => Some(place),
    }
}

/// The device whose pool this is, now or by default: a program may allocate in a stream from
/// another device's. The stream's device is asked first.
fn owner(handle: CUmemoryPool, of_stream: Option<DeviceKey>) -> Option<DeviceKey> {
    let is_its = |ordinal: CUdevice| {
        unnoticed(|| calls::device_pool(ordinal)) == Ok(handle)
            || unnoticed(|| vmm::default_pool(ordinal)) == Ok(handle)
    };
    let count = unnoticed(calls::device_count).unwrap_or(0);
    let first = of_stream.map_or(Some(0), device::ordinal_of)?;
    first_of(first, count, is_its).and_then(device::of_ordinal)
}

/// The device that `is_its` picks. `first` is asked first: it is nearly always the one, and the
/// others need not be asked then.
fn first_of(
    first: CUdevice,
    count: CUdevice,
    is_its: impl Fn(CUdevice) -> bool,
) -> Option<CUdevice> {
    let others = (0..count).filter(|other| *other != first);
    core::iter::once(first)
        .chain(others)
        .find(|ordinal| is_its(*ordinal))
}

/// Registers a pool that the driver has just made, or imported.
pub(crate) fn enter(handle: CUmemoryPool, place: PoolLocation) {
    let mut pools = pools();
    // A handle that is there already belonged to a pool that went without our hearing of it.
    pools.retain(|(known, _)| *known != handle);
    pools.push((handle, Seen::at(handle, place)));
}

/// Registers a pool that the driver has named, unless it was seen before. For the host's pool a
/// driver names a device's own once the host's current one is destroyed.
pub(crate) fn meet(handle: CUmemoryPool, place: PoolLocation) {
    if seen(&pools(), handle).is_some() {
        return;
    }
    let place = match place {
        PoolLocation::Elsewhere => owner(handle, None).map_or(place, PoolLocation::Device),
        place => place,
    };
    let mut pools = pools();
    // Another thread may have been here meanwhile.
    if seen(&pools, handle).is_none() {
        pools.push((handle, Seen::at(handle, place)));
    }
}

/// The pool of a handle, if it was met before and its memory is charged.
pub(crate) fn find(handle: CUmemoryPool) -> Option<Arc<Pool>> {
    seen(&pools(), handle)?.charged().cloned()
}

/// A pool is destroyed of which nothing was charged. Another thread may have made a pool with the
/// same handle since: a charged one stays.
pub(crate) fn forget(handle: CUmemoryPool) {
    pools().retain(|(known, seen)| *known != handle || seen.charged().is_some());
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
        let is_it = |seen: &Seen| seen.charged().is_some_and(|known| Arc::ptr_eq(known, pool));
        pools().retain(|(_, seen)| !is_it(seen));
        pool.credit_if_gone();
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The device that is found where the pool is `owner`'s, and those that were asked.
    fn found(owner: Option<CUdevice>, first: CUdevice) -> (Option<CUdevice>, Vec<CUdevice>) {
        let asked = RefCell::default();
        let found = first_of(first, 3, |ordinal| {
            Vec::push(&mut asked.borrow_mut(), ordinal);
            owner == Some(ordinal)
        });
        (found, asked.into_inner())
    }

    #[test]
    fn the_streams_device_is_asked_first_whose_pool_it_is() {
        assert_eq!(found(Some(1), 1), (Some(1), vec![1]));
    }

    #[test]
    fn another_devices_pool_is_found_where_the_stream_is_not() {
        assert_eq!(found(Some(2), 1), (Some(2), vec![1, 0, 2]));
        assert_eq!(found(Some(0), 1), (Some(0), vec![1, 0]));
    }

    #[test]
    fn a_pool_that_is_no_devices_own_is_found_nowhere() {
        assert_eq!(found(None, 0), (None, vec![0, 1, 2]));
    }
}
