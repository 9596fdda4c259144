//! Whether one more operation may be submitted now, and what is set aside for it meanwhile.

use super::{Answer, Bounds, Expected, Window};

/// The shortest time worth waiting for (ns): going to sleep and waking costs as much.
const SHORTEST_WAIT: u64 = 50_000;
/// The longest time between two looks, whatever is expected (ns).
const LONGEST_WAIT: u64 = 2_000_000;

impl<M> Window<M> {
    /// As [`admit_one`](Self::admit_one), for an operation of `key`.
    #[cfg(test)]
    pub(in crate::gate) fn admit(&mut self, now: u64, bounds: Bounds, key: u64) -> Answer {
        let expected = self.expected(bounds, key);
        self.admit_one(now, bounds, expected)
    }

    /// What one operation of `key` is expected to take.
    pub(in crate::gate) fn expected(&self, bounds: Bounds, key: u64) -> Expected {
        self.estimates.of(key, bounds.window / 4)
    }

    /// Asks to submit one operation that is expected to take so long now. Where the answer is `Go`,
    /// [`submitted`](Self::submitted) or [`refused`](Self::refused) follows.
    pub(in crate::gate) fn admit_one(
        &mut self,
        now: u64,
        bounds: Bounds,
        expected: Expected,
    ) -> Answer {
        let expected = expected.ns;
        let left = self.remaining(now);
        let end = now.saturating_add(left).saturating_add(expected);
        // The first operation of a turn is always one that fits, however long: otherwise it would
        // never run.
        let enough = bounds.is_step() || end > bounds.deadline;
        if now >= bounds.deadline || (self.began && enough) {
            return Answer::Land;
        }
        // What is under way when the gate closes is a window and one operation, or a long operation
        // and half a window: enough for the device not to run dry while a thread wakes.
        let room = if expected <= bounds.window {
            bounds.window
        } else {
            bounds.window / 2
        };
        let enough = if self.full {
            room.min(bounds.window / 2)
        } else {
            room
        };
        if left > enough && !self.is_empty() {
            self.full = true;
            let excess = left - room.min(bounds.window / 2);
            return Answer::Wait(self.pause(excess));
        }
        self.full = false;
        Answer::Go(self.reserve(expected))
    }

    /// As [`admit_one`](Self::admit_one) where no deadline holds and so little is under way that
    /// nothing has to be worked out.
    pub(in crate::gate) fn admit_at_once(
        &mut self,
        bounds: Bounds,
        expected: Expected,
    ) -> Option<u64> {
        let all = self.total.saturating_add(self.reserved.1);
        let has_plenty = all.saturating_add(expected.ns) <= bounds.window / 2;
        let is_plain = bounds.deadline == u64::MAX && !bounds.is_step() && !self.full;
        (has_plenty && is_plain).then(|| self.reserve(expected.ns))
    }

    /// Admits an operation for which there is no room. Nanoseconds that it counts for.
    pub(in crate::gate) fn admit_anyway(&mut self, bounds: Bounds, key: u64) -> u64 {
        self.reserve(self.expected(bounds, key).ns)
    }

    fn reserve(&mut self, expected: u64) -> u64 {
        self.began = true;
        self.reserved.0 += 1;
        self.reserved.1 = self.reserved.1.saturating_add(expected);
        expected
    }

    /// Until one should look again, when `excess` nanoseconds too much are under way.
    fn pause(&self, excess: u64) -> u64 {
        let overdue = self.overdue();
        let pause = if overdue > 0 { overdue / 4 } else { excess };
        pause.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// An operation that was admitted for `ns` was not submitted after all.
    pub(in crate::gate) fn refused(&mut self, ns: u64) {
        self.reserved.0 = self.reserved.0.saturating_sub(1);
        self.reserved.1 = self.reserved.1.saturating_sub(ns);
    }
}
