//! The calling thread's record, one load away.
//!
//! # Safety
//! Only the calling thread uses its own variable, which lives as long as the thread. Records are
//! never unmapped.
#![allow(unsafe_code, reason = "a thread-local of the initial-exec model")]

use crate::gate::word::Record;
use crate::guest::thread_word::thread_word;

thread_word!(gpushare_gate_record: *const Record);

/// The record, `None` before the thread's first launch.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Record> {
    // SAFETY: the calling thread's own variable: null, or a record, which stays mapped.
    unsafe { cell().read_volatile().as_ref() }
}

/// From now on this one.
pub(crate) fn set(record: Option<&'static Record>) {
    let record = record.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the calling thread's own variable.
    unsafe { cell().write_volatile(record) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::records::Records;

    /// Where the calling thread's record is.
    fn at() -> Option<usize> {
        get().map(|record| core::ptr::from_ref(record).addr())
    }

    #[test]
    fn each_thread_has_its_own_and_begins_with_none() {
        let records = Records::new();
        set(records.claim());
        let mine = at();
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let before = at();
                set(records.claim());
                (before, at())
            });
            other.join().unwrap()
        });
        assert!(other.0.is_none() && other.1.is_some() && other.1 != mine);
        assert_eq!(at(), mine);
        set(None);
        assert_eq!(at(), None);
    }
}
