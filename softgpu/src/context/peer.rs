//! Peer access: which device may access another device's memory. It is enabled from context to
//! context, and takes effect between their devices.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::Context;
use crate::error::Result;
use crate::spec::MAX_DEVICES;

/// Whose memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// A context's, by its handle.
    Context(usize),
    /// That of other processes: the number of an allocation opened by a handle.
    Opened(u64),
}

/// One enabled direction: the accessing context's handle, whose memory it is, and the ordinals of
/// both devices.
type Grant = (usize, Owner, u32, u32);

static GRANTS: Mutex<BTreeSet<Grant>> = Mutex::new(BTreeSet::new());
/// For each ordinal, the ordinals whose memory it may access; derived from [`GRANTS`].
static ENABLED: [AtomicU32; MAX_DEVICES as usize] =
    [const { AtomicU32::new(0) }; MAX_DEVICES as usize];

/// Whether work on `from` may access plain memory of `to`.
pub fn enabled(from: u32, to: u32) -> bool {
    ENABLED
        .get(from as usize)
        .is_some_and(|mask| mask.load(Ordering::Acquire) & (1 << to) != 0)
}

/// Whether work in `from` can be given access to the memory of the device `to`.
///
/// # Errors
/// `PEER_ACCESS_UNSUPPORTED` for another device, with `peer=off` in SPEC.
pub(crate) fn supported(from: &Context, to: u32) -> Result {
    let device = from.device();
    if device.ordinal() == to || device.spec().peer {
        Ok(())
    } else {
        Err(CUresult::PEER_ACCESS_UNSUPPORTED)
    }
}

/// Lets work in `from` access the memory of the device of `to`.
///
/// # Errors
/// `INVALID_DEVICE` if both contexts are on one device, `PEER_ACCESS_UNSUPPORTED` if the devices
/// cannot access each other's memory, `PEER_ACCESS_ALREADY_ENABLED` if it is enabled already.
pub fn enable(from: &Context, to: &Context) -> Result {
    let (a, b) = (from.device().ordinal(), to.device().ordinal());
    if a == b {
        return Err(CUresult::INVALID_DEVICE);
    }
    supported(from, b)?;
    let fresh = change(|grants| grants.insert((from.handle, Owner::Context(to.handle), a, b)));
    if fresh {
        Ok(())
    } else {
        Err(CUresult::PEER_ACCESS_ALREADY_ENABLED)
    }
}

/// Lets work in `from` access the memory of the device `to` as long as the allocation `number` of
/// another process is open. Nothing changes on one device.
pub(crate) fn open(from: &Context, to: u32, number: u64) {
    let ordinal = from.device().ordinal();
    if ordinal != to {
        let grant = (from.handle, Owner::Opened(number), ordinal, to);
        change(|grants| grants.insert(grant));
    }
}

/// Ends what [`open`] began.
pub(crate) fn close(number: u64) {
    change(|grants| grants.retain(|(_, owner, _, _)| *owner != Owner::Opened(number)));
}

/// Disables the access that [`enable`] enabled.
///
/// # Errors
/// `PEER_ACCESS_NOT_ENABLED` if it is not enabled.
pub fn disable(from: &Context, to: &Context) -> Result {
    let (a, b) = (from.device().ordinal(), to.device().ordinal());
    let known = change(|grants| grants.remove(&(from.handle, Owner::Context(to.handle), a, b)));
    if known {
        Ok(())
    } else {
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    }
}

/// Removes every grant from or to a destroyed context.
pub(super) fn forget(handle: usize) {
    let gone = Owner::Context(handle);
    change(|grants| grants.retain(|(from, to, _, _)| *from != handle && *to != gone));
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
