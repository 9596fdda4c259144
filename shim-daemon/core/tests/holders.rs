//! Holders that are stopped, killed, hung or lie: their cost to other tenants, in virtual time.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine::{Length, Machine, Manners, Program};
use gpushare_core::lease::Input;
use gpushare_core::{Compute, LeaseKind, Nanos, ProcessId, Report, TenantId};
use std::collections::BTreeSet;

const PRIORITY: u16 = 500;
const EQUAL: Compute = Compute {
    request: None,
    limit: None,
};
const GOOD: TenantId = TenantId(2);

fn fixed(micros: u64) -> Length {
    Length::Fixed(Nanos::micros(micros))
}

/// A bad tenant and a good one with deep queues. The bad one turns bad after a second, and the good
/// one continues.
fn beside(manners: Manners) -> Machine {
    let mut machine = Machine::new(1);
    let bad = machine.start(1, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::secs(1));
    machine.clients[bad].manners = manners;
    machine
}

/// The part of a time in which the good tenant's kernels ran.
fn had(machine: &mut Machine, time: Nanos) -> f64 {
    let ran = |machine: &Machine| machine.meter.ran.get(&GOOD).copied().unwrap_or_default();
    let before = ran(machine);
    machine.run(time);
    (ran(machine) - before) as f64 / time.0 as f64
}

#[test]
fn a_stopped_holder_costs_others_its_turn_and_the_bound() {
    let mut machine = beside(Manners::Stopped);
    let first = had(&mut machine, Nanos::millis(200));
    let then = had(&mut machine, Nanos::secs(1));
    println!(
        "beside a stopped tenant: {:.2} % of the first 200 ms, {:.2} % of the second after",
        100.0 * first,
        100.0 * then
    );
    // A turn it may be in, the bound, and one turn more for a call that waited at its gate.
    assert!(first >= 0.65 && then >= 0.98);
}

/// A tenant of higher priority with this program, beside a deep queue of lower priority.
fn above(program: Program) -> Machine {
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY + 1, EQUAL, program);
    machine.run(Nanos::millis(10));
    machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine
}

/// It does not answer, whether it was stopped amid its work or before the other one came.
#[test]
fn a_stopped_holder_of_higher_priority_keeps_the_device_for_a_second() {
    for program in [Program::Deep(fixed(50)), Program::Sleeps] {
        let mut machine = above(program);
        machine.run(Nanos::secs(1));
        machine.clients[0].manners = Manners::Stopped;
        machine.run(Nanos::millis(1500));
        let had = had(&mut machine, Nanos::secs(1));
        println!("below a stopped tenant: {:.2} %", 100.0 * had);
        assert!(had >= 0.98);
    }
    // Stopped before the other one came: it was free.
    let mut machine = Machine::new(1);
    let high = machine.start(1, PRIORITY + 1, EQUAL, Program::Sleeps);
    machine.run(Nanos::secs(1));
    machine.clients[high].manners = Manners::Stopped;
    machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::millis(1500));
    assert!(had(&mut machine, Nanos::secs(1)) >= 0.98);
}

/// The opposite: it has its turn back as soon as it has drained, also with kernels that take long,
/// or after a pause that is too short to give the device up.
#[test]
fn a_working_holder_of_higher_priority_loses_nothing_by_being_asked() {
    let paused = Program::Loop(fixed(2000), Nanos::micros(200));
    for (program, least) in [
        (Program::Deep(fixed(50)), 0.995),
        (Program::Deep(fixed(200_000)), 0.99),
        (paused, 0.88),
    ] {
        let what = format!("{program:?}");
        // Alone it would launch seconds of work ahead.
        let mut machine = Machine::new(1);
        machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
        machine.start(1, PRIORITY + 1, EQUAL, program);
        machine.run(Nanos::secs(1));
        let low = had(&mut machine, Nanos::secs(10));
        let high = machine.meter.ran[&TenantId(1)] as f64 / machine.meter.total as f64;
        println!("{what}: {:.2} % above {:.2} %", 100.0 * high, 100.0 * low);
        assert!(low == 0.0 && high >= least, "{what}");
        assert!(machine.overruns.is_empty(), "{what}");
    }
}

/// Another process of the tenant is stopped amid its work, and never drains.
#[test]
fn a_holder_that_runs_in_part_loses_nothing_by_being_asked() {
    let mut machine = Machine::new(1);
    machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine.start(1, PRIORITY + 1, EQUAL, Program::Deep(fixed(50)));
    let stopped = machine.start(1, PRIORITY + 1, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::millis(500));
    machine.clients[stopped].manners = Manners::Stopped;
    let before = machine.meter.ran[&TenantId(1)];
    let low = had(&mut machine, Nanos::secs(10));
    let high = (machine.meter.ran[&TenantId(1)] - before) as f64 / 1e10;
    println!("one of two stopped: {:.2} %", 100.0 * high);
    assert!(low == 0.0 && high >= 0.99, "{low} {high}");
}

#[test]
fn a_holder_that_never_says_drained_costs_its_share_and_bounds() {
    let mut machine = beside(Manners::Mute);
    let had = had(&mut machine, Nanos::secs(10));
    println!(
        "beside a tenant that never says it has drained: {:.2} %",
        100.0 * had
    );
    assert!(had >= 0.45);
}

#[test]
fn a_process_that_ignores_its_gate_is_billed_to_its_tenant() {
    let mut machine = beside(Manners::Deaf);
    let had = had(&mut machine, Nanos::secs(10));
    println!(
        "beside a tenant that ignores its gate: {:.2} %",
        100.0 * had
    );
    assert!(had >= 0.45, "time slices of the hardware are the least");
}

#[test]
fn a_killed_holder_frees_the_device_at_once() {
    let mut machine = beside(Manners::Good);
    machine.kill(0);
    let had = had(&mut machine, Nanos::millis(100));
    println!("after the other was killed: {:.2} %", 100.0 * had);
    assert!(had >= 0.99);
    let lease = machine.schedule.lease(GOOD).expect("it is here");
    assert_eq!(lease.kind, LeaseKind::Free, "alone it is free");
}

#[test]
fn a_kernel_that_never_ends_costs_its_owner_not_the_device() {
    let mut machine = Machine::new(1);
    machine.start(1, PRIORITY, EQUAL, Program::Deep(fixed(3_600_000_000)));
    machine.start(2, PRIORITY, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::millis(100));
    let had = had(&mut machine, Nanos::secs(10));
    println!(
        "beside a kernel of an hour: {:.2} % (the hardware gives each half)",
        100.0 * had
    );
    assert!(had >= 0.48);
    let overruns = machine.overruns.len();
    assert_eq!(overruns, 1, "one overrun is told once, not every turn");
}

/// The time from a newcomer's first launch to its start beside a tenant that was alone and launched
/// far ahead, in microseconds.
fn first_wait(class: u16, length: Length, seed: u64) -> u64 {
    let mut machine = Machine::new(seed);
    machine.start(1, PRIORITY, EQUAL, Program::Deep(length));
    machine.run(Nanos::micros(300_000 + 1_237 * seed));
    let free = machine.schedule.lease(TenantId(1)).expect("it is here");
    assert_eq!(free.kind, LeaseKind::Free, "alone it launches far ahead");
    machine.start(2, class, EQUAL, Program::Deep(fixed(50)));
    machine.run(Nanos::millis(100));
    let waited = machine
        .meter
        .waits
        .get(&GOOD)
        .and_then(|waits| waits.first());
    assert!(machine.meter.ran[&GOOD] > 0, "it was served");
    *waited.expect("it came to a device in use") / 1000
}

#[test]
fn a_newcomer_is_served_within_a_turn_and_the_bound() {
    // Work launched ahead: from 1000 kernels of 20 us to 1000 of 200 ms.
    for (class, most) in [(PRIORITY, 31_000), (PRIORITY + 1, 11_000)] {
        let mut waits = Vec::new();
        for micros in [20, 500, 5_000, 200_000] {
            for seed in 0..25 {
                waits.push(first_wait(class, fixed(micros), seed));
            }
        }
        waits.sort_unstable();
        println!(
            "a newcomer of priority {class} waits {} us (p50), {} us (p99) for its first turn beside a deep queue",
            waits[50], waits[98]
        );
        assert!(waits[99] <= most, "one waited {} us", waits[99]);
    }
}

#[test]
fn a_late_first_launch_waits_for_a_window_and_at_most_the_bound() {
    for (micros, most) in [(5, 5_500), (5_000, 11_000), (200_000, 11_000)] {
        let mut machine = Machine::new(1);
        machine.start(1, PRIORITY, EQUAL, Program::Deep(fixed(micros)));
        machine.run(Nanos::millis(300));
        let at = machine.start(2, PRIORITY, EQUAL, Program::Sleeps);
        machine.run(Nanos::secs(1));
        machine.clients[at].program = Program::Deep(fixed(50));
        machine.go_on(at);
        machine.run(Nanos::millis(100));
        let waited = machine.meter.waits[&GOOD][0] / 1000;
        println!("a second after it came, beside kernels of {micros} us: {waited} us");
        assert!(waited <= most, "it waited {waited} us");
    }
}

#[test]
fn a_stopped_tenant_that_goes_on_owes_no_more_than_can_be_owed() {
    let mut machine = beside(Manners::Stopped);
    machine.run(Nanos::secs(30));
    let bad = &mut machine.clients[0];
    bad.manners = Manners::Good;
    let lease = machine.schedule.lease(TenantId(1)).expect("it is here");
    machine.wake(0, lease);
    machine.run(Nanos::secs(2));
    let before = machine.meter.ran[&TenantId(1)];
    machine.run(Nanos::secs(1));
    let share = (machine.meter.ran[&TenantId(1)] - before) as f64 / 1e9;
    println!("three seconds after it went on: {:.2} %", 100.0 * share);
    assert!(share >= 0.45);
}

#[test]
fn reports_of_others_and_of_other_turns_change_nothing() {
    let mut machine = beside(Manners::Good);
    let epoch = machine.schedule.lease(GOOD).expect("it is here").epoch;
    let stranger = ProcessId(77);
    let process = machine.clients[0].process;
    for input in [
        Input::Reported {
            process: stranger,
            epoch,
            report: Report::Drained,
        },
        Input::Reported {
            process: stranger,
            epoch,
            report: Report::Wanted,
        },
        Input::Reported {
            process,
            epoch: epoch + 1000,
            report: Report::Drained,
        },
        Input::Reported {
            process,
            epoch: 0,
            report: Report::Drained,
        },
        Input::Reported {
            process,
            epoch: epoch + 1000,
            report: Report::Idle,
        },
        Input::Reported {
            process,
            epoch: 0,
            report: Report::Busy,
        },
        Input::Left { process: stranger },
    ] {
        let said = machine.said.len();
        machine.input(input);
        assert_eq!(machine.said.len(), said, "{input:?}");
    }
}

#[test]
fn forged_drains_gain_no_more_than_the_work_under_way() {
    let mut machine = beside(Manners::Good);
    let process = machine.clients[0].process;
    for _ in 0..5_000 {
        machine.run(Nanos::millis(1));
        let lease = machine.schedule.lease(TenantId(1));
        let epoch = lease.expect("it is here").epoch;
        machine.input(Input::Reported {
            process,
            epoch,
            report: Report::Drained,
        });
    }
    let had = machine.meter.ran[&GOOD] as f64 / machine.meter.total as f64;
    println!(
        "beside a tenant that says it has drained every millisecond: {:.2} %",
        100.0 * had
    );
    // Up to a window of work continues beside each next turn, unbilled; the hardware's time slices
    // are the least.
    assert!(had >= 1.0 / 3.0);
}

/// How many turns a tenant was given so far.
fn turns(machine: &Machine, tenant: TenantId) -> usize {
    let said = machine.said.iter();
    let own = said.filter(|(_, whose, lease)| *whose == tenant && is_turn(lease.kind));
    own.map(|(_, _, lease)| lease.epoch)
        .collect::<BTreeSet<_>>()
        .len()
}

fn is_turn(kind: LeaseKind) -> bool {
    matches!(kind, LeaseKind::Open { .. })
}

/// The turns of a liar and of its neighbour in five seconds. It repeats its lie about its turn five
/// times a millisecond.
fn turns_beside(lie: fn(ProcessId, u64, bool) -> Vec<Input>) -> (usize, usize) {
    let mut machine = beside(Manners::Good);
    let liar = TenantId(1);
    let process = machine.clients[0].process;
    let before = (turns(&machine, liar), turns(&machine, GOOD));
    for _ in 0..25_000 {
        machine.run(Nanos::micros(200));
        let lease = machine.schedule.lease(liar).expect("it is here");
        for input in lie(process, lease.epoch, is_turn(lease.kind)) {
            machine.input(input);
        }
    }
    (
        turns(&machine, liar) - before.0,
        turns(&machine, GOOD) - before.1,
    )
}

#[test]
fn a_liar_that_says_drained_gets_no_more_than_a_twentieth_more_turns() {
    let honest = turns_beside(|_, _, _| Vec::new());
    let (its, others) = turns_beside(|process, epoch, is_open| {
        if is_open {
            return Vec::new();
        }
        vec![
            Input::Reported {
                process,
                epoch,
                report: Report::Drained,
            },
            Input::Reported {
                process,
                epoch,
                report: Report::Wanted,
            },
        ]
    });
    println!("it reports drained at once: {its} turns beside {others}; honest {honest:?}");
    assert!(others > 100 && its * 20 <= others * 21);
}

#[test]
fn a_liar_that_always_wants_gets_the_turns_of_one_that_does_not_lie() {
    let honest = turns_beside(|_, _, _| Vec::new());
    let lying = turns_beside(|process, epoch, _| {
        let epochs = [epoch.saturating_sub(1), epoch, epoch + 1];
        epochs
            .map(|epoch| Input::Reported {
                process,
                epoch,
                report: Report::Wanted,
            })
            .to_vec()
    });
    println!("it always wants a turn: {lying:?} turns, honest {honest:?}");
    assert!(honest.0 > 100 && lying == honest);
}
