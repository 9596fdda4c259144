//! Waiting for the timeline. A waiting thread does not hold its lock, and wakes at the next moment
//! at which something can happen.

use std::sync::MutexGuard;
use std::time::Duration;

use super::apply::apply;
use super::clock;
use super::engine::{OpId, Timeline};
use super::{DONE, lock};

/// Shorter waits are spun: waking from a sleep costs as much (ns).
const SPIN: u64 = 60_000;
/// The longest sleep if only the application can end the wait, by a host function or by a value it
/// writes (ns).
const PATIENCE: u64 = 10_000_000;

/// Returns when `targets` are complete: the hardware would be done and their effects have happened.
pub(super) fn complete(targets: &[OpId]) {
    let timeline = until(lock(), |timeline| {
        targets.iter().all(|op| timeline.is_finished(*op))
    });
    drop(apply(timeline, targets));
}

/// Waits until `done` holds.
pub(super) fn until(
    mut timeline: MutexGuard<'_, Timeline>,
    done: impl Fn(&Timeline) -> bool,
) -> MutexGuard<'_, Timeline> {
    loop {
        let now = timeline.catch_up();
        if done(&timeline) {
            return timeline;
        }
        let rest = timeline
            .next_event()
            .map_or(PATIENCE, |at| at.saturating_sub(now));
        if rest > SPIN {
            timeline = DONE.wait(
                timeline,
                Some(Duration::from_nanos(rest.min(PATIENCE) - SPIN / 2)),
            );
        } else {
            drop(timeline);
            while clock::now() < now + rest {
                std::thread::yield_now();
            }
            timeline = lock();
        }
    }
}

/// Whether `targets` are finished now; if so, their effects have happened on return.
pub(super) fn poll(targets: &[OpId]) -> bool {
    let mut timeline = lock();
    timeline.catch_up();
    let done = targets.iter().all(|op| timeline.is_finished(*op));
    if done {
        drop(apply(timeline, targets));
    }
    done
}
