//! The memory pools of this process: where each lies, what it is charged with, and until when it can be asked.
//!
//! # Safety
//! The driver is asked only about pools that exist: one the program has destroyed is marked before its handle means nothing.
#![allow(unsafe_code, reason = "asks the driver about pools")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use super::arena::{self, Arena, Held};
use super::holes::{Hole, Holes};
use super::ordered::Ordered;
use super::reclaim::{self, Room};
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
    /// Where there is room in it.
    holes: Mutex<Holes>,
    /// Whether a call that relies on room in the pool is under way. One at a time: the driver may fill the holes of two in another
    /// order than we set them aside, and grow for the second.
    relying: AtomicBool,
    /// Allocations not yet freed. A destroyed pool keeps its memory until the last of them is.
    live: AtomicUsize,
    /// Whether the program has destroyed it. Locked while the driver is asked about the pool, so that it exists meanwhile.
    closed: Mutex<bool>,
}

/// New pieces of a pool begin at multiples of this: pages of the device.
const PIECE: u64 = 2 << 20;

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
            holes: Mutex::default(),
            relying: AtomicBool::new(false),
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

    /// Sets aside room for an allocation in `stream`, if the pool is known to have it: what is free is free for the stream. The
    /// pool may then grow by `growth` all the same, if others take that room.
    pub(super) fn room(&self, bytes: u64, growth: u64, stream: Ordered) -> Option<Hole> {
        if self.relying.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.held.pledge(growth);
        let hole = self.hole(bytes, &reclaim::room_for(self.device, stream));
        // Asked again after the hole was taken: a free is noted as under way before its hole is.
        match hole {
            Some(hole) if reclaim::room_for(self.device, stream) != Room::Unknown => Some(hole),
            hole => {
                self.unused_room(hole);
                self.relied(growth);
                None
            }
        }
    }

    fn hole(&self, bytes: u64, room: &Room) -> Option<Hole> {
        let unused = arena::unused(self)?;
        let mut holes = locked(&self.holes);
        holes.at_most(unused);
        match room {
            Room::All => holes.take(bytes),
            Room::Own(blocks) => holes.take_of(bytes, blocks),
            Room::Unknown => None,
        }
    }

    /// A call that relied on room is over.
    pub(super) fn relied(&self, growth: u64) {
        self.held.redeem(growth);
        self.relying.store(false, Ordering::Release);
    }

    /// A hole that was set aside is not used after all.
    pub(super) fn unused_room(&self, hole: Option<Hole>) {
        if let Some(hole) = hole {
            locked(&self.holes).put_back(hole);
        }
    }

    /// One allocation more, at `at`. `hole` is what was set aside for it. Returns whether it may be the beginning of a new piece.
    pub(super) fn one_more(&self, at: u64, bytes: u64, hole: Option<Hole>) -> bool {
        self.live.fetch_add(1, Ordering::AcqRel);
        let mut holes = locked(&self.holes);
        if let Some(hole) = hole {
            holes.put_back(hole);
        }
        let new = at.is_multiple_of(PIECE) && !holes.contains(at);
        holes.used(at, bytes);
        new
    }

    /// The pool grew by `growth` for the allocation at `at`, which begins the new piece.
    pub(super) fn grew(&self, at: u64, bytes: u64, growth: u64) {
        let mut holes = locked(&self.holes);
        holes.grown(at, bytes, growth);
    }

    /// One allocation less, at `at`. The last one of a destroyed pool takes the pool's memory with it.
    pub(super) fn freed_one(&self, at: u64, bytes: u64) {
        locked(&self.holes).freed(at, bytes);
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
