//! Properties after every event, for tenants that keep the rules and for tenants that do not: the
//! lag of a tenant behind another is bounded, no waiting tenant starves, and no report breaks the
//! schedule.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    reason = "figures of the harness; the schedule itself has no floats"
)]

use crate::cases;
use crate::machine::{Length, Machine, Program, request};
use gpushare_core::lease::{DeviceTime, Input, Output};
use gpushare_core::{Compute, LeasePolicy, Nanos, Permille, ProcessId, TenantId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A tenant with a deep queue: its weight, its longest kernel in microseconds, whether all are as
/// long, when it comes and whether it is killed before the end.
#[derive(Clone, Debug)]
struct Tenant {
    weight: u16,
    longest: u64,
    mixed: bool,
    comes: u64,
    dies: bool,
}

fn tenant() -> impl Strategy<Value = Tenant> {
    (1..10u16, 0..14u32, any::<bool>(), 0..600u64, any::<bool>()).prop_map(
        |(weight, doublings, mixed, comes, dies)| Tenant {
            weight,
            longest: (5 << doublings).min(50_000),
            mixed,
            comes,
            dies,
        },
    )
}

/// The facts about each tenant that has arrived.
#[derive(Debug)]
struct Known {
    weight: f64,
    /// How far its clock may be ahead: a turn, what runs on after it, and a handoff.
    ahead: f64,
    since: BTreeMap<TenantId, (u64, u64)>,
}

const SHORTEST: f64 = 2e6;
const QUANTUM: f64 = 20e6;

#[derive(Default)]
struct Watch {
    known: BTreeMap<TenantId, Known>,
    dead: Vec<Known>,
}

/// The longest turn of a tenant of this weight beside any of the others. A turn is one quantum on
/// average, by weight among the tenants that work or wait at the time; not all do before the last
/// has arrived or after the first has died.
fn longest_turn(weight: u16, others: &[u16]) -> f64 {
    let mut others = others.to_vec();
    others.sort_unstable();
    let mut sum = f64::from(weight);
    let beside = others.iter().zip(2_u8..).map(|(other, count)| {
        sum += f64::from(*other);
        QUANTUM * f64::from(weight) * f64::from(count) / sum
    });
    beside.fold(QUANTUM, f64::max)
}

impl Watch {
    /// A tenant arrived: from now on its service is compared with all others'.
    fn add(&mut self, machine: &Machine, id: TenantId, tenant: &Tenant, weights: &[u16]) {
        let weight = f64::from(tenant.weight);
        let turn = longest_turn(tenant.weight, weights).max(SHORTEST);
        let longest = tenant.longest as f64 * 1e3;
        let had = |tenant: TenantId| machine.meter.had.get(&tenant).copied().unwrap_or(0);
        let since = self
            .known
            .keys()
            .map(|other| (*other, (had(id), had(*other))))
            .collect();
        // A window and one kernel may be added; while it overruns, other tenants run beside it.
        let ahead = turn + 2.0 * longest + 5e6;
        self.known.insert(
            id,
            Known {
                weight,
                ahead,
                since,
            },
        );
    }

    fn remove(&mut self, tenant: TenantId) {
        self.dead.extend(self.known.remove(&tenant));
        self.known.values_mut().for_each(|known| {
            known.since.remove(&tenant);
        });
    }

    /// The lag between any two that both had work all the time since the later came.
    fn check(&self, machine: &Machine) {
        let had = |tenant: &TenantId| machine.meter.had.get(tenant).copied().unwrap_or(0);
        for (one, known) in &self.known {
            for (two, (mine, theirs)) in &known.since {
                let other = &self.known[two];
                let served = (had(one) - mine) as f64 / known.weight;
                let lag = served - (had(two) - theirs) as f64 / other.weight;
                let most = known.ahead / known.weight + other.ahead / other.weight;
                assert!(
                    lag.abs() <= most,
                    "at {:?}: {one:?} is {lag} ahead of {two:?}, at most {most} may be: {self:?}",
                    machine.now
                );
            }
        }
        self.check_waits(machine);
    }

    /// A tenant waits at most one turn of each other tenant, after its own debt. A tenant that died
    /// had its turn too.
    fn check_waits(&self, machine: &Machine) {
        let all = || self.known.values().chain(&self.dead);
        let weights: f64 = all().map(|known| known.weight).sum();
        let turns: f64 = all().map(|known| known.ahead).sum();
        for client in &machine.clients {
            let (Some(since), Some(own)) = (client.waits_since, self.known.get(&client.tenant))
            else {
                continue;
            };
            let waited = (machine.now - since).0 as f64;
            let most = turns + own.ahead * weights / own.weight;
            assert!(
                waited <= most,
                "{:?} waits for {waited} ns, {most} at most",
                client.tenant
            );
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_map().entries(self.known.iter()).finish()
    }
}

proptest! {
    #![proptest_config(cases::config(32))]

    #[test]
    fn lag_is_bounded_and_nobody_starves(tenants in vec(tenant(), 2..7), seed: u64) {
        let mut machine = Machine::new(seed);
        let mut watch = Watch::default();
        let mut tenants = tenants;
        tenants.sort_by_key(|tenant| tenant.comes);
        let weights: Vec<u16> = tenants.iter().map(|tenant| tenant.weight).collect();
        let mut dying = Vec::new();
        // With another tenant registered no tenant is free, so no queue is deeper than a window.
        machine.start(99, 500, Compute::default(), Program::Sleeps);
        for (place, (id, tenant)) in (1..).zip(&tenants).enumerate() {
            let wait = Nanos::millis(tenant.comes) - machine.now;
            machine.watch(wait, |machine| watch.check(machine));
            let longest = Nanos::micros(tenant.longest);
            let length = if tenant.mixed { Length::Mixed(Nanos::micros(5), longest) } else { Length::Fixed(longest) };
            // 1 to 9 percent each: together below the whole, so that the request is the weight.
            let at = machine.start(id, 500, request(tenant.weight), Program::Deep(length));
            let mut others = weights.clone();
            others.remove(place);
            watch.add(&machine, TenantId(id), tenant, &others);
            if tenant.dies {
                dying.push((at, TenantId(id)));
            }
        }
        machine.watch(Nanos::millis(1500), |machine| watch.check(machine));
        for (at, tenant) in dying {
            machine.kill(at);
            watch.remove(tenant);
            machine.watch(Nanos::millis(200), |machine| watch.check(machine));
        }
    }
}

/// Any input to a schedule; epochs near the current ones.
#[derive(Clone, Debug)]
enum Said {
    Joined {
        tenant: u64,
        process: u64,
        gated: bool,
        class: u16,
        request: u16,
        limit: u16,
    },
    Left(u64),
    Set {
        tenant: u64,
        class: u16,
        request: u16,
        limit: u16,
    },
    Report {
        process: u64,
        kind: u8,
        late: u64,
    },
    Policy(u64),
}

fn said() -> impl Strategy<Value = Said> {
    let terms = || (0..3u16, 0..1001u16, 0..1001u16);
    prop_oneof![
        3 => (0..4u64, 0..8u64, any::<bool>(), terms()).prop_map(|(tenant, process, gated, (class, request, limit))| {
            Said::Joined { tenant, process, gated: gated || process % 2 == 0, class, request, limit }
        }),
        1 => (0..8u64).prop_map(Said::Left),
        1 => (0..4u64, terms()).prop_map(|(tenant, (class, request, limit))| Said::Set { tenant, class, request, limit }),
        20 => (0..8u64, 0..8u8, 0..3u64).prop_map(|(process, kind, late)| Said::Report { process, kind, late }),
        1 => (0..60u64).prop_map(Said::Policy),
    ]
}

fn terms(request: u16, limit: u16) -> Compute {
    Compute {
        request: Permille::new(request.min(limit)),
        limit: Permille::new(limit),
    }
}

/// Tells the schedule; reports are about the present turn of the tenant the process is in, or
/// one a little off.
fn tell(schedule: &mut DeviceTime, now: Nanos, homes: &mut BTreeMap<u64, u64>, said: &Said) {
    match *said {
        Said::Joined {
            tenant,
            process,
            gated,
            class,
            request,
            limit,
        } => {
            homes.entry(process).or_insert(tenant);
            let (tenant, process) = (TenantId(tenant), ProcessId(process));
            let compute = terms(request, limit);
            schedule.handle(
                now,
                Input::Joined {
                    tenant,
                    process,
                    gated,
                    class,
                    compute,
                },
            );
        }
        Said::Left(process) => {
            homes.remove(&process);
            schedule.handle(
                now,
                Input::Left {
                    process: ProcessId(process),
                },
            );
        }
        Said::Set {
            tenant,
            class,
            request,
            limit,
        } => {
            let compute = terms(request, limit);
            schedule.handle(
                now,
                Input::Set {
                    tenant: TenantId(tenant),
                    class,
                    compute,
                },
            );
        }
        Said::Policy(millis) => {
            let policy = LeasePolicy {
                quantum: Nanos::millis(millis),
                ..LeasePolicy::turns()
            };
            schedule.set_policy(now, policy);
        }
        Said::Report {
            process,
            kind,
            late,
        } => {
            let home = homes.get(&process).copied().unwrap_or(0);
            let lease = schedule.lease(TenantId(home));
            let epoch = lease.map_or(7, |lease| lease.epoch + 1 - late.min(lease.epoch + 1));
            let process = ProcessId(process);
            let input = match kind {
                0 => Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Wanted,
                },
                1 => Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Drained,
                },
                2 => Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Idle,
                },
                3 => Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Busy,
                },
                kind => {
                    let away = kind == 4;
                    Input::Away { process, away }
                }
            };
            schedule.handle(now, input);
        }
    }
}

/// The epochs said of each tenant only rise.
fn epochs_rise(schedule: &mut DeviceTime, last: &mut BTreeMap<TenantId, u64>) {
    while let Some(output) = schedule.poll() {
        if let Output::Lease { tenant, lease } = output {
            let before = last.insert(tenant, lease.epoch).unwrap_or(0);
            assert!(
                lease.epoch >= before,
                "{tenant:?} goes back from {before} to {lease:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(cases::config(1))]

    #[test]
    fn nothing_anybody_says_breaks_the_schedule(said in vec((0..30_000u64, said()), 1..200)) {
        let mut schedule = DeviceTime::new(LeasePolicy::turns());
        let (mut now, mut homes, mut last) = (Nanos::ZERO, BTreeMap::new(), BTreeMap::new());
        for (micros, said) in said {
            let until = now + Nanos::micros(micros);
            let mut wakes = 0;
            while let Some(at) = schedule.next_timeout().filter(|at| *at <= until) {
                prop_assert!(at > now || wakes == 0, "it wakes again at {at:?} without time passing");
                (now, wakes) = (at.max(now), wakes + 1);
                prop_assert!(wakes < 1000, "it wakes for nothing");
                schedule.advance(now);
                prop_assert_eq!(schedule.check(), Ok(()), "at a timeout before {:?}", said);
                epochs_rise(&mut schedule, &mut last);
            }
            now = until;
            tell(&mut schedule, now, &mut homes, &said);
            prop_assert_eq!(schedule.check(), Ok(()), "after {:?}", said);
            prop_assert!(schedule.next_timeout().is_none_or(|at| at > now), "a timeout is due after {:?}", said);
            epochs_rise(&mut schedule, &mut last);
        }
    }
}
