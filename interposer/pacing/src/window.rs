//! How much work may be in flight: work submitted and not known to be complete, by stream, counted
//! in expected time.
//!
//! *Marks* show that work is complete, one behind each batch of operations in a stream. A batch is
//! closed by a mark after [`BATCH_OPS`] operations, [`BATCH_AGE`], or a quarter of the window in
//! expected time. So the window always holds several marks, and completion is noticed soon. Pure:
//! times are `CLOCK_MONOTONIC` nanoseconds passed in; the type of a mark (`M`) is the caller's.

mod admission;
mod batches;
mod beside;
mod going;
mod streams;

use crate::estimate::{Estimates, Service, Timed};
use crate::queue::{Batch, Queue, School, Seen};
pub use crate::queue::{Op, StreamKey};
use beside::Width;
use streams::Longest;

/// Operations between marks.
pub const BATCH_OPS: u32 = 256;
/// Nanoseconds between marks.
pub const BATCH_AGE: u64 = 5_000_000;
/// Nanoseconds between two looks at the marks while so much is under way that they are worth it. A
/// look asks the driver, which took 1.3 us on an H100 (driver 580.159.04): at each launch that
/// would be half as long as the launch.
pub const LOOK: u64 = 20_000;

/// The bounds of submissions while the gate is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Most un-drained work, in expected nanoseconds.
    pub window: u64,
    /// When everything should be complete; `u64::MAX` for no such time.
    pub deadline: u64,
}

/// May an operation be submitted?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes.
    Go,
    /// Not before about so many nanoseconds have passed: look at the marks then and ask again.
    Wait(u64),
    /// Not in this turn: it would not be complete by the deadline.
    Over,
}

/// The work in flight on one device.
#[derive(Debug)]
pub struct Window<M> {
    estimates: Estimates,
    /// Streams with work that is not known to be complete.
    queues: Vec<Queue<M>>,
    /// Admitted and not yet submitted: operations, expected nanoseconds.
    reserved: (u32, u64),
    /// Expected nanoseconds of everything submitted and not known to be complete.
    total: u64,
    /// The latest time at which something was known to be under way.
    busy_until: u64,
    /// Since when work was in flight that [`take_busy`](Self::take_busy) has not returned.
    unpaid_from: Option<u64>,
    /// Whether anything was submitted in this turn.
    began: bool,
    /// Waited for room, and lets half the window empty before more goes in.
    full: bool,
    /// When something was last submitted.
    pub last_submitted: u64,
    /// When something was last submitted or seen to be complete.
    stirred: u64,
    /// Launches since then that went on though nothing of what is under way was complete.
    went_on: u32,
    /// The last operation submitted before the last of those, and until when that may have ended
    /// it.
    freed: (u64, u64),
    /// A launch waits at the closed gate.
    keeps: bool,
    /// As [`freed`](Self::freed), of the last launch that the closed gate kept.
    kept: (u64, u64),
    /// Until when the device is known to have worked for [`Seen::ran`].
    ran_until: u64,
    /// Operations submitted so far.
    submitted: u64,
    /// Batches so far.
    numbers: u64,
    /// Since when no other tenant's work was on the device; `u64::MAX` while some may be.
    alone_since: u64,
    /// For how long that was so, in all, up to when it was last known (ns).
    alone: (u64, u64),
    /// Completed work that [`take_service`](Self::take_service) has not returned.
    service: Service,
    /// The time of one stream alone.
    streams: Longest,
    /// How many streams run side by side.
    width: Width,
    /// [`School::crowd`] and [`School::share`], and up to when they are known.
    shares: (u64, u64),
    counted_until: u64,
}

impl<M> Default for Window<M> {
    fn default() -> Self {
        Self {
            estimates: Estimates::default(),
            queues: Vec::new(),
            reserved: (0, 0),
            total: 0,
            busy_until: 0,
            unpaid_from: None,
            began: false,
            full: false,
            last_submitted: 0,
            stirred: 0,
            went_on: 0,
            freed: (0, 0),
            keeps: false,
            kept: (0, 0),
            ran_until: 0,
            submitted: 0,
            numbers: 0,
            alone_since: 0,
            alone: (0, 0),
            service: Service::default(),
            streams: Longest::default(),
            width: Width::default(),
            shares: (0, 0),
            counted_until: 0,
        }
    }
}

impl<M> Window<M> {
    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.began = false;
        self.full = false;
    }

    /// Operations that were admitted were submitted to `stream_key`. `true` if a mark belongs
    /// behind them.
    pub fn submitted(&mut self, now: u64, bounds: Bounds, stream_key: StreamKey, op: Op) -> bool {
        let ns = op.ns();
        self.put_back(op.count, ns);
        self.last_submitted = now;
        self.stirred = now;
        self.unpaid_from.get_or_insert(now);
        self.busy_until = self.busy_until.max(now);
        self.total = self.total.saturating_add(ns);
        self.submitted += u64::from(op.count);
        let number = self.submitted;
        if self.is_drained() {
            self.streams.from = now;
        }
        let queue = self.queue(stream_key, now);
        queue.push(now, number, op);
        let has = queue.has;
        let wants_mark = !op.expected.known
            || queue.unmarked.count >= BATCH_OPS
            || queue.unmarked.ns >= bounds.window / 4
            || now.saturating_sub(queue.since) >= BATCH_AGE;
        self.streams.has = self.streams.has.max(has);
        wants_mark
    }

    fn queue(&mut self, stream_key: StreamKey, now: u64) -> &mut Queue<M> {
        let at = self
            .queues
            .iter()
            .position(|queue| queue.stream_key == stream_key);
        let at = at.unwrap_or_else(|| {
            let shares = self.counted(now);
            let queue = Queue::new(stream_key, now, self.alone.0, shares);
            self.queues.push(queue);
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// An operation of `key` is submitted: whether it is to be timed by events.
    pub fn is_timed(&mut self, key: u64) -> bool {
        self.estimates.submit(key)
    }

    /// Operations were submitted to `stream_key` without having been admitted.
    pub fn came(&mut self, now: u64, bounds: Bounds, stream_key: StreamKey, op: Op) {
        self.estimates.submitted(op.key, op.count);
        self.set_aside(op.count, op.ns());
        let _ = self.submitted(now, bounds, stream_key, op);
    }

    /// How many more operations of `key` may come without being asked about.
    pub fn untimed(&mut self, key: u64) -> u32 {
        self.estimates.untimed(key)
    }

    /// How many nanoseconds of work may come without a check, and for how long (ns), at `now`:
    /// until a mark is due, or the work in flight should be checked.
    pub fn open(&self, now: u64, bounds: Bounds) -> Option<(u64, u64)> {
        let is_batch = |queue: &Queue<M>| queue.unmarked.count >= BATCH_OPS;
        if self.full || self.queues.iter().any(is_batch) {
            return None;
        }
        let (most_of_all, for_long) = if self.is_half_full(bounds) {
            (bounds.window, LOOK)
        } else {
            (bounds.window / 2, u64::MAX)
        };
        let unmarked = self.queues.iter().filter(|queue| queue.unmarked.count > 0);
        let (most, oldest) = unmarked.fold((0, now), |(most, oldest), queue| {
            (queue.unmarked.ns.max(most), queue.since.min(oldest))
        });
        let all = self.total.saturating_add(self.reserved.1);
        let room = most_of_all.saturating_sub(all);
        let room = room.min((bounds.window / 4).saturating_sub(most));
        let age = |oldest: u64| oldest.saturating_add(BATCH_AGE).saturating_sub(now);
        let age = match age(oldest) {
            // A mark behind the whole context may stand for work that has none of its own.
            0 => age(self.oldest_unmarked().unwrap_or(now)),
            left => left,
        };
        let age = age.min(for_long);
        (room > 0 && age > 0).then_some((room, age))
    }

    /// Whether work of another tenant may be on the device, at `now`: then what marks say teaches
    /// nothing.
    pub fn contends(&mut self, now: u64, contended: bool) {
        let was_alone = self.alone_since != u64::MAX;
        if was_alone && !contended {
            let (sum, until) = self.alone;
            self.alone.0 = sum.saturating_add(now.saturating_sub(until));
        }
        self.alone.1 = now;
        if contended {
            self.alone_since = u64::MAX;
        } else if self.alone_since == u64::MAX {
            self.alone_since = now;
        }
    }

    /// The driver's time slice, in nanoseconds; 0: not known.
    pub fn set_slice(&mut self, slice: u64) {
        self.estimates.set_slice(slice);
    }

    fn known(&mut self, stream_key: StreamKey) -> Option<&mut Queue<M>> {
        self.queues
            .iter_mut()
            .find(|queue| queue.stream_key == stream_key)
    }

    /// Checks the marks: calls `is_passed` for the oldest of each stream, and for the next ones
    /// while they are passed. Passed marks go to `passed`, which returns the time of the operation
    /// before one if it was timed.
    pub fn look(
        &mut self,
        now: u64,
        is_passed: impl FnMut(&M) -> bool,
        passed: impl FnMut(M) -> Option<Timed>,
    ) {
        self.look_except(now, |_| false, is_passed, passed);
    }

    /// The same where the streams of which `is_left_out` says so cannot be asked: nothing is known
    /// of them.
    pub fn look_except(
        &mut self,
        now: u64,
        is_left_out: impl Fn(&StreamKey) -> bool,
        mut is_passed: impl FnMut(&M) -> bool,
        mut passed: impl FnMut(M) -> Option<Timed>,
    ) {
        let beside = self.side_by_side();
        let _ = self.counted(now);
        for at in 0..self.queues.len() {
            if is_left_out(&self.queues[at].stream_key) {
                continue;
            }
            let (queue, mut school) = self.pupil(at);
            let is_passed = &mut |batch: &Batch<M>| batch.mark.as_ref().is_some_and(&mut is_passed);
            let seen = queue.look(now, beside, &mut school, is_passed, &mut passed);
            let context = queue.stream_key.context;
            self.note(now, at, seen);
            if seen.for_context > 0 {
                let is_beside = |stream_key: &StreamKey| stream_key.context == context;
                self.finish_until(now, is_beside, seen.for_context, false, &mut passed);
            }
        }
        if self.queues.iter().any(|queue| queue.seen_running == now) {
            self.busy_until = self.busy_until.max(now);
        }
        self.forget_empty();
    }

    /// A stream's work, and the estimates that a look at it updates.
    fn pupil(&mut self, at: usize) -> (&mut Queue<M>, School<'_>) {
        let school = School {
            estimates: &mut self.estimates,
            crowd: self.shares.0,
            share: self.shares.1,
            alone_since: self.alone_since,
            alone: self.alone.0,
            freed: self.freed,
            kept: self.kept,
        };
        (&mut self.queues[at], school)
    }

    fn note(&mut self, now: u64, at: usize, mut seen: Seen) {
        if let Some(ran) = seen.first {
            self.widen(now, at, ran);
        }
        // Streams that were busy side by side had the device together only once.
        let ran = seen.ran.1.saturating_sub(seen.ran.0.max(self.ran_until));
        self.ran_until = self.ran_until.max(seen.ran.1);
        seen.service.longer = ran.saturating_sub(seen.service.all());
        if seen.until > 0 {
            self.stirred = now;
            self.went_on = 0;
        }
        if seen.freed {
            // The time for which this library kept the launch is not the program's.
            let went = self.freed.1.saturating_sub(admission::FREED);
            self.unpaid_from = self.unpaid_from.map(|from| from.max(went));
        }
        self.total = self.total.saturating_sub(seen.done);
        self.busy_until = self.busy_until.max(seen.until);
        self.service.add(seen.service);
        self.streams.completed(seen.had, seen.service);
    }

    /// The work completed since the last call.
    pub fn take_service(&mut self) -> Service {
        core::mem::take(&mut self.service)
    }

    /// When something was last submitted or known to be under way.
    pub fn last_active(&self) -> u64 {
        self.last_submitted.max(self.busy_until)
    }

    /// How far submission has come: for [`waited_for`](Self::waited_for).
    pub fn stamp(&self) -> u64 {
        self.submitted
    }

    /// The program waited for everything that had been submitted to these streams at `stamp`; if it
    /// `blocked`, the last of it was done only now. Marks that are not needed any more go to
    /// `passed`.
    pub fn waited_for(
        &mut self,
        now: u64,
        is_stream: impl Fn(&StreamKey) -> bool,
        stamp: u64,
        blocked: bool,
        mut passed: impl FnMut(M) -> Option<Timed>,
    ) {
        self.finish_until(now, is_stream, stamp, blocked, &mut passed);
        self.forget_empty();
    }

    fn finish_until(
        &mut self,
        now: u64,
        is_stream: impl Fn(&StreamKey) -> bool,
        stamp: u64,
        blocked: bool,
        passed: &mut impl FnMut(M) -> Option<Timed>,
    ) {
        let beside = self.side_by_side();
        let _ = self.counted(now);
        for at in 0..self.queues.len() {
            if is_stream(&self.queues[at].stream_key) {
                let (queue, mut school) = self.pupil(at);
                let seen = queue.finish_until(now, beside, stamp, blocked, &mut school, passed);
                self.note(now, at, seen);
            }
        }
    }

    fn forget_empty(&mut self) {
        self.queues.retain(|queue| !queue.is_empty());
        if self.is_drained() {
            self.drained();
        }
    }

    /// Expected nanoseconds until all admitted work and work in flight is complete. Work that takes
    /// longer than expected is expected to take as long again.
    pub fn remaining(&self, now: u64) -> u64 {
        self.left(now).saturating_add(self.overdue())
    }

    /// As [`remaining`](Self::remaining), and 0 once it should be complete.
    pub fn left(&self, now: u64) -> u64 {
        let total = self.total.saturating_add(self.reserved.1);
        total.saturating_sub(self.spent(now))
    }

    /// How much longer than expected the oldest work has been seen to take.
    fn overdue(&self) -> u64 {
        let beside = self.side_by_side();
        let overdue = self.queues.iter().map(|queue| queue.overdue(beside));
        overdue.max().unwrap_or(0)
    }

    /// Streams with work that is not known to be complete.
    pub fn streams(&self) -> impl Iterator<Item = StreamKey> + '_ {
        self.queues.iter().map(|queue| queue.stream_key)
    }

    /// The work of `stream_key` is known under another name from now on.
    pub fn rename(&mut self, stream_key: StreamKey, name: StreamKey) {
        if let Some(queue) = self.known(stream_key) {
            queue.stream_key = name;
        }
    }

    /// Whether there is a mark to ask.
    pub fn has_marks(&self) -> bool {
        let mut fronts = self.queues.iter().filter_map(|queue| queue.marked.front());
        fronts.any(|batch| batch.mark.is_some())
    }

    /// Whether nothing is under way or about to be.
    pub fn is_empty(&self) -> bool {
        self.reserved.0 == 0 && self.is_drained()
    }

    /// Whether nothing that was submitted is under way.
    pub fn is_drained(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether so much is under way that it is worth looking at the marks.
    pub fn is_half_full(&self, bounds: Bounds) -> bool {
        self.total >= bounds.window / 2 || self.queues.iter().any(|queue| queue.marked.len() >= 4)
    }

    /// No launch is inside any more: admissions without a later report are dropped.
    pub fn nobody_inside(&mut self) {
        self.reserved = (0, 0);
    }

    /// The time since this was last asked in which something was under way, as far as is known:
    /// from its beginning to its end. `None` while that may wait for a launch: a gate that this
    /// closes would not open for it. The time is told once it is known whether it did.
    pub fn take_busy(&mut self, now: u64) -> Option<(u64, u64)> {
        let from = self.unpaid_from?;
        if self.is_stuck() || self.went_on > 0 && now <= self.freed.1 {
            return None;
        }
        let sure = self.busy_until.min(now);
        let beside = self.side_by_side();
        let ends = self.queues.iter().map(|queue| queue.ends_at(beside));
        let until = ends.fold(sure, |until, end| until.max(end.min(now)));
        self.unpaid_from = (!self.is_drained()).then_some(until);
        Some((from, until.max(from)))
    }
}

#[cfg(test)]
mod tests;
