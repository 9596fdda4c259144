//! Operations of a slice of the driver's and more: beside others they are nearly always
//! interrupted, which makes a time longer and never shorter.

use super::*;

/// Estimates that know key 7 to take `ns`: it was measured by batches, alone.
fn measured_alone(ns: u64) -> Estimates {
    let mut estimates = Estimates::default();
    (0..3).for_each(|_| estimates.learn(&batch(&[(7, ns)]), ns, ns));
    assert_eq!(estimates.of(7, ASSUMED).ns, ns);
    estimates
}

#[test]
fn a_mean_of_some_slices_follows_work_that_becomes_shorter() {
    let mut estimates = measured_alone(10_000_000);
    assert_eq!(timed(&mut estimates, 256, 3_000_000), 8);
    assert_eq!(estimates.of(7, ASSUMED).ns, 3_000_000);
    assert!(estimates.take_doubt());
}

#[test]
fn a_mean_of_some_slices_outlives_a_shorter_time_now_and_then() {
    let mut estimates = measured_alone(10_000_000);
    for time in 0..100 {
        let ns = if time % 3 == 0 { 3_000_000 } else { 12_000_000 };
        sample(&mut estimates, 7, ns, true);
    }
    assert_eq!(estimates.of(7, ASSUMED).ns, 10_000_000);
}

/// They may be interrupted.
#[test]
fn a_mean_of_some_slices_outlives_times_of_half_of_it_and_more() {
    let mut estimates = measured_alone(10_000_000);
    (0..100).for_each(|_| sample(&mut estimates, 7, 5_000_000, true));
    assert_eq!(estimates.of(7, ASSUMED).ns, 10_000_000);
}

/// Beside up to seven others they are not so long, however often they are interrupted.
#[test]
fn a_mean_of_most_of_a_slice_is_lost_after_eight_far_longer_times() {
    let mut estimates = knowing(1_200_000);
    for _ in 0..20 {
        (0..7).for_each(|_| sample(&mut estimates, 7, 200_000_000, true));
        assert!(estimates.of(7, ASSUMED).known, "one is as before");
        sample(&mut estimates, 7, 3_800_000, true);
    }
    (0..8).for_each(|_| sample(&mut estimates, 7, 200_000_000, true));
    let expected = estimates.of(7, ASSUMED);
    assert_eq!((expected.ns, expected.known), (ASSUMED, false));
}

#[test]
fn a_mean_of_some_slices_outlives_times_that_may_be_interrupted() {
    for (mean, time) in [(1_200_000, 31_900_000), (10_000_000, 159_000_000)] {
        let mut estimates = measured_alone(mean);
        (0..100).for_each(|_| sample(&mut estimates, 7, time, true));
        assert_eq!(estimates.of(7, ASSUMED).ns, mean);
    }
}
