//! Tenants of several processes, each with its context: the driver's round robin goes by contexts,
//! and shares by tenants. In virtual time. Figures: `cargo test -p gpushare-core --test main
//! together_processes:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, US, at_least, near};

/// The first tenant has so many processes in all, of these programs.
fn with(case: Case, processes: usize, program: impl Fn() -> Program) -> Case {
    (1..processes).fold(case, |case, _| case.process(0, program()))
}

fn queue() -> Program {
    Program::queue(100 * US)
}

/// It waits for each request, so it asks for less the longer it waits.
fn client() -> Program {
    Program::sync(300 * US, 700 * US)
}

#[test]
fn a_tenant_yields_by_one_slice_however_many_processes_it_has() {
    for processes in [1, 3, 8] {
        let what = format!("a client beside {processes} processes");
        let case = with(Case::new(&what, &[queue(), client()]), processes, queue);
        let report = case.steered().report;
        at_least(&what, report.useful(1), 24.5);
        let wait = report.tenants[1].wait(990);
        assert!(wait <= 500 * US, "{what}: {wait}");
    }
}

/// They submit one after another, so the device changes to one of them at a time.
#[test]
fn a_request_is_worth_as_much_beside_several_processes_as_beside_one() {
    for (processes, least) in [(1, 18.0), (2, 18.5), (4, 18.0), (8, 17.5), (16, 16.5)] {
        let what = format!("a client of 50 % beside {processes} processes");
        let case = with(Case::new(&what, &[queue(), client()]), processes, queue);
        let report = case.h100().requests(&[50, 50]).steered().report;
        at_least(&what, report.useful(1), least);
        at_least(&what, report.useful(0), 50.0);
    }
}

/// Nothing was promised to it, and the driver alone leaves it 1 % beside 16.
#[test]
fn a_server_is_not_left_out_for_its_neighbours_processes() {
    for (processes, least) in [(1, 18.0), (4, 14.0), (16, 13.0)] {
        let what = format!("a server beside {processes} trainers of one tenant");
        let programs = [Program::trainer(), Program::server()];
        let case = with(Case::new(&what, &programs), processes, Program::trainer);
        let pair = case.h100().pair();
        at_least(&what, pair.steered.useful(1), least);
        at_least("useful, of bare", pair.useful_of_bare(), 85.0);
    }
}

/// The opposite of yielding: two that always have work are divided as before.
#[test]
fn processes_take_turns_of_their_own_only_while_their_tenant_yields() {
    let programs = [Program::trainer(), Program::trainer()];
    let case = with(Case::new("two tenants", &programs), 4, Program::trainer);
    let report = case.h100().requests(&[50, 50]).steered().report;
    near(
        "the four",
        100.0 * report.useful(0) / report.all_useful(),
        50.0,
        1.5,
    );
}

/// The opposite: their contexts have no work.
#[test]
fn processes_that_rest_make_no_slice_shorter() {
    let rests = || Program::every(100 * MS, 10 * US);
    let of = |processes| {
        let what = format!("{processes} processes, one of them works");
        let server = Program::every(MS, 300 * US);
        let case = with(Case::new(&what, &[queue(), server]), processes, rests);
        case.h100().requests(&[50, 50]).steered().report
    };
    let (one, eight) = (of(1), of(8));
    for tenant in [0, 1] {
        near("as one", eight.useful(tenant), one.useful(tenant), 1.0);
    }
}

/// A deep queue that is never measured.
fn unmeasured(kernel: u64) -> Program {
    Program::queue(kernel).guesses(u64::MAX)
}

#[test]
fn more_processes_buy_no_more_where_no_tenant_is_measured() {
    for kernel in [500 * US, 5 * MS] {
        for percent in [None, Some([50, 50]), Some([80, 20]), Some([20, 80])] {
            for processes in [1, 2, 8] {
                let what = format!("{processes} of {kernel}, {percent:?}");
                let long = || unmeasured(kernel);
                let case = with(Case::new(&what, &[long(), long()]), processes, long).h100();
                let case = match &percent {
                    Some(percent) => case.requests(percent),
                    None => case,
                };
                let report = case.steered().report;
                let part = 100.0 * report.useful(0) / report.all_useful();
                let (expected, within) = match percent {
                    Some([first, _]) => (f64::from(first), 3.0),
                    None => (50.0, 7.5),
                };
                near(&what, part, expected, within);
            }
        }
    }
}

/// Its operations take slices of the driver's that are far apart, and it completes none meanwhile.
#[test]
fn one_whose_turn_comes_after_many_processes_is_not_found_stopped() {
    for processes in [11, 16] {
        let what = format!("a queue beside {processes} processes");
        let long = Program::queue(5 * MS);
        let case = with(Case::new(&what, &[queue(), long]), processes, queue);
        let case = case.requests(&[50, 50]);
        for case in [case.clone(), case.h100()] {
            let report = case.steered().report;
            let part = 100.0 * report.useful(1) / report.all_useful();
            near(&what, part, 50.0, 1.5);
        }
    }
}
