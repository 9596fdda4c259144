//! Shares, caps and guarantees of tenants that always have work, in virtual time. Figures: `cargo
//! test -p gpushare-core --test main together_promises:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, S, SLICES, US, at_least, limit, near, request};
use gpushare_core::Compute;

/// The shares of tenants that always have work, within this many points: of the device, and of all
/// useful time where changes of contexts take a part of the device's.
fn shares(case: &Case, expected: &[f64], within: f64) {
    let report = case.clone().h100().steered().report;
    for (at, expected) in expected.iter().enumerate() {
        let part = 100.0 * report.useful(at) / report.all_useful();
        near(&case.what, part, *expected, within);
    }
    for slice in SLICES {
        let report = case.clone().slice(slice).steered().report;
        for (at, expected) in expected.iter().enumerate() {
            near(&case.what, report.useful(at), *expected, within);
        }
        assert!(report.idle() <= 2.0, "{}: idle", case.what);
    }
}

#[test]
fn two_backlogged_tenants_have_their_shares_within_a_point() {
    for percent in [70, 90, 50] {
        let rest = 100 - percent;
        let case = Case::new(
            &format!("{percent}:{rest}"),
            &[Program::trainer(), Program::trainer()],
        )
        .requests(&[percent, rest]);
        shares(&case, &[f64::from(percent), f64::from(rest)], 1.0);
    }
}

#[test]
fn short_kernels_against_long_ones_have_their_shares_within_a_point() {
    let programs = [Program::queue(50 * US), Program::queue(20 * MS)];
    shares(&Case::new("50 us : 20 ms", &programs), &[50.0, 50.0], 1.0);
    let case = Case::new("50 us : 20 ms as 70:30", &programs).requests(&[70, 30]);
    shares(&case, &[70.0, 30.0], 1.0);
    let case = Case::new("50 us : 20 ms as 30:70", &programs).requests(&[30, 70]);
    shares(&case, &[30.0, 70.0], 1.0);
}

#[test]
fn a_second_process_buys_no_more_within_a_point() {
    let case = Case::new(
        "two processes : one",
        &[Program::trainer(), Program::trainer()],
    )
    .process(0, Program::trainer());
    let bare = case.bare();
    near("bare", bare.useful(0), 66.7, 0.5);
    shares(&case, &[50.0, 50.0], 1.0);
}

/// Completions of 4 ms show at once: until then, beside the two, it is silent for longer than the
/// driver's slices take.
#[test]
fn one_beside_two_processes_that_is_seen_late_has_its_share() {
    let late = Program {
        lie: Some(|sample| sample.service -= sample.service % (4 * MS)),
        ..Program::trainer()
    };
    let case = Case::new(
        "two processes : one, seen late",
        &[Program::trainer(), late],
    );
    let case = case
        .process(0, Program::trainer())
        .h100()
        .requests(&[50, 50]);
    let report = case.steered().report;
    near(
        "late",
        100.0 * report.useful(1) / report.all_useful(),
        50.0,
        1.0,
    );
}

#[test]
fn three_backlogged_tenants_have_their_shares_within_a_point() {
    let programs = [
        Program::trainer(),
        Program::trainer(),
        Program::queue(5 * MS),
    ];
    let case = Case::new("50:30:20", &programs).requests(&[50, 30, 20]);
    shares(&case, &[50.0, 30.0, 20.0], 1.0);
    let programs = [200 * US, 2 * MS, 10 * MS].map(Program::queue);
    let case = Case::new("50:30:20 of three lengths", &programs).requests(&[50, 30, 20]);
    shares(&case, &[50.0, 30.0, 20.0], 1.0);
    let third = 100.0 / 3.0;
    let programs = [
        Program::trainer(),
        Program::queue(50 * US),
        Program::queue(20 * MS),
    ];
    shares(&Case::new("3 equal", &programs), &[third; 3], 1.0);
}

/// Kernels as long as the driver's slice that were never alone stay guesses.
fn guesses(program: Program, thousandths: u64) -> Program {
    let mut program = program.estimates(thousandths);
    program.guesses_until = u64::MAX;
    program
}

#[test]
fn tenants_of_guessed_service_have_their_shares_within_two_points() {
    for thousandths in [100, 400, 1_000, 2_000] {
        let [short, middle, long] = [200 * US, 2 * MS, 10 * MS].map(Program::queue);
        let [middle, long] = [middle, long].map(|one| guesses(one, thousandths));
        let what = format!("three lengths, two guessed as {thousandths}");
        let case = Case::new(&what, &[short, middle, long]).requests(&[50, 30, 20]);
        shares(&case, &[50.0, 30.0, 20.0], 2.0);
    }
    for percent in [70, 30] {
        let rest = 100 - percent;
        let programs = [Program::trainer(), guesses(Program::queue(10 * MS), 400)];
        let what = format!("{percent}:{rest}, the second guessed");
        let case = Case::new(&what, &programs).requests(&[percent, rest]);
        shares(&case, &[f64::from(percent), f64::from(rest)], 1.0);
    }
    let both = [Program::queue(3 * MS), Program::queue(10 * MS)].map(|one| guesses(one, 400));
    shares(&Case::new("50:50, both guessed", &both), &[50.0, 50.0], 2.0);
}

/// A guess buys nothing: the same server gets as much whether its service is known or guessed.
#[test]
fn a_server_of_guessed_service_gets_what_a_known_one_gets() {
    for slice in SLICES {
        let useful = |server: Program| {
            let case =
                Case::new("trainer : server of 5 ms", &[Program::trainer(), server]).slice(slice);
            case.steered().report.useful(1)
        };
        let known = useful(Program::every(25 * MS, 5 * MS));
        let guessed = useful(guesses(Program::every(25 * MS, 5 * MS), 400));
        near("guessed as known", guessed, known, 2.0);
    }
}

#[test]
fn estimates_off_by_four_percent_cost_no_more_than_one_and_a_half_points() {
    for thousandths in [960, 1040] {
        let programs = [
            Program::trainer().estimates(thousandths),
            Program::trainer(),
        ];
        let case = Case::new(&format!("70:30, {thousandths}"), &programs).requests(&[70, 30]);
        shares(&case, &[70.0, 30.0], 1.5);
    }
}

/// By itself it keeps the device busy for s = 50 us of every 95: it can use that much of its half
/// of the time. It has one operation ahead, so beside operations of length k the driver gives it
/// one for each of those: s / (s + k), which is the limit for k of more than 140 us. A larger share
/// would need gaps on the device.
#[test]
fn a_launch_bound_tenant_beside_a_deep_queue_has_what_it_can_use() {
    let launch_bound = Program::sync(50 * US, 20 * US);
    let alone = Case::new("alone", std::slice::from_ref(&launch_bound)).bare();
    for kernel in [50_u32, 100, 250] {
        let limit = 100.0 * 50.0 / (50.0 + f64::from(kernel));
        let usable = alone.useful(0) / 2.0;
        for slice in SLICES {
            let programs = [Program::queue(u64::from(kernel) * US), launch_bound.clone()];
            let what = format!("launch-bound : {kernel} us");
            let pair = Case::new(&what, &programs).slice(slice).pair();
            at_least(
                &what,
                pair.steered.useful(1),
                (usable - 2.0).min(limit - 0.5),
            );
            at_least(&what, pair.steered.useful(0), 50.0);
            assert!(pair.bare.useful(1) < 5.0, "the bare driver starves it");
        }
    }
}

#[test]
fn a_cap_holds_alone_and_beside_others_in_every_second() {
    for percent in [20, 50] {
        for beside in [0_u8, 1, 2] {
            let programs = vec![Program::trainer(); usize::from(beside) + 1];
            let case = Case::new(&format!("cap {percent} beside {beside}"), &programs).of(
                0,
                500,
                limit(percent),
            );
            let mut rig = case.rig(case.brain());
            rig.measured(0, S);
            for second in 1..=10 {
                let report = rig.measured(0, S);
                let most = f64::from(percent);
                let had = report.useful(0);
                assert!(had <= most + 2.0, "{} in {second}: {had:.2}", case.what);
                // Alone it gets its cap, beside two other tenants its even part.
                let least = most.min(100.0 / f64::from(beside + 1));
                assert!(had >= least - 2.0, "{}: {had:.2}", case.what);
            }
            assert_eq!(rig.steering.broken, None);
        }
    }
}

#[test]
fn a_lower_class_has_its_guarantee_beside_a_higher_deep_queue() {
    let higher = |lower| {
        Case::new(
            "higher deep queue",
            &[Program::trainer(), Program::trainer()],
        )
        .of(0, 500, lower)
        .of(1, 900, Compute::default())
    };
    shares(&higher(request(20)), &[20.0, 80.0], 1.0);
    shares(&higher(Compute::default()), &[0.0, 100.0], 1.0);
}

#[test]
fn in_a_mix_each_has_what_it_is_promised() {
    let programs = [
        Program::trainer(),
        Program::every(MS, 100 * US),
        Program::every(2 * MS, 200 * US),
        Program::queue(200 * US).pauses(300 * MS, 700 * MS),
        Program::trainer(),
    ];
    for slice in SLICES {
        let case = Case::new("mix", &programs)
            .of(4, 500, limit(20))
            .slice(slice);
        let pair = case.pair();
        let report = &pair.steered;
        // Five of equal shares: the servers ask for less than theirs and get it.
        for server in [1, 2] {
            at_least("a server", report.tenants[server].of_asked(), 90.0);
        }
        // A fifth of the time in which it works, at least.
        at_least("the notebook", report.useful(3), 20.0 * 0.3 - 0.5);
        near("the capped batch", report.useful(4), 20.0, 2.0);
        at_least("the trainer", report.useful(0), 20.0);
        assert!(report.idle() <= 2.0, "idle for {:.2} %", report.idle());
    }
}

/// Operations of several processes are billed when they end, in lumps longer than a look.
#[test]
fn a_queue_has_its_share_beside_several_processes_of_longer_kernels() {
    for (processes, kernel) in [(2, 4), (3, 3), (3, 8), (4, 4), (4, 20)] {
        for percent in [[50, 50], [80, 20]] {
            let what = format!("{processes} processes of {kernel} ms, {percent:?}");
            let long = || Program::queue(kernel * MS);
            let mut case = Case::new(&what, &[Program::queue(500 * US), long()]);
            for _ in 1..processes {
                case = case.process(1, long());
            }
            let case = case.requests(&percent);
            for case in [case.clone(), case.h100()] {
                let report = case.steered().report;
                let part = 100.0 * report.useful(0) / report.all_useful();
                near(&what, part, f64::from(percent[0]), 3.0);
            }
        }
    }
}
