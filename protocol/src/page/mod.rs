//! The usage page: one shared file a tenant, in which each process records its charges.
//!
//! A page is a header, a table of devices, and 512 process slots. A slot has one cache line a
//! device, so that two processes never write to one line, and the heart of a line is one word:
//! {charged, credit}. *Charged* is the memory that the process has booked, *credit* the memory that
//! it may book without asking. Three rules make the quota hold:
//!
//! 1. `charged <= credit` in every word, by compare-and-swap;
//! 2. credit is raised only under the tenant lock, and then the sum of credit stays within the
//!    limit;
//! 3. the holder of the lock may lower another's credit as far as its charged bytes, and no
//!    further.
//!
//! So a tenant's charges stay within its limit however its processes race, and a process that dies
//! leaves nothing to repair: its words show its holdings. No lock lives in the page; see
//! [`lock_byte`].
//!
//! Within a major version the page keeps its length and its layout: a later minor gives reserved
//! words a meaning, and moves none. Programs keep their page while the daemon is upgraded or
//! downgraded.

pub mod control;
mod credit;
mod layout;
pub mod lease;
#[cfg(test)]
#[cfg(loom)]
mod model;
pub mod pending;
pub mod refused;
pub mod residency;
mod snapshot;
mod sync;
pub mod token;
mod watch;
mod word;

pub use credit::{Refusal, take};
pub use layout::{
    Device, Header, Line, MAGIC, MAJOR, MAX_DEVICES, MAX_SLOTS, MINOR, NO_LIMIT, PAGE_BYTES, Page,
    PageError, Slot, TEXT_MAX, lock_byte, slot_range,
};
pub use snapshot::{DeviceUse, ProcessUse, Snapshot, SnapshotDevice};
pub use watch::{Stamp, Watch, Writer};
pub use word::{Short, Split, Word};

/// Bytes in one unit of charge. The driver hands out linear memory in multiples of 512 bytes, so
/// nothing is lost.
pub const UNIT: u64 = 512;

/// The bytes of a line's overhead that were measured. A context that is not measured counts one
/// byte, so that a process with a context has more than none; the driver's memory comes in pages of
/// 4 KiB or more.
///
/// ```
/// use gpushare_protocol::page::measured;
/// assert_eq!((measured(0), measured(2)), (0, 0));
/// assert_eq!(measured((64 << 20) + 1), 64 << 20);
/// ```
pub const fn measured(overhead: u64) -> u64 {
    overhead & !4095
}

/// Most units one process can hold on one device: 2 TiB less one unit.
pub const MAX_UNITS: u32 = u32::MAX;

/// Units that hold `bytes`, rounded up; `None` above [`MAX_UNITS`].
///
/// ```
/// use gpushare_protocol::page::units_for;
/// assert_eq!(units_for(1), Some(1));
/// assert_eq!(units_for(512), Some(1));
/// assert_eq!(units_for(1 << 41), None);
/// ```
#[inline]
pub fn units_for(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(UNIT)).ok()
}

/// Whole units within a limit of `bytes`, rounded down: a limit is never exceeded by its rounding.
pub fn units_within(bytes: u64) -> u64 {
    bytes / UNIT
}
