//! How a turn's end is foreseen: which launch is its last, and when what is under way will be complete.

use crate::gate::window::Bounds;
use crate::gate::window_tests::{BOUNDS, Bench, LANE, MS, US};

/// A turn that ends at `deadline`.
fn until(deadline: u64) -> Bounds {
    Bounds { deadline, ..BOUNDS }
}

/// A window that has measured kernels of 500 us and of 100 us.
fn learned() -> Bench {
    let mut bench = Bench::new();
    for _ in 0..8 {
        for (key, us) in [(1, 500), (2, 100)] {
            assert!(bench.launch(key, us * US, BOUNDS));
            bench.drain();
        }
    }
    bench
}

#[test]
fn a_launch_is_the_last_if_no_other_of_its_turn_would_end_in_time() {
    let mut bench = learned();
    bench.window.begin_turn();
    let bounds = until(bench.now + 1_700 * US);
    assert!(!bench.window.is_last(bench.now, bounds), "nothing came yet");
    for last in [false, false, true] {
        assert!(bench.launch(1, 500 * US, bounds));
        assert_eq!(bench.window.is_last(bench.now, bounds), last);
        bench.drain();
    }
}

#[test]
fn a_launch_is_not_the_last_where_a_shorter_one_of_its_turn_would_end_in_time() {
    let mut bench = learned();
    bench.window.begin_turn();
    let bounds = until(bench.now + 1_000 * US);
    assert!(bench.launch(2, 100 * US, bounds));
    bench.drain();
    assert!(bench.launch(1, 500 * US, bounds));
    assert!(!bench.window.is_last(bench.now, bounds));
    bench.window.begin_turn();
    let bounds = until(bench.now + 900 * US);
    assert!(bench.launch(1, 500 * US, bounds));
    assert!(
        bench.window.is_last(bench.now, bounds),
        "what an earlier turn had does not count"
    );
}

#[test]
fn no_launch_is_the_last_of_a_turn_without_an_end() {
    let mut bench = learned();
    bench.window.begin_turn();
    assert!(bench.launch(1, 500 * US, BOUNDS));
    assert!(!bench.window.is_last(bench.now, BOUNDS));
}

#[test]
fn what_is_left_is_sure_once_it_is_marked_and_its_like_was_measured() {
    let mut bench = Bench::new();
    bench.launch(1, 500 * US, BOUNDS);
    bench.mark(LANE);
    assert!(!bench.window.is_sure(), "its like was never measured");
    let mut bench = learned();
    assert!(bench.window.is_sure(), "nothing is left");
    bench.launch(1, 500 * US, BOUNDS);
    bench.mark(LANE);
    assert!(bench.window.is_sure());
    bench.window.admit_anyway(BOUNDS, 1);
    assert!(!bench.window.is_sure(), "one more is on its way");
}

#[test]
fn what_is_left_is_not_sure_without_a_mark() {
    let mut bench = learned();
    bench.launch(2, 10 * US, BOUNDS);
    assert!(!bench.window.is_sure());
    bench.mark(LANE);
    assert!(bench.window.is_sure());
}

#[test]
fn what_is_left_is_not_sure_once_it_takes_longer_than_its_like() {
    let mut bench = learned();
    bench.launch(1, 50 * MS, BOUNDS);
    bench.mark(LANE);
    bench.now += 550 * US;
    bench.look();
    assert!(bench.window.is_sure(), "a little is no news");
    bench.now += MS;
    bench.look();
    assert!(!bench.window.is_sure());
}

#[test]
fn after_some_turns_the_end_of_a_deep_queue_is_foreseen_to_a_part_in_two_hundred() {
    let mut bench = Bench::new();
    // Kernels of two lengths, of which the first guess is wrong by far.
    let (lengths, turn) = ([200_300, 71_700], 20 * MS);
    for at in 0..40_u64 {
        let bounds = Bounds {
            window: 5 * MS,
            deadline: bench.now + turn,
        };
        bench.window.begin_turn();
        let began = bench.now;
        for kernel in 0.. {
            let which = usize::from(kernel % 3 == 0);
            if !bench.launch(which as u64 + 1, lengths[which], bounds) {
                break;
            }
            bench.now += 3 * US;
        }
        bench.mark(LANE);
        let off = (bench.now + bench.window.left(bench.now)).abs_diff(bench.device);
        assert!(at < 15 || off <= turn / 200, "turn {at}: off by {off} ns");
        assert!(
            at < 15 || bench.device - began > turn / 2,
            "turn {at}: cut short"
        );
        // The looks of a drain, late by as much as it takes to wake.
        while bench.now < bench.device {
            let left = bench.window.left(bench.now);
            let pause = if left > 60 * US {
                (left / 4 * 3).min(left - 60 * US) + 35 * US
            } else {
                2 * US
            };
            bench.now += pause;
            bench.look();
        }
        bench.drain();
        bench.now += turn;
    }
}
