//! Why a tenant yields or is held, and for which, as `ps` shows it. In virtual time.

use std::collections::BTreeSet;

use crate::together::{Brain, Case, MS, Program, Rig, S, US, limit, request};
use gpushare_core::{Cause, Compute, Nanos, ShareState, Steered, TenantId};

/// The causes that steer a tenant, seen every 100 us for two seconds after the first.
fn seen(rig: &mut Rig<Brain>, tenant: u64) -> BTreeSet<(String, Option<u64>)> {
    rig.run(S);
    let mut all = BTreeSet::new();
    for _ in 0..20_000 {
        rig.run(100 * US);
        let device = rig.steering.device.borrow();
        let share = device.share(TenantId(tenant + 1), Nanos(rig.now()));
        let share = share.expect("it is on the device");
        let is_steered = matches!(share.state, ShareState::Held | ShareState::Yielding);
        assert_eq!(share.steered.is_some(), is_steered, "{share:?}");
        all.extend(share.steered.map(|Steered { cause, tenant }| {
            let tenant = tenant.map(|tenant| tenant.0 - 1);
            (format!("{cause:?}"), tenant)
        }));
    }
    all
}

fn causes(case: &Case, tenant: u64) -> BTreeSet<(String, Option<u64>)> {
    seen(&mut case.rig(case.brain()), tenant)
}

fn only(cause: Cause, tenant: u64) -> BTreeSet<(String, Option<u64>)> {
    BTreeSet::from([(format!("{cause:?}"), Some(tenant))])
}

#[test]
fn one_ahead_of_its_share_gives_way_to_the_one_behind() {
    let case = Case::new("a server", &[Program::trainer(), Program::server()]);
    assert_eq!(causes(&case, 0), only(Cause::Share, 1));
    assert_eq!(causes(&case, 1), BTreeSet::new());
}

#[test]
fn one_gives_way_to_a_request() {
    let programs = [Program::trainer(), Program::server()];
    let case = Case::new("a request", &programs).of(1, 500, request(30));
    assert_eq!(causes(&case, 0), only(Cause::Request, 1));
}

#[test]
fn a_lower_priority_gives_way_to_a_higher_one() {
    let programs = [Program::trainer(), Program::server()];
    let case = Case::new("a class", &programs).of(1, 700, Compute::default());
    assert_eq!(causes(&case, 0), only(Cause::Priority, 1));
}

#[test]
fn a_higher_priority_gives_way_to_a_request_that_is_due() {
    let programs = [Program::trainer(), Program::queue(500 * US)];
    let case = Case::new("due", &programs).of(0, 700, Compute::default());
    let case = case.of(1, 500, request(30));
    assert_eq!(causes(&case, 0), only(Cause::Request, 1));
}

#[test]
fn loops_whose_changes_are_dear_wait_for_each_others_turns() {
    let programs = [
        Program::sync(50 * US, 10 * US),
        Program::sync(50 * US, 10 * US),
    ];
    let case = Case::new("turns", &programs).h100();
    assert_eq!(causes(&case, 0), only(Cause::Turn, 1));
}

#[test]
fn a_cap_gives_way_to_no_tenant() {
    let programs = [Program::trainer(), Program::every(100 * MS, 10 * US)];
    let case = Case::new("a cap", &programs).of(0, 500, limit(20));
    assert_eq!(causes(&case, 0), BTreeSet::new());
}
