//! Work that waits for the host on the device: what its tenant is billed, and what others and its
//! own cap get after it. In virtual time, with an H100's changes of contexts. Figures: `cargo test
//! -p gpushare-core --test main together_stalls:: -- --nocapture`.
#![allow(clippy::float_arithmetic, clippy::print_stdout, reason = "figures")]

use crate::together::{Brain, Case, MS, Program, Rig, S, US, at_least, limit, near};
use gpushare_core::{Compute, Nanos, TenantId};

fn case(what: &str, programs: &[Program]) -> Case {
    Case::new(what, programs).h100()
}

#[test]
fn a_stall_buys_no_service_that_others_are_due() {
    for seconds in [0, 1, 10] {
        let what = format!("a stall of {seconds} s");
        let stalled = Program::trainer().stalls(2 * S, seconds * S);
        let case = case(&what, &[stalled, Program::server()]).requests(&[50, 50]);
        let after = case.times((2 + seconds) * S, 5 * S).steered().report;
        at_least(&what, after.useful(1), 23.0);
        at_least(&what, after.useful(0), 45.0);
    }
}

/// Its kernels are billed by time, and what the stall was billed is older. In the first second the
/// work runs that it had queued.
#[test]
fn a_stall_buys_no_service_for_long_kernels() {
    for (kernel, share) in [(20, 20), (20, 50), (10, 50)] {
        let what = format!("{kernel} ms of {share} %, after a stall");
        let stalled = Program::queue(kernel * MS).stalls(2 * S, 2 * S);
        let light = Program::server().until(4 * S);
        let case = Case::new(&what, &[stalled, light]).process(1, Program::trainer().from(4 * S));
        let case = case.requests(&[share, 100 - share]);
        let after = case.times(5 * S, 3 * S).steered().report;
        near(&what, after.useful(0), f64::from(share), 1.0);
    }
}

#[test]
fn a_stall_buys_no_service_above_a_cap() {
    for seconds in [1, 20] {
        let what = format!("20 %, after a stall of {seconds} s");
        let stalled = Program::trainer().stalls(2 * S, seconds * S);
        let case = case(&what, &[stalled, Program::server()]).of(0, 500, limit(20));
        let mut rig = case.rig(case.brain());
        rig.measured(0, (2 + seconds) * S);
        for second in 1..=5 {
            let had = rig.measured(0, S).useful(0);
            println!("{what}: {had:.1} % in second {second}");
            assert!(had <= 23.0, "{what}: {had:.1} % in second {second}");
            assert!(second == 1 || had >= 17.0, "{what}: {had:.1} %");
        }
    }
}

/// An operation of 40 ms is billed by time while it runs, and not again when it ends.
#[test]
fn long_operations_are_billed_once() {
    for kernel in [20, 40, 300] {
        let what = format!("50 us beside {kernel} ms");
        let programs = [Program::queue(50 * US), Program::queue(kernel * MS)];
        let report = case(&what, &programs).times(2 * S, 20 * S).steered().report;
        at_least(&what, report.useful(0), 45.0);
        at_least(&what, report.useful(1), 42.0);
    }
}

/// The short ones are of another process of the tenant, which has a cap of 20 %. One
/// operation of 200 ms is a third of a point of 60 s.
#[test]
fn long_operations_are_billed_once_beside_short_ones() {
    for (kernel, every) in [(200, 20), (200, 50), (100, 30), (40, 100)] {
        let what = format!("{kernel} ms, and 50 us every {every} ms, beside a deep queue");
        let programs = [Program::trainer(), Program::queue(kernel * MS).depth(2)];
        let short = Program::every(every * MS, 50 * US);
        let case = case(&what, &programs).process(1, short);
        let case = case.of(1, 500, limit(20)).times(2 * S, 60 * S);
        near(&what, case.steered().report.useful(1), 20.0, 0.5);
    }
}

/// What a tenant was billed for the next `time` ns, in percent of them.
fn billed(rig: &mut Rig<Brain>, tenant: u64, time: u64) -> f64 {
    let held = |rig: &Rig<Brain>| {
        let now = Nanos(rig.now());
        let device = rig.steering.device.borrow();
        let share = device.share(TenantId(tenant + 1), now);
        share.map_or(0, |share| share.held.0)
    };
    let before = held(rig);
    rig.run(time);
    (held(rig) - before) as f64 * 100.0 / time as f64
}

/// Three servers beside a trainer, of which the last has this program.
fn beside_three(last: Program) -> f64 {
    let fifth = || Program::every(MS, 200 * US);
    let case = case(
        "three servers",
        &[Program::trainer(), fifth(), fifth(), last],
    );
    let mut rig = case.rig(case.brain());
    rig.run(3 * S + 100 * MS);
    let had = billed(&mut rig, 3, 800 * MS);
    println!("billed {had:.1} %");
    had
}

/// Where changes of contexts cost more than half of its part the others never have all the rest.
#[test]
fn one_that_is_stopped_is_billed_nothing_where_changes_are_dear() {
    let stopped = Program::every(MS, 200 * US).stalls(3 * S, 100 * S);
    let had = beside_three(stopped);
    assert!(had <= 1.0, "billed {had:.1} % for nothing");
}

#[test]
fn one_long_operation_is_billed_where_changes_are_dear() {
    let long = Program::every(MS, 100 * S).from(3 * S);
    at_least("a long one", beside_three(long), 15.0);
}

/// The same beside programs whose launches cost more than their work: the device is never full.
#[test]
fn a_long_operation_beside_slow_launches_is_billed() {
    let slow = || Program::queue(2 * US).launch(6 * US).depth(3000);
    let long = Program::every(MS, 100 * S).from(3 * S);
    let case = case("slow launches", &[slow(), slow(), long]);
    let mut rig = case.rig(case.brain());
    rig.run(4 * S);
    at_least("a long one", billed(&mut rig, 2, 4 * S), 15.0);
}

/// It copies for most of its time, and is pending: its claims disagree with the clock.
#[test]
fn a_higher_class_that_copies_leaves_the_device_to_lower_ones() {
    for class in [900, 500] {
        for (copy, least) in [(2, 75.0), (10, 80.0)] {
            let what = format!("copies of {copy} ms, class {class}");
            let copies = Program::queue(100 * US).depth(8).copies(copy * MS);
            let case = case(&what, &[copies, Program::trainer()]);
            let case = case.of(0, class, Compute::default());
            let report = case.times(2 * S, 10 * S).steered().report;
            at_least(&what, report.useful(1), least);
            at_least(&what, report.tenants[0].of_asked(), 90.0);
        }
    }
}

/// The opposite: an honest one of a higher class has the device.
#[test]
fn a_higher_class_that_computes_leaves_nothing_to_lower_ones() {
    let what = "higher deep queue";
    let case = case(what, &[Program::queue(100 * US), Program::trainer()]);
    let case = case.of(0, 900, Compute::default());
    let report = case.times(2 * S, 10 * S).steered().report;
    at_least(what, report.useful(0), 95.0);
}

/// One of a higher class that copies, or was stopped, keeps no lower class out for another one.
#[test]
fn one_that_does_not_work_keeps_no_lower_class_out_beside_a_visitor() {
    let visitor = || Program::every(4 * MS, 200 * US);
    let queue = || Program::queue(100 * US);
    let cases = [
        ("copies", queue().depth(8).copies(2 * MS), 60.0, 100.0),
        ("stopped", queue().stalls(3 * S, 20 * S), 80.0, 100.0),
        // The opposite.
        ("works", queue(), 0.0, 3.0),
    ];
    for (what, high, least, most) in cases {
        for real in [false, true] {
            let case = case(what, &[high.clone(), visitor(), Program::trainer()]);
            let case = if real { case.h100() } else { case };
            let (high, none) = (900, Compute::default());
            let case = case.of(0, high, none).of(1, high, none);
            let report = case.times(4 * S, 5 * S).steered().report;
            at_least(what, report.useful(2), least);
            if what == "copies" {
                at_least(what, report.tenants[0].of_asked(), 90.0);
            }
            assert!(report.useful(2) <= most, "{what}: {:.1}", report.useful(2));
        }
    }
}

/// An equal deep queue fills the gaps in its place.
#[test]
fn one_that_does_not_work_fills_no_gaps_in_place_of_an_equal() {
    let visitor = || Program::every(4 * MS, 200 * US);
    let queue = || Program::queue(100 * US);
    let cases = [
        ("copies", queue().depth(8).copies(2 * MS), 55.0),
        ("stopped", queue().stalls(3 * S, 20 * S), 55.0),
        // The opposite.
        ("works", queue(), 35.0),
    ];
    for (what, one, least) in cases {
        let case = case(what, &[one, visitor(), Program::trainer()]);
        let case = case.times(4 * S, 5 * S);
        at_least(what, case.steered().report.useful(2), least);
    }
}

#[test]
fn one_that_does_not_work_makes_no_equals_of_two_classes_below_it() {
    let none = Compute::default();
    let copies = Program::queue(100 * US).depth(8).copies(2 * MS);
    for (what, high, least) in [
        ("copies", copies, 60.0),
        ("long", Program::queue(2 * S), 14.0),
    ] {
        let case = case(what, &[high, Program::trainer(), Program::trainer()]);
        let case = case.of(0, 950, none).of(1, 900, none);
        let report = case.times(2 * S, 10 * S).steered().report;
        at_least(what, report.useful(1), least);
        let lowest = report.useful(2);
        assert!(lowest <= report.useful(1) / 10.0, "{what}: {lowest:.1}");
    }
}
