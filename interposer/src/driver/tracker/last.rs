//! The calling thread's last current context, one load away.
//!
//! # Safety
//! Only the calling thread uses its own variable, which lives as long as the thread.
#![allow(unsafe_code, reason = "a thread-local of the initial-exec model")]

use gpushare_cuda_abi::cuda::CUcontext;

use super::state::Here;
use crate::guest::thread_word::thread_word;

/// What the thread last found out.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Valid at this epoch; epochs begin at 1.
    epoch: u64,
    asked: CUcontext,
    here: Here,
}

thread_word!(gpushare_last_context: Last, 32);

/// Where a context is, as the thread found out at this epoch. `None`: it asked for another one.
#[inline(always)]
pub(super) fn get(epoch: u64, asked: CUcontext) -> Option<Here> {
    let last = cell();
    // SAFETY: the calling thread's own variable: zeros, which are numbers and null handles, or what
    // `set` wrote.
    let last = unsafe { &*last };
    (last.epoch == epoch && last.asked == asked).then_some(last.here)
}

/// From now on this is known.
pub(super) fn set(epoch: u64, asked: CUcontext, here: Here) {
    let last = Last { epoch, asked, here };
    // SAFETY: the calling thread's own variable.
    unsafe { cell().write(last) };
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::super::state::ContextId;
    use super::*;
    use crate::driver::device::DeviceKey;

    fn handle(at: usize) -> CUcontext {
        CUcontext(ptr::without_provenance_mut(at))
    }

    fn known(epoch: u64, at: usize) -> Option<ContextId> {
        get(epoch, handle(at)).map(|here| here.context)
    }

    #[test]
    fn a_thread_knows_the_context_that_it_asked_for_at_that_epoch() {
        let here = || Here {
            device: DeviceKey::default(),
            context: ContextId(3),
            handle: handle(64),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(known(1, 64), None);
                set(1, handle(64), here());
                assert_eq!(known(1, 64), Some(ContextId(3)));
                assert_eq!((known(2, 64), known(1, 128)), (None, None));
                let other = scope.spawn(|| known(1, 64));
                assert_eq!(other.join().unwrap(), None);
            });
        });
    }
}
