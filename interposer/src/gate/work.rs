//! Whether the process has work on a device, answered without a driver call: it has none as long as
//! it has submitted nothing since all of its work was complete.
//!
//! Each submission is counted in its thread's record once the driver has it, and stream memory
//! operations are counted by the seal. While a call is in the driver it may have submitted
//! something or not, so the answer is unknown. It is unknown, too, while the process exits, when
//! launches are not counted.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::page::MAX_DEVICES;

use super::{GATE, seal};
use crate::guest::exit;

/// By device, the count of submissions at a time when all of them were complete, and one more; 0 if
/// that is not known.
static COMPLETE: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// The process's submissions so far, and one more. `None`: one may be under way.
#[inline]
pub(crate) fn so_far() -> Option<NonZeroU64> {
    if exit::is_leaving() {
        return None;
    }
    let counted = GATE.records.counted()?;
    NonZeroU64::new(counted.wrapping_add(seal::operations()).wrapping_add(1))
}

/// All that was submitted up to a count is complete on a device.
pub(crate) fn done(device_index: usize, up_to: Option<NonZeroU64>) {
    if let (Some(complete), Some(up_to)) = (COMPLETE.get(device_index), up_to) {
        complete.store(up_to.get(), Ordering::Release);
    }
}

/// Whether the process has submitted nothing since.
#[inline]
pub(crate) fn is_done(device_index: usize) -> bool {
    was_done(device_index, so_far())
}

/// Whether the process had submitted nothing since, when its submissions were `so_far`.
#[inline]
pub(crate) fn was_done(device_index: usize, so_far: Option<NonZeroU64>) -> bool {
    let complete = COMPLETE.get(device_index);
    let complete = complete.map_or(0, |complete| complete.load(Ordering::Acquire));
    so_far.is_some_and(|so_far| so_far.get() == complete)
}

/// A forked child has submitted nothing. Stores only.
pub(super) fn after_fork_in_child() {
    for complete in &COMPLETE {
        complete.store(0, Ordering::Relaxed);
    }
}
