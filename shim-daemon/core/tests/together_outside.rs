//! Tenants beside work that no gate governs: processes without the library, and those that stand
//! aside. The daemon knows of it what the driver's samples say, once a second.
//! Figures: `cargo test -p gpushare-core --test main together_outside:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, Report, S, Sample, US, near};

/// So many processes without the library that always want the device.
fn deep(many: usize) -> Vec<Program> {
    vec![Program::trainer().outside(); many]
}

/// On softgpu's round robin, and with an H100's changes of contexts.
fn both(what: &str, tenants: &[Program], outside: &[Program], shares: &[u16]) -> [Case; 2] {
    let case = Case::new(what, &[tenants, outside].concat());
    let case = case.requests(shares).times(3 * S, 10 * S);
    [case.clone(), case.h100()]
}

/// Each tenant's part of what all tenants had, percent.
fn parts(report: &Report, tenants: usize) -> Vec<f64> {
    let useful = |at| report.useful(at);
    let all: f64 = (0..tenants).map(useful).sum();
    (0..tenants).map(|at| 100.0 * useful(at) / all).collect()
}

/// Asserts that the tenants divide as asked what that work leaves.
fn kept(tenants: &[Program], outside: &[Program], shares: &[u16], within: f64) {
    let what = format!("{shares:?} beside {} outside", outside.len());
    for case in both(&what, tenants, outside, shares) {
        let report = case.steered().report;
        for (had, share) in parts(&report, tenants.len()).iter().zip(shares) {
            near(&what, *had, f64::from(*share), within);
        }
    }
}

fn says_a_tenth(sample: &mut Sample) {
    sample.service /= 10;
}

fn liar() -> Program {
    let lie: Option<fn(&mut Sample)> = Some(says_a_tenth);
    Program {
        lie,
        ..Program::trainer()
    }
}

/// Asserts that a tenant that says a tenth of what it does has no more than an even part.
fn is_found(outside: &[Program], within: f64) {
    for shares in [[20, 80], [50, 50], [80, 20]] {
        let what = format!("a liar, {shares:?}, beside {} outside", outside.len());
        for case in both(&what, &[liar(), Program::trainer()], outside, &shares) {
            let part = parts(&case.steered().report, 2)[0];
            assert!(part <= 50.0 + within, "{what}: {part:.1}");
        }
    }
}

#[test]
fn tenants_divide_as_asked_what_work_of_no_gate_leaves() {
    for many in [1, 2, 4] {
        kept(
            &[Program::trainer(), Program::trainer()],
            &deep(many),
            &[80, 20],
            1.0,
        );
        let three = [Program::trainer(), Program::trainer(), Program::trainer()];
        kept(&three, &deep(many), &[50, 30, 20], 1.0);
    }
}

#[test]
fn so_they_do_beside_work_that_comes_and_goes() {
    let server = Program::every(MS, 300 * US).outside();
    for outside in [
        server,
        Program::trainer().pauses(100 * MS, 100 * MS).outside(),
        Program::trainer().pauses(S, S).outside(),
    ] {
        kept(
            &[Program::trainer(), Program::trainer()],
            &[outside],
            &[80, 20],
            1.0,
        );
    }
}

/// Of 20 ms each: they complete too seldom to be billed by that alone.
#[test]
fn long_operations_are_billed_no_time_that_such_work_had() {
    let long = Program::queue(20 * MS);
    for many in [1, 2, 4] {
        kept(
            &[long.clone(), Program::trainer()],
            &deep(many),
            &[70, 30],
            1.0,
        );
    }
}

/// A service that is not known is what that of the others leaves of the time.
#[test]
fn unmeasured_work_is_billed_no_time_that_such_work_had() {
    let unknown = Program::queue(20 * MS).guesses(u64::MAX);
    for many in [1, 2] {
        kept(
            &[unknown.clone(), Program::trainer()],
            &deep(many),
            &[70, 30],
            6.0,
        );
    }
}

#[test]
fn a_tenant_that_lies_is_found_beside_work_of_no_gate() {
    for many in [0, 1, 2, 4] {
        is_found(&deep(many), 2.0);
    }
}

/// It pauses so often that it seldom has the device's time for long without a break.
#[test]
fn a_loop_that_lies_has_no_more_than_an_even_part() {
    let lie: Option<fn(&mut Sample)> = Some(says_a_tenth);
    let gaps = Program::sync(500 * US, 200 * US);
    let tenants = [Program { lie, ..gaps }, Program::trainer()];
    for many in [0, 4] {
        for case in both("a loop that lies", &tenants, &deep(many), &[50, 50]) {
            let part = parts(&case.steered().report, 2)[0];
            assert!(part <= 52.0, "beside {many}: {part:.1}");
        }
    }
}

/// They are there, and say nothing of a tenant's claims.
#[test]
fn processes_outside_that_do_not_run_change_nothing() {
    let idle = vec![Program::trainer().outside().starts(1_000 * S); 9];
    kept(
        &[Program::trainer(), Program::trainer()],
        &idle,
        &[80, 20],
        0.5,
    );
    is_found(&idle, 1.0);
}

#[test]
fn a_tenant_that_lies_is_found_again_when_such_work_has_ended() {
    let outside = vec![Program::trainer().outside().until(4 * S); 9];
    for case in both(
        "it ended",
        &[liar(), Program::trainer()],
        &outside,
        &[50, 50],
    ) {
        let case = case.times(8 * S, 5 * S);
        let part = parts(&case.steered().report, 2)[0];
        near("a liar", part, 50.0, 2.0);
    }
}

/// The limit without the driver's samples: honest claims look like those of a liar.
#[test]
fn where_the_driver_has_no_samples_shares_beside_such_work_end() {
    let programs = [
        Program::trainer(),
        Program::trainer(),
        Program::trainer().outside(),
    ];
    let case = Case::new("no samples", &programs).requests(&[80, 20]);
    let mut rig = case.rig(case.brain());
    rig.samples = false;
    let part = parts(&rig.measured(3 * S, 10 * S), 2)[0];
    near("80", part, 50.0, 2.0);
}

/// The limit: one that waits for each operation has less than an even part from the driver, which
/// looks like a lie. Where such work leaves gaps it does not.
#[test]
fn a_loop_beside_a_deep_queue_of_no_gate_has_what_the_driver_gives() {
    let tenants = [Program::sync(500 * US, 5 * US), Program::trainer()];
    for case in both("a loop, 70", &tenants, &deep(1), &[70, 30]) {
        let part = parts(&case.steered().report, 2)[0];
        near("what the driver gives", part, 20.0, 2.0);
    }
    let server = Program::every(MS, 300 * US).outside();
    kept(&tenants, &[server], &[70, 30], 1.0);
}
