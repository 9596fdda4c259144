//! Memory that the driver takes in steps of its own and keeps for reuse: stream-ordered pools and the memory of graphs.
//!
//! What is charged is what the driver *reserves*, not what the program holds. A call that may make an arena grow is charged
//! with an upper bound first; after it, the driver is asked what is reserved now and the charge follows. Calls that race each keep
//! their own bound until then, so the sum is never too low.
//!
//! Where the bound does not fit, even after [`reclaim`], but the arena says that it has room for the request, the call is made
//! without growth; should the driver grow all the same, the caller takes the allocation back.

use std::sync::Mutex;

use gpushare_protocol::page::{MAX_UNITS, UNIT, units_for};

use super::ordered::Ordered;
use super::reclaim;
use crate::account::{self, Charge, Refused, Units};
use crate::device::DeviceKey;

/// Units charged for one arena. The lock orders readings of what is reserved; it is held for one question to the driver.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<u32>);

/// One arena of the driver.
pub(super) trait Arena {
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

/// Books the growth that a call for `need` bytes in `arena` may cause: `bound` at most. `returning` bytes are as good as unused
/// for this call, because it is ordered behind their free.
///
/// # Errors
/// [`Refused`] where that does not fit and the arena has no room either.
pub(super) fn before(
    arena: &dyn Arena,
    need: u64,
    bound: u64,
    stream: Option<Ordered>,
    returning: u64,
) -> Result<Charge, Refused> {
    let device = arena.device();
    if let Ok(charge) = account::charge(device, bound) {
        return Ok(charge);
    }
    if returning < need
        && let Ok(charge) = reclaim::reserve_slowly(device, bound, stream)
    {
        return Ok(charge);
    }
    let room = unused(arena).unwrap_or(0);
    if room.max(returning) >= need {
        account::charge(device, 0)
    } else {
        Err(Refused)
    }
}

/// Bytes an arena holds and does not use.
pub(super) fn unused(arena: &dyn Arena) -> Option<u64> {
    arena.reserved()?.checked_sub(arena.used()?)
}

/// Follows the arena after a call: what it grew by is taken from `charge`, the rest is given back.
///
/// # Errors
/// [`Refused`] if it grew by more than was booked and that is above the limit. It is charged all the same: the driver has it.
pub(super) fn after(arena: &dyn Arena, mut charge: Charge) -> Result<(), Refused> {
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
pub(super) fn follow(arena: &dyn Arena) {
    if let Ok(nothing) = account::charge(arena.device(), 0) {
        let _ = after(arena, nothing);
    }
}

impl Held {
    fn lock(&self) -> std::sync::MutexGuard<'_, u32> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether nothing is charged.
    pub(super) fn is_empty(&self) -> bool {
        *self.lock() == 0
    }

    /// Takes everything out: the arena is gone.
    pub(super) fn take(&self) -> Units {
        Units(std::mem::take(&mut *self.lock()))
    }
}
