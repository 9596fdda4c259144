//! A tenant that was stopped, or is stuck, reports pending work for ever: the others continue.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: what cannot be had fails it; figures for people"
)]
use crate::together::{self, Case, Program, S, US, request};
use gpushare_core::{
    Compute, DeviceTime, Input, LeasePolicy, Nanos, Permille, ProcessId, TenantId, Work,
};

const MS: u64 = 1_000_000;

fn joined(device: &mut DeviceTime, now: u64, at: u64, percent: u16) {
    device.handle(
        Nanos(now),
        Input::Joined {
            tenant: TenantId(at),
            process: ProcessId(at),
            gated: true,
            class: 500,
            compute: Compute {
                request: Permille::new(percent * 10),
                limit: None,
            },
        },
    );
}

fn is_open(device: &DeviceTime, at: u64) -> bool {
    let lease = device.lease(TenantId(at)).unwrap();
    !lease.kind.is_closed()
}

/// For how much of ten seconds a tenant of 20 % is open, per thousand, beside one of 80 % that says
/// that work of its is pending and completes none.
/// `guessed`: the service of the other one is unknown.
fn open_beside_a_stopped_one(drained: bool, guessed: bool) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    joined(&mut device, 0, 1, 80);
    joined(&mut device, 0, 2, 20);
    let (mut now, mut open, mut service) = (0, 0, [0, 0]);
    let mut told = false;
    while let Some(at) = device.next_sample().filter(|at| at.0 < 11_000 * MS) {
        let span = at.0 - now;
        now = at.0;
        let stopped = now > 1_000 * MS;
        let both = if stopped { 0 } else { 2 };
        if is_open(&device, 2) {
            service[1] += span / both.max(1);
            open += if stopped { span } else { 0 };
            told = false;
        } else if !told {
            told = true;
            let epoch = device.lease(TenantId(2)).unwrap().epoch;
            let process = ProcessId(2);
            device.handle(
                at,
                Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Wanted,
                },
            );
            if drained {
                device.handle(
                    at,
                    Input::Reported {
                        process,
                        epoch,
                        report: gpushare_core::Report::Drained,
                    },
                );
            }
        }
        if !stopped && is_open(&device, 1) {
            service[0] += span / 2;
        }
        let work = |service, guessed| Work {
            service,
            busy: 0,
            since: Some(Nanos(1)),
            guessed,
        };
        let works = [
            (ProcessId(1), work(service[0], false)),
            (ProcessId(2), work(service[1], guessed)),
        ];
        device.sampled(Nanos(now), &works);
        while device.poll().is_some() {}
        device.check().unwrap();
    }
    open / (10 * MS)
}

#[test]
fn a_stopped_tenant_that_is_behind_keeps_nobody_closed() {
    for (drained, guessed) in [(true, false), (false, false), (true, true), (false, true)] {
        let open = open_beside_a_stopped_one(drained, guessed);
        println!("open for {open} of 1000");
        assert!(open >= 900, "{open} of 1000, guessed: {guessed}");
    }
}

/// What a stopped tenant did not ask for is not saved up: nothing closes a higher class for it.
#[test]
fn a_stopped_tenants_guarantee_saves_up_nothing() {
    let stopped = Program::queue(500 * US).stalls(3 * S, 3 * S);
    for (lower, what) in [
        (stopped, "stopped"),
        (Program::queue(500 * US), "never stopped"),
    ] {
        let case = Case::new(what, &[Program::queue(500 * US), lower]);
        let case = case.of(0, 900, Compute::default()).of(1, 500, request(50));
        let mut rig = case.rig(case.brain());
        let report = rig.measured(6 * S, 500 * together::MS);
        println!("{what}: {:.1} {:.1}", report.useful(0), report.useful(1));
        together::near(what, report.useful(0), 50.0, 10.0);
    }
}
