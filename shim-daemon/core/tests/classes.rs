//! Priority in virtual time: how soon a higher class runs, how much a lower one keeps, and how soon
//! an idle device is given up.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine::{Length, Machine, Program, request};
use gpushare_core::{Compute, Nanos, TenantId};

const HIGH: u16 = 900;
const LOW: u16 = 100;
const EQUAL: Compute = Compute {
    request: None,
    limit: None,
};

fn fixed(micros: u64) -> Length {
    Length::Fixed(Nanos::micros(micros))
}

/// Requests of a millisecond, some 50 a second.
fn inference() -> Program {
    Program::Requests(fixed(100), 10, Nanos::millis(20))
}

#[test]
fn a_higher_class_runs_within_three_milliseconds() {
    for micros in [5, 50, 500, 1_000] {
        let mut machine = Machine::new(micros);
        let serving = TenantId(1);
        machine.start(1, HIGH, EQUAL, inference());
        machine.start(2, LOW, EQUAL, Program::Deep(fixed(micros)));
        machine.run(Nanos::secs(20));
        let (half, most) = (
            machine.meter.wait(serving, 500),
            machine.meter.wait(serving, 990),
        );
        println!("preemption of a deep queue of {micros} us kernels: p50 {half} us, p99 {most} us");
        assert!(most <= 3_000, "kernels of {micros} us: p99 {most} us");
        let share = machine.meter.share(TenantId(2));
        assert!(share > 0.8, "the lower class gets the rest: {share}");
    }
}

#[test]
fn an_equal_class_waits_for_the_turn_of_a_deep_queue() {
    for micros in [5, 50, 500, 1_000] {
        let mut machine = Machine::new(micros);
        machine.start(1, LOW, EQUAL, inference());
        machine.start(2, LOW, EQUAL, Program::Deep(fixed(micros)));
        machine.run(Nanos::secs(20));
        let half = machine.meter.wait(TenantId(1), 500);
        println!("no preemption of a deep queue of {micros} us kernels: p50 {half} us");
        assert!(half > 3_000, "kernels of {micros} us: p50 {half} us");
    }
}

#[test]
fn a_long_kernel_delays_a_higher_class_by_no_more_than_the_bound() {
    let mut machine = Machine::new(3);
    machine.start(1, HIGH, EQUAL, inference());
    machine.start(2, LOW, EQUAL, Program::Deep(fixed(200_000)));
    machine.run(Nanos::secs(20));
    let longest = machine.meter.wait(TenantId(1), 1000);
    println!("preemption of kernels of 200 ms: longest wait {longest} us");
    assert!((10_000..=10_000 + 500).contains(&longest));
    let share = machine.meter.share(TenantId(2));
    assert!(share > 0.5, "the lower class goes on meanwhile: {share}");
}

#[test]
fn classes_are_strict() {
    let mut machine = Machine::new(4);
    machine.start(1, HIGH, EQUAL, Program::Deep(fixed(50)));
    machine.start(2, LOW, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::secs(5));
    let share = machine.meter.share(TenantId(2));
    println!(
        "a lower class beside a higher one that never stops: {:.2} %",
        100.0 * share
    );
    assert!(share <= 0.001);
    let ran = machine.meter.ran[&TenantId(1)] as f64 / machine.meter.total as f64;
    assert!(ran >= 0.99, "the higher one has the device: {ran}");
}

#[test]
fn a_lower_class_has_all_of_a_device_that_no_higher_one_wants() {
    let mut machine = Machine::new(4);
    machine.start(1, HIGH, EQUAL, Program::Sleeps);
    machine.start(2, LOW, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::secs(5));
    let ran = machine.meter.ran[&TenantId(2)] as f64 / machine.meter.total as f64;
    assert!(ran >= 0.99, "{ran}");
}

#[test]
fn a_request_is_kept_against_higher_classes_in_every_second() {
    for percent in [5, 20, 50] {
        for micros in [50, 5_000] {
            let mut machine = Machine::new(5);
            machine.start(1, HIGH, EQUAL, Program::Deep(fixed(200)));
            machine.start(2, LOW, request(percent), Program::Deep(fixed(micros)));
            machine.start(3, LOW, EQUAL, Program::Deep(fixed(50)));
            machine.run(Nanos::secs(10));
            let (least, most) = machine.meter.windows(TenantId(2), Nanos::secs(1));
            println!(
                "{percent} % requested below a higher class, kernels of {micros} us: {:.2} to {:.2} % of a second",
                100.0 * least,
                100.0 * most
            );
            let want = f64::from(percent) / 100.0;
            assert!(least >= want - 0.02 && most <= want + 0.02);
        }
    }
}

/// Launches one kernel, waits for it, and thinks for so long.
fn synchronises(think: u64) -> Program {
    Program::Loop(fixed(1_000), Nanos::micros(think))
}

/// The part of the time in percent that a tenant with such terms holds the device below a higher
/// class.
fn held_below(higher: Program, compute: Compute, program: Program) -> f64 {
    let mut machine = Machine::new(16);
    machine.start(1, HIGH, EQUAL, higher);
    machine.start(2, LOW, compute, program);
    machine.run(Nanos::secs(10));
    let share = machine.schedule.share(TenantId(2), machine.now);
    let held = share.expect("it is here").held;
    100.0 * held.0 as f64 / machine.now.0 as f64
}

#[test]
fn a_request_is_kept_of_a_tenant_that_waits_for_its_work() {
    for percent in [20, 50, 80] {
        for higher in [synchronises(300), Program::Deep(fixed(200))] {
            let held = held_below(higher, request(percent), synchronises(300));
            println!("{percent} % requested below {higher:?}: {held:.1} %");
            let want = f64::from(percent);
            assert!((want - 1.0..want + 1.0).contains(&held));
        }
    }
}

/// Each time it thinks it gives its turn up.
#[test]
fn a_request_is_kept_of_a_tenant_that_gives_up_its_turns() {
    for higher in [synchronises(300), Program::Deep(fixed(200))] {
        let held = held_below(higher, request(20), synchronises(1_000));
        println!("20 % requested below {higher:?} in short turns: {held:.1} %");
        assert!((18.0..21.0).contains(&held), "{higher:?}: {held}");
    }
}

#[test]
fn without_a_request_a_tenant_that_waits_for_its_work_gets_nothing() {
    let held = held_below(Program::Deep(fixed(200)), EQUAL, synchronises(300));
    assert!(held <= 0.1, "{held}");
}

#[test]
fn equals_share_beside_what_a_lower_class_is_guaranteed() {
    let mut machine = Machine::new(6);
    machine.start(1, HIGH, EQUAL, Program::Deep(fixed(200)));
    machine.start(2, HIGH, EQUAL, Program::Deep(fixed(20_000)));
    machine.start(3, LOW, request(30), Program::Deep(fixed(50)));
    machine.run(Nanos::secs(10));
    let shares = [1, 2, 3].map(|tenant| machine.meter.share(TenantId(tenant)));
    println!(
        "two of a class above one with 30 %: {:.2?}",
        shares.map(|share| 100.0 * share)
    );
    assert!((shares[0] - 0.35).abs() <= 0.01 && (shares[1] - 0.35).abs() <= 0.01);
    assert!((shares[2] - 0.3).abs() <= 0.01, "and it gets its guarantee");
}

/// The guarantee of a lower class takes of the time that is nobody's.
#[test]
fn a_request_is_kept_beside_an_equal_and_a_guarantee_below() {
    for (below, least) in [(Some(40), 0.0), (None, 0.38)] {
        let mut machine = Machine::new(6);
        machine.start(1, HIGH, request(60), Program::Deep(fixed(200)));
        machine.start(2, HIGH, EQUAL, Program::Deep(fixed(500)));
        if let Some(percent) = below {
            machine.start(3, LOW, request(percent), Program::Deep(fixed(50)));
        }
        machine.run(Nanos::secs(10));
        let share = |tenant| machine.meter.share(TenantId(tenant));
        println!(
            "60 %, none, {below:?} below: {:.3} {:.3}",
            share(1),
            share(2)
        );
        assert!(share(1) >= 0.58, "{:.3}", share(1));
        assert!(share(2) >= least, "{:.3}", share(2));
        let ran: u64 = machine.meter.ran.values().sum();
        assert!(ran >= Nanos::millis(9_500).0, "the device worked for {ran}");
        if below.is_some() {
            assert!((share(3) - 0.4).abs() <= 0.02, "{:.3}", share(3));
        }
    }
}

/// What higher classes are owed, after a foreign overrun, say, comes after a guarantee below.
#[test]
fn a_guarantee_below_is_kept_while_higher_classes_are_owed_much() {
    for above in [false, true] {
        let mut machine = Machine::new(6);
        machine.start(1, HIGH, request(50), Program::Deep(fixed(200)));
        machine.start(2, HIGH, request(40), Program::Deep(fixed(200)));
        let stuck = machine.start(4, HIGH, EQUAL, Program::Deep(fixed(2_000_000)));
        machine.start(3, LOW, request(10), Program::Deep(fixed(50)));
        if above {
            machine.start(5, HIGH + 50, EQUAL, Program::Deep(fixed(200)));
        }
        machine.run(Nanos::secs(3));
        machine.kill(stuck);
        for second in 0..10 {
            let before = machine.meter.ran[&TenantId(3)];
            machine.run(Nanos::secs(1));
            let ran = machine.meter.ran[&TenantId(3)] - before;
            println!("above: {above}, second {second}: {} ms", ran / 1_000_000);
            assert!(ran >= Nanos::millis(80).0, "second {second}: {ran}");
        }
    }
}

#[test]
fn an_idle_holder_gives_way_within_three_milliseconds() {
    let mut machine = Machine::new(7);
    machine.start(
        1,
        LOW,
        EQUAL,
        Program::Requests(fixed(100), 5, Nanos::millis(7)),
    );
    machine.start(
        2,
        LOW,
        EQUAL,
        Program::Requests(fixed(100), 5, Nanos::millis(11)),
    );
    machine.run(Nanos::secs(20));
    for tenant in [1, 2].map(TenantId) {
        let (half, most) = (
            machine.meter.wait(tenant, 500),
            machine.meter.wait(tenant, 990),
        );
        println!("idle release, {tenant:?}: p50 {half} us, p99 {most} us");
        assert!(most <= 3_000);
    }
}

#[test]
fn a_holder_that_is_not_idle_keeps_its_turn() {
    let mut machine = Machine::new(7);
    let requests = Program::Requests(fixed(100), 5, Nanos::millis(11));
    machine.start(1, LOW, EQUAL, Program::Deep(fixed(100)));
    machine.start(2, LOW, EQUAL, requests);
    machine.run(Nanos::secs(20));
    let half = machine.meter.wait(TenantId(2), 500);
    println!("no release while work is pending: p50 {half} us");
    assert!(half > 3_000);
}

#[test]
fn nobody_switches_while_only_one_wants() {
    let mut machine = Machine::new(8);
    machine.start(
        1,
        LOW,
        EQUAL,
        Program::Requests(fixed(100), 5, Nanos::millis(3)),
    );
    machine.start(2, LOW, EQUAL, Program::Sleeps);
    machine.run(Nanos::secs(1));
    let before = machine.grants;
    machine.run(Nanos::secs(10));
    assert_eq!(machine.grants, before, "it keeps the device, also idle");
}

#[test]
fn a_handoff_costs_two_messages() {
    let mut machine = Machine::new(9);
    machine.start(1, LOW, EQUAL, Program::Deep(fixed(50)));
    machine.start(2, LOW, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::secs(10));
    let per_switch = machine.meter.wasted / machine.grants / 1000;
    println!(
        "the device is idle {per_switch} us a switch, {} switches in 10 s",
        machine.grants
    );
    assert!((2..=100).contains(&per_switch), "{per_switch} us a switch");
}
