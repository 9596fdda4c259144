//! Waiting for the timeline: never with its lock held, and never longer than until something can
//! happen.

use std::sync::MutexGuard;
use std::time::Duration;

use super::apply::apply;
use super::clock;
use super::engine::{OpId, Timeline};
use super::{DONE, lock};

/// Waits shorter than this are spun: waking from a sleep costs as much (ns).
const SPIN: u64 = 60_000;
/// The longest sleep where only the application can end the wait, by a host function or a value it
/// writes (ns).
const PATIENCE: u64 = 10_000_000;

/// Returns when `targets` are complete: the hardware would be done and their effects have happened.
pub(super) fn complete(targets: &[OpId]) {
    let timeline = until(lock(), |timeline| {
        targets.iter().all(|op| timeline.is_finished(*op))
    });
    drop(apply(timeline, targets));
}

/// Lets time pass until `done` holds.
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

/// Whether `targets` are done now; if so they are complete on return.
pub(super) fn poll(targets: &[OpId]) -> bool {
    let mut timeline = lock();
    timeline.catch_up();
    let done = targets.iter().all(|op| timeline.is_finished(*op));
    if done {
        drop(apply(timeline, targets));
    }
    done
}
