//! Whether a thread has left its launch by a jump (`longjmp`), seen from another thread. A gate can
//! then close although that thread never reports the end of its launch. Without proof the call is
//! taken to be there, which only delays the end of a turn.

use std::sync::atomic::{AtomicU64, Ordering};

use super::word::{self, Record};
use crate::guest::frames;
use crate::guest::left::sleeps_above;

/// Whether the call that this record has `shown` as inside is certainly gone.
pub(super) fn is_left(record: &Record, shown: u64) -> bool {
    is_gone(record, &record.inside, shown)
}

/// The same of a call that touches device memory and passes no gate.
pub(super) fn has_left_touching(record: &Record, shown: u64) -> bool {
    is_gone(record, &record.touching, shown)
}

fn is_gone(record: &Record, shows: &AtomicU64, shown: u64) -> bool {
    let frame = word::frame_of(shown);
    if !frames::is_there(frame) {
        return true;
    }
    let owner = record.owner.seen().thread();
    sleeps_above(owner.into(), frame)
        // The thread may have begun another one meanwhile, which stays out of a closed gate.
        && shows.load(Ordering::Acquire) == shown
}
