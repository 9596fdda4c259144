//! Caps and guarantees where estimates are wrong, in virtual time: an error costs or gains its own
//! tenant, and no other one's promise moves. Figures: `cargo test -p gpushare-core --test main
//! together_estimates:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, S, SLICES, Sample, US, limit, near, request};
use gpushare_core::Compute;

fn trainer(estimates: u64) -> Program {
    Program::queue(500 * US).estimates(estimates)
}

/// What the first tenant has, in percent, at each length of the driver's slice.
fn first(case: &Case) -> [f64; 2] {
    SLICES.map(|slice| {
        let case = case.clone().slice(slice).times(S, 5 * S);
        case.steered().report.useful(0)
    })
}

/// A tenant with a cap of 20 % beside others has so much.
fn capped(what: &str, programs: &[Program], expected: f64) {
    let case = Case::new(what, programs).of(0, 500, limit(20));
    for had in first(&case) {
        near(what, had, expected, 0.5);
    }
}

/// A tenant with a guarantee of 20 % below a deep queue of higher priority has so much.
fn guaranteed(own: u64, other: u64, expected: f64) {
    let what = format!("guarantee, own {own}, other {other}");
    let case = Case::new(&what, &[trainer(own), trainer(other)])
        .of(0, 500, request(20))
        .of(1, 900, Compute::default());
    for had in first(&case) {
        near(&what, had, expected, 0.5);
    }
}

fn hides(sample: &mut Sample) {
    (sample.service, sample.busy, sample.pending) = (0, 0, None);
}

fn hidden(program: Program) -> Program {
    Program {
        ungated: true,
        lie: Some(hides),
        ..program
    }
}

#[test]
fn a_cap_holds_whatever_the_other_tenants_estimates_are() {
    for other in [800, 1000, 1200] {
        capped("others", &[trainer(1000), trainer(other)], 20.0);
        let three = [trainer(1000), trainer(other), trainer(other)];
        capped("two others", &three, 20.0);
    }
}

#[test]
fn a_cap_holds_beside_work_that_no_tenant_claims() {
    capped("hidden", &[trainer(1000), hidden(trainer(1000))], 20.0);
    let tenth = hidden(Program::every(MS, 100 * US));
    capped("a tenth", &[trainer(1000), trainer(1000), tenth], 20.0);
    let copies = trainer(1000).depth(8).copies(600 * US);
    capped("copies", &[trainer(1000), copies], 20.0);
    let server = Program::every(MS, 300 * US);
    capped("server", &[trainer(1000), server], 20.0);
}

/// The bound that ADR 157 states: a cap is off by the error of its own tenant's estimates.
#[test]
fn a_cap_is_off_by_the_error_of_its_own_tenants_estimates() {
    for own in [800, 900, 1100, 1200_u32] {
        let what = format!("own {own}");
        let programs = [trainer(own.into()), trainer(1000)];
        capped(&what, &programs, 20_000.0 / f64::from(own));
    }
}

#[test]
fn a_guarantee_is_off_by_its_own_tenants_estimates_only() {
    guaranteed(1000, 800, 20.0);
    guaranteed(1000, 1200, 20.0);
    guaranteed(800, 800, 25.0);
    guaranteed(1200, 1000, 100.0 / 6.0);
}
