//! When a turn ends, and which events do not change that.

use gpushare_core::lease::{DeviceTime, Input, LeaseKind, Report};
use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, ProcessId, TenantId};

fn join(device: &mut DeviceTime, now: Nanos, at: u64, (class, request): (u16, Option<u16>)) {
    let compute = Compute {
        request: request.and_then(Permille::new),
        limit: None,
    };
    device.handle(
        now,
        Input::Joined {
            tenant: TenantId(at),
            process: ProcessId(at),
            gated: true,
            class,
            compute,
        },
    );
}

/// When the turn of the first of two tenants ends, if a third one joins in its middle.
fn ends(joins: Option<(u16, Option<u16>)>) -> Nanos {
    let mut device = DeviceTime::new(LeasePolicy::turns());
    join(&mut device, Nanos::millis(1), 1, (500, Some(500)));
    join(&mut device, Nanos::millis(2), 2, (500, Some(500)));
    let epoch = device.lease(TenantId(2)).expect("it is here").epoch;
    let process = ProcessId(2);
    let report = Report::Wanted;
    let wanted = Input::Reported {
        process,
        epoch,
        report,
    };
    device.handle(Nanos::millis(3), wanted);
    let open = |device: &DeviceTime| {
        let lease = device.lease(TenantId(1)).expect("it is here");
        matches!(lease.kind, LeaseKind::Open { .. })
    };
    if let Some(terms) = joins {
        join(&mut device, Nanos::millis(12), 3, terms);
    }
    for _ in 0..100 {
        let at = device.next_timeout().expect("its turn ends");
        device.advance(at);
        if !open(&device) {
            return at;
        }
    }
    panic!("its turn does not end")
}

#[test]
fn a_turn_is_as_long_where_an_idle_tenant_joins_in_its_middle() {
    let undisturbed = ends(None);
    for terms in [(500, None), (400, None), (600, None)] {
        assert_eq!(ends(Some(terms)), undisturbed, "{terms:?}");
    }
}

/// A tenant of class 500 has a turn while one of 900 that has worked for so long pauses, and is
/// then of that class. How long its turn lasts once the other one wants the device again.
fn lasts_raised(worked: Nanos) -> Nanos {
    let mut device = DeviceTime::new(LeasePolicy::turns());
    join(&mut device, Nanos::millis(1), 1, (900, None));
    join(&mut device, Nanos::millis(2), 2, (500, None));
    let is_open = |device: &DeviceTime, at: u64| {
        let lease = device.lease(TenantId(at)).expect("it is here");
        matches!(lease.kind, LeaseKind::Open { .. })
    };
    let say = |device: &mut DeviceTime, now: Nanos, at: u64, report: Report| {
        let process = ProcessId(at);
        let epoch = device.lease(TenantId(at)).expect("it is here").epoch;
        let reported = Input::Reported {
            process,
            epoch,
            report,
        };
        device.handle(now, reported);
    };
    say(&mut device, Nanos::millis(3), 2, Report::Wanted);
    say(&mut device, worked, 1, Report::Idle);
    say(&mut device, worked, 1, Report::Drained);
    assert!(is_open(&device, 2), "the other one pauses");
    let set = Input::Set {
        tenant: TenantId(2),
        class: 900,
        compute: Compute::default(),
    };
    let then = worked + Nanos::millis(1);
    device.handle(then, set);
    say(&mut device, then, 1, Report::Wanted);
    let mut now = then;
    while is_open(&device, 2) {
        now = device.next_timeout().expect("its turn ends");
        device.advance(now);
        assert!(now < worked + Nanos::secs(100), "its turn does not end");
    }
    now - then
}

#[test]
fn a_turn_ends_in_time_after_its_tenant_was_raised_to_another_class() {
    for worked in [Nanos::millis(100), Nanos::secs(10), Nanos::secs(3600)] {
        let lasts = lasts_raised(worked);
        assert!(lasts <= Nanos::millis(40), "{lasts:?} after {worked:?}");
    }
}
