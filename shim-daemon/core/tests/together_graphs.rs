//! Graphs of 10 to 20 ms, and a trainer whose kernels wait for copies in its second stream, on a
//! shared device, in virtual time. Figures: `cargo test -p gpushare-core --test main
//! together_graphs:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, SLICES, US, at_least, near};

const GRAPHS: [u64; 4] = [10 * MS, 15 * MS, 20 * MS, 12 * MS];

/// A graph for each token, and half a millisecond of host time between two.
fn decode() -> Program {
    Program::sync(0, 500 * US).mixed(&GRAPHS)
}

/// Graphs without a wait.
fn graphs() -> Program {
    Program::queue(15 * MS).mixed(&GRAPHS)
}

#[test]
fn decode_graphs_beside_others_lose_nothing_and_wait_no_longer() {
    let mixes = [
        ("decode and trainer", vec![decode(), Program::trainer()]),
        ("two decodes", vec![decode(), decode()]),
        ("decode and server", vec![decode(), Program::server()]),
        (
            "decode, server, trainer",
            vec![decode(), Program::server(), Program::trainer()],
        ),
    ];
    for (what, programs) in mixes {
        for slice in SLICES {
            let case = Case::new(what, &programs).slice(slice);
            let pair = case.pair();
            at_least(what, pair.useful_of_bare(), 95.0);
            pair.assert_waits(what);
            let pair = case.switch(50 * US).pair();
            at_least(what, pair.useful_of_bare(), 90.0);
        }
    }
}

/// The driver gives both the same. While the host works between two graphs the trainer has its
/// slice, so by their pending time the decoder is ahead by a few thousandths.
#[test]
fn decode_graphs_that_the_driver_shares_evenly_are_not_steered() {
    for host in [100 * US, 500 * US, MS] {
        let decode = Program::sync(0, host).mixed(&[10 * MS]);
        waits_as_by_the_driver(&Case::new("even", &[decode, Program::trainer()]).switch(150 * US));
    }
}

/// The first tenant's requests wait as long as on the bare driver.
fn waits_as_by_the_driver(case: &Case) {
    let pair = case.pair();
    let [steered, bare] = [&pair.steered, &pair.bare].map(|report| report.tenants[0].wait(999));
    assert_eq!(steered, bare, "{case:?}");
}

/// A graph is longer than the driver's slice: its time is never known. By what is left of the clock
/// it had the changes of contexts as well, and was held for the trainer.
#[test]
fn decode_graphs_that_were_never_alone_are_not_steered_either() {
    for host in [15 * US, 100 * US, 500 * US] {
        let decode = Program::sync(10 * MS, host).guesses(u64::MAX);
        waits_as_by_the_driver(&Case::new("guessed", &[decode, Program::trainer()]).h100());
    }
}

/// Changes of contexts take twice as long as the daemon is told: by what is left of the clock the
/// decoder had that, too.
#[test]
fn decode_graphs_are_not_held_for_what_dear_changes_take() {
    let decode = Program::sync(10 * MS, 15 * US).guesses(u64::MAX);
    let mut case = Case::new("dear changes", &[decode, Program::trainer()]).h100();
    let brain = case.brain();
    (case.pace.switch, case.pace.preempt) = (230 * US, 230 * US);
    let bare = case.bare();
    let steered = case.rig(brain).measured(case.warm_up, case.time);
    assert_eq!(steered.tenants[0].wait(999), bare.tenants[0].wait(999));
}

/// A loop that is never measured has half of what it is due, by the driver alone.
#[test]
fn an_unmeasured_loop_that_is_far_behind_is_helped() {
    let case = |guesses| {
        let server = Program::every(MS, 300 * US).guesses(guesses);
        Case::new("unmeasured server", &[Program::trainer(), server])
    };
    let bare = case(0).bare();
    let steered = case(u64::MAX).steered().report;
    at_least("the server", steered.useful(1), 1.5 * bare.useful(1));
}

/// The opposite: a difference of a twentieth, by the driver alone, is made even.
#[test]
fn decode_graphs_that_have_a_twentieth_less_are_helped() {
    let decode = Program::sync(0, 30 * US).mixed(&[9 * MS]);
    let case = Case::new("uneven", &[decode, Program::trainer()]);
    let pair = case.pair();
    near("bare", pair.bare.useful(0), 47.4, 0.2);
    near("steered", pair.steered.useful(0), 50.0, 1.0);
}

/// Each of the others has a small part of the decoder's lag as its debt.
#[test]
fn a_decoder_that_has_less_is_helped_beside_several() {
    let decode = || Program::sync(0, 30 * US).mixed(&[9 * MS]);
    for others in [3, 7] {
        let all: Vec<Program> = std::iter::once(decode())
            .chain(std::iter::repeat_n(Program::trainer(), others))
            .collect();
        let pair = Case::new("uneven", &all).pair();
        let even = 100.0 / (others as f64 + 1.0);
        at_least("decoder", pair.steered.useful(0), even * 0.97);
        assert!(
            pair.bare.useful(0) < even * 0.95,
            "the driver leaves it less"
        );
    }
}

#[test]
fn decode_graphs_have_their_share_beside_a_deep_queue() {
    for (percent, expected) in [(50, 50.0), (70, 70.0), (30, 30.0)] {
        for slice in SLICES {
            let case =
                Case::new("decode and trainer", &[decode(), Program::trainer()]).slice(slice);
            let report = case.requests(&[percent, 100 - percent]).steered().report;
            // Between two graphs it asks for nothing, for a thirtieth of the time.
            near("decode", report.useful(0), expected, 2.5);
            at_least("device", report.used(), 95.0);
        }
    }
}

#[test]
fn backlogged_graphs_have_their_shares_within_a_point() {
    for (percent, other) in [
        (70, Program::trainer()),
        (30, Program::trainer()),
        (70, graphs()),
    ] {
        let case = Case::new("graphs", &[graphs(), other]).requests(&[percent, 100 - percent]);
        for slice in SLICES {
            let report = case.clone().slice(slice).steered().report;
            near("graphs", report.useful(0), f64::from(percent), 1.0);
            assert!(report.idle() <= 2.0, "idle");
        }
    }
}

/// The next copies go while a kernel runs, also while the trainer yields: they pass no gate.
#[test]
fn a_trainer_with_copies_in_a_second_stream_loses_nothing() {
    for copy in [100, 400, 600] {
        let two_streams = Program::trainer().depth(8).copies(copy * US);
        let alone = Case::new("alone", std::slice::from_ref(&two_streams)).bare();
        // A copy that takes longer than its kernel leaves the device idle.
        let limit = if copy > 500 { 500.0 / 6.0 } else { 100.0 };
        near("alone", alone.useful(0), limit, 1.0);
        for slice in SLICES {
            let what = format!("copies of {copy} us and server");
            let case = Case::new(&what, &[two_streams.clone(), Program::server()]).slice(slice);
            let pair = case.pair();
            at_least(&what, pair.steered.tenants[1].of_asked(), 90.0);
            assert!(pair.steered.tenants[1].wait(990) <= MS);
            at_least(&what, pair.useful_of_bare(), 95.0);
            pair.assert_waits(&what);
            let what = format!("copies of {copy} us and trainer");
            let case = Case::new(&what, &[two_streams.clone(), Program::trainer()]).slice(slice);
            let pair = case.pair();
            near(&what, pair.steered.useful(0), 50.0, 1.0);
            at_least(&what, pair.useful_of_bare(), 95.0);
        }
    }
}
