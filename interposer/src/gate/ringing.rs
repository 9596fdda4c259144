//! Rings for a thread of this library's own, and wakes it.

use core::sync::atomic::AtomicU32;

use crate::gate::bell::Bell;

/// A bell that was not rung.
pub(crate) const fn silent() -> Bell {
    Bell::of(AtomicU32::new(0), AtomicU32::new(0))
}

/// Has the bell's thread look at once. `wakes` all that sleep where it does, up to `tries` times:
/// the thread may be about to fall asleep. The ring is lost where all of them come between the
/// thread's last look at the bell and its sleep. A thread that waits for it rings [`again`], and it
/// looks by itself within a second.
pub(crate) fn ring(bell: &Bell, tries: u32, wakes: impl Fn()) {
    let mut left = tries;
    bell.ring(wakes, || {
        left = left.saturating_sub(1);
        if left > 0 {
            std::thread::yield_now();
        }
        left > 0
    });
}

/// A thread waits for what the bell's thread was rung for: wakes it once more, if it may not have
/// heard.
pub(crate) fn again(bell: &Bell, wakes: impl Fn()) {
    if bell.is_unheard() {
        wakes();
    }
}
