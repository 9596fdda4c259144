//! The atomics the page is made of, or loom's under `--cfg loom`, so that the model checks the
//! shipped code.

#[cfg(all(loom, test))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(loom, test)))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
