//! Tests of the round robin model.

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// A context switch takes 30 us after a gap, and 70 us in the middle of work.
const SLOW: Pace = Pace {
    slice: 2 * MS,
    switch: 30 * US,
    preempt: 70 * US,
};

fn stretch(seat: Option<Seat>, from: u64, to: u64) -> Given {
    Given { seat, from, to }
}

#[test]
fn two_busy_contexts_get_a_slice_each_in_turns() {
    let mut engine = RoundRobin::new(Pace::default());
    let (one, two) = (engine.sit().unwrap(), engine.sit().unwrap());
    (0..10).for_each(|_| _ = engine.submit(one, 500 * US));
    let last = (0..10).map(|_| engine.submit(two, 500 * US)).last();
    assert_eq!(engine.complete(one), Some(9 * MS));
    assert_eq!(engine.complete(two), Some(10 * MS));
    let given = engine.advance(20 * MS);
    let expected = [
        (one, 0, 2),
        (two, 2, 4),
        (one, 4, 6),
        (two, 6, 8),
        (one, 8, 9),
    ];
    let expected = expected.map(|(seat, from, to)| stretch(Some(seat), from * MS, to * MS));
    assert_eq!(given[..5], expected);
    assert_eq!(given[5..], [stretch(Some(two), 9 * MS, 10 * MS)]);
    let ended = engine.take_ended();
    assert_eq!(ended.len(), 20);
    let (seat, op, at) = (two, last.unwrap(), 10 * MS);
    assert_eq!(ended.last(), Some(&Ended { seat, op, at }));
    assert_eq!(engine.take_ended(), []);
}

#[test]
fn a_context_without_work_ends_its_turn_at_once() {
    let mut engine = RoundRobin::new(Pace::default());
    let (one, two) = (engine.sit().unwrap(), engine.sit().unwrap());
    engine.submit(one, 500 * US);
    engine.submit(two, 5 * MS);
    engine.advance(500 * US);
    engine.submit(one, 500 * US);
    assert_eq!(
        engine.complete(one),
        Some(3 * MS),
        "after the slice of the other context"
    );
    engine.advance(3 * MS);
    assert_eq!((engine.left(one), engine.left(two)), (0, 3 * MS));
}

#[test]
fn advance_reports_a_running_turn_up_to_the_present() {
    let mut engine = RoundRobin::new(Pace::default());
    let seat = engine.sit().unwrap();
    engine.advance(100);
    engine.submit(seat, 1_000);
    assert_eq!(engine.next(), Some(100), "a turn begins");
    assert_eq!(engine.advance(400), [stretch(Some(seat), 100, 400)]);
    assert_eq!((engine.left(seat), engine.next()), (700, Some(1_100)));
    assert_eq!(engine.advance(5_000), [stretch(Some(seat), 400, 1_100)]);
    assert_eq!((engine.next(), engine.complete(seat)), (None, None));
}

#[test]
fn a_context_switch_is_reported_and_serves_no_context() {
    let mut engine = RoundRobin::new(SLOW);
    let (one, two) = (engine.sit().unwrap(), engine.sit().unwrap());
    engine.submit(one, 3 * MS);
    engine.submit(two, MS);
    let given = engine.advance(10 * MS);
    let (first, second) = (2 * MS, 3 * MS + 70 * US);
    let expected = [
        stretch(Some(one), 0, first),
        stretch(None, first, first + 70 * US),
        stretch(Some(two), first + 70 * US, second),
        stretch(None, second, second + 30 * US),
        stretch(Some(one), second + 30 * US, second + 30 * US + MS),
    ];
    assert_eq!(given, expected);
}

#[test]
fn new_work_of_the_previous_context_does_not_undo_a_switch() {
    let mut engine = RoundRobin::new(SLOW);
    let (one, two) = (engine.sit().unwrap(), engine.sit().unwrap());
    engine.submit(one, 500 * US);
    engine.submit(two, 500 * US);
    // In the middle of the context switch.
    engine.advance(510 * US);
    engine.submit(one, 500 * US);
    let given = engine.advance(2 * MS);
    let expected = [
        stretch(None, 510 * US, 530 * US),
        stretch(Some(two), 530 * US, 1_030 * US),
        stretch(None, 1_030 * US, 1_060 * US),
        stretch(Some(one), 1_060 * US, 1_560 * US),
    ];
    assert_eq!(given, expected);
}

#[test]
fn reported_time_does_not_depend_on_the_step_of_advance() {
    let run = |grain: u64| {
        let mut engine = RoundRobin::new(SLOW);
        let seats = [(); 3].map(|()| engine.sit().unwrap());
        for (seat, ns) in seats.iter().zip([3 * MS, 123_456, 700 * US]) {
            (0..40).for_each(|_| _ = engine.submit(*seat, ns));
        }
        let mut had = [0; 4];
        for now in (0..=200 * MS).step_by(usize::try_from(grain).unwrap()) {
            for given in engine.advance(now) {
                let at = given.seat.map_or(3, |seat| seat.0);
                had[at] += given.to - given.from;
            }
        }
        (had, engine.take_ended())
    };
    let exact = run(20 * US);
    assert_eq!(exact.0[..3], [120 * MS, 40 * 123_456, 28 * MS]);
    assert!(exact.0[3] > 0, "context switches take time");
    assert_eq!(run(10 * MS), exact);
}

#[test]
fn abandon_drops_queued_work_and_the_running_operation_completes() {
    let mut engine = RoundRobin::new(Pace::default());
    let seat = engine.sit().unwrap();
    (0..3).for_each(|_| _ = engine.submit(seat, MS));
    engine.advance(500 * US);
    engine.abandon(seat);
    assert_eq!(engine.left(seat), 500 * US);
    engine.advance(9 * MS);
    assert_eq!((engine.left(seat), engine.take_ended().len()), (0, 1));
}
