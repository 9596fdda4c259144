//! One engine of a device as one context sees it: the multiprocessors, or a copy engine in one direction.
//!
//! Contexts, of whatever process, share an engine in time slices of at most [`SLICE`]. The whole agreement between them is one
//! shared word per engine, *busy until*: who wants a slice moves the word forward from the later of the word and the moment his
//! work could go on, and owns the span he moved it over ([`reserve`]). Contexts that always have work therefore alternate, a lone
//! one runs without gaps however late its threads wake, and a dead one holds the engine for one slice at most.
//!
//! A lane is a simulation: it moves only when told the time, so it is exact whatever the host's load.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::engine::OpId;

/// The longest time a context holds an engine before others get their turn (ns). NVIDIA documents no value; 2 ms is the
/// order of magnitude reported for its default time slice.
pub const SLICE: u64 = 2_000_000;

/// An operation on the engine: what is left of it and how much of the engine it takes.
#[derive(Debug, Clone, Copy)]
struct Job {
    op: OpId,
    /// Engine time still to be had (ns).
    left: u64,
    load: u64,
}

/// The queue and the running operations of one context on one engine.
#[derive(Debug)]
pub(super) struct Lane {
    /// Load that runs at one time; one job more loaded than that runs alone.
    capacity: u64,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    /// The moment up to which `running` is accounted; in the future while waiting for our turn.
    clock: u64,
    /// The end of the span we own.
    slice_end: u64,
    /// Engine time taken and not yet told to [`taken`](Self::taken) (ns).
    taken: u64,
}

/// Takes at most [`SLICE`] of the engine behind `word`, at the first free moment not before `from`; returns begin and end.
fn reserve(word: &AtomicU64, from: u64, wanted: u64) -> (u64, u64) {
    let length = wanted.clamp(1, SLICE);
    let mut until = word.load(Ordering::Acquire);
    loop {
        let begin = until.max(from);
        match word.compare_exchange_weak(until, begin + length, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => return (begin, begin + length),
            Err(seen) => until = seen,
        }
    }
}

impl Lane {
    /// An idle lane.
    pub(super) const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            waiting: VecDeque::new(),
            running: Vec::new(),
            clock: 0,
            slice_end: 0,
            taken: 0,
        }
    }

    /// Hands over `op`, which could start at `at` and needs the engine for `ns`.
    pub(super) fn push(&mut self, word: &AtomicU64, op: OpId, at: u64, ns: u64, load: u64) {
        self.advance(at);
        self.waiting.push_back(Job { op, left: ns, load });
        let idle = self.running.is_empty();
        self.admit();
        if idle {
            self.begin_slice(word, at);
        }
    }

    /// When something next happens here: an operation ends, or the slice does.
    pub(super) fn next_event(&self) -> Option<u64> {
        let shortest = self.running.iter().map(|job| job.left).min()?;
        Some((self.clock + shortest).min(self.slice_end))
    }

    /// Lets happen what [`next_event`](Self::next_event) announced for `at`; returns the operations that ended then.
    pub(super) fn step(&mut self, word: &AtomicU64, at: u64) -> Vec<OpId> {
        self.advance(at);
        let mut ended = Vec::new();
        self.running.retain(|job| {
            if job.left == 0 {
                ended.push(job.op);
            }
            job.left > 0
        });
        self.admit();
        if !self.running.is_empty() && at >= self.slice_end {
            self.begin_slice(word, at);
        }
        ended
    }

    fn advance(&mut self, to: u64) {
        let to = to.min(self.slice_end);
        let passed = to.saturating_sub(self.clock);
        for job in &mut self.running {
            job.left = job.left.saturating_sub(passed);
        }
        self.clock = self.clock.max(to);
    }

    /// Starts waiting operations in order while they fit beside the running ones.
    fn admit(&mut self) {
        let mut load: u64 = self.running.iter().map(|job| job.load).sum();
        while let Some(next) = self.waiting.front() {
            if !self.running.is_empty() && load.saturating_add(next.load) > self.capacity {
                break;
            }
            load = load.saturating_add(next.load);
            self.running.extend(self.waiting.pop_front());
        }
    }

    fn begin_slice(&mut self, word: &AtomicU64, from: u64) {
        let longest = self.running.iter().map(|job| job.left).max().unwrap_or(0);
        (self.clock, self.slice_end) = reserve(word, from, longest);
        self.taken += self.slice_end - self.clock;
    }

    /// Engine time this lane has taken since it was last asked (ns).
    pub(super) fn taken(&mut self) -> u64 {
        std::mem::take(&mut self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs lanes that share `word` until all are idle; returns (op, end) in order of time.
    fn drive(word: &AtomicU64, lanes: &mut [Lane]) -> Vec<(OpId, u64)> {
        let mut ends = Vec::new();
        while let Some((at, lane)) = lanes
            .iter_mut()
            .filter_map(|lane| Some((lane.next_event()?, lane)))
            .min_by_key(|(at, _)| *at)
        {
            ends.extend(lane.step(word, at).into_iter().map(|op| (op, at)));
        }
        ends
    }

    #[test]
    fn a_lone_operation_takes_exactly_its_time() {
        let word = AtomicU64::new(0);
        let mut lane = Lane::new(8);
        lane.push(&word, 1, 1_000, 7 * SLICE + 5, 1);
        assert_eq!(drive(&word, &mut [lane]), [(1, 1_000 + 7 * SLICE + 5)]);
    }

    #[test]
    fn operations_that_fit_run_side_by_side_and_others_wait_in_order() {
        let word = AtomicU64::new(0);
        let mut lane = Lane::new(8);
        lane.push(&word, 1, 0, 100, 4);
        lane.push(&word, 2, 0, 100, 4);
        lane.push(&word, 3, 10, 50, 4);
        assert_eq!(drive(&word, &mut [lane]), [(1, 100), (2, 100), (3, 150)]);
    }

    #[test]
    fn two_contexts_share_the_engine_in_turns() {
        let word = AtomicU64::new(0);
        let mut lanes = [Lane::new(1), Lane::new(1)];
        lanes[0].push(&word, 1, 0, 10 * SLICE, 1);
        lanes[1].push(&word, 2, 0, 10 * SLICE, 1);
        assert_eq!(drive(&word, &mut lanes), [(1, 19 * SLICE), (2, 20 * SLICE)]);
    }

    #[test]
    fn a_short_operation_waits_one_slice_behind_a_long_one() {
        let word = AtomicU64::new(0);
        let mut lanes = [Lane::new(1), Lane::new(1)];
        lanes[0].push(&word, 1, 0, 10 * SLICE, 1);
        lanes[1].push(&word, 2, 100, 500, 1);
        assert_eq!(
            drive(&word, &mut lanes),
            [(2, SLICE + 500), (1, 10 * SLICE + 500)]
        );
    }
}
