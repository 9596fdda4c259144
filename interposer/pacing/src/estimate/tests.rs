use super::*;

mod long;
mod sets;

const ASSUMED: u64 = 500_000;

fn batch(ops: &[(u64, u64)]) -> Mix {
    let mut mix = Mix::default();
    for (key, ns) in ops {
        let expected = Expected {
            ns: *ns,
            in_stream: *ns,
            known: true,
        };
        mix.add(*key, expected, 1);
    }
    mix
}

/// A time by events that the device did not wait in.
fn sample(estimates: &mut Estimates, key: u64, ns: u64, contended: bool) {
    estimates.sample(Timed { key, ns, gap: 0 }, 1, contended);
}

/// A time of key 7, for up to `gap` nanoseconds of which the device waited for the program.
fn loosely(estimates: &mut Estimates, ns: u64, gap: u64) {
    estimates.sample(Timed { key: 7, ns, gap }, 1, true);
}

#[test]
fn what_was_never_seen_is_assumed_and_not_believed() {
    let estimates = Estimates::default();
    let expected = estimates.of(7, ASSUMED);
    assert_eq!((expected.ns, expected.known), (ASSUMED, false));
}

#[test]
fn a_kernel_that_is_measured_closely_is_known_after_three_times() {
    let mut estimates = Estimates::default();
    for _ in 0..3 {
        assert!(!estimates.of(7, ASSUMED).known);
        let expected = estimates.of(7, ASSUMED).ns;
        estimates.learn(&batch(&[(7, expected)]), 9_000, 10_000);
    }
    assert_eq!(
        estimates.of(7, ASSUMED),
        Expected {
            ns: 10_000,
            in_stream: 10_000,
            known: true
        }
    );
}

#[test]
fn an_operation_seen_late_moves_nothing_and_one_seen_running_does() {
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| estimates.learn(&batch(&[(7, 10_000)]), 10_000, 10_000));
    estimates.learn(&batch(&[(7, 10_000)]), 0, 50_000_000);
    assert_eq!(estimates.of(7, ASSUMED).ns, 10_000);
    estimates.learn(&batch(&[(7, 10_000)]), 40_000, 50_000_000);
    assert_eq!(
        estimates.of(7, ASSUMED).ns,
        45_000,
        "half way to twice 40 µs"
    );
}

#[test]
fn a_batch_is_split_by_what_its_kinds_took_before() {
    let mut estimates = Estimates::default();
    estimates.learn(&batch(&[(1, 10_000)]), 10_000, 10_000);
    estimates.learn(&batch(&[(2, 90_000)]), 90_000, 90_000);
    for _ in 0..40 {
        let expected = |key| (key, estimates.of(key, ASSUMED).ns);
        let mix = batch(&[expected(1), expected(2)]);
        estimates.learn(&mix, 200_000, 200_000);
    }
    let (one, two) = (estimates.of(1, ASSUMED).ns, estimates.of(2, ASSUMED).ns);
    assert!((19_900..=20_100).contains(&one), "{one}");
    assert!((179_900..=180_100).contains(&two), "{two}");
}

#[test]
fn many_batches_submitted_before_the_first_lesson_teach_one_and_the_same() {
    let mut estimates = Estimates::default();
    let queued = batch(&[(7, 20_000)]);
    for _ in 0..40 {
        estimates.learn(&queued, 900_000, 1_100_000);
    }
    let mean = estimates.of(7, ASSUMED).ns;
    assert!((800_000..=1_100_000).contains(&mean), "{mean}");
}

#[test]
fn a_mean_follows_work_that_becomes_short_and_work_that_becomes_long() {
    let mut estimates = Estimates::default();
    for took in [1_000_000, 5_000, 3_000_000] {
        for _ in 0..60 {
            let expected = estimates.of(9, ASSUMED).ns;
            estimates.learn(&batch(&[(9, expected)]), took, took);
        }
        let mean = estimates.of(9, ASSUMED).ns;
        assert!(mean.abs_diff(took) <= 4, "{mean} for {took}");
    }
}

#[test]
fn more_keys_than_there_is_room_for_cost_the_least_learned() {
    let mut estimates = Estimates::default();
    for _ in 0..5 {
        estimates.learn(&batch(&[(77, 1_000)]), 1_000, 1_000);
    }
    for key in 1_000..101_000 {
        estimates.learn(&batch(&[(key, 2_000)]), 2_000, 2_000);
    }
    assert_eq!(estimates.of(77, ASSUMED).ns, 1_000);
    assert_eq!(estimates.sets.len(), SETS);
}

#[test]
fn the_first_three_operations_of_a_key_are_timed_and_then_one_in_256() {
    let mut estimates = Estimates::default();
    let timed: Vec<u32> = (0..1_000)
        .filter(|_| {
            let timed = estimates.submit(7);
            if timed {
                sample(&mut estimates, 7, 80_000, true);
            }
            timed
        })
        .collect();
    assert_eq!(timed, [0, 1, 2, 258, 514, 770]);
}

#[test]
fn operations_that_nobody_asked_about_count_towards_the_next_timed_one() {
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| {
        assert!(estimates.submit(7));
        sample(&mut estimates, 7, 80_000, true);
    });
    assert_eq!(estimates.untimed(7), 255);
    estimates.submitted(7, 200);
    assert_eq!(estimates.untimed(7), 55);
    assert_eq!((0..55).filter(|_| estimates.submit(7)).count(), 0);
    assert_eq!(estimates.untimed(7), 0);
    assert!(estimates.submit(7));
    estimates.submitted(7, 9_000);
    assert_eq!(estimates.untimed(7), 0, "it is overdue");
}

#[test]
fn a_key_whose_operations_could_not_be_timed_is_tried_more_often() {
    let mut estimates = Estimates::default();
    let timed = (0..64).filter(|_| estimates.submit(7)).count();
    assert_eq!(timed, 6);
}

#[test]
fn three_times_by_events_make_a_key_known_interrupted_ones_do_not() {
    let mut estimates = Estimates::default();
    for (taken, ns) in [300_000, 1_900_000, 301_000].into_iter().enumerate() {
        assert!(!estimates.of(7, ASSUMED).known, "{taken}");
        sample(&mut estimates, 7, ns, true);
    }
    let expected = estimates.of(7, ASSUMED);
    assert_eq!((expected.ns, expected.known), (300_000, true));
    for ns in [590_000, 302_000, 599_000, 303_000, 550_000] {
        sample(&mut estimates, 7, ns, true);
    }
    assert_eq!(estimates.of(7, ASSUMED).ns, 301_000, "the second of eight");
}

#[test]
fn a_time_as_long_as_a_slice_of_the_driver_is_not_believed() {
    let mut estimates = Estimates::default();
    (0..8).for_each(|_| sample(&mut estimates, 7, 2_000_000, true));
    (0..8).for_each(|_| sample(&mut estimates, 7, 0, true));
    assert!(!estimates.of(7, ASSUMED).known);
}

/// Nine tenths of a slice, and nearly always a slice of another tenant in between.
#[test]
fn an_interrupted_time_is_not_believed_whatever_the_drivers_slice_is() {
    for slice in [0, 1_000_000, 5_000_000] {
        let mut estimates = Estimates::default();
        estimates.set_slice(slice);
        let slice = if slice == 0 { SLICE } else { slice };
        let own = slice / 10 * 9;
        (0..8).for_each(|_| sample(&mut estimates, 7, own + slice, true));
        assert!(!estimates.of(7, ASSUMED).known, "a slice of {slice} ns");
        (0..3).for_each(|_| sample(&mut estimates, 7, own, true));
        assert_eq!(estimates.of(7, ASSUMED).ns, own);
    }
}

#[test]
fn times_follow_an_operation_that_becomes_shorter_or_longer() {
    let mut estimates = Estimates::default();
    for took in [100_000, 60_000, 1_500_000] {
        (0..8).for_each(|_| sample(&mut estimates, 7, took, true));
        assert_eq!(estimates.of(7, ASSUMED).ns, took);
    }
}

/// Estimates that know key 7 to take `ns`, while others may work.
fn knowing(ns: u64) -> Estimates {
    let mut estimates = Estimates::default();
    for _ in 0..3 {
        estimates.submit(7);
        sample(&mut estimates, 7, ns, true);
    }
    assert_eq!(
        estimates.of(7, ASSUMED),
        Expected {
            ns,
            in_stream: ns,
            known: true
        }
    );
    estimates
}

/// How many of the next operations are timed, each of which takes `ns`.
fn timed(estimates: &mut Estimates, operations: u32, ns: u64) -> usize {
    let is_timed = |_: &u32| {
        let timed = estimates.submit(7);
        if timed {
            sample(estimates, 7, ns, true);
        }
        timed
    };
    (0..operations).filter(is_timed).count()
}

#[test]
fn a_key_that_is_forgotten_is_as_one_that_was_never_seen() {
    let mut estimates = knowing(20_000);
    estimates.forget(8);
    assert!(estimates.of(7, ASSUMED).known, "another one was");
    estimates.forget(7);
    let expected = estimates.of(7, ASSUMED);
    assert_eq!((expected.ns, expected.known), (ASSUMED, false));
    assert_eq!(timed(&mut estimates, 3, 300_000), 3);
    assert_eq!(estimates.of(7, ASSUMED).ns, 300_000);
}

#[test]
fn an_operation_is_the_first_of_its_key_until_one_was_launched_in_the_era() {
    let mut estimates = Estimates::default();
    for era in [1, 2] {
        assert!(estimates.is_first(7, era) && estimates.is_first(8, era));
        estimates.launched(7, era);
        assert!(!estimates.is_first(7, era) && estimates.is_first(8, era));
    }
}

#[test]
fn the_next_operation_of_a_key_that_was_forgotten_is_its_first() {
    let mut estimates = Estimates::default();
    for key in [7, 8] {
        estimates.launched(key, 1);
    }
    estimates.forget(7);
    assert!(estimates.is_first(7, 1) && !estimates.is_first(8, 1));
}

#[test]
fn a_key_whose_mean_is_lost_has_been_launched_all_the_same() {
    let mut estimates = knowing(10_000);
    estimates.launched(7, 1);
    (0..SAMPLES).for_each(|_| sample(&mut estimates, 7, SLICE, true));
    assert!(!estimates.of(7, ASSUMED).known && !estimates.is_first(7, 1));
}

#[test]
fn a_short_mean_is_lost_after_eight_times_of_a_slice_in_a_row() {
    let mut estimates = knowing(20_000);
    for _ in 0..20 {
        (0..7).for_each(|_| sample(&mut estimates, 7, 5_000_000, true));
        assert!(estimates.of(7, ASSUMED).known, "they may be interrupted");
        sample(&mut estimates, 7, 20_000, true);
    }
    (0..8).for_each(|_| sample(&mut estimates, 7, 5_000_000, true));
    let expected = estimates.of(7, ASSUMED);
    assert_eq!((expected.ns, expected.known), (ASSUMED, false));
}

/// With the time for which the device may have waited it is as long as a slice, without it is not.
#[test]
fn a_short_mean_of_work_of_nearly_a_slice_is_lost_too() {
    let mut estimates = knowing(20_000);
    (0..8).for_each(|_| loosely(&mut estimates, 2_010_000, 60_000));
    assert!(!estimates.of(7, ASSUMED).known);
}

#[test]
fn a_mean_of_most_of_a_slice_outlives_interrupted_times() {
    let mut estimates = knowing(1_800_000);
    (0..100).for_each(|_| sample(&mut estimates, 7, 3_800_000, true));
    assert_eq!(estimates.of(7, ASSUMED).ns, 1_800_000);
}

#[test]
fn a_key_that_takes_another_time_than_known_is_timed_until_that_is() {
    for took in [30_000, 1_900_000, 5_000_000] {
        let mut estimates = knowing(100_000);
        let timed = timed(&mut estimates, 256 + 8, took);
        let expected = estimates.of(7, ASSUMED);
        match took {
            30_000 => assert_eq!(timed, 1, "that short a time may be anything"),
            1_900_000 => assert_eq!((timed, expected.ns), (8, took)),
            _ => assert_eq!((timed, expected.known), (8, false)),
        }
        assert_eq!(estimates.take_doubt(), took > 100_000);
        assert!(!estimates.take_doubt());
    }
}

/// A machine that is busy for a moment.
#[test]
fn times_that_are_long_for_a_moment_move_no_mean() {
    let mut estimates = knowing(20_000);
    let all = [
        60_000, 29_000, 28_000, 90_000, 28_000, 27_000, 55_000, 27_500,
    ];
    for _ in 0..10 {
        all.iter()
            .for_each(|ns| sample(&mut estimates, 7, *ns, true));
        sample(&mut estimates, 7, 20_000, true);
    }
    assert_eq!(estimates.of(7, ASSUMED).ns, 20_000);
}

/// A program whose launches take longer than its kernels.
#[test]
fn time_in_which_the_device_waited_for_the_program_is_no_kernels() {
    let mut estimates = knowing(20_000);
    loosely(&mut estimates, 60_000, 45_000);
    for _ in 0..20 {
        loosely(&mut estimates, 45_000, 26_000);
    }
    assert!(!estimates.take_doubt());
    assert_eq!(estimates.of(7, ASSUMED).ns, 20_000);
    (0..8).for_each(|_| loosely(&mut estimates, 45_000, 10_000));
    assert_eq!(estimates.of(7, ASSUMED).ns, 35_000, "so much it was");
    (0..8).for_each(|_| loosely(&mut estimates, 15_000, 10_000));
    assert_eq!(estimates.of(7, ASSUMED).ns, 15_000, "and no more than that");
}

#[test]
fn a_doubt_begun_while_the_device_waits_for_the_program_moves_no_mean() {
    let mut estimates = knowing(20_000);
    sample(&mut estimates, 7, 60_000, true);
    assert!(estimates.take_doubt(), "it looks longer");
    (0..7).for_each(|_| loosely(&mut estimates, 45_000, 26_000));
    assert_eq!(estimates.of(7, ASSUMED).ns, 20_000);
    assert_eq!(timed(&mut estimates, 256, 20_000), 1, "it is settled");
}

#[test]
fn a_short_time_now_and_then_is_not_the_mean() {
    let mut estimates = knowing(1_000_000);
    for _ in 0..40 {
        sample(&mut estimates, 7, 60_000, true);
        (0..7).for_each(|_| sample(&mut estimates, 7, 1_000_000, true));
        sample(&mut estimates, 7, 1_000_000, true);
    }
    assert_eq!(estimates.of(7, ASSUMED).ns, 1_000_000);
    let short = (0..9).map(|time| if time % 2 == 0 { 60_000 } else { 1_000_000 });
    short.for_each(|ns| sample(&mut estimates, 7, ns, true));
    assert_eq!(estimates.of(7, ASSUMED).ns, 60_000, "every other one is");
}

#[test]
fn operations_of_a_doubt_that_could_not_be_timed_are_made_up_for() {
    let mut estimates = knowing(20_000);
    assert!(estimates.doubt(7));
    assert!((0..4).all(|_| estimates.submit(7)), "no time is told");
    assert_eq!(timed(&mut estimates, 8, 1_000_000), 8);
    assert_eq!(estimates.of(7, ASSUMED).ns, 1_000_000);
}

#[test]
fn a_doubt_of_which_no_time_is_told_times_sixteen_operations() {
    let mut estimates = knowing(20_000);
    assert!(estimates.doubt(7));
    assert_eq!((0..200).filter(|_| estimates.submit(7)).count(), 16);
}

#[test]
fn a_key_whose_time_varies_is_not_timed_always() {
    let mut estimates = knowing(100_000);
    let mut count = 0;
    for round in 0..10_000 {
        let ns = if round % 2 == 0 { 100_000 } else { 900_000 };
        count += timed(&mut estimates, 1, ns);
    }
    assert!((30..400).contains(&count), "{count}");
}

#[test]
fn a_key_in_doubt_is_timed_at_once_and_one_that_was_just_now_is_not() {
    let mut estimates = Estimates::default();
    assert!(!estimates.doubt(7), "nothing is known of it");
    let mut estimates = knowing(100_000);
    assert!(estimates.doubt(7) && !estimates.doubt(7));
    assert_eq!(estimates.untimed(7), 0, "none goes unasked");
    assert_eq!(timed(&mut estimates, 100, 1_000_000), 8);
    assert_eq!(estimates.of(7, ASSUMED).ns, 1_000_000);
    assert!(!estimates.doubt(7), "it is measured");
    assert_eq!(timed(&mut estimates, 256, 1_000_000), 1);
    assert!(estimates.doubt(7));
}

#[test]
fn batches_do_not_blur_an_exact_time_but_say_when_it_holds_no_more() {
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| sample(&mut estimates, 7, 100_000, false));
    estimates.learn(&batch(&[(7, 100_000)]), 110_000, 110_000);
    assert_eq!(estimates.of(7, ASSUMED).ns, 100_000);
    for _ in 0..30 {
        let expected = estimates.of(7, ASSUMED).ns;
        estimates.learn(&batch(&[(7, expected)]), 9_000_000, 9_000_000);
    }
    assert!(estimates.of(7, ASSUMED).ns > 8_900_000);
}

/// A program that waits for each operation makes batches of one, which contain its own latency.
#[test]
fn latency_is_no_part_of_an_operation_that_was_timed() {
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| sample(&mut estimates, 7, 51_000, false));
    (0..50).for_each(|_| estimates.learn(&batch(&[(7, 51_000)]), 66_000, 70_000));
    assert_eq!(estimates.of(7, ASSUMED).ns, 51_000);
    let many = batch(&[(7, 51_000); 100]);
    for _ in 0..30 {
        estimates.learn(&many, 6_600_000, 6_600_000);
    }
    let mean = estimates.of(7, ASSUMED).ns;
    assert!(mean > 65_000, "{mean}: a hundred take longer now");
}

#[test]
fn short_operations_are_learned_by_batches_unless_others_work() {
    let mut estimates = Estimates::default();
    for _ in 0..10 {
        estimates.learn(&batch(&[(7, 5_000)]), 5_000, 5_000);
    }
    (0..8).for_each(|_| sample(&mut estimates, 7, 9_000, false));
    assert_eq!(estimates.of(7, ASSUMED).ns, 5_000);
    sample(&mut estimates, 7, 9_000, true);
    assert_eq!(estimates.of(7, ASSUMED).ns, 9_000);
}

#[test]
fn service_is_what_is_known_now_and_told_apart_by_whether_it_was_measured() {
    let mut estimates = Estimates::default();
    let mix = batch(&[(1, ASSUMED), (1, ASSUMED), (2, 70_000)]);
    (0..3).for_each(|_| sample(&mut estimates, 1, 100_000, true));
    let (service, _) = estimates.service(&mix);
    assert_eq!(service.measured, 200_000);
    assert!(service.guessed > 0);
}

#[test]
fn extreme_times_neither_overflow_nor_reach_zero_for_ever() {
    let mut estimates = Estimates::default();
    estimates.learn(&batch(&[(1, u64::MAX), (2, u64::MAX)]), 0, u64::MAX);
    estimates.learn(&batch(&[(3, 1)]), 0, 0);
    let _ = estimates.of(1, ASSUMED);
    for _ in 0..80 {
        let expected = estimates.of(3, ASSUMED).ns.max(1);
        estimates.learn(&batch(&[(3, expected)]), 1_000_000, 1_000_000);
    }
    let mean = estimates.of(3, ASSUMED).ns;
    assert!(mean > 900_000, "{mean}");
}
