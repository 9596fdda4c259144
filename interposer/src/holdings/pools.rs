//! The memory pools of this process: where each lies, what it is charged with, and until when it can be asked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use crate::account;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::{self, DeviceKey};
use crate::driver::ordered::StreamId;
use crate::guest::fork::ForkLocal;
use crate::guest::frames::Undisturbed;
use crate::holdings::arena::{self, Arena, Held, Promise};
use crate::holdings::frees;
use crate::holdings::layout::{Layout, Mark, Placed};
use crate::holdings::reclaim;
use crate::holdings::turns::{Turn, Turns};

/// A pool whose memory is a device's.
#[derive(Debug)]
pub(crate) struct Pool {
    handle: CUmemoryPool,
    device: DeviceKey,
    held: Held,
    /// Allocations are made one at a time, so that it can be told what each of them did.
    turns: Turns,
    /// Where there is room in it. Locked for moments, never while the driver is asked.
    layout: Mutex<Layout>,
    /// Whether it once grew though there was room: then no room is relied on any more.
    surprising: AtomicBool,
    /// Allocations not yet freed.
    live: AtomicUsize,
    /// Frees under way. A destroyed pool keeps its memory until the last of them is over, and nothing is live.
    leaving: AtomicUsize,
    /// Whether the program has destroyed it. Locked while the driver is asked about the pool, so that it exists meanwhile.
    closed: Mutex<bool>,
}

/// A pool grows by multiples of this.
const STEP: u64 = 32 << 20;

/// The most a pool grows by for an allocation.
pub(crate) fn growth_of(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(STEP).unwrap_or(bytes)
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
            turns: Turns::default(),
            layout: Mutex::default(),
            surprising: AtomicBool::new(false),
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

    fn layout(&self) -> MutexGuard<'_, Layout> {
        locked(&self.layout)
    }

    /// Has `call` allocate `bytes`; what it may grow the pool by is booked, and the pool had `shrunk` as often by then. The address is
    /// read from it with `at` if it succeeds. Whether it certainly lies in memory that the pool had already.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        shrunk: u64,
        call: &impl Fn() -> CUresult,
        at: &impl Fn() -> u64,
    ) -> (CUresult, bool) {
        // Whoever has waited too long goes all the same; then nothing is known of the pool any more.
        let turn = self.turns.take(reclaim::PATIENCE);
        let mut before = None;
        if turn.is_some() && !self.surprising.load(Ordering::Relaxed) {
            before = self.layout().trusted(shrunk);
        }
        if before.is_some() {
            let answer = call();
            if !answer.is_success() {
                return (answer, false);
            }
            if self.layout().reused(at(), bytes, growth_of(bytes)) {
                self.live.fetch_add(1, Ordering::AcqRel);
                return (answer, true);
            }
            self.one_more(turn.as_ref(), at(), bytes, before);
            return (answer, false);
        }
        before = self.reserved();
        if let (Some(_), Some(before)) = (&turn, before) {
            let mut layout = self.layout();
            let surprised = layout.look(before, None);
            layout.trust(shrunk);
            drop(layout);
            if surprised {
                self.surprised();
            }
        } else {
            self.layout().forget();
        }
        let answer = call();
        if answer.is_success() {
            self.one_more(turn.as_ref(), at(), bytes, before);
        }
        (answer, false)
    }

    /// Has `call` allocate `bytes` in a stream without booking any growth, if the pool has room for it. With `trim`, the driver is first
    /// made to let go of everything it can, which says best what is still there.
    pub(crate) fn allocate_in_room(
        &self,
        bytes: u64,
        stream: StreamId,
        trim: bool,
        call: &impl Fn() -> CUresult,
        at: &impl Fn() -> u64,
    ) -> Option<CUresult> {
        if self.surprising.load(Ordering::Acquire) {
            return None;
        }
        let turn = self.turns.take(reclaim::PATIENCE)?;
        // From here on as much stays charged as the pool may grow by, if others have the driver let go of that room from now on.
        let promise = Promise::of(&self.held, growth_of(bytes));
        let before = self.room(bytes, stream, trim)?;
        let answer = call();
        if answer.is_success() {
            self.one_more(Some(&turn), at(), bytes, Some(before));
        }
        drop(promise);
        Some(answer)
    }

    /// What is reserved, if the pool has room for `bytes` in a stream.
    fn room(&self, bytes: u64, stream: StreamId, trim: bool) -> Option<u64> {
        if self.attribute(CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC) != Some(1) {
            return None;
        }
        let own = frees::own(stream);
        let idle = trim.then(|| self.layout().idle());
        if trim {
            self.trim();
        }
        let reserved = self.reserved()?;
        let mut layout = self.layout();
        layout.look(reserved, idle.as_deref());
        layout.fits(bytes, &own).then_some(reserved)
    }

    /// The pool grew though it had room.
    pub(crate) fn surprised(&self) {
        if !self.surprising.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "a memory pool grew though it had room; its room is not relied on any more"
            );
        }
    }

    /// One allocation more, made in a turn when `before` was reserved.
    fn one_more(&self, turn: Option<&Turn<'_>>, at: u64, bytes: u64, before: Option<u64>) {
        self.live.fetch_add(1, Ordering::AcqRel);
        let after = self.reserved();
        let growth = growth_of(bytes);
        let mut layout = self.layout();
        match (turn, before, after) {
            (Some(_), Some(before), Some(after)) => layout.placed(Placed {
                at,
                bytes,
                growth,
                before,
                after,
            }),
            _ => layout.forget(),
        }
    }

    /// An allocation is about to be freed; what names the free.
    pub(crate) fn leaving(&self, at: u64, bytes: u64) -> Mark {
        let mark = frees::mark();
        self.leaving.fetch_add(1, Ordering::AcqRel);
        self.layout().leaving(at, bytes, mark);
        mark
    }

    /// The driver has refused that free.
    pub(crate) fn stayed(&self, at: u64, bytes: u64, mark: Mark) {
        self.layout().stayed(at, bytes, mark);
        self.leaving.fetch_sub(1, Ordering::AcqRel);
    }

    /// The driver has accepted that free, and an event stands behind it, if any could be had.
    pub(crate) fn submitted(&self, at: u64, bytes: u64, mark: Mark, event: Option<Mark>) {
        self.layout().submitted(at, bytes, mark, event);
    }

    /// The driver has freed it at once.
    pub(crate) fn freed(&self, at: u64, bytes: u64, mark: Mark) {
        self.layout().freed(at, bytes, mark);
        self.over(1);
    }

    /// An event has been passed.
    pub(crate) fn passed(&self, event: Mark) {
        self.layout().passed(event);
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
        frees::freed();
    }

    /// A destroyed pool's memory goes with the last thing in it.
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
            // The pool exists while `closed` is locked and false. What is in use stays.
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
    /// The pool cannot be told: to the device, by its own size.
    Device(DeviceKey),
}

/// Who pays for an allocation from a pool, in a stream of `device`. A pool not met before (a device's default) is looked up.
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

/// Destroys a pool by `call`. What it holds stays charged until the last allocation in it is freed and that free is over.
pub(crate) fn destroy(pool: &Arc<Pool>, call: impl FnOnce() -> CUresult) -> CUresult {
    pool.trim();
    arena::follow(&**pool);
    // No handler runs while the lock is held in the driver: none can jump out of it, or wait for it.
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
