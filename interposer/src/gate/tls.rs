//! The calling thread's record, one load away.
//!
//! # Safety
//! Only the calling thread uses its own variable, which lives as long as the thread.
#![allow(unsafe_code, reason = "a thread-local of the initial-exec model")]

use crate::gate::word::Record;
use crate::guest::thread_word::thread_word;

thread_word!(gpushare_gate_record: *const Record);

/// The record, null before the thread's first launch.
#[inline(always)]
pub(crate) fn get() -> *const Record {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().read_volatile() }
}

/// From now on this one.
pub(crate) fn set(record: *const Record) {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().write_volatile(record) };
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn each_thread_has_its_own_and_begins_with_none() {
        let mine: *const Record = ptr::without_provenance(64);
        set(mine);
        let other = std::thread::spawn(|| {
            let before = get().addr();
            set(ptr::without_provenance(128));
            (before, get().addr())
        });
        assert_eq!(other.join().unwrap(), (0, 128));
        assert_eq!(get(), mine);
        set(ptr::null());
    }
}
