//! Tenants on a device whose changes of contexts take as long as an H100's: what steering costs,
//! and turns of tenants that wait for each of their operations. In virtual time; figures: `cargo
//! test -p gpushare-core --test main together_switches:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Pair, Program, S, US, at_least, near};
use gpushare_core::Compute;

/// Waits for each operation and soon submits the next.
fn waits(kernel: u64, think: u64) -> Program {
    Program::sync(kernel * US, think * US)
}

fn pair(what: &str, programs: &[Program]) -> Pair {
    Case::new(what, programs).h100().pair()
}

#[test]
fn yielding_costs_little_where_changes_are_dear() {
    let rows = [
        (
            "trainer and server",
            vec![Program::trainer(), Program::server()],
        ),
        (
            "trainer and 3 servers",
            vec![
                Program::trainer(),
                Program::fifth(),
                Program::fifth(),
                Program::fifth(),
            ],
        ),
        (
            "2 trainers and server",
            vec![Program::trainer(), Program::trainer(), Program::server()],
        ),
        (
            "trainer of 1 ms and server",
            vec![Program::queue(MS), Program::server()],
        ),
        (
            "trainer and Poisson",
            vec![Program::trainer(), Program::poisson(MS, 300 * US)],
        ),
        (
            "trainer and 1 ms in 5",
            vec![Program::trainer(), Program::every(5 * MS, MS)],
        ),
    ];
    for (what, programs) in rows {
        let pair = pair(what, &programs);
        at_least(what, pair.useful_of_bare(), 88.0);
        let last = programs.len() - 1;
        at_least(what, pair.steered.useful(last), pair.bare.useful(last));
        pair.assert_waits(what);
    }
}

#[test]
fn a_server_gets_half_as_much_again_as_by_the_driver_alone() {
    let pair = pair(
        "trainer and server",
        &[Program::trainer(), Program::server()],
    );
    at_least("server", pair.steered.useful(1), 1.5 * pair.bare.useful(1));
    assert!(pair.steered.tenants[1].wait(500) < pair.bare.tenants[1].wait(500));
}

#[test]
fn a_higher_class_or_a_share_buys_more_changes_of_contexts() {
    let what = "server";
    let case = || Case::new(what, &[Program::trainer(), Program::server()]).h100();
    let higher = case().of(1, 900, Compute::default()).pair();
    at_least(what, higher.steered.tenants[1].of_asked(), 80.0);
    assert!(higher.steered.tenants[1].wait(990) <= 1100 * US);
    let shares = case().requests(&[50, 50]).pair();
    at_least(what, shares.steered.tenants[1].of_asked(), 80.0);
    at_least("trainer", shares.steered.useful(0), 49.0);
}

#[test]
fn tenants_that_wait_for_each_operation_take_turns() {
    for count in [2, 4] {
        let what = format!("{count} that wait for each 50 us");
        let pair = pair(&what, &vec![waits(50, 0); count]);
        at_least(&what, pair.useful_of_bare(), 250.0);
        for at in 1..count {
            near(&what, pair.steered.useful(at), pair.steered.useful(0), 1.0);
        }
        // A turn of each, and as long again.
        let longest = pair.steered.tenants[0].wait(999);
        assert!(longest <= count as u64 * 6 * MS, "{longest} ns");
    }
}

#[test]
fn turns_keep_shares() {
    let what = "75 and 25";
    let case = Case::new(what, &vec![waits(50, 0); 2]).h100();
    let pair = case.requests(&[75, 25]).pair();
    let all = pair.steered.all_useful();
    near(what, 100.0 * pair.steered.useful(0) / all, 75.0, 2.0);
}

/// When its gate closes, a deep queue has a window in flight. Three seconds: no trial comes
/// between.
#[test]
fn a_loop_has_its_share_beside_a_deep_queue_in_turns() {
    for percent in [30, 50, 70, 85] {
        let what = format!("500 us waited for, {percent} %, and a deep queue");
        let case = Case::new(&what, &[waits(500, 0), Program::trainer()]).h100();
        let case = case.requests(&[percent, 100 - percent]);
        let report = case.times(S, 3 * S).steered().report;
        let part = 100.0 * report.useful(0) / report.all_useful();
        near(&what, part, f64::from(percent), 1.0);
        at_least(&what, report.all_useful(), 92.0);
    }
}

/// Yielded to by slices it would have 9 %.
#[test]
fn a_request_of_a_program_that_waits_for_50_us_is_kept() {
    for percent in [30, 50, 70] {
        let what = format!("50 us waited for, {percent} %, and a deep queue");
        let case = Case::new(&what, &[waits(50, 0), Program::trainer()]).h100();
        let report = case.requests(&[percent, 100 - percent]).steered().report;
        let part = 100.0 * report.useful(0) / report.all_useful();
        near(&what, part, f64::from(percent), 2.0);
    }
}

/// Yielded to by slices it would have 5 % of the device. Beside 1 ms its neighbour has little more
/// than a gap of a tenth: it must be known as one that waits though its gate soon bounds its work.
#[test]
fn a_request_is_kept_beside_operations_of_any_length_that_are_waited_for() {
    for kernel in [1000, 1500, 2500, 5000] {
        let what = format!("{kernel} us and 50 us waited for");
        let case = Case::new(&what, &[waits(kernel, 100), waits(50, 20)]).h100();
        let case = case.requests(&[60, 40]).times(2 * S, 5 * S);
        at_least(&what, case.steered().report.useful(1), 25.0);
    }
}

#[test]
fn a_program_that_waits_takes_turns_with_a_deep_queue_where_they_are_full() {
    let what = "deep queue and 200 us waited for";
    let pair = pair(what, &[Program::queue(50 * US), waits(200, 0)]);
    at_least(what, pair.useful_of_bare(), 97.0);
    near(what, pair.steered.useful(0), pair.steered.useful(1), 3.0);
}

#[test]
fn a_program_that_would_leave_its_turn_idle_is_yielded_to() {
    let what = "deep queue and 50 us waited for, 20 us pause";
    let pair = pair(what, &[Program::queue(50 * US), waits(50, 20)]);
    at_least(what, pair.useful_of_bare(), 88.0);
    at_least(what, pair.steered.useful(1), 1.3 * pair.bare.useful(1));
}

#[test]
fn a_server_among_tenants_that_take_turns_is_not_held() {
    let what = "3 that wait and a server";
    let server = Program::every(MS, 100 * US);
    let pair = pair(what, &[waits(50, 0), waits(50, 0), waits(50, 0), server]);
    at_least(what, pair.steered.tenants[3].of_asked(), 99.0);
    pair.assert_waits_of(what, 3);
    at_least(what, pair.useful_of_bare(), 150.0);
}

#[test]
fn a_higher_class_that_waits_for_each_operation_has_the_device() {
    let what = "higher";
    let case = Case::new(what, &[Program::trainer(), waits(200, 0)]).h100();
    let pair = case.of(1, 900, Compute::default()).pair();
    at_least(what, pair.steered.useful(1), 85.0);
}

#[test]
fn deep_queues_keep_their_shares() {
    for percent in [vec![70, 30], vec![50, 30, 20]] {
        let what = format!("{percent:?}");
        let queues = vec![Program::trainer(); percent.len()];
        let case = Case::new(&what, &queues).h100().requests(&percent);
        let report = case.steered().report;
        for (at, percent) in percent.iter().enumerate() {
            let part = 100.0 * report.useful(at) / report.all_useful();
            near(&what, part, f64::from(*percent), 1.0);
        }
    }
}

#[test]
fn deep_queues_take_no_turns() {
    let what = "2 deep queues";
    let pair = pair(what, &[Program::trainer(), Program::trainer()]);
    assert_eq!(pair.changes, 0);
    at_least(what, pair.useful_of_bare(), 99.0);
}

/// They seem to have work all the time, and leave most of a turn idle.
#[test]
fn tenants_that_launch_slowly_lose_nothing_to_turns() {
    let slow = || Program::queue(2 * US).launch(6 * US).depth(3000);
    let what = "2 that launch 2 us in 6";
    let pair = pair(what, &[slow(), slow()]);
    at_least(what, pair.useful_of_bare(), 95.0);
}
