//! The counters of a device's schedule for metrics: handoffs, waits at closed gates, and time in
//! which no tenant may work although one wants to.

use gpushare_core::lease::{DeviceTime, Input, Lease, Report};
use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, ProcessId, TenantId, Work};

use crate::together::{Case, MS, Program, S, US};

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const FREELY: Compute = Compute {
    request: None,
    limit: None,
};

fn ms(count: u64) -> Nanos {
    Nanos::millis(count)
}

fn capped(permille: u16) -> Compute {
    Compute {
        request: None,
        limit: Permille::new(permille),
    }
}

fn process(tenant: TenantId) -> ProcessId {
    ProcessId(10 + tenant.0)
}

struct Device(DeviceTime);

impl Device {
    fn new(policy: LeasePolicy) -> Self {
        Self(DeviceTime::new(policy))
    }

    fn join(&mut self, now: Nanos, tenant: TenantId, compute: Compute) {
        self.join_as(now, (tenant, process(tenant)), compute);
    }

    fn join_as(&mut self, now: Nanos, (tenant, process): (TenantId, ProcessId), compute: Compute) {
        let joined = Input::Joined {
            tenant,
            process,
            gated: true,
            class: 500,
            compute,
        };
        self.0.handle(now, joined);
    }

    fn lease(&self, tenant: TenantId) -> Lease {
        self.0.lease(tenant).expect("it is here")
    }

    fn is_closed(&self, tenant: TenantId) -> bool {
        self.lease(tenant).kind.is_closed()
    }

    /// A report about the turn that the tenant's page shows.
    fn report(&mut self, now: Nanos, tenant: TenantId, report: Report) {
        self.report_as(now, (tenant, process(tenant)), report);
    }

    fn report_as(&mut self, now: Nanos, (tenant, process): (TenantId, ProcessId), report: Report) {
        let epoch = self.lease(tenant).epoch;
        let input = Input::Reported {
            process,
            epoch,
            report,
        };
        self.0.handle(now, input);
    }

    /// All the time for which a tenant has waited at closed gates.
    fn waited(&self, tenant: TenantId, now: Nanos) -> u64 {
        let share = self.0.share(tenant, now).expect("it is here");
        let waiting = share.waiting.map_or(Nanos::ZERO, |since| now - since);
        share.waits.sum_ns + waiting.0
    }

    /// A works on the shared device until its cap closes its gate, and has drained. The time then.
    fn until_capped(&mut self) -> Nanos {
        self.report(ms(1), A, Report::Busy);
        let mut now = ms(1);
        while !self.is_closed(A) {
            now = self.0.next_sample().expect("a cap is sampled");
            self.0.sampled(now, &[busy(A, now)]);
            assert!(now < Nanos::secs(10), "it is never throttled");
        }
        self.report(now, A, Report::Drained);
        now
    }

    /// Lets time pass in which no work is done, until its cap opens A's gate. The time then.
    fn until_open(&mut self, closed: Nanos) -> Nanos {
        let still = Work {
            service: closed.0,
            busy: (closed - ms(1)).0,
            since: None,
            guessed: false,
        };
        let mut now = closed;
        while self.is_closed(A) {
            now = self.0.next_sample().expect("a throttled one is sampled");
            self.0.sampled(now, &[(process(A), still)]);
            assert!(now < Nanos::secs(20), "it is never let on");
        }
        now
    }

    /// Lets time pass until the schedule has closed a tenant.
    fn until_closed(&mut self, tenant: TenantId) -> Nanos {
        for _ in 0..100 {
            let at = self.0.next_timeout().expect("its turn ends");
            self.0.advance(at);
            if self.is_closed(tenant) {
                return at;
            }
        }
        panic!("{tenant:?} is never closed");
    }
}

/// A holds the device in turns, B waits since then; A is told to stop at the time returned.
fn contended() -> (Device, Nanos, Nanos) {
    let mut device = Device::new(LeasePolicy::turns());
    device.join(ms(1), A, FREELY);
    device.join(ms(2), B, FREELY);
    let wanted = ms(3);
    device.report(wanted, B, Report::Wanted);
    let closed = device.until_closed(A);
    (device, wanted, closed)
}

#[test]
fn a_handoff_is_from_the_order_to_stop_to_the_next_turn() {
    let (mut device, _, closed) = contended();
    assert_eq!(device.0.tally().handoffs.count(), 0, "A drains");
    device.report(closed + ms(3), A, Report::Drained);
    assert!(!device.is_closed(B));
    let handoffs = device.0.tally().handoffs;
    assert_eq!((handoffs.count(), handoffs.sum_ns), (1, ms(3).0));
}

#[test]
fn a_turn_that_nobody_follows_is_no_handoff() {
    let mut device = Device::new(LeasePolicy::turns());
    device.join(ms(1), A, FREELY);
    device.join(ms(2), B, FREELY);
    device.report(ms(3), A, Report::Drained);
    device.report(ms(900), B, Report::Wanted);
    assert!(!device.is_closed(B));
    assert_eq!(device.0.tally().handoffs.count(), 0);
}

#[test]
fn a_wait_is_counted_when_the_gate_opens_and_told_before() {
    let (mut device, wanted, closed) = contended();
    let before = device.0.share(B, closed).expect("it is here");
    assert_eq!((before.waits.count(), before.waiting), (0, Some(wanted)));
    let opened = closed + ms(3);
    device.report(opened, A, Report::Drained);
    let after = device.0.share(B, opened).expect("it is here");
    assert_eq!((after.waits.count(), after.waiting), (1, None));
    assert_eq!(after.waits.sum_ns, (opened - wanted).0);
    let holder = device.0.share(A, opened).expect("it is here");
    assert_eq!((holder.waits.count(), holder.waiting), (0, None));
}

#[test]
fn a_device_whose_only_tenant_has_used_up_its_cap_is_idle_by_caps() {
    let mut device = Device::new(LeasePolicy::turns());
    device.join(ms(1), A, capped(100));
    device.report(ms(2), A, Report::Wanted);
    assert!(!device.is_closed(A));
    let closed = device.until_closed(A);
    device.report(closed, A, Report::Drained);
    device.report(closed, A, Report::Wanted);
    assert_eq!(device.0.tally().capped, Nanos::ZERO);
    device.0.advance(closed + ms(1));
    assert_eq!(device.0.tally().capped, ms(1));
    // Another tenant works meanwhile.
    device.join(closed + ms(1), B, FREELY);
    device.report(closed + ms(1), B, Report::Wanted);
    assert!(!device.is_closed(B));
    device.0.advance(closed + ms(2));
    assert_eq!(device.0.tally().capped, ms(1));
}

/// Claims that a process had the device all the time until `now`.
fn busy(tenant: TenantId, now: Nanos) -> (ProcessId, Work) {
    let work = Work {
        service: now.0,
        busy: 0,
        since: Some(ms(1)),
        guessed: false,
    };
    (process(tenant), work)
}

#[test]
fn a_shared_device_counts_idle_time_and_waits_of_caps_too() {
    let mut device = Device::new(LeasePolicy::default());
    device.join(ms(1), A, capped(100));
    let closed = device.until_capped();
    device.report(closed, A, Report::Wanted);
    let now = device.until_open(closed);
    let share = device.0.share(A, now).expect("it is here");
    assert_eq!(
        (share.waits.count(), share.waits.sum_ns),
        (1, (now - closed).0)
    );
    let tally = device.0.tally();
    assert!(
        tally.capped > Nanos::ZERO && tally.capped <= now - closed,
        "{tally:?}"
    );
    assert_eq!(tally.held, Nanos::ZERO);
}

#[test]
fn a_wait_on_a_shared_device_begins_with_the_call() {
    let mut device = Device::new(LeasePolicy::default());
    device.join(ms(1), A, capped(100));
    let closed = device.until_capped();
    let wanted = closed + ms(5);
    device.report(wanted, A, Report::Wanted);
    assert_eq!(device.waited(A, wanted + ms(1)), ms(1).0);
    let opened = device.until_open(closed);
    assert_eq!(device.waited(A, opened), (opened - wanted).0);
}

/// The metrics add the finished waits and the present one.
#[test]
fn the_time_waited_stays_when_what_waits_is_gone() {
    let other = (A, ProcessId(1));
    for policy in [LeasePolicy::default(), LeasePolicy::turns()] {
        for away in [false, true] {
            let mut device = Device::new(policy);
            device.join(ms(1), A, capped(100));
            device.join_as(ms(1), other, capped(100));
            let closed = if policy == LeasePolicy::turns() {
                device.report(ms(2), A, Report::Wanted);
                device.until_closed(A)
            } else {
                device.until_capped()
            };
            device.report(closed, A, Report::Drained);
            device.report_as(closed, other, Report::Drained);
            device.report_as(closed, other, Report::Wanted);
            let process = other.1;
            let (end, input) = (closed + ms(5), Input::Left { process });
            let input = if away {
                Input::Away { process, away }
            } else {
                input
            };
            device.0.handle(end, input);
            let share = device.0.share(A, end).expect("it is here");
            assert_eq!(share.waiting, None, "{away}");
            assert_eq!(device.waited(A, end), ms(5).0, "{policy:?} {away}");
        }
    }
}

#[test]
fn the_time_waited_stays_when_a_tenant_is_alone_at_last() {
    let (mut device, wanted, closed) = contended();
    let process = process(A);
    device.0.handle(closed + ms(1), Input::Left { process });
    assert_eq!(
        device.waited(B, closed + ms(2)),
        (closed + ms(1) - wanted).0
    );
}

/// The tenant for which another is held pauses: the other waits until the next look.
#[test]
fn idle_time_is_counted_where_a_tenant_is_held_for_an_idle_one() {
    let queue = Program::queue(500 * US);
    let pausing = Program::queue(200 * US).pauses(30 * MS, 15 * MS);
    for (other, is_held) in [(pausing, true), (Program::queue(200 * US), false)] {
        let case = Case::new("held", &[queue.clone(), other]).of(1, 900, FREELY);
        let mut rig = case.rig(case.brain());
        rig.run(2 * S);
        let tally = rig.steering.device.borrow().tally();
        assert_eq!(tally.held > Nanos::ZERO, is_held, "{tally:?}");
        assert_eq!(tally.capped, Nanos::ZERO);
    }
}
