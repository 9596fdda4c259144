//! Whether a thread has left its launch by a jump (`longjmp`), seen from another thread. A gate can
//! then close although that thread never reports the end of its launch. Without proof the call is
//! taken to be there, which only delays the end of a turn.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Record;
use crate::guest::frames;
use crate::guest::left::sleeps_above;

/// Whether the call at `at`, which is inside by this record, is certainly gone.
pub(super) fn is_left(record: &Record, at: u64) -> bool {
    is_gone(record, &record.at, at)
}

/// The same of a call that touches device memory and passes no gate.
pub(super) fn has_left_touching(record: &Record) -> bool {
    let at = record.touches_at.load(Ordering::Acquire);
    is_gone(record, &record.touches_at, at)
}

fn is_gone(record: &Record, shown: &AtomicU64, at: u64) -> bool {
    if !frames::is_there(at) {
        return true;
    }
    let owner = record.owner.load(Ordering::Acquire);
    sleeps_above(owner.into(), at)
        // The thread may have begun another one meanwhile, which stays out of a closed gate.
        && shown.load(Ordering::Acquire) == at
}
