//! Turns of a tenant that is alone under a cap, and does not drain in the time that it has.

use gpushare_core::lease::{DeviceTime, Input, LeaseKind, Report};
use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, ProcessId, TenantId};

const TENANT: TenantId = TenantId(1);
const PROCESS: ProcessId = ProcessId(1);

struct Device {
    schedule: DeviceTime,
    now: Nanos,
}

impl Device {
    /// Its tenant has a cap of a tenth, and its first turn is over. A call of it waits.
    fn closed() -> Self {
        let mut device = Self {
            schedule: DeviceTime::new(LeasePolicy::turns()),
            now: Nanos::ZERO,
        };
        device.tell(Input::Joined {
            tenant: TENANT,
            process: PROCESS,
            gated: true,
            class: 500,
            compute: Compute {
                request: None,
                limit: Permille::new(100),
            },
        });
        device.says(Report::Wanted);
        assert!(device.is_open());
        device.until(|device| !device.is_open());
        device.says(Report::Wanted);
        device
    }

    fn tell(&mut self, input: Input) {
        self.schedule.handle(self.now, input);
        assert_eq!(self.schedule.check(), Ok(()), "after {input:?}");
    }

    fn says(&mut self, report: Report) {
        let lease = self.schedule.lease(TENANT).expect("it is here");
        self.tell(Input::Reported {
            process: PROCESS,
            epoch: lease.epoch,
            report,
        });
    }

    fn is_open(&self) -> bool {
        let lease = self.schedule.lease(TENANT).expect("it is here");
        matches!(lease.kind, LeaseKind::Open { .. })
    }

    /// Lets time pass by the schedule's timers alone, and returns how long.
    fn until(&mut self, what: impl Fn(&Self) -> bool) -> Nanos {
        let from = self.now;
        for _ in 0..100 {
            if what(self) {
                return self.now - from;
            }
            let at = self.schedule.next_timeout();
            self.now = at.expect("it would wait for ever");
            self.schedule.advance(self.now);
            assert_eq!(self.schedule.check(), Ok(()));
        }
        panic!("it waits after a hundred timers");
    }
}

#[test]
fn one_that_never_drains_goes_on_once_its_debt_is_repaid() {
    let mut device = Device::closed();
    // A debt of a second, at a tenth.
    let waited = device.until(Device::is_open);
    let bounds = Nanos::secs(10)..Nanos::secs(13);
    assert!(bounds.contains(&waited), "{waited:?}");
    // Its work may wait for a launch, which has to be let in.
    let lease = device.schedule.lease(TENANT).expect("it is here");
    let LeaseKind::Open { deadline, .. } = lease.kind else {
        panic!("{lease:?}");
    };
    let long = deadline.expect("its cap's") - device.now;
    assert!(long >= Nanos::millis(2), "{long:?}");
}

/// A tenant in its turn is idle, or works; another one wants the device, and the first one does not
/// answer. Whether it overran.
fn overran(idle: bool) -> bool {
    let mut device = Device {
        schedule: DeviceTime::new(LeasePolicy::turns()),
        now: Nanos::ZERO,
    };
    for at in [1, 2] {
        device.tell(Input::Joined {
            tenant: TenantId(at),
            process: ProcessId(at),
            gated: true,
            class: 500,
            compute: Compute::default(),
        });
    }
    let says = |device: &mut Device, at: u64, report| {
        let lease = device.schedule.lease(TenantId(at)).expect("it is here");
        device.tell(Input::Reported {
            process: ProcessId(at),
            epoch: lease.epoch,
            report,
        });
    };
    says(&mut device, 1, Report::Wanted);
    assert!(device.is_open());
    if idle {
        says(&mut device, 1, Report::Idle);
    }
    says(&mut device, 2, Report::Wanted);
    device.until(|device| {
        let lease = device.schedule.lease(TenantId(2)).expect("it is here");
        matches!(lease.kind, LeaseKind::Open { .. })
    });
    let share = device.schedule.share(TENANT, device.now);
    share.expect("it is here").overruns > 0
}

/// Its library says `Busy` before it launches anything after that.
#[test]
fn one_that_was_idle_in_its_turn_and_does_not_answer_is_no_overrunner() {
    assert!(!overran(true));
    assert!(overran(false), "the opposite");
}

#[test]
fn one_that_drains_goes_on_as_soon_as_its_cap_allows() {
    let mut device = Device::closed();
    device.says(Report::Drained);
    let waited = device.until(Device::is_open);
    assert!(waited <= Nanos::millis(110), "{waited:?}");
}
