//! Shares in virtual time: how exactly a device's time is split, whatever its tenants launch, and
//! what that costs. The figures are printed: `cargo test -p gpushare-core --test main shares:: --
//! --nocapture`.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine::{Length, Machine, Program, Rng, request};
use gpushare_core::{Compute, Nanos, TenantId};

const PRIORITY: u16 = 500;
const EQUAL: Compute = Compute {
    request: None,
    limit: None,
};

fn fixed(micros: u64) -> Length {
    Length::Fixed(Nanos::micros(micros))
}

/// A machine with a tenant for each program and its request in percent; none: equal.
fn tenants(seed: u64, programs: &[(Option<u16>, Program)]) -> Machine {
    let mut machine = Machine::new(seed);
    for (tenant, (percent, program)) in (1..).zip(programs) {
        if let Some(percent) = percent {
            machine
                .weights
                .insert(TenantId(tenant), f64::from(*percent));
        }
        let compute = percent.map_or(EQUAL, request);
        machine.start(tenant, PRIORITY, compute, *program);
    }
    machine
}

/// Prints the shares, and asserts that each is within a percentage point of a perfect scheduler's.
fn exact(name: &str, machine: &Machine) {
    let meter = &machine.meter;
    let shares: Vec<String> = meter
        .ideal
        .keys()
        .map(|tenant| {
            let (share, error) = (meter.share(*tenant), meter.error(*tenant));
            format!("{:.2} % ({:+.2})", 100.0 * share, 100.0 * error)
        })
        .collect();
    let wasted = meter.wasted as f64 / meter.wanted.max(1) as f64;
    let worked: u64 = meter.ran.values().sum();
    let overhead = 1.0 - (worked - meter.marks.min(worked)) as f64 / meter.wanted.max(1) as f64;
    println!(
        "{name}: {}; idle while wanted {:.2} %, overhead {:.2} %",
        shares.join(", "),
        100.0 * wasted,
        100.0 * overhead
    );
    for tenant in meter.ideal.keys() {
        let error = meter.error(*tenant);
        assert!(error.abs() <= 0.01, "{name}: {tenant:?} is off by {error}");
    }
    assert!(
        wasted <= 0.01,
        "{name}: idle for {wasted} of the time it was wanted"
    );
    assert!(
        overhead <= 0.03,
        "{name}: {overhead} of the time did no work"
    );
}

#[test]
fn equal_tenants_get_equal_parts_whatever_their_kernels_last() {
    for (short, long) in [
        (5, 50_000),
        (50, 20_000),
        (50, 50),
        (500, 3_000),
        (15_000, 15_000),
        (7, 11_000),
    ] {
        let mut machine = tenants(
            1,
            &[
                (None, Program::Deep(fixed(short))),
                (None, Program::Deep(fixed(long))),
            ],
        );
        machine.run(Nanos::secs(10));
        exact(
            &format!("50:50, kernels of {short} and {long} us"),
            &machine,
        );
    }
}

#[test]
fn requests_are_weights_from_one_to_nine() {
    for (one, two) in [(10, 90), (30, 70), (50, 50), (90, 10)] {
        for (first, second) in [(50, 50), (20_000, 50), (50, 50_000), (50_000, 50_000)] {
            let mut machine = tenants(
                2,
                &[
                    (Some(one), Program::Deep(fixed(first))),
                    (Some(two), Program::Deep(fixed(second))),
                ],
            );
            machine.run(Nanos::secs(10));
            exact(
                &format!("{one}:{two}, kernels of {first} and {second} us"),
                &machine,
            );
        }
    }
}

#[test]
fn a_loop_that_synchronises_gets_as_much_as_a_deep_queue() {
    for (kernel, think) in [(50, 20), (1_000, 100), (200, 200)] {
        let looped = Program::Loop(fixed(kernel), Nanos::micros(think));
        let mut machine = tenants(3, &[(None, looped), (None, Program::Deep(fixed(300)))]);
        machine.run(Nanos::secs(10));
        let error = machine.meter.error(TenantId(1));
        println!(
            "a loop of {kernel} us kernels and {think} us pauses beside a deep queue: {:+.2} pp",
            100.0 * error
        );
        assert!(error.abs() <= 0.01);
    }
}

#[test]
fn a_tenant_of_two_processes_gets_what_one_of_one_gets() {
    let mut machine = tenants(
        4,
        &[
            (None, Program::Deep(fixed(100))),
            (None, Program::Deep(fixed(100))),
        ],
    );
    machine.start(1, PRIORITY, EQUAL, Program::Deep(fixed(700)));
    machine.run(Nanos::secs(10));
    exact("two processes against one", &machine);
}

#[test]
fn who_idles_costs_nobody_and_saves_nothing_up() {
    let bursts = Program::Bursts(fixed(200), Nanos::millis(300), Nanos::millis(700));
    let mut machine = tenants(
        5,
        &[
            (None, Program::Deep(fixed(50))),
            (None, Program::Deep(fixed(5_000))),
            (None, bursts),
        ],
    );
    machine.run(Nanos::secs(10));
    exact("two that work and one with pauses", &machine);
}

#[test]
fn newcomers_get_their_part_from_when_they_come() {
    let mut machine = tenants(6, &[(None, Program::Deep(fixed(50)))]);
    for tenant in 2..=8 {
        machine.run(Nanos::millis(1_300));
        machine.start(
            tenant,
            PRIORITY,
            EQUAL,
            Program::Deep(fixed(40 * tenant * tenant)),
        );
    }
    machine.run(Nanos::secs(2));
    machine.kill(0);
    machine.run(Nanos::secs(2));
    exact("one more every 1.3 s, then the first is killed", &machine);
}

/// A random tenant: any kernels, launching all the time or with pauses. A tenant that pauses in the
/// middle of a round loses at most its lag, one turn. So pauses are seconds apart, where a turn is
/// below a percentage point.
fn drawn(rng: &mut Rng) -> (Option<u16>, Program) {
    let micros = 5 << rng.below(14);
    let length = match rng.below(3) {
        0 => Length::Mixed(Nanos::micros(5), Nanos::millis(50)),
        1 => Length::Mixed(Nanos::micros(200), Nanos::millis(3)),
        _ => Length::Fixed(Nanos::micros(50_000.min(micros))),
    };
    let (on, off) = (
        Nanos::millis(1_000 + rng.below(2_000)),
        Nanos::millis(1 + rng.below(1_000)),
    );
    let program = match rng.below(4) {
        0 => Program::Bursts(length, on, off),
        _ => Program::Deep(length),
    };
    (None, program)
}

/// Cases of two, three and eight tenants, half of them with weights from one to nine.
fn mixes(seed: u64, cases: usize) {
    let mut rng = Rng(seed);
    for case in 0..cases {
        let count = [2, 3, 8][case % 3];
        let mut programs: Vec<_> = (0..count).map(|_| drawn(&mut rng)).collect();
        if case % 2 == 0 {
            let most = 100 / u64::try_from(count).expect("few");
            for (percent, _) in &mut programs {
                let part = (most * (1 + rng.below(9)) / 9).max(1);
                *percent = Some(u16::try_from(part).expect("small"));
            }
        }
        let mut machine = tenants(seed + case as u64, &programs);
        machine.run(Nanos::secs(10));
        exact(&format!("mix {case} of {count}"), &machine);
    }
}

#[test]
fn any_mix_of_tenants_is_shared_to_a_percentage_point() {
    mixes(7, 12);
}

#[test]
#[ignore = "second tier: two minutes"]
fn a_hundred_mixes_are_shared_to_a_percentage_point() {
    mixes(8, 100);
}

/// Without a request they have the least together, however many they are.
#[test]
fn requests_are_kept_beside_many_tenants_without_one() {
    let deep = Program::Deep(fixed(500));
    let mut programs = vec![(Some(50), deep), (Some(40), deep)];
    programs.extend((0..20).map(|_| (None, deep)));
    let mut machine = tenants(7, &programs);
    machine.run(Nanos::secs(20));
    let share = |tenant| machine.meter.share(TenantId(tenant));
    println!("50, 40 and twenty: {:.3} {:.3}", share(1), share(2));
    assert!((share(1) - 0.5).abs() <= 0.01, "{:.3}", share(1));
    assert!((share(2) - 0.4).abs() <= 0.01, "{:.3}", share(2));
    for tenant in 3..23 {
        assert!((share(tenant) - 0.005).abs() <= 0.003, "{tenant}");
    }
}
