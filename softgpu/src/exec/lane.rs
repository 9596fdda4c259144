//! One engine of a device as one context sees it: the multiprocessors, or a copy engine in one
//! direction.
//!
//! Contexts of all processes share an engine in turns ([`turns`](super::turns)). A lane is a
//! simulation: it moves only when the caller passes the time, so it is exact whatever the host's
//! load.

use std::collections::VecDeque;

use super::engine::OpId;
use super::turns::Turns;

/// Engine time claimed for events (ns): a turn must have a length.
pub(crate) const PASSING: u64 = 1;

/// An operation on the engine: its remaining time and its load.
#[derive(Debug, Clone, Copy)]
struct Job {
    op: OpId,
    /// Remaining engine time (ns).
    left: u64,
    load: u64,
}

/// The queue and the running operations of one context on one engine.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// Load that can run at one time; a job with more load than this runs alone.
    capacity: u64,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    /// Events that complete when the context next has the engine.
    events: Vec<OpId>,
    /// Its seat among the contexts that share the engine.
    seat: usize,
    /// The place in the log of turns up to which it has read.
    read: u64,
    /// What it has claimed from there on (ns).
    claimed: u64,
    /// The moment up to which `running` is accounted.
    clock: u64,
    /// The end of this lane's last turn; between turns it is not after `clock`.
    slice_end: u64,
    /// Engine time taken and not yet returned by [`taken`](Self::taken) (ns).
    taken: u64,
}

impl Lane {
    /// An idle lane. It reads the log of turns from `place` on: what is before belongs to those who
    /// had the seat earlier.
    pub(super) const fn new(capacity: u64, seat: usize, place: u64) -> Self {
        Self {
            capacity,
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            seat,
            read: place,
            claimed: 0,
            clock: 0,
            slice_end: 0,
            taken: 0,
        }
    }

    /// Its seat among the contexts that share the engine.
    pub(super) fn seat(&self) -> usize {
        self.seat
    }

    /// Queues `op`, which can start at `at` and needs the engine for `ns`. The caller then calls
    /// [`claim`](Self::claim).
    pub(super) fn push(&mut self, turns: &Turns<'_>, op: OpId, at: u64, ns: u64, load: u64) {
        self.advance(at);
        let idle = !self.wants();
        self.waiting.push_back(Job { op, left: ns, load });
        self.admit();
        if idle {
            self.come(turns, at);
        }
    }

    /// Handles the event `op`, which has no unfinished predecessor at `at`. Returns true if it
    /// completes now: the context has the engine, or no context has it. Otherwise it completes when
    /// the context's next turn begins, and the caller then calls [`claim`](Self::claim).
    pub(super) fn pass(&mut self, turns: &Turns<'_>, op: OpId, at: u64) -> bool {
        turns.run(at, self.seat);
        if !turns.is_held_by_another(self.seat, at) {
            return true;
        }
        self.advance(at);
        let idle = !self.wants();
        self.events.push(op);
        if idle {
            self.come(turns, at);
        }
        false
    }

    /// Keeps `op`, which has just [ended](Self::step), on the engine for `ns` more from `at` on:
    /// what runs leaves its place to no other operation of its context, however long it runs. The
    /// caller then calls [`claim`](Self::claim).
    pub(super) fn stay(&mut self, turns: &Turns<'_>, op: OpId, at: u64, ns: u64, load: u64) {
        self.advance(at);
        let idle = !self.wants();
        self.running.push(Job { op, left: ns, load });
        if idle {
            self.come(turns, at);
        }
    }

    /// Whether operations or events are pending.
    fn wants(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty() || !self.events.is_empty()
    }

    /// Asks for a turn from `at` on after an idle time.
    fn come(&mut self, turns: &Turns<'_>, at: u64) {
        // A claim covers work that follows without a pause. So a turn may have time left, or
        // another turn may be in the log already.
        if at >= self.slice_end && !self.take_turn(turns) {
            turns.reach(at, self.seat);
            self.read = turns.place();
            self.clock = at;
        }
    }

    /// The next moment at which an operation ends, or a turn begins or ends.
    pub(super) fn next_event(&self, turns: &Turns<'_>) -> Option<u64> {
        if !self.wants() {
            return None;
        }
        Some(if self.clock < self.slice_end {
            let shortest = self.running.iter().map(|job| job.left).min();
            let first = shortest.filter(|_| self.events.is_empty()).unwrap_or(0);
            (self.clock + first).min(self.slice_end)
        } else {
            let mut read = self.read;
            let begun = turns
                .next(self.seat, &mut read, self.claimed)
                .map(|(begin, _)| begin);
            begun.unwrap_or_else(|| turns.expected(self.seat))
        })
    }

    /// Processes the moment `at` that [`next_event`](Self::next_event) announced. Returns the
    /// operations that ended then, and the events that completed. Of these operations some may
    /// [stay](Self::stay). The caller then calls [`claim`](Self::claim), which lets others begin in
    /// the place of the rest.
    pub(super) fn step(&mut self, turns: &Turns<'_>, at: u64) -> Vec<OpId> {
        self.advance(at);
        let mut ended = Vec::new();
        self.running.retain(|job| {
            if job.left == 0 {
                ended.push(job.op);
            }
            job.left > 0
        });
        if self.wants() && at >= self.slice_end && !self.take_turn(turns) {
            turns.run(at, self.seat);
            self.take_turn(turns);
        }
        if self.clock < self.slice_end {
            ended.append(&mut self.events);
        }
        ended
    }

    /// Changes the time that an operation still needs the engine for after `now`.
    pub(super) fn settle(&mut self, op: OpId, now: u64, left: impl Fn(u64) -> u64) {
        self.advance(now);
        let all = self.running.iter_mut().chain(&mut self.waiting);
        for job in all.filter(|job| job.op == op) {
            job.left = left(job.left);
        }
    }

    /// Publishes how much engine time this context certainly needs without a pause: at least
    /// `ahead(op)` follows each running operation and each pending event.
    pub(super) fn claim(&mut self, turns: &Turns<'_>, ahead: impl Fn(OpId) -> u64) {
        self.admit();
        let running = self.running.iter().map(|job| job.left + ahead(job.op));
        let events = self.events.iter().map(|op| PASSING + ahead(*op));
        let longest = running.chain(events).max();
        let granted = self.slice_end.saturating_sub(self.clock);
        self.claimed = turns.claim(
            self.seat,
            self.read,
            longest.unwrap_or(0).saturating_sub(granted),
        );
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

    /// Begins the next turn that the log holds for this seat, if there is one.
    fn take_turn(&mut self, turns: &Turns<'_>) -> bool {
        let Some((begin, end)) = turns.next(self.seat, &mut self.read, self.claimed) else {
            return false;
        };
        (self.clock, self.slice_end) = (begin, end);
        self.claimed = self.claimed.saturating_sub(end - begin);
        self.taken += end - begin;
        true
    }

    /// Engine time that the lane's operations still need at `now`, in sequence (ns).
    pub(super) fn left(&self, now: u64) -> u64 {
        let passed = now.min(self.slice_end).saturating_sub(self.clock);
        let running = self
            .running
            .iter()
            .map(|job| job.left.saturating_sub(passed));
        running.chain(self.waiting.iter().map(|job| job.left)).sum()
    }

    /// Engine time taken since the last call (ns).
    pub(super) fn taken(&mut self) -> u64 {
        std::mem::take(&mut self.taken)
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
