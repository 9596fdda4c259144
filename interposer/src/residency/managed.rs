//! The other way in which memory moves: allocations are the driver's managed memory, and a move is
//! a prefetch of the whole set, to the host or back.
//!
//! The driver keeps the bytes wherever the pages are: no copy of ours exists, and no step can lose
//! one. Which chunks were sent home is kept in [`Blocks`](super::blocks::Blocks). Pages that the
//! driver has evicted by itself, for memory of others or because the set is larger than the device,
//! are not known here and need not be.

use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::{
    CU_DEVICE_CPU, CUdevice, CUdevice_attribute, CUmem_advise, CUresult,
};
use gpushare_pacing::mover::Moved;

use super::blocks::{Block, CHUNK, Chunk, Valid};
use super::copies::{Streams, copied, length};
use super::failed;
use super::memory::{blocks, granularity_of};
use crate::account;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::DeviceKey;
use crate::driver::vmm;

/// Sizes are rounded to this: the driver evicts pages of this size.
const PAGE: u64 = 2 << 20;
/// Of a tenant's memory that is larger than the device, at most this part of the device is filled
/// at a return (as a fraction): the rest comes page by page, and the driver's own memory needs
/// room.
const FILLED: (u64, u64) = (7, 8);

/// Allocations of this process that may move are managed memory.
static ON: AtomicBool = AtomicBool::new(false);

/// From now on they are. Before the process has a context.
pub(super) fn take_part() {
    ON.store(true, Ordering::Relaxed);
}

/// Whether they are.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether memory of this process on a device may be more than that has free: the driver sends to
/// the host what does not fit.
pub(crate) fn may_exceed(device: DeviceKey) -> bool {
    is_on() && granularity_of(device).is_some()
}

/// The step of sizes on a device; `None` where managed memory does not move there.
pub(super) fn granularity(ordinal: CUdevice) -> Option<u64> {
    let attribute = CUdevice_attribute::CONCURRENT_MANAGED_ACCESS;
    if calls::device_attribute(attribute, ordinal) == Ok(1) {
        return Some(PAGE);
    }
    tracing::warn!(
        "this device has no concurrent access to managed memory: its memory stays on it"
    );
    None
}

/// Allocates the memory of `block` in the current context. Returns the address.
///
/// # Errors
/// The driver's.
pub(super) fn make(mut block: Block) -> Result<u64, CUresult> {
    let base = unnoticed(|| vmm::allocate_managed(length(block.bytes)))?;
    let advice = [
        CUmem_advise::SET_PREFERRED_LOCATION,
        CUmem_advise::SET_ACCESSED_BY,
    ];
    for advice in advice {
        if let Err(why) = vmm::advise(base, length(block.bytes), advice, block.ordinal) {
            // The bytes are right wherever they are.
            tracing::debug!(?why, "the driver takes no advice");
        }
    }
    let mut at = base;
    let end = base + block.reserved;
    while at < end {
        let bytes = CHUNK.min(end - at);
        block.chunks.push(Chunk {
            at,
            bytes,
            used: bytes.min(base + block.bytes - at),
            valid: Valid::Managed { home: false },
            new: None,
        });
        at += bytes;
    }
    blocks().insert(base, block);
    Ok(base)
}

/// Frees the allocation at `base`. An allocation that the driver refuses to free stays. It is taken
/// out of the books first: once the driver has freed an address, another thread may be given it.
pub(super) fn free(base: u64) -> CUresult {
    let Some(block) = blocks().remove(base) else {
        return CUresult::INVALID_VALUE;
    };
    let answer = unnoticed(|| calls::free(base));
    if !answer.is_success() {
        blocks().put_back(base, block);
    }
    answer
}

/// Moves some chunks between the device and the host: those that are `home` or not, and of these
/// `most` bytes; what is beyond that is left to the driver. It is waited for. `None`: there are
/// none.
fn prefetch(
    streams: &mut Streams,
    device_index: usize,
    home: bool,
    most: u64,
) -> Option<Result<(), CUresult>> {
    let here = |chunk: &Chunk| matches!(chunk.valid, Valid::Managed { home: at } if at != home);
    let list = blocks().some(device_index, CHUNK, here);
    if list.is_empty() {
        return None;
    }
    let mut left = most;
    let moved = copied(streams, &list, |place, chunk, stream| {
        let to = if home {
            CU_DEVICE_CPU
        } else {
            let ordinal = blocks().ordinal(list[place].0);
            ordinal.ok_or(CUresult::INVALID_VALUE)?
        };
        let bytes = chunk.used.min(left / PAGE * PAGE);
        left = left.saturating_sub(chunk.bytes);
        match bytes {
            0 => Ok(()),
            _ => vmm::prefetch(chunk.at, length(bytes), to, stream),
        }
    });
    if let Err(uncopied) = moved {
        return Some(Err(uncopied.why()));
    }
    let mut blocks = blocks();
    for (base, index, _) in list {
        blocks.has_gone(base, index, home);
    }
    Some(Ok(()))
}

/// Moves some chunks of a device to the host.
pub(super) fn leave(streams: &mut Streams, device_index: usize) -> Moved {
    match prefetch(streams, device_index, true, u64::MAX) {
        None => Moved::All,
        Some(Ok(())) => Moved::Some,
        Some(Err(why)) => {
            tracing::warn!(
                ?why,
                "managed memory could not be moved to the host: it stays"
            );
            Moved::Failed(0)
        }
    }
}

/// The bytes that may come to a device now, of which so many are `booked` there for the tenant; 0:
/// it is not known how many. The driver's free memory does not tell: memory of pages at home stays
/// taken, which the driver gives away first and at no cost. Where more is charged than is to come,
/// each process of the tenant brings the same part of its own.
fn room(device_index: usize, booked: u64) -> u64 {
    let (device, ordinal, movable, here) = {
        let blocks = blocks();
        let mut all = blocks.map.values();
        let Some(block) = all.find(|block| block.device.index() == device_index) else {
            return u64::MAX;
        };
        let movable = blocks.movable[device_index];
        let here = movable - blocks.away[device_index];
        (block.device, block.ordinal, movable, here)
    };
    let Ok(total) = calls::total_memory(ordinal) else {
        // The driver makes room.
        return u64::MAX;
    };
    let total = total as u64;
    let (_, charged) = account::users(device_index);
    let booked = if booked == 0 { total } else { booked };
    let (part, of) = FILLED;
    let most = if charged <= total {
        booked
    } else {
        booked.min(total / of * part)
    };
    if charged <= most {
        return u64::MAX;
    }
    let own = account::holds(device);
    let stays = own.saturating_sub(movable);
    own_part(own, most, charged).saturating_sub(stays + here)
}

/// The part of `most` for a process that is charged with `own` of all that is `charged`.
fn own_part(own: u64, most: u64, charged: u64) -> u64 {
    let part = u128::from(own) * u128::from(most) / u128::from(charged.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Brings some chunks of a device back, as far as is booked there: the rest comes page by page, and
/// is sent home with the others when they leave.
pub(super) fn enter(streams: &mut Streams, device_index: usize, booked: u64) -> Moved {
    let most = room(device_index, booked);
    match prefetch(streams, device_index, false, most) {
        None => Moved::All,
        Some(Ok(())) => Moved::Some,
        Some(Err(why)) => {
            tracing::warn!(
                ?why,
                "managed memory could not be brought back: it stays away"
            );
            undo(streams, device_index);
            match failed::give_up(device_index, streams) {
                true => Moved::Some,
                false => Moved::Failed(0),
            }
        }
    }
}

/// Sends home what a return has brought, as far as the driver does: its bytes are right anywhere.
pub(super) fn undo(streams: &mut Streams, device_index: usize) {
    while let Some(Ok(())) = prefetch(streams, device_index, true, u64::MAX) {}
    blocks().are_home(device_index);
}
