//! Gangs on shared devices: never ordered to submit in slices; closed and opened on all their
//! devices at once, for a short time, and only while they are ahead on all of them. Two devices
//! that divide their time evenly among all open tenants, in virtual time.

use crate::node::bare;
use gpushare_core::{
    Bytes, Compute, Decision, DeviceId, Event, Gang, Lease, LeaseKind, LeasePolicy, Nanos,
    Permille, Policy, ProcessId, Quota, TenantId, TenantSpec, World,
};
use std::collections::BTreeMap;

const ONE: DeviceId = DeviceId(1);
const TWO: DeviceId = DeviceId(2);
const THREE: DeviceId = DeviceId(3);
const MS: u64 = 1_000_000;

mod named;
mod reasons;

/// A process on one device that always has work.
struct Worker {
    tenant: TenantId,
    process: ProcessId,
    device: DeviceId,
    service: u64,
}

struct Rig {
    world: World,
    now: Nanos,
    workers: Vec<Worker>,
    leases: BTreeMap<(TenantId, DeviceId), Lease>,
    /// Every time a tenant's gate closed or opened on a device.
    turned: Vec<(Nanos, TenantId, DeviceId, bool)>,
    /// The tenants that were ever ordered to submit in slices.
    sliced: Vec<TenantId>,
    /// A tenant whose kernels wait for a peer, and occupy the device, while its gate is closed.
    spins: Option<(TenantId, DeviceId)>,
}

fn quota() -> Quota {
    Quota {
        request: Bytes::gib(1),
        limit: Bytes::gib(1),
    }
}

/// A tenant on these devices, with percents of their time.
fn on(places: &[(DeviceId, Compute)]) -> TenantSpec {
    let mut spec = bare::spec(ONE, quota());
    spec.quotas = places
        .iter()
        .map(|(device, _)| (*device, quota()))
        .collect();
    spec.compute = places.to_vec();
    spec
}

fn part(percent: u16) -> Compute {
    Compute {
        request: Permille::new(percent * 10),
        limit: None,
    }
}

fn capped(percent: u16) -> Compute {
    Compute {
        request: None,
        limit: Permille::new(percent * 10),
    }
}

fn named(owner: Option<u32>, spec: TenantSpec) -> TenantSpec {
    let name = "job".to_owned();
    TenantSpec {
        gang: Some(Gang {
            owner,
            namespace: None,
            name,
        }),
        ..spec
    }
}

impl Rig {
    fn new() -> Self {
        Self::with(Policy::default())
    }

    /// The settings say exclusive turns.
    fn in_turns() -> Self {
        let lease = LeasePolicy::turns();
        Self::with(Policy {
            lease,
            ..Policy::default()
        })
    }

    fn with(mut policy: Policy) -> Self {
        // Workers have exactly their parts: changes of contexts take no time.
        policy.lease.switch = Nanos::ZERO;
        let mut world = World::new(policy);
        for device in [ONE, TWO, THREE] {
            bare::add_device(&mut world, device, Bytes::gib(64));
        }
        Self {
            world,
            now: Nanos::ZERO,
            workers: Vec::new(),
            leases: BTreeMap::new(),
            turned: Vec::new(),
            sliced: Vec::new(),
            spins: None,
        }
    }

    /// A tenant with a process that works on all its devices.
    fn start(&mut self, spec: TenantSpec) -> TenantId {
        let tenant = TenantId(self.workers.len() as u64 + 1);
        let process = ProcessId(tenant.0);
        let devices: Vec<DeviceId> = spec.quotas.iter().map(|(device, _)| *device).collect();
        bare::register(&mut self.world, tenant, spec);
        bare::join(&mut self.world, tenant, process);
        for device in devices {
            bare::open(&mut self.world, process, device);
            self.workers.push(Worker {
                tenant,
                process,
                device,
                service: 0,
            });
        }
        self.hear();
        tenant
    }

    fn kill(&mut self, tenant: TenantId) {
        let charged = Vec::new();
        let process = ProcessId(tenant.0);
        self.workers.retain(|worker| worker.tenant != tenant);
        self.tell(Event::ProcessGone { process, charged });
    }

    fn tell(&mut self, event: Event) {
        self.world.handle(self.now, event);
        self.hear();
    }

    /// Applies the decisions. A client that finds its gate closed has drained, and waits at it
    /// if it has work.
    fn hear(&mut self) {
        self.world
            .check()
            .unwrap_or_else(|broken| panic!("{broken}"));
        while let Some(decision) = self.world.poll_decision() {
            let Decision::Lease {
                tenant,
                device,
                lease,
            } = decision
            else {
                continue;
            };
            let before = self.leases.insert((tenant, device), lease);
            let closed = |lease: Lease| lease.kind.is_closed();
            if before.is_some_and(closed) != closed(lease) {
                let turned = (self.now, tenant, device, closed(lease));
                self.turned.push(turned);
            }
            if matches!(lease.kind, LeaseKind::Open { slice: Some(slice), .. } if slice > Nanos::ZERO)
            {
                self.sliced.push(tenant);
            }
            let process = ProcessId(tenant.0);
            let epoch = lease.epoch;
            let place = (tenant, device);
            let works = |one: &Worker| (one.tenant, one.device) == place;
            let waits = self.workers.iter().any(works);
            let says = [
                (gpushare_core::Report::Drained, self.spins != Some(place)),
                (gpushare_core::Report::Wanted, waits),
            ];
            for (report, _) in says.into_iter().filter(|(_, says)| *says && closed(lease)) {
                let reported = Event::Reported {
                    process,
                    device,
                    epoch,
                    report,
                };
                self.world.handle(self.now, reported);
            }
        }
    }

    fn is_open(&self, tenant: TenantId, device: DeviceId) -> bool {
        let lease = self.leases.get(&(tenant, device));
        lease.is_none_or(|lease| !lease.kind.is_closed())
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Nanos::millis(1);
            self.world.advance(self.now);
            self.hear();
            for device in [ONE, TWO, THREE] {
                let open = |worker: &&Worker| {
                    worker.device == device && self.is_open(worker.tenant, device)
                };
                let open: Vec<TenantId> = self
                    .workers
                    .iter()
                    .filter(open)
                    .map(|worker| worker.tenant)
                    .collect();
                let spins = self
                    .spins
                    .filter(|(tenant, spins)| *spins == device && !self.is_open(*tenant, device));
                let busy = open.len() as u64 + u64::from(spins.is_some());
                let mine =
                    |worker: &&mut Worker| worker.device == device && open.contains(&worker.tenant);
                for worker in self.workers.iter_mut().filter(mine) {
                    worker.service += MS / busy;
                }
            }
            for (device, processes) in self.world.due_samples(self.now) {
                let there = self.workers.iter().filter(|worker| worker.device == device);
                let works = there
                    .filter(|worker| processes.contains(&worker.process))
                    .map(|worker| {
                        let work = gpushare_core::Work {
                            service: worker.service,
                            busy: 0,
                            since: Some(Nanos(1)),
                            guessed: false,
                        };
                        (worker.process, work)
                    });
                let works = works.collect();
                self.tell(Event::Served { device, works });
            }
        }
    }

    fn had(&self, tenant: TenantId, device: DeviceId) -> u64 {
        let worker = self
            .workers
            .iter()
            .find(|worker| (worker.tenant, worker.device) == (tenant, device));
        worker.map_or(0, |worker| worker.service)
    }

    /// When these gates closed or opened together, each time: at one moment, or this fails.
    fn turns_of(&self, gates: &[(TenantId, DeviceId)]) -> Vec<(Nanos, bool)> {
        let of = |gate: &(TenantId, DeviceId)| -> Vec<(Nanos, bool)> {
            let own = self.turned.iter();
            own.filter(|(_, tenant, device, _)| (*tenant, *device) == *gate)
                .map(|(at, .., closed)| (*at, *closed))
                .collect()
        };
        let first = of(&gates[0]);
        for gate in gates {
            assert_eq!(of(gate), first, "{gate:?} changes with the others");
        }
        first
    }
}

/// A gang on both devices with 30 % of the first, of which a neighbour has 70; on the second there
/// is `second`.
fn ahead_on_the_first(second: Option<(u16, u16)>) -> (Rig, TenantId, TenantId) {
    let mut rig = Rig::new();
    let own = second.map_or_else(Compute::default, |(own, _)| part(own));
    let gang = rig.start(on(&[(ONE, part(30)), (TWO, own)]));
    let neighbour = rig.start(on(&[(ONE, part(70))]));
    if let Some((_, other)) = second {
        rig.start(on(&[(TWO, part(other))]));
    }
    (rig, gang, neighbour)
}

#[test]
fn a_gang_ahead_is_closed_and_opened_on_both_gpus_at_once() {
    let (mut rig, gang, neighbour) = ahead_on_the_first(Some((30, 70)));
    rig.run(5_000);
    let turns = rig.turns_of(&[(gang, ONE), (gang, TWO)]);
    assert!(
        turns.len() > 10,
        "it is closed for its neighbours: {turns:?}"
    );
    let (own, other) = (rig.had(gang, ONE), rig.had(neighbour, ONE));
    let share = own * 100 / (own + other);
    assert!((28..=32).contains(&share), "{share} % are not its 30");
    assert!(!rig.sliced.contains(&gang));
}

#[test]
fn a_gang_alone_on_its_other_gpu_is_closed_there_too() {
    let (mut rig, gang, _) = ahead_on_the_first(None);
    rig.run(2_000);
    assert!(rig.turns_of(&[(gang, ONE), (gang, TWO)]).len() > 4);
}

#[test]
fn a_gang_that_is_behind_on_one_gpu_is_never_closed() {
    let (mut rig, gang, _) = ahead_on_the_first(Some((70, 30)));
    rig.run(5_000);
    assert_eq!(rig.turns_of(&[(gang, ONE), (gang, TWO)]), []);
    assert!(!rig.sliced.contains(&gang));
}

#[test]
fn a_gang_is_closed_for_50_ms_at_most_and_open_for_as_long() {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, part(5)), (TWO, part(5))]));
    for device in [ONE, TWO, THREE] {
        rig.start(on(&[(device, part(95))]));
    }
    rig.run(5_000);
    let turns = rig.turns_of(&[(gang, ONE), (gang, TWO)]);
    assert!(turns.len() > 20, "{turns:?}");
    let mut longest = Nanos::ZERO;
    for pair in turns.windows(3).filter(|three| three[0].1) {
        let (closed, open) = (pair[1].0 - pair[0].0, pair[2].0 - pair[1].0);
        assert!(closed <= Nanos::millis(51), "closed for {closed:?}");
        assert!(
            open + Nanos::millis(1) >= closed,
            "{open:?} after {closed:?}"
        );
        longest = longest.max(closed);
    }
    assert!(
        longest >= Nanos::millis(50),
        "{longest:?}: nothing was bounded"
    );
}

/// The time on the first device of a gang that is closed again and again, and its bill there.
fn billed(spins: bool) -> (u64, u64) {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, part(5)), (TWO, part(5))]));
    rig.start(on(&[(ONE, part(95))]));
    rig.spins = spins.then_some((gang, ONE));
    rig.run(5_000);
    let share = rig.world.share(gang, ONE).expect("it is there");
    (rig.had(gang, ONE), share.held.0)
}

#[test]
fn what_waits_for_a_peer_at_a_closed_gate_is_billed_as_time() {
    let (had, billed_for) = billed(false);
    // A sample is late by up to a hundredth of its span.
    assert!(billed_for <= had + had / 100, "{billed_for} for {had}");
    let (had, billed_for) = billed(true);
    assert!(billed_for > had * 5 / 4, "{billed_for} for {had}");
}

#[test]
fn a_cap_closes_a_gang_on_all_its_gpus_for_as_long_as_it_says() {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, capped(10)), (TWO, Compute::default())]));
    rig.start(on(&[(ONE, Compute::default())]));
    rig.run(5_000);
    assert!(rig.turns_of(&[(gang, ONE), (gang, TWO)]).len() > 4);
    let share = rig.had(gang, ONE) * 100 / (5_000 * MS);
    assert!(
        (8..=11).contains(&share),
        "{share} % of the 10 it is capped at"
    );
}

#[test]
fn a_gang_idle_where_its_cap_is_dry_is_open_again_soon() {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, capped(10)), (TWO, Compute::default())]));
    while rig.is_open(gang, TWO) {
        rig.run(1);
        assert!(rig.now < Nanos::secs(5), "its cap closes it");
    }
    rig.workers.retain(|worker| worker.device != ONE);
    let epoch = rig.leases[&(gang, ONE)].epoch;
    rig.tell(Event::Reported {
        process: ProcessId(gang.0),
        device: ONE,
        epoch,
        report: gpushare_core::Report::Idle,
    });
    rig.run(500);
    assert!(
        rig.is_open(gang, TWO),
        "no sample is taken on the first GPU"
    );
}

#[test]
fn a_higher_class_closes_a_gang_that_is_not_ahead() {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, Compute::default()), (TWO, Compute::default())]));
    let high = TenantSpec {
        priority: 900,
        ..on(&[(ONE, Compute::default())])
    };
    rig.start(high);
    rig.run(1_000);
    assert!(rig.turns_of(&[(gang, ONE), (gang, TWO)]).len() > 4);
}

#[test]
fn nobody_is_held_for_a_gang_that_is_closed_elsewhere() {
    let mut rig = Rig::new();
    let gang = rig.start(on(&[(ONE, Compute::default()), (TWO, part(90))]));
    let high = TenantSpec {
        priority: 900,
        ..on(&[(ONE, Compute::default())])
    };
    rig.start(high);
    let other = rig.start(on(&[(TWO, part(10))]));
    let mut held = 0;
    for _ in 0..5_000 {
        rig.run(1);
        let (closed, beside) = (!rig.is_open(gang, TWO), !rig.is_open(other, TWO));
        assert!(!(closed && beside), "the second GPU is idle");
        held += u32::from(beside);
    }
    assert!(held > 0, "while the gang is open the other repays");
}

/// How many milliseconds of five seconds the neighbours of a gang were held, three on each device
/// of which each has this part.
fn held_for(gang: Compute, neighbour: Compute) -> u64 {
    let mut rig = Rig::new();
    rig.start(on(&[(ONE, gang), (TWO, gang)]));
    let others = [ONE, TWO].map(|device| {
        let all: Vec<TenantId> = (0..3)
            .map(|_| rig.start(on(&[(device, neighbour)])))
            .collect();
        (device, all)
    });
    let mut held = 0;
    for _ in 0..5_000 {
        rig.run(1);
        for (device, tenants) in &others {
            let shut = tenants.iter().filter(|one| !rig.is_open(**one, *device));
            held += shut.count() as u64;
        }
    }
    held
}

#[test]
fn nobody_is_held_for_a_gang_without_a_guarantee() {
    // It would have 85 %.
    assert_eq!(held_for(Compute::default(), part(5)), 0);
}

#[test]
fn others_are_held_for_a_gang_that_is_behind_its_guarantee() {
    assert!(held_for(part(85), part(5)) > 100);
}

#[test]
fn a_gang_that_is_closed_elsewhere_leaves_classes_below_it_in_order() {
    let class = |priority, spec| TenantSpec { priority, ..spec };
    let mut rig = Rig::new();
    let gang = on(&[(ONE, Compute::default()), (TWO, capped(20))]);
    rig.start(class(900, gang));
    let mid = rig.start(class(700, on(&[(ONE, Compute::default())])));
    let low = rig.start(on(&[(ONE, Compute::default())]));
    rig.run(10_000);
    let [mid, low] = [mid, low].map(|one| rig.had(one, ONE) * 100 / (10_000 * MS));
    assert!(low <= 3 && mid >= 70, "{mid} and {low} %");
}

#[test]
fn a_guarantee_below_a_gang_of_a_higher_class_is_repaid() {
    let mut rig = Rig::new();
    let gang = on(&[(ONE, Compute::default()), (TWO, Compute::default())]);
    rig.start(TenantSpec {
        priority: 900,
        ..gang
    });
    let low = rig.start(on(&[(ONE, part(70))]));
    rig.run(10_000);
    let had = rig.had(low, ONE) * 100 / (10_000 * MS);
    assert!(had >= 67, "{had} % of its 70");
}
