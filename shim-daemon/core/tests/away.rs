//! A process whose connection has ended cannot report, and its gate is open: no tenant waits for it
//! until it reconnects.

use gpushare_core::lease::{DeviceTime, Input, Lease, LeaseKind, Report};
use gpushare_core::{Compute, LeasePolicy, Nanos, ProcessId, TenantId};

const ONE: TenantId = TenantId(1);
const TWO: TenantId = TenantId(2);
/// Of the first tenant, and of the second one.
const A: ProcessId = ProcessId(10);
const B: ProcessId = ProcessId(20);

/// Two tenants with a process each; no tenant starts beside one that has not drained. The second
/// waits for the first.
struct Device {
    schedule: DeviceTime,
    now: Nanos,
}

impl Device {
    fn new() -> Self {
        let policy = LeasePolicy {
            overrun: Nanos::secs(3600),
            ..LeasePolicy::turns()
        };
        let mut device = Self {
            schedule: DeviceTime::new(policy),
            now: Nanos::ZERO,
        };
        for (tenant, process) in [(ONE, A), (TWO, B)] {
            device.tell(Input::Joined {
                tenant,
                process,
                gated: true,
                class: 500,
                compute: Compute::default(),
            });
        }
        device
    }

    fn tell(&mut self, input: Input) {
        self.now = self.now + Nanos::micros(1);
        self.schedule.handle(self.now, input);
        assert_eq!(self.schedule.check(), Ok(()), "after {input:?}");
    }

    fn epoch(&self, tenant: TenantId) -> u64 {
        self.schedule.lease(tenant).expect("it is here").epoch
    }

    fn is_open(&self, tenant: TenantId) -> bool {
        let lease = self.schedule.lease(tenant).expect("it is here");
        matches!(lease.kind, LeaseKind::Open { .. })
    }

    fn wanted(&mut self, tenant: TenantId, process: ProcessId) {
        let epoch = self.epoch(tenant);
        self.tell(Input::Reported {
            process,
            epoch,
            report: Report::Wanted,
        });
    }

    fn drained(&mut self, tenant: TenantId, process: ProcessId) {
        let epoch = self.epoch(tenant);
        self.tell(Input::Reported {
            process,
            epoch,
            report: Report::Drained,
        });
    }

    fn away(&mut self, process: ProcessId, away: bool) {
        self.tell(Input::Away { process, away });
    }

    /// Lets a second pass.
    fn wait(&mut self) {
        let end = self.now + Nanos::secs(1);
        while let Some(at) = self.schedule.next_timeout().filter(|at| *at <= end) {
            self.schedule.advance(at);
        }
        self.now = end;
    }
}

#[test]
fn who_is_there_and_has_not_drained_is_waited_for_and_who_is_away_is_not() {
    let mut device = Device::new();
    device.wanted(TWO, B);
    device.wait();
    assert!(!device.is_open(TWO), "the first has not drained");
    device.away(A, true);
    assert!(device.is_open(TWO));
}

#[test]
fn who_is_away_is_given_no_turn() {
    let mut device = Device::new();
    device.drained(ONE, A);
    device.wanted(TWO, B);
    assert!(device.is_open(TWO));
    device.wanted(ONE, A);
    device.away(A, true);
    device.wait();
    assert!(device.is_open(TWO) && !device.is_open(ONE));
}

#[test]
fn who_is_back_takes_turns_and_is_waited_for_again() {
    let mut device = Device::new();
    device.away(A, true);
    device.away(A, false);
    device.wanted(ONE, A);
    device.wait();
    assert!(device.is_open(ONE));
    device.wanted(TWO, B);
    device.wait();
    assert!(!device.is_open(TWO), "the first has not drained");
    device.drained(ONE, A);
    assert!(device.is_open(TWO));
}

/// A call that waits is said once in an epoch, and not again after the process was sealed.
#[test]
fn what_waited_when_it_went_away_has_a_turn_when_it_is_back() {
    let mut device = Device::new();
    device.drained(ONE, A);
    device.wanted(TWO, B);
    device.wanted(ONE, A);
    device.away(A, true);
    device.wait();
    assert!(device.is_open(TWO) && !device.is_open(ONE));
    device.away(A, false);
    device.wait();
    assert!(!device.is_open(TWO), "its turn is over");
    device.drained(TWO, B);
    assert!(device.is_open(ONE));
}

#[test]
fn what_did_not_wait_when_it_went_away_has_no_turn_when_it_is_back() {
    let mut device = Device::new();
    device.drained(ONE, A);
    device.wanted(TWO, B);
    device.away(A, true);
    device.away(A, false);
    device.wait();
    assert!(device.is_open(TWO) && !device.is_open(ONE));
}

#[test]
fn what_is_said_while_away_counts_once_it_is_back() {
    let mut device = Device::new();
    device.drained(ONE, A);
    device.away(A, true);
    device.wanted(ONE, A);
    device.wait();
    assert!(!device.is_open(ONE), "it is away");
    device.away(A, false);
    assert!(device.is_open(ONE));
}

/// A tenant that waited before it was moved out has not waited since.
#[test]
fn the_time_away_is_not_saved_up() {
    let mut device = Device::new();
    device.drained(ONE, A);
    device.wanted(TWO, B);
    device.wanted(ONE, A);
    device.away(A, true);
    for _ in 0..10 {
        device.wait();
    }
    device.away(A, false);
    device.wait();
    device.drained(TWO, B);
    assert!(device.is_open(ONE));
    device.wanted(TWO, B);
    device.wait();
    assert!(!device.is_open(ONE), "it has a turn, and not ten seconds");
}

/// Whether a tenant that said that it is idle binds its neighbour on a shared device, after it went
/// and came back by these inputs.
fn binds(inputs: [Input; 2]) -> bool {
    let mut device = DeviceTime::new(LeasePolicy::default());
    let mut now = Nanos::ZERO;
    let mut tell = |input| {
        now = now + Nanos::micros(1);
        device.handle(now, input);
        assert_eq!(device.check(), Ok(()), "after {input:?}");
        let lease = |tenant| device.lease(tenant).unwrap_or(Lease::FREE);
        (lease(ONE), lease(TWO))
    };
    for (tenant, process) in [(ONE, A), (TWO, B)] {
        tell(Input::Joined {
            tenant,
            process,
            gated: true,
            class: 500,
            compute: Compute::default(),
        });
    }
    let (_, lease) = tell(Input::Reported {
        process: A,
        epoch: 0,
        report: Report::Busy,
    });
    let epoch = lease.epoch;
    let (lease, _) = tell(Input::Reported {
        process: B,
        epoch,
        report: Report::Idle,
    });
    assert_eq!(lease.kind, LeaseKind::Free);
    let kinds = inputs.map(|input| tell(input).0.kind);
    assert_eq!(kinds[0], LeaseKind::Free, "it is not there");
    kinds[1] != LeaseKind::Free
}

#[test]
fn one_that_was_idle_when_it_was_sealed_is_idle_when_it_is_back() {
    let process = B;
    assert!(!binds(
        [true, false].map(|sealed| Input::Sealed { process, sealed })
    ));
}

/// It says again what holds.
#[test]
fn one_that_has_a_new_connection_is_not_idle_before_it_says_so() {
    let process = B;
    assert!(binds(
        [true, false].map(|away| Input::Away { process, away })
    ));
}
