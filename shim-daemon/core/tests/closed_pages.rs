//! What the page of a closed gate says of others: whether their work may run now.

use gpushare_core::{
    Compute, DeviceTime, Input, Lease, LeaseKind, LeasePolicy, Nanos, Permille, ProcessId, Report,
    Sharing, TenantId, Work,
};

const MS: u64 = 1_000_000;
const A: u64 = 1;
const B: u64 = 2;

/// A device with a tenant whose cap is one percent, and with another one.
struct Scene {
    device: DeviceTime,
    now: u64,
    /// Since when the other one has work pending.
    busy: Option<u64>,
}

impl Scene {
    fn new(sharing: Sharing) -> Self {
        let policy = LeasePolicy {
            sharing,
            ..LeasePolicy::default()
        };
        let mut scene = Self {
            device: DeviceTime::new(policy),
            now: MS,
            busy: None,
        };
        let cap = Compute {
            request: None,
            limit: Permille::new(10),
        };
        scene.joins(A, true, cap);
        scene
    }

    fn joins(&mut self, id: u64, gated: bool, compute: Compute) {
        let joined = Input::Joined {
            tenant: TenantId(id),
            process: ProcessId(id),
            gated,
            class: 500,
            compute,
        };
        self.device.handle(Nanos(self.now), joined);
    }

    /// The other tenant comes.
    fn another(&mut self, gated: bool) {
        self.joins(B, gated, Compute::default());
    }

    fn lease(&self, id: u64) -> Lease {
        self.device.lease(TenantId(id)).expect("it is here")
    }

    fn says(&mut self, id: u64, report: Report) {
        let reported = Input::Reported {
            process: ProcessId(id),
            epoch: self.lease(id).epoch,
            report,
        };
        self.device.handle(Nanos(self.now), reported);
    }

    /// So much time passes, while A's kernel is on the device.
    fn passes(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += MS;
            let now = Nanos(self.now);
            self.device.advance(now);
            if self.device.next_sample().is_some_and(|at| at <= now) {
                let work = |since: Option<u64>| Work {
                    since: since.map(Nanos),
                    ..Work::default()
                };
                let works = [(A, Some(MS)), (B, self.busy)];
                let works = works.map(|(id, since)| (ProcessId(id), work(since)));
                self.device.sampled(now, &works);
            }
            while self.device.poll().is_some() {}
            self.device.check().expect("it is in order");
        }
    }

    /// A's cap is used up.
    fn is_throttled(&mut self) {
        for _ in 0..20 {
            if self.lease(A).kind.is_closed() {
                return;
            }
            self.passes(1);
        }
        panic!("{:?}", self.lease(A));
    }

    /// Whether A's closed page says that others may run.
    fn others_may_run(&self) -> bool {
        match self.lease(A).kind {
            LeaseKind::Closed { contended } => contended,
            open => panic!("{open:?}"),
        }
    }
}

#[test]
fn others_may_run_beside_a_closed_tenant_while_they_have_work() {
    let mut scene = Scene::new(Sharing::Together);
    scene.another(true);
    scene.is_throttled();
    let epoch = scene.lease(A).epoch;
    assert!(!scene.others_may_run(), "it is here, and idle");
    scene.busy = Some(scene.now);
    scene.passes(3);
    assert!(scene.others_may_run());
    scene.busy = None;
    scene.passes(16);
    assert!(!scene.others_may_run(), "it is idle again");
    assert_eq!(
        scene.lease(A).epoch,
        epoch,
        "the gate was closed throughout"
    );
}

#[test]
fn a_tenant_that_comes_and_works_may_run_beside_a_closed_one() {
    let mut scene = Scene::new(Sharing::Together);
    scene.is_throttled();
    assert!(!scene.others_may_run());
    scene.another(true);
    scene.busy = Some(scene.now);
    scene.passes(3);
    assert!(scene.others_may_run());
}

/// Its page is not known to say what it runs.
#[test]
fn a_process_without_a_gate_may_run_beside_a_closed_tenant() {
    let mut scene = Scene::new(Sharing::Together);
    scene.another(false);
    scene.is_throttled();
    scene.passes(10);
    assert!(scene.others_may_run());
    let process = ProcessId(B);
    let now = Nanos(scene.now);
    scene.device.handle(now, Input::Left { process });
    assert!(!scene.others_may_run());
}

#[test]
fn one_that_is_away_may_run_beside_a_closed_tenant() {
    let mut scene = Scene::new(Sharing::Together);
    scene.another(true);
    scene.is_throttled();
    for away in [true, false] {
        let process = ProcessId(B);
        let now = Nanos(scene.now);
        scene.device.handle(now, Input::Away { process, away });
        assert_eq!(scene.others_may_run(), away);
    }
}

#[test]
fn in_turns_others_may_run_beside_a_closed_one_while_they_are_here() {
    let mut scene = Scene::new(Sharing::Turns);
    scene.says(A, Report::Wanted);
    scene.is_throttled();
    assert!(!scene.others_may_run());
    scene.another(true);
    assert!(scene.others_may_run());
}
