//! Whether a call of another thread was left by a jump (`longjmp`), seen from this one.
//!
//! Two facts prove it. Either the call's place on the stack has been overwritten, or the thread
//! sleeps in the kernel with a stack that ends above the call. Without proof the call is taken to
//! be there. Why: ADR 35.

use crate::guest::background::Uncancelled;
use crate::guest::frames;
use crate::guest::sys;
use crate::guest::timed_lock::Holder;

/// Whether a call of a thread is certainly gone: it was left, or the thread has ended. A call that
/// the thread itself makes now, at `here`, tells more of an earlier one.
pub(crate) fn has_left(call: Holder, here: Holder) -> bool {
    if call.at == 0 {
        // Nothing is known of its place.
        return !sys::is_alive(call.thread);
    }
    if call.thread == here.thread && here.at != 0 {
        return frames::is_gone(call.at, here.at);
    }
    !frames::is_there(call.at) || sleeps_above(call.thread, call.at) || !sys::is_alive(call.thread)
}

/// Whether a thread sleeps with a stack that holds nothing at `at` any more.
pub(crate) fn sleeps_above(thread: i64, at: u64) -> bool {
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
    use crate::guest::frames::Place;

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

    #[test]
    fn a_call_is_left_once_its_thread_makes_another_from_there() {
        let place = Place::new();
        let thread = sys::this_thread();
        let call = |at| Holder { thread, at };
        let made = call(place.address());
        assert!(!has_left(made, call(made.at - 64)), "that one is inside it");
        assert!(has_left(made, made), "it is where the earlier one was");
        assert!(!has_left(call(0), made), "nothing is known of it");
    }

    #[test]
    fn a_call_of_a_thread_that_has_ended_is_left() {
        let ended = std::thread::spawn(sys::this_thread).join().unwrap();
        // `join` may return before the kernel has given up the thread's id.
        while sys::is_alive(ended) {
            std::thread::yield_now();
        }
        let call = |thread, at| Holder { thread, at };
        let here = call(sys::this_thread(), 0);
        let place = Place::new();
        assert!(has_left(call(ended, 0), here));
        assert!(has_left(call(ended, place.address()), here));
    }
}
