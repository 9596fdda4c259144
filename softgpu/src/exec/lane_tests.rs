//! Tests of lanes, each on an engine without a device.

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
            .map(|seat| (Lane::new(capacity, seat, 0), Vec::new()))
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

fn claim(lane: &mut Lane, rest: &[(OpId, u64)], turns: &Turns<'_>) {
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
fn an_operation_that_stays_makes_no_room_for_those_behind_it() {
    let mut engine = Engine::new(1, 8);
    let (lane, _) = &mut engine.lanes[0];
    let turns = Turns::new(&engine.words, ALL_LIVE, engine.pace);
    for op in [1, 2] {
        lane.push(&turns, op, 0, 100, 8);
        lane.claim(&turns, |_| 0);
    }
    let mut ends = Vec::new();
    while let Some(at) = lane.next_event(&turns).filter(|at| *at <= 1000) {
        for op in lane.step(&turns, at) {
            if op == 1 && at < 300 {
                lane.stay(&turns, op, at, 100, 8);
            } else {
                ends.push((op, at));
            }
        }
        lane.claim(&turns, |_| 0);
    }
    assert_eq!(ends, [(1, 300), (2, 400)]);
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

#[test]
fn a_context_on_a_seat_given_back_takes_none_of_its_turns() {
    let mut engine = Engine::new(1, 1);
    engine.chain(0, 1, 1_000, &[10 * SLICE]);
    engine.drive(SLICE, 11 * SLICE);
    let turns = Turns::new(&engine.words, ALL_LIVE, engine.pace);
    turns.rise(engine.lanes[0].0.seat());
    engine.lanes[0].0 = Lane::new(1, turns.sit(2).unwrap(), turns.place());
    engine.chain(0, 2, 12 * SLICE, &[3 * SLICE]);
    assert_eq!(engine.drive(SLICE, 16 * SLICE), [(2, 15 * SLICE)]);
}

/// Lane 1 has work for `slices` in operations of a slice; only its process wakes meanwhile.
fn beside_a_stopped_one(slices: usize, stopped: &[u64]) -> (Engine, Vec<(OpId, u64)>) {
    let mut engine = Engine::new(2, 1);
    engine.chain(0, 1_000_000, 0, stopped);
    engine.wake(0, 0, &mut Vec::new());
    engine.chain(1, 10, 0, &vec![SLICE; slices]);
    let mut ends = Vec::new();
    for now in (0..=3 * slices as u64).map(|step| step * SLICE) {
        engine.wake(1, now, &mut ends);
    }
    (engine, ends)
}

#[test]
fn a_stopped_process_keeps_its_turns_for_as_long_as_it_has_work() {
    let (mut engine, ends) = beside_a_stopped_one(5_000, &[50_000 * SLICE]);
    assert_eq!(ends.last(), Some(&(5_009, 10_000 * SLICE)));
    // It has had half of them, and all since then; on waking it knows that.
    let mut late = Vec::new();
    engine.wake(0, 60_000 * SLICE, &mut late);
    assert_eq!(late, [(1_000_000, 55_000 * SLICE)]);
    assert_eq!(engine.lanes[0].0.taken(), 50_000 * SLICE);
}

#[test]
fn a_stopped_process_ends_each_of_its_operations_once_and_in_time() {
    let (mut engine, _) = beside_a_stopped_one(5_000, &[SLICE; 8_000]);
    let mut late = Vec::new();
    engine.wake(0, 60_000 * SLICE, &mut late);
    assert_eq!(late.len(), 8_000);
    assert_eq!(late.last(), Some(&(1_007_999, 13_000 * SLICE)));
    assert!(late.windows(2).all(|two| two[0].1 < two[1].1));
    assert_eq!(engine.lanes[0].0.taken(), 8_000 * SLICE);
}

#[test]
fn a_stopped_process_without_more_work_gets_no_more_turns() {
    let (mut engine, ends) = beside_a_stopped_one(5_000, &[100 * SLICE]);
    assert_eq!(ends.last(), Some(&(5_009, 5_100 * SLICE)));
    let mut late = Vec::new();
    engine.wake(0, 20_000 * SLICE, &mut late);
    assert_eq!(late.len(), 1, "its work is done: {late:?}");
    assert!(late[0].1 <= 5_100 * SLICE, "{late:?}");
    assert_eq!(engine.lanes[0].0.taken(), 100 * SLICE);
}
