//! The clock of the daemon's deadlines (std's `Instant` hides the number that processes share), and
//! the processor's own counter beside it.

use core::sync::atomic::{AtomicU64, Ordering};

use gpushare_protocol::time_namespace::Offsets;

use crate::guest::sys;
pub(crate) use crate::guest::sys::ticks;

/// How far `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` are ahead of the machine's here (ns), as a two's
/// complement.
static AHEAD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The machine's `CLOCK_MONOTONIC` in nanoseconds, also in a time namespace once that is known.
pub(crate) fn now() -> u64 {
    sys::monotonic().wrapping_sub(AHEAD[0].load(Ordering::Relaxed))
}

/// Finds out how far this process's time namespace is ahead, and keeps what it found before where
/// that cannot be known. To be called before any time that
/// [`now`] says is shared, and in a forked child, which may be in another one.
pub(crate) fn find_namespace() {
    let Some(here) = Offsets::known() else {
        return;
    };
    for (ahead, found) in AHEAD.iter().zip([here.monotonic, here.boottime]) {
        ahead.store(found.cast_unsigned(), Ordering::Relaxed);
    }
}

/// The time namespace as it was last found.
pub(crate) fn offsets() -> Offsets {
    let [monotonic, boottime] = [0, 1].map(|at: usize| AHEAD[at].load(Ordering::Relaxed));
    Offsets {
        monotonic: monotonic.cast_signed(),
        boottime: boottime.cast_signed(),
    }
}

/// Ticks in 2^20 ns, as last measured; 0 while that is unknown.
static RATE: AtomicU64 = AtomicU64::new(0);
/// Where the measurement began: ticks, and nanoseconds or 0.
static BEGAN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The shortest and the longest time of a measurement (ns): bounded by the clock's own cost, and by
/// how soon a changed frequency must be noticed.
const MEASURED: (u64, u64) = (1_000_000, 1_000_000_000);

/// Measures the length of a tick, against the time `now`. Called repeatedly.
pub(crate) fn measure_ticks(now: u64) {
    let ticks = ticks();
    let [first, since] = [0, 1].map(|at: usize| BEGAN[at].load(Ordering::Relaxed));
    let time = now.saturating_sub(since);
    if since > 0 && time >= MEASURED.0 {
        let rate = (u128::from(ticks.saturating_sub(first)) << 20) / u128::from(time);
        RATE.store(u64::try_from(rate).unwrap_or(0), Ordering::Relaxed);
    }
    if since == 0 || time >= MEASURED.1 {
        BEGAN[0].store(ticks, Ordering::Relaxed);
        BEGAN[1].store(now, Ordering::Relaxed);
    }
}

/// Ticks in so many nanoseconds. `None` while that is unknown.
pub(crate) fn ticks_in(ns: u64) -> Option<u64> {
    let rate = RATE.load(Ordering::Relaxed);
    let ticks = (u128::from(ns) * u128::from(rate)) >> 20;
    (rate > 0).then(|| u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// Nanoseconds in so many ticks; 0 while that is unknown.
pub(crate) fn ns_in(ticks: u64) -> u64 {
    let rate = u128::from(RATE.load(Ordering::Relaxed));
    let ns = (u128::from(ticks) << 20).checked_div(rate).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_worth_what_the_clock_says() {
        let mut all = Vec::new();
        let is_right = |all: &mut Vec<_>| {
            measure_ticks(now());
            let (first, began) = (ticks(), now());
            while now() - began < 20 * MEASURED.0 {
                core::hint::spin_loop();
            }
            measure_ticks(now());
            let (took, said) = (now() - began, ns_in(ticks() - first));
            all.push((said, took));
            said.abs_diff(took) <= took / 10
        };
        // A thread that stands still between its looks at the two spoils a round.
        assert!((0..100).any(|_| is_right(&mut all)), "{all:?}");
        let back = ns_in(ticks_in(1_000_000).unwrap());
        assert!(back.abs_diff(1_000_000) <= 1_000, "{back}");
    }
}
