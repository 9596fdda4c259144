//! Which device may touch which other's memory.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::spec::MAX_DEVICES;

/// For each ordinal, the ordinals whose memory it may touch.
static ENABLED: [AtomicU32; MAX_DEVICES as usize] =
    [const { AtomicU32::new(0) }; MAX_DEVICES as usize];

/// Whether work on `from` may touch plain memory of `to`.
pub fn enabled(from: u32, to: u32) -> bool {
    ENABLED
        .get(from as usize)
        .is_some_and(|mask| mask.load(Ordering::Acquire) & (1 << to) != 0)
}
