//! Tenants that lie to the daemon: their gain, and the cost to other tenants, in virtual time.
//! Figures: `cargo test -p gpushare-core --test main together_liars:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, Report, S, SLICES, Sample, US, at_least, near};

fn lies(program: Program, lie: fn(&mut Sample)) -> Program {
    let lie = Some(lie);
    Program { lie, ..program }
}

fn hides(sample: &mut Sample) {
    (sample.service, sample.busy, sample.pending) = (0, 0, None);
}

fn hides_service(sample: &mut Sample) {
    sample.service = 0;
}

fn says_a_tenth(sample: &mut Sample) {
    sample.service /= 10;
}

fn says_half(sample: &mut Sample) {
    sample.service /= 2;
}

fn says_twice_as_much(sample: &mut Sample) {
    sample.service *= 2;
}

fn says_that_it_waits(sample: &mut Sample) {
    sample.pending = sample.pending.or(Some(1));
}

fn says_everything(sample: &mut Sample) {
    (sample.service, sample.pending) = (u64::MAX, Some(1));
}

/// A counter that jumps: back to nothing, to the end, and to where it was.
fn jumps(sample: &mut Sample) {
    match sample.service / MS % 3 {
        0 => sample.service = 0,
        1 => (sample.service, sample.busy) = (u64::MAX, u64::MAX),
        _ => sample.pending = Some(u64::MAX),
    }
}

fn steered(case: &Case, slice: u64) -> Report {
    case.clone().slice(slice).steered().report
}

#[test]
fn hidden_work_gains_at_most_the_hardwares_equal_slice() {
    let cases = [
        (vec![Program::trainer()], vec![50, 50]),
        (vec![Program::trainer()], vec![90, 10]),
    ];
    for (honest, percent) in cases {
        for lie in [hides, hides_service] {
            for slice in SLICES {
                let mut programs = honest.clone();
                programs.push(lies(Program::trainer(), lie));
                let case = Case::new("hides", &programs).requests(&percent);
                let report = steered(&case, slice);
                assert!(report.useful(1) <= 51.0, "{:.1}", report.useful(1));
                at_least("the others", report.useful(0), 49.0);
            }
        }
    }
}

#[test]
fn hidden_work_beside_two_gains_at_most_what_one_gives_up() {
    for slice in SLICES {
        let programs = [
            Program::trainer(),
            Program::trainer(),
            lies(Program::trainer(), hides),
        ];
        let report = steered(&Case::new("hides beside two", &programs), slice);
        near("the liar", report.useful(2), 100.0 / 3.0, 1.0);
    }
}

#[test]
fn a_part_that_is_hidden_gains_at_most_the_hardwares_equal_slice() {
    for slice in SLICES {
        let programs = [Program::trainer(), lies(Program::trainer(), says_a_tenth)];
        let report = steered(&Case::new("says a tenth", &programs), slice);
        assert!(report.useful(1) <= 52.0, "{:.1}", report.useful(1));
        // A claim of more than half is believed.
        let programs = [Program::trainer(), lies(Program::trainer(), says_half)];
        let report = steered(&Case::new("says half", &programs), slice);
        assert!(report.useful(1) <= 67.0, "{:.1}", report.useful(1));
    }
}

/// What it hides of its request: the others yield to it meanwhile, so that it is never alone.
#[test]
fn nor_does_a_request_help_a_tenant_that_hides_a_part() {
    for percent in [[50, 50], [65, 35], [80, 20], [90, 10]] {
        for kernel in [50 * US, 500 * US, 5 * MS] {
            let programs = [
                Program::trainer(),
                lies(Program::queue(kernel), says_a_tenth),
            ];
            let case = Case::new(&format!("{percent:?} says a tenth"), &programs);
            let case = case.requests(&percent);
            for report in [case.clone(), case.h100()].map(|case| case.steered().report) {
                let part = 100.0 * report.useful(1) / report.all_useful();
                assert!(part <= 51.5, "{percent:?} {kernel}: {part:.1}");
            }
        }
    }
}

#[test]
fn claimed_backlog_gains_at_most_the_share() {
    let sparse = || Program::every(MS, 300 * US);
    for slice in SLICES {
        let programs = [Program::trainer(), lies(sparse(), says_that_it_waits)];
        let report = steered(&Case::new("says that it waits", &programs), slice);
        at_least("the others", report.useful(0), 49.0);
        // A tenant whose demand exceeds its share, too.
        let more = || Program::every(MS, 800 * US);
        let programs = [Program::trainer(), lies(more(), says_that_it_waits)];
        let report = steered(&Case::new("waits, 80 %", &programs), slice);
        at_least("the others", report.useful(0), 49.0);
        let programs = [
            Program::trainer(),
            lies(Program::trainer().until(2 * S), says_that_it_waits),
        ];
        let report = steered(&Case::new("waits and is gone", &programs), slice);
        at_least("the others", report.useful(0), 90.0);
    }
}

#[test]
fn claimed_service_hurts_nobody_else() {
    for lie in [says_twice_as_much, says_everything] {
        for slice in SLICES {
            let programs = [Program::trainer(), lies(Program::trainer(), lie)];
            let report = steered(&Case::new("claims service", &programs), slice);
            at_least("the other", report.useful(0), 49.0);
            assert!(report.idle() <= 2.0);
            let programs = [
                Program::trainer(),
                Program::trainer(),
                lies(Program::trainer(), lie),
            ];
            let report = steered(&Case::new("claims service beside two", &programs), slice);
            at_least("one other", report.useful(0), 32.0);
            at_least("one other", report.useful(1), 32.0);
        }
    }
}

/// One operation of two seconds: the driver gives it slices, and the other tenants theirs.
#[test]
fn one_that_never_finishes_costs_the_others_no_more_than_its_slices() {
    for slice in SLICES {
        let endless = Program::queue(1_000 * S).depth(1);
        let report = steered(
            &Case::new("never ends", &[Program::trainer(), endless.clone()]),
            slice,
        );
        at_least("the other", report.useful(0), 49.0);
        let case = Case::new("never ends, 10 %", &[Program::trainer(), endless.clone()])
            .requests(&[90, 10]);
        at_least("the other", steered(&case, slice).useful(0), 49.0);
        let case = Case::new(
            "never ends, two",
            &[Program::trainer(), Program::trainer(), endless],
        );
        let report = steered(&case, slice);
        near("one", report.useful(0), report.useful(1), 1.0);
        at_least("both", report.useful(0) + report.useful(1), 65.0);
    }
}

#[test]
fn counters_that_jump_break_nothing() {
    for slice in SLICES {
        let programs = [Program::trainer(), lies(Program::trainer(), jumps)];
        let report = steered(&Case::new("jumps", &programs), slice);
        at_least("the other", report.useful(0), 45.0);
        assert!(report.idle() <= 2.0);
    }
}

#[test]
fn two_processes_that_claim_all_there_is_break_nothing() {
    let liar = || lies(Program::trainer(), says_everything);
    let case = Case::new("two claim all", &[liar(), Program::trainer()]).process(0, liar());
    let report = steered(&case, 2 * MS);
    at_least("the other", report.useful(1), 33.0);
}
