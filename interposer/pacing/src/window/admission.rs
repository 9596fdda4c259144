//! Whether one more operation may be submitted now, and the reservation for it meanwhile; what
//! makes its expected duration doubtful.

use super::{Answer, Bounds, StreamKey, Window};
use crate::estimate::Expected;
use crate::queue::Queue;

/// The shortest time worth waiting for (ns): going to sleep and waking costs as much.
const SHORTEST_WAIT: u64 = 50_000;
/// The longest time between two looks, whatever is expected (ns).
const LONGEST_WAIT: u64 = 2_000_000;
/// Work under way of which nothing is complete for twice its expected time, and for so long at
/// least (ns), may wait for a launch that comes after it: for a value that this or its stream
/// writes. Ten slices of the driver's, so that several other tenants may have had the device
/// meanwhile.
const STUCK: u64 = 20_000_000;
/// Work that ends so soon after such a launch (ns) is taken to have waited for it.
pub(super) const FREED: u64 = 10_000_000;
/// The longest time after which such a launch goes, whatever is expected (ns).
const PATIENCE: u64 = 10_000_000_000;

impl<M> Window<M> {
    /// The expected duration of one operation of `key`.
    pub fn expected(&self, bounds: Bounds, key: u64) -> Expected {
        self.estimates.of(key, bounds.window / 4)
    }

    /// Whether no operation of `key` has been launched in this `era`, as far as is known.
    pub fn is_first(&self, key: u64, era: u32) -> bool {
        self.estimates.is_first(key, era)
    }

    /// One was.
    pub fn launched(&mut self, key: u64, era: u32) {
        self.estimates.launched(key, era);
    }

    /// Operations of `key` may be other work than before. `true` if the next ones are timed now.
    pub fn doubt(&mut self, key: u64) -> bool {
        self.estimates.doubt(key)
    }

    /// Whether what is known of some key has changed much since the last call.
    pub fn take_doubt(&mut self) -> bool {
        self.estimates.take_doubt()
    }

    /// Operations of `key` are other work from now on.
    pub fn forget_key(&mut self, key: u64) {
        self.estimates.forget(key);
    }

    /// Asks to submit one operation that is expected to take so long to `stream_key`. Where the
    /// answer is `Go`, [`submitted`](Self::submitted) or [`put_back`](Self::put_back) follows. With
    /// `insists`, and where the work under way is [stuck](Self::is_stuck), it goes though there is
    /// no room.
    pub fn admit(
        &mut self,
        now: u64,
        bounds: Bounds,
        stream_key: StreamKey,
        expected: Expected,
        insists: bool,
    ) -> Answer {
        let ns = expected.ns;
        let half = bounds.window / 2;
        // Where no deadline holds and so little is under way that nothing has to be worked out.
        let all = self.total.saturating_add(self.reserved.1);
        let is_plain = bounds.deadline == u64::MAX && !self.full;
        if is_plain && all.saturating_add(ns) <= half {
            return self.go(now, ns);
        }
        let left = self.remaining(now);
        let end = now.saturating_add(left).saturating_add(ns);
        // The first operation of a turn always fits, however long: otherwise it would never run.
        if now >= bounds.deadline || (self.began && end > bounds.deadline) {
            return Answer::Over;
        }
        // The work in flight when the gate closes is a window and one operation, or a long
        // operation and half a window: enough to keep the device busy while a thread wakes.
        let room = if ns <= bounds.window && !self.full {
            bounds.window
        } else {
            half
        };
        let has_room = left <= room
            || self.is_empty()
            || self.fits_beside(now, half, stream_key, expected)
            || self.begins_beside(stream_key);
        let goes = has_room || insists || self.is_stuck();
        self.full = !goes;
        if self.full {
            return Answer::Wait(self.pause(now, left - half));
        }
        if !has_room {
            self.goes_on(now);
        }
        self.go(now, ns)
    }

    /// Whether the work under way may wait for a launch that has not been made: as far as it was
    /// seen to run, in a process that was not stopped. One launch goes then; the next one, if that
    /// changes nothing, after twice as long.
    pub fn is_stuck(&self) -> bool {
        let least = STUCK << self.went_on.min(8);
        let patience = self.total.saturating_mul(2).clamp(least, PATIENCE);
        let seen = self.queues.iter().map(|queue| queue.seen_running).max();
        seen.is_some_and(|seen| seen >= self.stirred.saturating_add(patience))
    }

    /// Whether [`take_busy`](Self::take_busy) has time to tell, now or later.
    pub fn is_unpaid(&self) -> bool {
        self.unpaid_from.is_some()
    }

    /// As [`take_busy`](Self::take_busy) where the process ends: work under way that may have
    /// waited for a launch does not wait for one any more. So its time is told as far as it was
    /// seen to run, unless a launch went on for it lately.
    pub fn take_last(&mut self, now: u64) -> Option<(u64, u64)> {
        let seen = self.queues.iter().map(|queue| queue.seen_running).max();
        match (self.unpaid_from, seen) {
            (Some(from), Some(seen)) if self.is_stuck() && self.went_on == 0 => {
                self.unpaid_from = None;
                Some((from, seen.min(now).max(from)))
            }
            _ => self.take_busy(now),
        }
    }

    /// Whether time has been kept back by [`take_busy`](Self::take_busy) for as long as work that
    /// may wait for a launch runs, or longer.
    pub fn owes(&self, now: u64) -> bool {
        let unpaid = self.unpaid_from.map(|from| now.saturating_sub(from));
        unpaid.is_some_and(|unpaid| unpaid >= STUCK)
    }

    /// A launch goes on that the work under way may wait for. Work that ends right after it is no
    /// measurement: that would be the time for which this library kept the launch, and the next
    /// one would be kept twice as long.
    pub fn goes_on(&mut self, now: u64) {
        self.went_on = self.went_on.saturating_add(1);
        self.freed = (self.submitted, now.saturating_add(FREED));
    }

    /// A launch waits at the closed gate. Work that ends right after it goes may have waited for
    /// it, and had nothing of the device meanwhile.
    pub fn keeps(&mut self) {
        self.keeps = true;
    }

    /// One goes, at `now`, maybe the one that was kept.
    fn go(&mut self, now: u64, expected: u64) -> Answer {
        if core::mem::take(&mut self.keeps) {
            self.kept = (self.submitted, now.saturating_add(FREED));
        }
        self.began = true;
        self.set_aside(1, expected);
        Answer::Go
    }

    /// Operations that were set aside, and not submitted yet.
    pub fn awaited(&self) -> u32 {
        self.reserved.0
    }

    /// So many operations that are expected to take so long together are about to be submitted.
    pub fn set_aside(&mut self, count: u32, expected: u64) {
        self.reserved.0 = self.reserved.0.saturating_add(count);
        self.reserved.1 = self.reserved.1.saturating_add(expected);
    }

    /// Until one should look again, when `excess` nanoseconds too much are under way. Work that was
    /// never measured may be complete at any time: it is looked at once it has run for half as long
    /// again.
    fn pause(&self, now: u64, excess: u64) -> u64 {
        let overdue = self.overdue();
        let pause = if overdue > 0 { overdue / 4 } else { excess };
        let unknown = self.queues.iter().filter_map(Queue::unknown_since);
        let ran = unknown.map(|since| now.saturating_sub(since) / 2).min();
        let pause = pause.min(ran.unwrap_or(pause));
        pause.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// So many that were set aside are not submitted after all, or will be set aside again.
    pub fn put_back(&mut self, count: u32, ns: u64) {
        self.reserved.0 = self.reserved.0.saturating_sub(count);
        self.reserved.1 = self.reserved.1.saturating_sub(ns);
    }
}
