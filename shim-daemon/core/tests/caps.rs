//! Hard caps in virtual time: kept in every window of a second, alone and among others, and not
//! eaten by pauses.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine::{Host, Length, Machine, Program, cap};
use gpushare_core::{Compute, Input, LeasePolicy, Nanos, Permille, TenantId};

const PRIORITY: u16 = 500;
const FIRST: TenantId = TenantId(1);

fn fixed(micros: u64) -> Length {
    Length::Fixed(Nanos::micros(micros))
}

/// Runs one capped tenant alone; gives the least and the most it had in any window of a second.
fn alone(percent: u16, program: Program, policy: LeasePolicy) -> (f64, f64) {
    let mut machine = Machine::with(policy, u64::from(percent));
    machine.start(1, PRIORITY, cap(percent), program);
    machine.run(Nanos::secs(10));
    machine.meter.windows(FIRST, Nanos::millis(100))
}

#[test]
fn a_cap_holds_in_every_second_alone() {
    for percent in [1, 10, 30, 50, 90, 99] {
        for micros in [5, 50, 1_000, 8_000] {
            let (least, most) = alone(percent, Program::Deep(fixed(micros)), LeasePolicy::turns());
            println!(
                "{percent} % alone, kernels of {micros} us: {:.2} to {:.2} %",
                100.0 * least,
                100.0 * most
            );
            let want = f64::from(percent) / 100.0;
            assert!(least >= want - 0.02 && most <= want + 0.02);
        }
    }
}

#[test]
fn a_cap_holds_in_every_second_for_kernels_up_to_eight_milliseconds() {
    for percent in [10, 30, 50] {
        let mixed = Length::Mixed(Nanos::micros(5), Nanos::millis(8));
        let (least, most) = alone(percent, Program::Deep(mixed), LeasePolicy::turns());
        println!(
            "{percent} % alone, kernels of 5 us to 8 ms: {:.2} to {:.2} %",
            100.0 * least,
            100.0 * most
        );
        let want = f64::from(percent) / 100.0;
        assert!(least >= want - 0.02 && most <= want + 0.02);
    }
}

/// Under a cap, alone on a host that is late: the mean, and the least and the most of any window of
/// a second.
fn late(percent: u16, length: Length, stall: u64) -> (f64, f64, f64) {
    let mut machine = Machine::new(u64::from(percent));
    machine.host = Host::loaded(Nanos::millis(stall), u64::from(percent));
    machine.start(1, PRIORITY, cap(percent), Program::Deep(length));
    machine.run(Nanos::secs(60));
    let mean = machine.meter.ran[&FIRST] as f64 / machine.meter.total as f64;
    let (least, most) = machine.meter.windows(FIRST, Nanos::millis(100));
    println!(
        "{percent} % alone, {length:?}, stalls up to {stall} ms: {:.2} %, {:.2} to {:.2} % of a second",
        100.0 * mean,
        100.0 * least,
        100.0 * most
    );
    (mean, least, most)
}

#[test]
fn late_wakes_cost_a_capped_tenant_less_than_a_point_and_give_it_nothing() {
    let mixed = Length::Mixed(Nanos::micros(5), Nanos::millis(8));
    for percent in [1, 10, 30, 50, 70, 90] {
        for length in [fixed(50), fixed(500), mixed] {
            let want = f64::from(percent) / 100.0;
            let (mean, least, most) = late(percent, length, 1);
            assert!(mean >= want - 0.01 && mean <= want);
            assert!(least >= want - 0.04 && most <= want + 0.02);
        }
    }
}

#[test]
fn a_host_that_stands_still_gives_a_capped_tenant_nothing() {
    for percent in [10, 30, 50, 90] {
        let want = f64::from(percent) / 100.0;
        let (mean, least, most) = late(percent, fixed(500), 30);
        // 15 to 30 ms every 1.5 s, and two of these within a second now and then; they are billed
        // if it holds the device.
        assert!(mean >= want - 0.02 && mean <= want);
        assert!(least >= want - 0.08 && most <= want + 0.02);
    }
}

#[test]
fn kernels_longer_than_that_are_paid_for_afterwards() {
    for percent in [10, 50] {
        let mut machine = Machine::new(1);
        machine.start(1, PRIORITY, cap(percent), Program::Deep(fixed(50_000)));
        machine.run(Nanos::secs(10));
        let share = machine.meter.ran[&FIRST] as f64 / 1e10;
        let (least, most) = machine.meter.windows(FIRST, Nanos::millis(100));
        println!(
            "{percent} % alone, kernels of 50 ms: {:.2} % of 10 s, {:.2} to {:.2} % of a second",
            100.0 * share,
            100.0 * least,
            100.0 * most
        );
        let want = f64::from(percent) / 100.0;
        assert!((share - want).abs() <= 0.01);
        // One kernel more or less than the bucket explains.
        assert!(least >= want - 0.06 && most <= want + 0.06);
    }
}

#[test]
fn every_profile_keeps_caps() {
    for quantum in [5, 20, 50].map(Nanos::millis) {
        for percent in [10, 30, 50] {
            let policy = LeasePolicy {
                quantum,
                ..LeasePolicy::turns()
            };
            let (least, most) = alone(percent, Program::Deep(fixed(200)), policy);
            let want = f64::from(percent) / 100.0;
            assert!(
                least >= want - 0.02 && most <= want + 0.02,
                "{quantum:?} {percent}: {least} to {most}"
            );
        }
    }
}

#[test]
fn a_loop_that_synchronises_is_held_to_its_cap_by_the_time_it_holds() {
    let program = Program::Loop(fixed(200), Nanos::micros(100));
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(30), program);
    machine.run(Nanos::secs(10));
    // Two thirds of its hold time are kernels.
    let share = machine.meter.ran[&FIRST] as f64 / 1e10;
    println!(
        "30 % alone, a loop of 200 us kernels and 100 us pauses: kernels {:.2} %",
        100.0 * share
    );
    assert!((0.17..=0.21).contains(&share));
}

#[test]
fn pauses_do_not_eat_a_cap() {
    // A millisecond's work every 10 ms or so is far below 50 %: nothing of it may be held back for
    // long.
    let program = Program::Requests(fixed(250), 4, Nanos::millis(9));
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(50), program);
    machine.run(Nanos::secs(10));
    let longest = machine.meter.wait(FIRST, 1000);
    println!("requests of 1 ms every 10 ms under a cap of 50 %: longest wait {longest} us");
    assert!(longest <= 100, "a request waited {longest} us at the gate");
}

#[test]
fn request_and_limit_alike_give_that_much_among_others_too() {
    for percent in [12, 30, 50] {
        let mut machine = Machine::new(1);
        let part = Permille::new(percent * 10);
        let compute = Compute {
            request: part,
            limit: part,
        };
        machine.start(1, PRIORITY, compute, Program::Deep(fixed(100)));
        for tenant in 2..=8 {
            machine.start(
                tenant,
                PRIORITY,
                Compute::default(),
                Program::Deep(fixed(50 * tenant)),
            );
        }
        machine.run(Nanos::secs(10));
        let share = machine.meter.share(FIRST);
        let (_, most) = machine.meter.windows(FIRST, Nanos::millis(100));
        println!(
            "{percent} % as request and limit beside seven other tenants: {:.2} %, at most {:.2} % of a second",
            100.0 * share,
            100.0 * most
        );
        let want = f64::from(percent) / 100.0;
        assert!((share - want).abs() <= 0.01);
        assert!(most <= want + 0.02);
    }
}

#[test]
fn what_a_cap_leaves_goes_to_others() {
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(20), Program::Deep(fixed(100)));
    machine.start(2, PRIORITY, Compute::default(), Program::Deep(fixed(300)));
    machine.run(Nanos::secs(10));
    let (first, second) = (machine.meter.share(FIRST), machine.meter.share(TenantId(2)));
    println!(
        "20 % capped beside one without: {:.2} and {:.2} %",
        100.0 * first,
        100.0 * second
    );
    assert!((first - 0.2).abs() <= 0.01 && (second - 0.8).abs() <= 0.01);
}

#[test]
fn a_newcomer_beside_one_held_by_its_cap_waits_for_nobodys_past() {
    // The capped tenant is behind all the time; a newcomer must not start that far behind.
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(10), Program::Deep(fixed(100)));
    machine.start(2, PRIORITY, Compute::default(), Program::Deep(fixed(100)));
    machine.run(Nanos::secs(5));
    machine.start(3, PRIORITY, Compute::default(), Program::Deep(fixed(100)));
    let before = machine.meter.had[&TenantId(2)];
    machine.run(Nanos::secs(1));
    let had = (machine.meter.had[&TenantId(2)] - before) as f64 / 1e9;
    println!(
        "beside a newcomer the old one had {:.2} % of the next second",
        100.0 * had
    );
    assert!((had - 0.45).abs() <= 0.03);
}

#[test]
fn lifting_a_cap_repays_nothing_that_it_kept_from_its_tenant() {
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(10), Program::Deep(fixed(100)));
    machine.start(2, PRIORITY, Compute::default(), Program::Deep(fixed(100)));
    machine.run(Nanos::secs(5));
    machine.input(Input::Set {
        tenant: FIRST,
        class: PRIORITY,
        compute: Compute::default(),
    });
    let before = machine.meter.had[&FIRST];
    machine.run(Nanos::secs(1));
    let had = (machine.meter.had[&FIRST] - before) as f64 / 1e9;
    println!(
        "in the second after its cap was lifted: {:.2} %",
        100.0 * had
    );
    assert!((had - 0.5).abs() <= 0.03);
}

#[test]
fn two_processes_share_one_cap() {
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, cap(30), Program::Deep(fixed(100)));
    machine.start(1, PRIORITY, cap(30), Program::Deep(fixed(700)));
    machine.run(Nanos::secs(10));
    let (least, most) = machine.meter.windows(FIRST, Nanos::millis(100));
    println!(
        "two processes under one cap of 30 %: {:.2} to {:.2} %",
        100.0 * least,
        100.0 * most
    );
    assert!(least >= 0.28 && most <= 0.32);
}
