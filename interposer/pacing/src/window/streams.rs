//! How streams that are busy side by side share the device, and for how long one of them has what
//! was submitted to it. An operation's expected duration is its part of the time; a stream does one
//! thing at a time, so where it is busy alone it has the device for longer than that says. Why: ADR
//! 208.

use super::{BATCH_AGE, StreamKey, Window};
use crate::estimate::Service;
use crate::queue::Queue;

/// A stream that has less than this part of the work of the one that has the most is not busy
/// beside it for long.
const MUCH: u64 = 4;
/// A stream that is launched into more often than once in this time (ns) gets its marks from that.
const STEADY: u64 = 1_000_000;

/// Since nothing was under way: streams are busy side by side, but each does one thing at a time.
#[derive(Debug, Default)]
pub(super) struct Longest {
    /// The most that a stream has, of what was submitted and of what is complete (ns).
    pub(super) has: u64,
    had: u64,
    /// When the first of it was submitted.
    pub(super) from: u64,
    /// The parts of the time that all completed operations take together (ns).
    credited: u64,
    /// Since when the youngest work has no mark of which [`lags`](Window::lags) has said so.
    called: u64,
}

impl Longest {
    /// Work is complete; its stream had it, and what was before it, for `had` nanoseconds.
    pub(super) fn completed(&mut self, had: u64, service: Service) {
        self.had = self.had.max(had);
        self.credited = self.credited.saturating_add(service.all());
    }
}

impl<M> Window<M> {
    /// Streams with work behind which there is no mark, and since when.
    pub fn unmarked_streams(&self) -> impl Iterator<Item = (StreamKey, u64)> + '_ {
        self.unmarked_queues()
            .map(|queue| (queue.stream_key, queue.since))
    }

    fn unmarked_queues(&self) -> impl Iterator<Item = &Queue<M>> {
        self.queues.iter().filter(|queue| self.is_unmarked(queue))
    }

    fn is_unmarked(&self, queue: &Queue<M>) -> bool {
        queue.unmarked.count > 0 && !self.is_covered(queue)
    }

    /// Since when some stream has work behind which there is no mark.
    pub(super) fn oldest_unmarked(&self) -> Option<u64> {
        self.unmarked_queues().map(|queue| queue.since).min()
    }

    /// After a launch into `stream_key`: whether another stream's work has had no mark for so long
    /// that no launch into it is likely to put one soon. Said once of each such work.
    pub fn lags(&mut self, now: u64, stream_key: StreamKey) -> bool {
        let called = self.streams.called;
        // The cheapest test comes first: each launch that takes the lock runs it for all streams.
        let lags = |queue: &&Queue<M>| {
            queue.stream_key != stream_key
                && queue.since > called
                && now.saturating_sub(queue.since) >= BATCH_AGE + STEADY
                && self.is_unmarked(queue)
        };
        let lagging = self.queues.iter().filter(lags);
        let since = lagging.map(|queue| queue.since).max();
        self.streams.called = since.unwrap_or(called);
        since.is_some()
    }

    /// Whether a mark behind all work of its context stands for a stream.
    fn is_covered(&self, queue: &Queue<M>) -> bool {
        let context = StreamKey::of_context(queue.stream_key.context);
        let all = self.queues.iter().filter(|all| all.stream_key == context);
        let mut marks = all.flat_map(|all| &all.marked);
        marks.any(|mark| mark.last >= queue.last)
    }

    /// For how long a stream has what was submitted to it, at least, since it or the device last
    /// had nothing (ns).
    pub fn in_stream(&self, stream_key: StreamKey) -> u64 {
        let mut queues = self.queues.iter();
        let queue = queues.find(|queue| queue.stream_key == stream_key);
        queue.map_or(0, |queue| queue.has)
    }

    /// The same of the stream that has the most.
    pub fn longest(&self) -> u64 {
        self.streams.has
    }

    /// From now on that is of what comes.
    pub fn counts_anew(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.has = 0);
        self.streams.has = 0;
    }

    /// Nothing is under way. Streams that were busy alone for a while have had more of the device
    /// than their parts of the time say.
    pub(super) fn drained(&mut self) {
        let Longest {
            had,
            from,
            credited,
            ..
        } = core::mem::take(&mut self.streams);
        // The times in the stream may be too long: they were learned while other streams, which are
        // idle now, delayed the operations.
        let had = had.min(self.stirred.saturating_sub(from));
        self.service.measured = self
            .service
            .measured
            .saturating_add(had.saturating_sub(credited));
        self.total = 0;
    }

    /// How many streams work side by side, as far as their work shows. A stream with little is soon
    /// done, and leaves the device to one with much.
    pub(super) fn side_by_side(&self) -> u64 {
        if self.queues.len() <= 1 {
            return 1;
        }
        let totals = || {
            let streams = self.queues.iter();
            streams
                .filter(|queue| !queue.stream_key.is_context())
                .map(Queue::total)
        };
        let least = totals().max().unwrap_or(0) / MUCH;
        totals().filter(|total| *total >= least).count().max(1) as u64
    }
}
