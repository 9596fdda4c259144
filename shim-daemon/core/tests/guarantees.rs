//! Requests below a higher class, where tenants take turns: what they are owed, and what not.

use gpushare_core::lease::{DeviceTime, Input, Output, Report};
use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, ProcessId, TenantId};

const LOW: TenantId = TenantId(1);
const FIRST: TenantId = TenantId(2);
const SECOND: TenantId = TenantId(3);

fn process(tenant: TenantId) -> ProcessId {
    ProcessId(10 * tenant.0)
}

/// A device whose tenants always have work: each says that it waits as soon as its gate is closed,
/// and drains in no time. The lowest requests 80 %, which are turns of 16 ms.
struct Device {
    schedule: DeviceTime,
    now: Nanos,
    /// These drain and do not wait.
    rests: Vec<TenantId>,
    /// These do not drain.
    stuck: Vec<TenantId>,
}

impl Device {
    fn new() -> Self {
        Self {
            schedule: DeviceTime::new(LeasePolicy::turns()),
            now: Nanos::ZERO,
            rests: Vec::new(),
            stuck: Vec::new(),
        }
    }

    fn tell(&mut self, input: Input) {
        self.schedule.handle(self.now, input);
        assert_eq!(self.schedule.check(), Ok(()), "after {input:?}");
    }

    /// Lets each tenant whose gate was closed report.
    fn settle(&mut self) {
        while let Some(output) = self.schedule.poll() {
            let Output::Lease { tenant, lease } = output else {
                continue;
            };
            if !lease.kind.is_closed() {
                continue;
            }
            if !self.rests.contains(&tenant) {
                self.says(tenant, Report::Wanted);
            }
            if !self.stuck.contains(&tenant) {
                self.says(tenant, Report::Drained);
            }
        }
    }

    fn says(&mut self, tenant: TenantId, report: Report) {
        let epoch = self.schedule.lease(tenant).expect("it is here").epoch;
        self.tell(Input::Reported {
            process: process(tenant),
            epoch,
            report,
        });
    }

    fn holds(&self, tenant: TenantId) -> bool {
        let lease = self.schedule.lease(tenant).expect("it is here");
        !lease.kind.is_closed()
    }

    fn until_holds(&mut self, tenant: TenantId) {
        while !self.holds(tenant) {
            self.run(Nanos::micros(100));
        }
    }

    fn comes(&mut self, tenant: TenantId) {
        match tenant {
            LOW => self.comes_with(tenant, 100, Some(80)),
            _ => self.comes_with(tenant, 900, None),
        }
    }

    /// Of a class, with a request in percent or none.
    fn comes_with(&mut self, tenant: TenantId, class: u16, percent: Option<u16>) {
        self.tell(Input::Joined {
            tenant,
            process: process(tenant),
            gated: true,
            class,
            compute: Compute {
                request: percent.and_then(|percent| Permille::new(percent * 10)),
                limit: None,
            },
        });
        self.settle();
    }

    fn ends(&mut self, tenant: TenantId) {
        let process = process(tenant);
        self.tell(Input::Left { process });
        self.settle();
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(at) = self.schedule.next_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.schedule.advance(at);
            self.settle();
        }
        self.now = end;
    }

    fn is_waiting(&self, tenant: TenantId) -> bool {
        let share = self.schedule.share(tenant, self.now);
        share.expect("it is here").waiting.is_some()
    }

    fn held(&self, tenant: TenantId) -> Nanos {
        let share = self.schedule.share(tenant, self.now);
        share.expect("it is here").held
    }

    /// How long the lowest holds the device in a half second.
    fn held_in_half_a_second(&mut self) -> Nanos {
        let before = self.held(LOW);
        self.run(Nanos::millis(500));
        self.held(LOW) - before
    }
}

/// 80 % of half a second, give or take the time in which a turn is earned.
fn is_its_share(held: Nanos) -> bool {
    (Nanos::millis(380)..=Nanos::millis(420)).contains(&held)
}

#[test]
fn a_guarantee_saves_up_nothing_while_its_tenant_is_alone() {
    for waited in [true, false] {
        let mut device = Device::new();
        device.comes(LOW);
        if waited {
            device.comes(FIRST);
            while !device.is_waiting(LOW) {
                device.run(Nanos::millis(1));
            }
            device.ends(FIRST);
        }
        device.run(Nanos::secs(4));
        device.comes(SECOND);
        let held = device.held_in_half_a_second();
        assert!(is_its_share(held), "{held:?}, it had waited: {waited}");
    }
}

#[test]
fn a_guarantee_is_kept_where_the_higher_class_has_only_changed() {
    let mut device = Device::new();
    for tenant in [LOW, FIRST, SECOND] {
        device.comes(tenant);
    }
    device.run(Nanos::secs(1));
    device.ends(FIRST);
    let held = device.held_in_half_a_second();
    assert!(is_its_share(held), "{held:?}");
}

/// Whether the lowest, which is due, loses its turn to a higher class that thought when it began:
/// `after` so long.
fn loses_its_turn(after: Nanos) -> bool {
    let mut device = Device::new();
    for tenant in [LOW, FIRST] {
        device.comes(tenant);
    }
    device.rests.push(FIRST);
    device.until_holds(LOW);
    device.run(after);
    assert!(device.holds(LOW));
    device.says(FIRST, Report::Wanted);
    device.settle();
    !device.holds(LOW)
}

#[test]
fn a_turn_that_was_due_is_kept_from_one_that_wants_the_device_later() {
    assert!(!loses_its_turn(Nanos::millis(1)));
}

#[test]
fn beyond_the_turn_that_was_due_a_higher_class_takes_the_device() {
    assert!(loses_its_turn(Nanos::millis(17)));
}

/// What one with a request of 50 % holds in two seconds beside an equal without one and three more
/// of which none asks for anything, or all do.
fn held_beside_three(ask: bool) -> Nanos {
    let mut device = Device::new();
    device.comes_with(LOW, 500, Some(50));
    device.comes_with(FIRST, 500, None);
    for id in 4..7 {
        if !ask {
            device.rests.push(TenantId(id));
        }
        device.comes_with(TenantId(id), 500, None);
    }
    device.run(Nanos::secs(1));
    let before = device.held(LOW);
    device.run(Nanos::secs(2));
    device.held(LOW) - before
}

#[test]
fn idle_tenants_take_no_turns_from_one_without_a_request() {
    for ask in [false, true] {
        let held = held_beside_three(ask);
        let is_half = (Nanos::millis(960)..=Nanos::millis(1040)).contains(&held);
        assert!(is_half, "{held:?}, they ask: {ask}");
    }
}

/// Whether the lowest has a turn at once when it wants one again, where it was owed more than one
/// and asked for nothing for so long.
fn is_due_after(rest: Nanos) -> bool {
    let mut device = Device::new();
    device.stuck.push(FIRST);
    for tenant in [LOW, FIRST] {
        device.comes(tenant);
    }
    device.until_holds(LOW);
    device.stuck.clear();
    device.says(FIRST, Report::Drained);
    device.rests.push(LOW);
    device.says(LOW, Report::Idle);
    device.settle();
    assert!(device.holds(FIRST));
    device.run(rest);
    device.says(LOW, Report::Wanted);
    device.settle();
    device.holds(LOW)
}

#[test]
fn what_a_tenant_is_owed_outlasts_its_thinking() {
    assert!(is_due_after(Nanos::millis(20)));
}

#[test]
fn what_a_tenant_is_owed_is_forgotten_after_a_second() {
    assert!(!is_due_after(Nanos::millis(1_100)));
}

/// What the lowest holds, of a request of 20 % beside an equal without one, in the second after a
/// higher class has gone that was there for so long.
fn held_after_a_higher_class(time: Nanos) -> Nanos {
    let mut device = Device::new();
    device.comes_with(LOW, 500, Some(20));
    device.comes_with(FIRST, 500, None);
    device.comes(SECOND);
    device.run(time);
    device.ends(SECOND);
    let before = device.held(LOW);
    device.run(Nanos::secs(1));
    device.held(LOW) - before
}

#[test]
fn a_guarantee_below_a_higher_class_is_no_debt_to_equals_after_it() {
    for seconds in [1, 5, 20] {
        let held = held_after_a_higher_class(Nanos::secs(seconds));
        let is_its_part = (Nanos::millis(180)..=Nanos::millis(220)).contains(&held);
        assert!(is_its_part, "{held:?} after {seconds} s");
    }
}

/// The opposite: what it has without a higher class, beyond its part, it owes.
#[test]
fn what_a_guarantee_does_not_explain_is_owed_to_an_equal() {
    let mut device = Device::new();
    device.comes_with(LOW, 500, Some(20));
    device.comes_with(FIRST, 500, None);
    device.stuck.push(LOW);
    device.until_holds(LOW);
    device.run(Nanos::millis(500));
    device.stuck.clear();
    device.says(LOW, Report::Drained);
    device.settle();
    let before = device.held(LOW);
    device.run(Nanos::millis(200));
    assert_eq!(device.held(LOW), before);
}
