//! A thread with a descriptor table of its own: descriptors that the program's other threads close
//! stay open there.
//!
//! Programs that become daemons close descriptors that they did not open. The control thread's
//! connection, bell and page must outlive that, or the process would have no place with its daemon
//! any more. So that thread takes its own copy of the table of descriptors, and closes in it all
//! that is not this library's.

use core::ffi::{c_int, c_uint};

use crate::guest::sys::{self, close_range};

/// `CLOSE_RANGE_UNSHARE` of the kernel's `linux/close_range.h`, since Linux 5.9.
const UNSHARE: c_uint = 1 << 1;

/// Gives the calling thread a table of its own in which only these numbers are open. `false` where
/// the system refuses; nothing has changed then.
pub(super) fn keep_only(kept: &[c_int]) -> bool {
    let mut kept: Vec<c_int> = kept.iter().copied().filter(|number| *number >= 0).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut first = 0;
    let mut gaps = Vec::with_capacity(kept.len() + 1);
    for number in kept {
        if number > first {
            gaps.push((first, number - 1));
        }
        first = number.saturating_add(1);
    }
    gaps.push((first, c_int::MAX));
    // The first call makes the table this thread's own, before it closes anything. Where that call
    // is not to be had, an older one does the first half.
    if !close_range(gaps[0].0, gaps[0].1, UNSHARE) {
        return false;
    }
    // A range that cannot be closed leaves copies of the program's descriptors, which keeps nothing
    // of ours from working.
    let rest = gaps.get(1..).unwrap_or(&[]);
    rest.iter()
        .all(|(first, last)| close_range(*first, *last, 0))
}

/// The calling thread's id in the kernel.
pub(super) fn this_thread() -> c_int {
    c_int::try_from(sys::this_thread()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    fn is_open(number: c_int) -> bool {
        sys::status(number).is_ok()
    }

    #[test]
    fn a_thread_keeps_its_own_and_closes_nothing_of_the_others() {
        let [ours, theirs] = [(); 2].map(|()| File::open("/dev/null").unwrap());
        let (kept, gone) = (ours.as_raw_fd(), theirs.as_raw_fd());
        let (there, here) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let apart = scope.spawn(|| {
                let apart = keep_only(&[kept]);
                let seen = (is_open(kept), is_open(gone));
                there.wait();
                here.wait();
                (apart, seen, is_open(kept))
            });
            there.wait();
            assert!(
                is_open(kept) && is_open(gone),
                "the other threads' table is whole"
            );
            drop(ours);
            here.wait();
            let (apart, seen, still) = apart.join().unwrap();
            if apart {
                assert_eq!((seen, still), ((true, false), true));
            } else {
                eprintln!("not runnable here: close_range cannot unshare");
                assert_eq!(seen, (true, true));
            }
        });
    }
}
