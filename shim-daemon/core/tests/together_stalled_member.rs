//! One process of a tenant was stopped, or waits for something other than the device, and the
//! tenant's other processes work on: what they get. In virtual time. Figures: `cargo test -p
//! gpushare-core --test main together_stalled_member:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, S, US, at_least, near};

/// Its work is pending from the first second on, and is never complete.
fn stopped() -> Program {
    Program::trainer().stalls(S, 1000 * S)
}

/// A server and a stopped process of one tenant beside a deep queue of another.
fn beside_a_queue(what: &str, queue: Program) -> Case {
    let case = Case::new(what, &[stopped(), queue]).process(0, Program::server());
    case.times(4 * S, 5 * S)
}

#[test]
fn a_stopped_process_takes_no_help_from_its_tenants_others() {
    for (what, switch, least) in [("no changes", 0, 27.0), ("h100", 150 * US, 17.0)] {
        for requests in [None, Some([50, 50])] {
            let case = beside_a_queue(what, Program::trainer()).switch(switch);
            let case = match requests {
                Some(requests) => case.requests(&requests),
                None => case,
            };
            let report = case.steered().report;
            at_least(what, report.useful(0), least);
            at_least("useful", report.all_useful(), 74.0);
        }
    }
}

/// The part that it asks for no more is its neighbour's.
#[test]
fn a_neighbour_has_the_part_of_a_stopped_process() {
    let case = Case::new(
        "three",
        &[stopped(), Program::trainer(), Program::trainer()],
    );
    let case = case.process(0, Program::server()).requests(&[60, 20, 20]);
    let report = case.times(4 * S, 5 * S).steered().report;
    at_least("the server", report.useful(0), 27.0);
    near("the others", report.useful(1), report.useful(2), 1.0);
}

/// The opposite: a long operation has the device, though it is not complete. Its time is not held
/// against its tenant either, whose other process completes little meanwhile.
#[test]
fn a_process_of_long_operations_is_not_taken_for_a_stopped_one() {
    for kernel in [40 * MS, 200 * MS] {
        for request in [20, 50, 80] {
            let what = format!("kernels of {kernel} and a server, {request} %");
            let case = Case::new(&what, &[Program::queue(kernel), Program::trainer()]);
            let case = case.process(0, Program::server());
            let case = case
                .requests(&[request, 100 - request])
                .times(4 * S, 20 * S);
            let report = case.steered().report;
            let part = 100.0 * report.useful(0) / report.all_useful();
            near(&what, part, f64::from(request), 1.5);
        }
    }
}
