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
    /// The moment up to which `running` is accounted.
    clock: u64,
    /// The end of this lane's last turn; between turns it is not after `clock`.
    slice_end: u64,
    /// Engine time taken and not yet returned by [`taken`](Self::taken) (ns).
    taken: u64,
}

impl Lane {
    /// An idle lane.
    pub(super) const fn new(capacity: u64, seat: usize) -> Self {
        Self {
            capacity,
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: Vec::new(),
            seat,
            read: 0,
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

    /// Whether operations or events are pending.
    fn wants(&self) -> bool {
        !self.running.is_empty() || !self.events.is_empty()
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
            let begun = turns.next(self.seat, &mut read).map(|(begin, _)| begin);
            begun.unwrap_or_else(|| turns.expected(self.seat))
        })
    }

    /// Processes the moment `at` that [`next_event`](Self::next_event) announced. Returns the
    /// operations that ended then, and the events that completed. The caller then calls
    /// [`claim`](Self::claim).
    pub(super) fn step(&mut self, turns: &Turns<'_>, at: u64) -> Vec<OpId> {
        self.advance(at);
        let mut ended = Vec::new();
        self.running.retain(|job| {
            if job.left == 0 {
                ended.push(job.op);
            }
            job.left > 0
        });
        self.admit();
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
    pub(super) fn claim(&self, turns: &Turns<'_>, ahead: impl Fn(OpId) -> u64) {
        let running = self.running.iter().map(|job| job.left + ahead(job.op));
        let events = self.events.iter().map(|op| PASSING + ahead(*op));
        let longest = running.chain(events).max();
        let granted = self.slice_end.saturating_sub(self.clock);
        turns.claim(
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
        let Some((begin, end)) = turns.next(self.seat, &mut self.read) else {
            return false;
        };
        (self.clock, self.slice_end) = (begin, end);
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
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::super::turns::{Pace, WORDS, had};
    use super::*;
    use crate::spec::SLICE;

    /// Contexts on one engine. Each has operations that follow one another.
    struct Engine {
        words: Vec<AtomicU64>,
        pace: Pace,
        lanes: Vec<(Lane, Vec<(OpId, u64)>)>,
    }

    const ALL_LIVE: &dyn Fn(u64) -> bool = &|_| true;

    impl Engine {
        fn new(lanes: usize, capacity: u64) -> Self {
            Self::paced(lanes, capacity, Pace::default())
        }

        fn paced(lanes: usize, capacity: u64, pace: Pace) -> Self {
            let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
            let turns = Turns::new(&words, ALL_LIVE, pace);
            let seat = |_| turns.sit(1).unwrap();
            let lanes = (0..lanes)
                .map(seat)
                .map(|seat| (Lane::new(capacity, seat), Vec::new()))
                .collect();
            Self { words, pace, lanes }
        }

        /// Operations of `ns` each, submitted at `at`; each waits for the one before.
        fn chain(&mut self, lane: usize, first: OpId, at: u64, ns: &[u64]) {
            let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
            let (lane, rest) = &mut self.lanes[lane];
            rest.extend((first + 1..).zip(ns[1..].iter().copied()));
            lane.push(&turns, first, at, ns[0], 1);
            claim(lane, rest, &turns);
        }

        /// Lets one lane catch up with `now`, as its process does when it wakes.
        fn wake(&mut self, lane: usize, now: u64, ends: &mut Vec<(OpId, u64)>) {
            let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
            let (lane, rest) = &mut self.lanes[lane];
            turns.run(now, lane.seat());
            while let Some(at) = lane.next_event(&turns).filter(|at| *at <= now) {
                for op in lane.step(&turns, at) {
                    ends.push((op, at));
                    if !rest.is_empty() {
                        let (op, ns) = rest.remove(0);
                        lane.push(&turns, op, at, ns, 1);
                    }
                }
                claim(lane, rest, &turns);
            }
        }

        /// Wakes all lanes every `grain` until `end`; returns (op, end) in the order of their ends.
        fn drive(&mut self, grain: u64, end: u64) -> Vec<(OpId, u64)> {
            let mut ends = Vec::new();
            for now in (0..=end / grain).map(|step| step * grain) {
                (0..self.lanes.len()).for_each(|lane| self.wake(lane, now, &mut ends));
            }
            ends.sort_by_key(|(op, at)| (*at, *op));
            ends
        }
    }

    fn claim(lane: &Lane, rest: &[(OpId, u64)], turns: &Turns<'_>) {
        let ahead: u64 = rest.iter().map(|(_, ns)| ns).sum();
        lane.claim(turns, |_| ahead);
    }

    #[test]
    fn a_lone_operation_takes_exactly_its_time() {
        let mut engine = Engine::new(1, 8);
        engine.chain(0, 1, 1_000, &[7 * SLICE + 5]);
        assert_eq!(engine.drive(100, 8 * SLICE), [(1, 1_000 + 7 * SLICE + 5)]);
    }

    #[test]
    fn the_log_names_the_owner_and_the_span_of_each_turn() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 1_000, &[500]);
        engine.wake(0, 2_000, &mut Vec::new());
        engine.chain(1, 2, 5_000, &[300]);
        engine.wake(1, 6_000, &mut Vec::new());
        let owners: Vec<u64> = (2..).zip(&engine.lanes).map(|(owner, _)| owner).collect();
        let turns = Turns::new(&engine.words, ALL_LIVE, engine.pace);
        for (owner, (lane, _)) in owners.iter().zip(&engine.lanes) {
            turns.rise(lane.seat());
            assert_eq!(turns.sit(*owner), Some(lane.seat()));
        }
        let (log, place) = had(&engine.words, 0);
        let log: Vec<_> = log
            .iter()
            .map(|turn| (turn.owner, turn.from, turn.to))
            .collect();
        assert_eq!(log, [(2, 1_000, 1_500), (3, 5_000, 5_300)]);
        assert_eq!(had(&engine.words, place), (vec![], place));
    }

    #[test]
    fn operations_that_fit_run_concurrently_and_the_rest_wait_in_order() {
        let mut engine = Engine::new(1, 8);
        let (lane, _) = &mut engine.lanes[0];
        let turns = Turns::new(&engine.words, ALL_LIVE, engine.pace);
        for (op, at, ns) in [(1, 0, 100), (2, 0, 100), (3, 10, 50)] {
            lane.push(&turns, op, at, ns, 4);
            lane.claim(&turns, |_| 0);
        }
        assert_eq!(engine.drive(10, 1000), [(1, 100), (2, 100), (3, 150)]);
    }

    #[test]
    fn two_contexts_share_the_engine_in_turns() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 0, &[10 * SLICE]);
        engine.chain(1, 2, 0, &[10 * SLICE]);
        assert_eq!(
            engine.drive(SLICE / 4, 20 * SLICE),
            [(1, 19 * SLICE), (2, 20 * SLICE)]
        );
    }

    #[test]
    fn a_short_operation_waits_one_slice_behind_a_long_one() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 0, &[10 * SLICE]);
        engine.wake(0, 50, &mut Vec::new());
        engine.chain(1, 2, 100, &[500]);
        assert_eq!(
            engine.drive(100, 11 * SLICE),
            [(2, SLICE + 500), (1, 10 * SLICE + 500)]
        );
    }

    #[test]
    fn a_context_with_short_operations_in_a_row_keeps_its_turn() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 0, &[5 * SLICE]);
        engine.chain(1, 10, 0, &[SLICE / 40; 200]);
        let ends = engine.drive(SLICE / 2, 10 * SLICE);
        assert!(ends.contains(&(1, 9 * SLICE)), "{ends:?}");
        assert!(ends.contains(&(209, 10 * SLICE)), "{ends:?}");
    }

    #[test]
    fn turns_do_not_depend_on_when_a_process_wakes() {
        let run = |grains: [u64; 3]| {
            let mut engine = Engine::new(3, 1);
            engine.chain(0, 1, 0, &[30 * SLICE]);
            engine.chain(1, 10, 0, &[SLICE / 4; 80]);
            engine.chain(2, 100, 0, &[3 * SLICE / 2; 10]);
            let mut ends = Vec::new();
            for now in (0..=70 * SLICE).step_by(100_000) {
                for (lane, grain) in grains.iter().enumerate() {
                    if now % grain == 0 {
                        engine.wake(lane, now, &mut ends);
                    }
                }
            }
            ends.sort_by_key(|(op, at)| (*at, *op));
            ends
        };
        let exact = run([100_000, 100_000, 100_000]);
        assert_eq!(exact.len(), 91);
        assert_eq!(exact.last(), Some(&(1, 65 * SLICE)));
        assert_eq!(
            run([100_000, 35 * SLICE, 100_000]),
            exact,
            "one process wakes late"
        );
        assert_eq!(
            run([14 * SLICE, 70 * SLICE, 10 * SLICE]),
            exact,
            "all processes wake late"
        );
    }

    /// A context switch takes 30 us after a gap, and 70 us in the middle of work.
    const SLOW: Pace = Pace {
        slice: SLICE / 2,
        switch: 30_000,
        preempt: 70_000,
    };

    #[test]
    fn a_preempting_context_switch_costs_time_that_no_context_gets() {
        let mut engine = Engine::paced(2, 1, SLOW);
        engine.chain(0, 1, 0, &[5 * SLICE]);
        engine.chain(1, 2, 0, &[5 * SLICE]);
        let (slices, changes) = (20 * SLOW.slice, 18 * SLOW.preempt);
        assert_eq!(
            engine.drive(SLICE / 4, 12 * SLICE),
            [
                (1, slices - SLOW.slice + changes),
                (2, slices + changes + SLOW.switch)
            ],
            "the last switch follows work that has ended"
        );
        let taken = |lane: &mut (Lane, Vec<_>)| lane.0.taken();
        let taken: Vec<u64> = engine.lanes.iter_mut().map(taken).collect();
        assert_eq!(taken, [5 * SLICE, 5 * SLICE]);
    }

    #[test]
    fn a_context_switch_after_idle_time_delays_the_next_context_once() {
        let mut engine = Engine::paced(2, 1, SLOW);
        engine.chain(0, 1, 1_000, &[500]);
        assert_eq!(
            engine.drive(100, 10_000),
            [(1, 1_500)],
            "no context had the engine before"
        );
        engine.chain(1, 2, 20_000, &[500]);
        assert_eq!(engine.drive(100, 80_000), [(2, 50_500)]);
        engine.chain(1, 3, 90_000, &[500]);
        assert_eq!(
            engine.drive(100, 99_000),
            [(3, 90_500)],
            "the context already had the engine"
        );
    }

    #[test]
    fn context_switches_do_not_depend_on_when_a_process_wakes() {
        let run = |late: u64| {
            let mut engine = Engine::paced(2, 1, SLOW);
            engine.chain(0, 1, 0, &[10 * SLICE]);
            engine.chain(1, 10, 0, &[SLICE / 8; 40]);
            let mut ends = Vec::new();
            for now in (0..=20 * SLICE).step_by(100_000) {
                engine.wake(0, now, &mut ends);
                if now % late == 0 {
                    engine.wake(1, now, &mut ends);
                }
            }
            ends.sort_by_key(|(op, at)| (*at, *op));
            ends
        };
        let exact = run(100_000);
        assert_eq!(exact.len(), 41);
        assert_eq!(run(10 * SLICE), exact);
    }

    #[test]
    fn a_dead_process_gets_no_turn() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 10, &[10 * SLICE]);
        engine.chain(1, 2, 10, &[3 * SLICE]);
        let turns = Turns::new(&engine.words, &|_| false, Pace::default());
        turns.run(20 * SLICE, 1);
        assert_eq!(turns.until(), 10 + 3 * SLICE);
    }

    #[test]
    fn engine_time_served_equals_the_work_submitted() {
        let mut engine = Engine::new(2, 1);
        engine.chain(0, 1, 5, &[123_456; 50]);
        engine.chain(1, 100, 70_000, &[7 * SLICE + 1, 11]);
        engine.drive(777_777, 20 * SLICE);
        let taken: Vec<u64> = engine
            .lanes
            .iter_mut()
            .map(|(lane, _)| lane.taken())
            .collect();
        assert_eq!(taken, [50 * 123_456, 7 * SLICE + 12]);
    }
}
