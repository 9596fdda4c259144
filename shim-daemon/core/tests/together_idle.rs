//! Idleness: what is billed and kept of a tenant of which some processes are idle, and what time
//! without work is worth. In virtual time. Figures: `cargo test -p gpushare-core --test main
//! together_idle:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{
    Brain, Case, Gate, MS, Program, Rig, S, Steering, US, Who, at_least, limit, near, request,
};
use gpushare_core::Compute;

fn rig(case: &Case) -> Rig<Brain> {
    case.rig(case.brain())
}

/// The first process of the tenant rests, and goes on shortly before the second ends. The cap opens
/// the gate for less than the time after which a process says that it is idle.
#[test]
fn a_cap_holds_for_a_process_that_was_idle_while_another_worked() {
    let first = Program::trainer().pauses(3 * S, 2500 * MS);
    let second = Program::trainer().from(3500 * MS).until(6 * S);
    let case = Case::new("a cap of two processes", &[first]).process(0, second);
    let mut rig = rig(&case.of(0, 500, limit(30)));
    rig.run(4 * S);
    near(
        "the second",
        rig.measured(0, 1400 * MS).useful(0),
        30.0,
        2.0,
    );
    near(
        "the first",
        rig.measured(900 * MS, 2 * S).useful(0),
        30.0,
        2.0,
    );
}

/// The first process begins again while the tenant is alone and its gate records nothing. The other
/// tenant then comes back, and is repaid before the second process ends.
#[test]
fn a_share_is_kept_against_a_process_that_began_while_unbound() {
    let first = Program::trainer().pauses(11 * S, S);
    let second = Program::trainer().until(19 * S);
    let other = Program::trainer().pauses(11_300 * MS, 1200 * MS);
    let case = Case::new("two processes and another tenant", &[first, other]);
    let case = case.process(0, second).requests(&[20, 80]);
    let report = rig(&case).measured(19_500 * MS, 3 * S);
    near("the other", report.useful(1), 80.0, 2.0);
    near("its part", report.useful(0), 20.0, 2.0);
}

/// The opposite: one that rests on binds no other tenant.
#[test]
fn a_tenant_with_idle_processes_leaves_its_neighbour_unbound() {
    let first = Program::trainer().pauses(S, 10 * S);
    let second = Program::trainer().pauses(3 * S, 10 * S);
    let case = Case::new("two processes that rest", &[first, Program::trainer()]);
    let case = case.process(0, second).requests(&[80, 20]);
    let mut rig = rig(&case);
    rig.run(4 * S);
    let changes = rig.steering.changes();
    let report = rig.measured(0, 5 * S);
    at_least("alone", report.useful(1), 99.0);
    assert_eq!(rig.steering.changes(), changes);
    assert_eq!(rig.steering.next(), None);
}

/// The longest that a request waits for its end, of 20 s.
fn longest(case: &Case) -> u64 {
    let report = rig(case).measured(S, 20 * S);
    report.tenants[0].wait(1000)
}

#[test]
fn a_cap_collects_its_part_while_its_tenant_is_idle() {
    for (kernels, period) in [(8, 100 * MS), (7, 80 * MS)] {
        let program = Program::every(period, MS).burst(kernels);
        let case = Case::new("a tenth", &[program]).of(0, 500, limit(10));
        let longest = longest(&case);
        let alone = kernels as u64 * MS;
        assert!(longest <= alone + MS, "{longest} ns for {alone}");
    }
}

#[test]
fn a_cap_collects_no_more_than_its_part_while_its_tenant_is_idle() {
    for (kernels, period) in [(12, 100 * MS), (60, 300 * MS)] {
        let program = Program::every(period, MS).burst(kernels);
        let case = Case::new("a tenth", &[program]).of(0, 500, limit(10));
        let had = rig(&case).measured(S, 20 * S).useful(0);
        near("a tenth", had, 9.75, 0.75);
    }
}

/// Its cap had nothing left before, so the tenant waited once.
#[test]
fn a_burst_uses_all_that_its_cap_collected() {
    let program = Program::every(200 * MS, MS).burst(20);
    let longest = longest(&Case::new("30 %", &[program]).of(0, 500, limit(30)));
    assert!(longest <= 21 * MS, "{longest} ns for 20 ms of work");
}

/// The opposite: 18 ms collect at most, and 0.3 ms in each one that follows.
#[test]
fn a_burst_above_what_its_cap_collected_waits() {
    let program = Program::every(200 * MS, MS).burst(40);
    let longest = longest(&Case::new("30 %", &[program]).of(0, 500, limit(30)));
    assert!(longest >= 70 * MS, "{longest} ns for 40 ms of work");
}

#[test]
fn a_cap_neither_moves_its_gate_all_the_time_nor_keeps_it_closed_for_long() {
    let server = || Program::every(MS, 300 * US);
    for percent in [10, 30, 50, 80] {
        for others in [vec![], vec![server()], vec![Program::trainer()]] {
            let programs: Vec<Program> =
                std::iter::once(Program::trainer()).chain(others).collect();
            let case = Case::new("a deep queue", &programs).of(0, 500, limit(percent));
            let changes = rig(&case).measured(S, 10 * S).tenants[0].gate_changes;
            assert!(changes <= 2_000, "{changes} in 10 s under {percent} %");
        }
    }
    let case = Case::new("a server above its cap", &[server()]).of(0, 500, limit(20));
    let report = rig(&case).measured(S, 20 * S);
    near("its cap", report.useful(0), 20.0, 0.1);
    assert!(report.tenants[0].wait(1000) <= 10 * MS);
}

/// Whether a trainer submits in slices so long after a server of this class, which then says
/// nothing any more, has worked for a second. It was frozen between two requests.
fn yields_to_a_frozen_one(class: u16, after: u64) -> bool {
    let server = Program::every(MS, 300 * US).pauses(S, 100 * S);
    let case = Case::new("a frozen server", &[Program::trainer(), server]);
    let mut rig = rig(&case.of(1, class, Compute::default()));
    rig.idle_after = 100 * S;
    rig.run(S + after);
    let who = Who {
        tenant: 0,
        process: 0,
    };
    match rig.steering.gate(who) {
        Gate::Open {
            slice, contended, ..
        } => slice.is_some() || contended,
        gate => panic!("{gate:?} beside one that does not work"),
    }
}

#[test]
fn no_tenant_yields_to_a_higher_one_that_is_frozen() {
    for class in [500, 900] {
        assert!(!yields_to_a_frozen_one(class, 100 * MS), "{class}");
    }
}

/// The opposite: it may be back any moment.
#[test]
fn a_tenant_yields_to_a_higher_one_that_pauses_for_a_moment() {
    assert!(yields_to_a_frozen_one(900, 15 * MS));
    assert!(!yields_to_a_frozen_one(500, 15 * MS));
}

/// The parts of all useful time of one with this request and of one without, beside so many of
/// those.
fn beside(percent: u16, (others, program): (usize, &Program)) -> [f64; 2] {
    let what = format!("{percent} %, none, and {others} beside");
    let mut programs = vec![Program::trainer(), Program::trainer()];
    programs.extend((0..others).map(|_| program.clone()));
    let case = Case::new(&what, &programs).of(0, 500, request(percent));
    let report = case.times(6 * S, 5 * S).h100().steered().report;
    [0, 1].map(|at| 100.0 * report.useful(at) / report.all_useful())
}

#[test]
fn idle_tenants_take_no_part_from_one_without_a_request() {
    // They launched once, and never again.
    let idle = Program::queue(50 * US).pauses(50 * US, 3600 * S);
    for (percent, many) in [(50, 3), (50, 9), (10, 9)] {
        let [with, without] = beside(percent, (many, &idle));
        near("the request", with, f64::from(percent), 1.0);
        near("the other", without, f64::from(100 - percent), 1.0);
    }
}

/// Their pages go on saying that they have work.
#[test]
fn stopped_tenants_take_no_part_from_one_without_a_request() {
    let stopped = Program::trainer().stalls(S, 100 * S);
    for many in [1, 3] {
        let [with, without] = beside(50, (many, &stopped));
        near("the request", with, 50.0, 1.0);
        near("the other", without, 50.0, 1.0);
    }
}

/// The opposite: those that ask share what the request leaves. One that has paused for a second
/// asked lately.
#[test]
fn tenants_without_a_request_that_ask_share_what_requests_leave() {
    let pausing = || Program::trainer().pauses(2 * S, S);
    let programs = [
        Program::trainer(),
        Program::trainer(),
        Program::trainer(),
        pausing(),
    ];
    let case = Case::new("50 % and three without", &programs).of(0, 500, request(50));
    let report = case.times(S, S).h100().steered().report;
    for (at, part) in [50.0, 16.7, 16.7, 16.7].into_iter().enumerate() {
        let had = 100.0 * report.useful(at) / report.all_useful();
        near("its part", had, part, 1.5);
    }
}
