//! Tenants that another class has left, or a debtor: what was so beside those is over. In virtual
//! time. Figures: `cargo test -p gpushare-core --test main together_after:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, S, US, near, request};
use gpushare_core::Compute;
use gpushare_core::lease::Mode;

fn queue() -> Program {
    Program::queue(500 * US)
}

/// A request of so many percent beside an equal without one. A class above them has all that is
/// left from 3 s to 8 s, and has left a quarter of a second ago.
fn after_a_higher_class(percent: u16) -> Case {
    let what = format!("{percent} %, a higher class has left");
    let higher = queue().from(3 * S).until(8 * S);
    let case = Case::new(&what, &[higher, queue(), queue()]);
    let case = case.of(0, 900, Compute::default());
    case.of(1, 500, request(percent)).times(8250 * MS, S)
}

#[test]
fn a_guarantee_that_was_kept_is_no_debt_once_the_higher_class_ends() {
    for percent in [5, 20, 40] {
        let case = after_a_higher_class(percent);
        for case in [case.clone().h100(), case.slice(2 * MS)] {
            let report = case.steered().report;
            let part = 100.0 * report.useful(1) / report.all_useful();
            near(&case.what, part, f64::from(percent), 2.5);
        }
    }
}

/// The opposite: an equal is repaid what it lacks beyond the other's guarantee. Alone with it, 20 %
/// would have had a part of the device that is not theirs.
#[test]
fn beside_a_higher_class_equals_share_what_no_guarantee_takes() {
    let higher = Program::every(2 * MS, 400 * US);
    let case = Case::new("20 % and none below a server", &[higher, queue(), queue()]);
    let case = case.of(0, 900, Compute::default()).of(1, 500, request(20));
    let report = case.times(4 * S, 4 * S).h100().steered().report;
    let both = report.useful(1) + report.useful(2);
    near("its part", 100.0 * report.useful(1) / both, 30.0, 10.0);
}

/// A tenant with a guarantee ends together with the class above it. The equal that was closed for
/// it meets a newcomer a second later.
#[test]
fn a_lag_ends_with_the_debt_that_it_is_of() {
    let higher = queue().from(3 * S).until(8 * S);
    let debtor = queue().until(8 * S);
    let case = Case::new(
        "a newcomer, past a debtor",
        &[higher, debtor, queue(), queue().from(9 * S)],
    );
    let case = case.of(0, 900, Compute::default()).of(1, 500, request(20));
    let report = case.times(9250 * MS, S).h100().steered().report;
    near(
        "the newcomer",
        100.0 * report.useful(3) / report.all_useful(),
        50.0,
        3.0,
    );
}

/// The mode, and the last one's wait (p99), of equals that come while a lower class still has work
/// on the device, long after that has gone; and without it.
fn after_a_lower_class(programs: &[Program]) -> [(Mode, u64); 2] {
    [true, false].map(|lower| {
        let equals = programs.iter().map(|one| one.clone().from(S));
        let mut programs: Vec<Program> = equals.collect();
        let last = programs.len() - 1;
        if lower {
            programs.push(queue().depth(60).until(999 * MS));
        }
        let case = Case::new("equals", &programs)
            .of(last + 1, 100, Compute::default())
            .h100();
        let mut rig = case.rig(case.brain());
        let report = rig.measured(12 * S, 8 * S);
        let wait = report.tenants[last].wait_if_any(990).unwrap_or(0);
        (rig.steering.changes().0, wait)
    })
}

#[test]
fn what_a_lower_class_had_is_forgotten_once_it_has_gone() {
    let equals = [queue(), queue()];
    assert_eq!(after_a_lower_class(&equals), [(Mode::Together, 0); 2]);
}

#[test]
fn a_server_waits_no_longer_because_of_a_lower_class_that_has_gone() {
    let one = [queue().depth(20), Program::sync(300 * US, 3 * MS)];
    let burst = Program::sync(500 * US, 2 * MS).burst(4);
    let two = [queue().depth(20), queue().depth(20), burst];
    for programs in [&one[..], &two[..]] {
        let [(_, after), (_, without)] = after_a_lower_class(programs);
        assert!(after <= 2 * without, "{after} ns, {without} without");
    }
}
