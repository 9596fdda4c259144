//! Whether a thread has left its launch by a jump (`longjmp`), seen from another thread. A gate can
//! then close although that thread never reports the end of its launch.
//!
//! Two facts prove it. Either the call's place on the stack has been overwritten, or the thread
//! sleeps in the kernel with a stack that ends above the call. Without proof the call is taken to
//! be there, which only delays the end of a turn.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Record;
use crate::guest::background::Uncancelled;
use crate::guest::frames;

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

/// The same of any call of a thread, with a frame at `at`.
pub(crate) fn has_left(thread: i64, at: u64) -> bool {
    !frames::is_there(at) || sleeps_above(thread, at)
}

fn sleeps_above(thread: i64, at: u64) -> bool {
    stack_of(thread).is_some_and(|stack| is_above(stack, at))
}

/// The longest stack that is taken for one (bytes): a handler's own stack lies farther away.
const LONGEST: u64 = 8 << 20;

/// Whether a stack that ends at `stack` holds nothing at `at` any more.
fn is_above(stack: u64, at: u64) -> bool {
    stack
        .checked_sub(at)
        .is_some_and(|apart| apart > 0 && apart < LONGEST)
}

/// Where the stack of a thread of this process ends that sleeps in a system call.
fn stack_of(thread: i64) -> Option<u64> {
    let _uncancelled = Uncancelled::begin();
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    stack_in(&text)
}

/// The stack pointer in a line of `/proc/PID/syscall`: `number arguments stack instruction`, or
/// `running`.
fn stack_in(text: &str) -> Option<u64> {
    let stack = text.split_ascii_whitespace().rev().nth(1)?;
    u64::from_str_radix(stack.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_of_a_sleeping_thread_is_read_and_of_a_running_one_is_not() {
        let sleeps = "202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffd1000 0x7f0012\n";
        assert_eq!(stack_in(sleeps), Some(0x7ffd_1000));
        assert_eq!(stack_in("-1 0x7ffd2000 0x7f0012\n"), Some(0x7ffd_2000));
        for none in ["running\n", "", "x y z"] {
            assert_eq!(stack_in(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_stack_that_ends_above_a_call_holds_it_no_more() {
        assert!(is_above(0x2000, 0x1000));
        assert!(!is_above(0x1000, 0x2000), "it may be there");
        assert!(!is_above(0x1000, 0x1000));
        assert!(!is_above(LONGEST * 2, 0x1000), "another stack");
    }
}
