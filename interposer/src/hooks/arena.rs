//! Memory that the driver takes in steps of its own and keeps for reuse: stream-ordered pools and the memory of graphs.
//!
//! What is charged is what the driver *reserves*, not what the program holds. A call that may make an arena grow is charged
//! with an upper bound first; after it, the driver is asked what is reserved now and the charge follows. Calls that race each keep
//! their own bound until then, so the sum is never too low.
//!
//! Where the bound does not fit, what this process can spare is given back first (`reclaim`): the charges of frees that have been
//! completed meanwhile, and what the driver keeps unused. If it still does not fit but the arena says that it has room for the
//! request, the call is made without growth; should the driver grow all the same, the caller takes the allocation back.
//!
//! # Safety
//! `unsafe` asks the driver about events that this file made and not yet destroyed.
#![allow(unsafe_code, reason = "asks the driver about its events")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult};
use gpushare_protocol::page::{MAX_UNITS, UNIT, units_for};

use super::{graph, pools};
use crate::account::{self, Charge, Refused, Units};
use crate::device::DeviceKey;
use crate::driver;
use crate::objects::Map;

/// Units charged for one arena. The lock orders readings of what is reserved; it is held for one question to the driver.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<u32>);

/// One arena of the driver.
pub(crate) trait Arena {
    /// Where its memory lies.
    fn device(&self) -> DeviceKey;
    /// What is charged for it.
    fn held(&self) -> &Held;
    /// Bytes the driver holds for it now, in use or not.
    fn reserved(&self) -> Option<u64>;
    /// Of these, bytes in use.
    fn used(&self) -> Option<u64>;
    /// Has the driver give back what is not in use.
    fn trim(&self);
}

/// Books the growth that a call for `need` bytes in `arena` may cause, `bound` at most.
///
/// # Errors
/// [`Refused`] where that does not fit and the arena has no room either.
pub(crate) fn before(arena: &dyn Arena, need: u64, bound: u64) -> Result<Charge, Refused> {
    if let Ok(charge) = reserve(arena.device(), bound) {
        return Ok(charge);
    }
    let room = arena
        .reserved()
        .zip(arena.used())
        .and_then(|(reserved, used)| reserved.checked_sub(used));
    if room.is_some_and(|room| room >= need) {
        account::charge(arena.device(), 0)
    } else {
        Err(Refused)
    }
}

/// Follows the arena after a call: what it grew by is taken from `charge`, the rest is given back.
///
/// # Errors
/// [`Refused`] if it grew by more than was booked and that is above the limit. It is charged all the same: the driver has it.
pub(crate) fn after(arena: &dyn Arena, mut charge: Charge) -> Result<(), Refused> {
    let mut held = arena.held().lock();
    let Some(now) = arena
        .reserved()
        .map(|bytes| units_for(bytes).unwrap_or(MAX_UNITS))
    else {
        // The driver will not say: the bound stays booked.
        *held = held.saturating_add(charge.keep().0);
        return Ok(());
    };
    let fits = match now.checked_sub(*held) {
        None | Some(0) => {
            drop(charge);
            account::release(arena.device(), Units(*held - now));
            Ok(())
        }
        Some(growth) => {
            let bytes = u64::from(growth) * UNIT;
            let fits = charge.settle(bytes);
            charge.settle_anyway(bytes);
            let _ = charge.keep();
            fits
        }
    };
    *held = now;
    fits
}

/// Follows an arena that may have shrunk.
pub(crate) fn follow(arena: &dyn Arena) {
    if let Ok(nothing) = account::charge(arena.device(), 0) {
        let _ = after(arena, nothing);
    }
}

/// Books `bytes`; before that is refused, everything this process can spare on the device is given back.
///
/// # Errors
/// [`Refused`] if it does not fit then either.
pub(crate) fn reserve(device: DeviceKey, bytes: u64) -> Result<Charge, Refused> {
    account::charge(device, bytes).or_else(|_| {
        reclaim(device);
        account::charge(device, bytes)
    })
}

/// Gives back what this process can spare: completed frees, unused memory of pools and graphs.
pub(crate) fn reclaim(device: DeviceKey) {
    settle_frees();
    let spare = |arena: &dyn Arena| {
        if arena.device() == device {
            arena.trim();
            follow(arena);
        }
    };
    pools::each(&spare);
    graph::each(&spare);
}

/// Whether memory of an arena was freed since the last [`synchronised`]: the driver may give it back when it synchronises.
static FREED: AtomicBool = AtomicBool::new(false);

/// Notes a free in an arena.
pub(crate) fn freed() {
    FREED.store(true, Ordering::Release);
}

/// Follows all arenas after the driver has synchronised, if anything was freed.
#[inline]
pub(crate) fn synchronised() {
    if FREED.load(Ordering::Relaxed) {
        follow_all();
    }
}

#[cold]
fn follow_all() {
    FREED.store(false, Ordering::Release);
    settle_frees();
    pools::each(&follow);
    graph::each(&follow);
}

/// Memory outside any arena whose free was ordered behind a stream's work.
#[derive(Debug)]
struct LaterFree {
    device: DeviceKey,
    units: Units,
    context: CUcontext,
    event: CUevent,
}

static LATER: Map<LaterFree> = Map::new();

/// Credits `units` once `event`, recorded behind the free, has been passed. The event is destroyed then.
pub(crate) fn free_later(device: DeviceKey, units: Units, context: CUcontext, event: CUevent) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    LATER.insert(
        NUMBER.fetch_add(16, Ordering::Relaxed),
        LaterFree {
            device,
            units,
            context,
            event,
        },
    );
    freed();
}

/// Credits the frees whose work is done.
fn settle_frees() {
    // Taken out first, because the maps may not be held over a call of the driver.
    for (number, later) in LATER.drain_if(|_, _| true) {
        // SAFETY: an event of ours, which is in no other hands while it is out of the map.
        if unsafe { driver::cuEventQuery(later.event) } == CUresult::NOT_READY {
            freed();
            LATER.insert(number, later);
        } else {
            // SAFETY: as above; nobody uses it after this.
            let _ = unsafe { driver::cuEventDestroy_v2(later.event) };
            account::release(later.device, later.units);
        }
    }
}

/// A context is gone, its events and pending frees with it.
pub(crate) fn context_gone(context: CUcontext) {
    for (_, later) in LATER.drain_if(|_, later| later.context == context) {
        account::release(later.device, later.units);
    }
    follow_all();
}

impl Held {
    fn lock(&self) -> std::sync::MutexGuard<'_, u32> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether nothing is charged.
    pub(crate) fn is_empty(&self) -> bool {
        *self.lock() == 0
    }

    /// Takes everything out: the arena is gone.
    pub(crate) fn take(&self) -> Units {
        Units(std::mem::take(&mut *self.lock()))
    }
}
