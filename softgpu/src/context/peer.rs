//! Which device may touch which other's memory. Enabled from one context to another, effective
//! between their devices.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::Context;
use crate::error::Result;
use crate::spec::MAX_DEVICES;

/// One enabled direction: handles and ordinals of the context that may access, and of the owner of
/// the memory.
type Grant = (usize, usize, u32, u32);

static GRANTS: Mutex<BTreeSet<Grant>> = Mutex::new(BTreeSet::new());
/// For each ordinal, the ordinals whose memory it may touch: what [`GRANTS`] come to.
static ENABLED: [AtomicU32; MAX_DEVICES as usize] =
    [const { AtomicU32::new(0) }; MAX_DEVICES as usize];

/// Whether work on `from` may touch plain memory of `to`.
pub fn enabled(from: u32, to: u32) -> bool {
    ENABLED
        .get(from as usize)
        .is_some_and(|mask| mask.load(Ordering::Acquire) & (1 << to) != 0)
}

/// Lets work in `from` touch the memory of the device of `to`.
///
/// # Errors
/// `INVALID_DEVICE` within one device, `PEER_ACCESS_ALREADY_ENABLED` the second time.
pub fn enable(from: &Context, to: &Context) -> Result {
    let (a, b) = (from.device().ordinal(), to.device().ordinal());
    if a == b {
        return Err(CUresult::INVALID_DEVICE);
    }
    let fresh = change(|grants| grants.insert((from.handle, to.handle, a, b)));
    if fresh {
        Ok(())
    } else {
        Err(CUresult::PEER_ACCESS_ALREADY_ENABLED)
    }
}

/// Ends what [`enable`] began.
///
/// # Errors
/// `PEER_ACCESS_NOT_ENABLED` if it was not.
pub fn disable(from: &Context, to: &Context) -> Result {
    let (a, b) = (from.device().ordinal(), to.device().ordinal());
    let known = change(|grants| grants.remove(&(from.handle, to.handle, a, b)));
    if known {
        Ok(())
    } else {
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    }
}

/// A context is gone, and every grant from or to it.
pub(super) fn forget(handle: usize) {
    change(|grants| grants.retain(|(from, to, _, _)| *from != handle && *to != handle));
}

fn change<T>(act: impl FnOnce(&mut BTreeSet<Grant>) -> T) -> T {
    let mut grants = GRANTS.lock().unwrap_or_else(PoisonError::into_inner);
    let result = act(&mut grants);
    for (ordinal, enabled) in (0..).zip(&ENABLED) {
        let of_device = grants.iter().filter(|(_, _, from, _)| *from == ordinal);
        enabled.store(
            of_device.fold(0, |mask, (_, _, _, to)| mask | 1 << to),
            Ordering::Release,
        );
    }
    result
}
