//! Events that are lies, repeated, out of order or about unknown objects: no panic, no endless
//! loop, consistent accounts after each event, and one answer to every accepted ask.

use crate::cases;
use gpushare_core::{
    AskId, AskKey, Bytes, Compute, CostClass, Decision, DeviceId, DeviceSpec, Event, Gang, Nanos,
    Permille, Policy, Preemptible, ProcessId, ProcessSample, Quota, ReclaimId, Resolver, Sample,
    TenantId, TenantSpec, World,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn tenant() -> impl Strategy<Value = TenantId> {
    (0..5u64).prop_map(TenantId)
}

fn process() -> impl Strategy<Value = ProcessId> {
    (0..8u64).prop_map(ProcessId)
}

fn device() -> impl Strategy<Value = DeviceId> {
    (0..3u64).prop_map(DeviceId)
}

fn ask() -> impl Strategy<Value = AskId> {
    (0..6u64).prop_map(AskId)
}

/// Mostly sizes that matter on a device of 16 GiB, sometimes anything.
fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![8 => (0..20_000u64).prop_map(Bytes::mib), 1 => any::<u64>().prop_map(Bytes)]
}

fn time() -> impl Strategy<Value = Nanos> {
    prop_oneof![8 => (0..60_000u64).prop_map(Nanos::millis), 1 => any::<u64>().prop_map(Nanos)]
}

fn spec() -> impl Strategy<Value = TenantSpec> {
    let quota = (device(), bytes(), bytes()).prop_map(|(device, one, two)| {
        let request = Bytes(one.min(two).0 / 4);
        (
            device,
            Quota {
                request,
                limit: one.max(two),
            },
        )
    });
    let resolver = prop_oneof![
        Just(Resolver::Fail),
        Just(Resolver::Wait),
        Just(Resolver::Priority)
    ];
    (
        vec(quota, 0..3),
        any::<u16>(),
        vec(resolver, 0..3),
        time(),
        time(),
        any::<bool>(),
        any::<bool>(),
        compute(),
    )
        .prop_map(
            |(quotas, priority, on_collision, wait_timeout, idle_after, kill, ends, share)| {
                TenantSpec {
                    implied: Vec::new(),
                    compute: quotas.iter().map(|(device, _)| (*device, share)).collect(),
                    quotas,
                    priority,
                    on_collision,
                    wait_timeout,
                    idle_after,
                    preemptible: if kill {
                        Preemptible::Kill
                    } else {
                        Preemptible::Never
                    },
                    oversubscribe: gpushare_core::Oversubscribe::Off,
                    idle_end: ends.then_some(idle_after),
                    run_limit: ends.then_some(wait_timeout),
                    gang: ends.then(|| Gang {
                        owner: None,
                        namespace: None,
                        name: "job".to_owned(),
                    }),
                }
            },
        )
}

fn compute() -> impl Strategy<Value = Compute> {
    (
        proptest::option::of(1..600u16),
        proptest::option::of(1..1000u16),
    )
        .prop_map(|(one, two)| {
            let part = |part: Option<u16>| part.and_then(Permille::new);
            Compute {
                request: part(one.map(|one| one.min(two.unwrap_or(1000)))),
                limit: part(two),
            }
        })
}

fn sample() -> impl Strategy<Value = Sample> {
    let seen =
        (process(), bytes(), proptest::option::of(bytes())).prop_map(|(process, used, charged)| {
            ProcessSample {
                process,
                used,
                charged,
            }
        });
    (
        time(),
        bytes(),
        bytes(),
        proptest::option::of(vec(seen, 0..6)),
        bytes(),
        btree_map(tenant(), bytes(), 0..5),
    )
        .prop_map(
            |(taken, used, free, processes, strangers, charged)| Sample {
                taken,
                used,
                free,
                processes,
                strangers,
                charged,
            },
        )
}

fn comings_and_goings() -> impl Strategy<Value = Event> {
    let class = CostClass(0);
    prop_oneof![
        4 => (device(), bytes()).prop_map(move |(device, reserve)| Event::DeviceAdded {
            device,
            spec: DeviceSpec { capacity: Bytes::gib(16), reserve: reserve.min(Bytes::gib(1)), class },
        }),
        1 => device().prop_map(|device| Event::DeviceLost { device }),
        6 => (tenant(), spec(), proptest::option::of(any::<u64>().prop_map(|since| Nanos(since).into())))
            .prop_map(|(tenant, spec, running)| Event::Register { tenant, spec, running }),
        2 => (tenant(), spec()).prop_map(|(tenant, spec)| Event::Set { tenant, spec }),
        2 => tenant().prop_map(|tenant| Event::TenantGone { tenant }),
        8 => (process(), tenant(), any::<bool>(), any::<bool>()).prop_map(|(process, tenant, adopted, gated)| {
            Event::ProcessStarted { process, tenant, adopted, gated }
        }),
        2 => process().prop_map(|process| Event::Adopted { process }),
        2 => (process(), vec((device(), bytes()), 0..3))
            .prop_map(|(process, charged)| Event::ProcessGone { process, charged }),
        2 => (process(), device(), bytes(), bytes(), bytes()).prop_map(|(process, device, charged, credit, grant)| {
            Event::Presented { process, device, charged, credit, grant }
        }),
    ]
}

fn asks_and_facts() -> impl Strategy<Value = Event> {
    let wait = || proptest::option::of(time());
    prop_oneof![
        4 => (process(), device(), ask()).prop_map(|(process, device, ask)| Event::Open { process, device, ask }),
        2 => (process(), device(), ask(), wait()).prop_map(|(process, device, ask, patience)| {
            let patience = patience.map(|left| if left.0 % 2 == 0 { Nanos::ZERO } else { left });
            Event::OpenMore { process, device, ask, patience }
        }),
        1 => (process(), device(), ask()).prop_map(|(process, device, ask)| Event::OpenAgain { process, device, ask }),
        2 => (process(), device(), ask()).prop_map(|(process, device, ask)| Event::OpenDone { process, device, ask }),
        1 => (process(), device()).prop_map(|(process, device)| Event::NoContext { process, device }),
        1 => (process(), device()).prop_map(|(process, device)| Event::ContextMade { process, device }),
        12 => (process(), device(), ask(), bytes(), bytes(), wait()).prop_map(
            |(process, device, ask, held, bytes, patience)| Event::Ask { process, device, ask, held, bytes, patience }
        ),
        3 => (process(), device(), ask(), bytes(), bytes(), wait()).prop_map(
            |(process, device, ask, held, bytes, patience)| {
                Event::DriverRefused { process, device, ask, held, bytes, patience }
            }
        ),
        1 => (process(), ask()).prop_map(|(process, ask)| Event::Cancel { process, ask }),
        4 => (tenant(), device(), bytes())
            .prop_map(|(tenant, device, in_use)| Event::Usage { tenant, device, in_use }),
        4 => (1..40u64, tenant(), device(), bytes(), proptest::option::of(bytes())).prop_map(
            |(reclaim_id, tenant, device, held, used)| {
                Event::Reclaimed { reclaim_id: ReclaimId(reclaim_id), tenant, device, held, used }
            }
        ),
        2 => tenant().prop_map(|tenant| Event::Worked { tenant }),
        4 => (device(), sample()).prop_map(|(device, sample)| Event::Sampled { device, sample }),
    ]
}

/// Reports of gates, about any turn.
fn reports() -> impl Strategy<Value = Event> {
    (process(), device(), 0..40u64, 0..5u8).prop_map(|(process, device, epoch, kind)| match kind {
        0 => Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Wanted,
        },
        1 => Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Drained,
        },
        2 => Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Idle,
        },
        _ => Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Busy,
        },
    })
}

/// Takes all decisions; counts answers to asks that were accepted.
fn drain(world: &mut World, open: &mut BTreeMap<AskKey, u32>) {
    while let Some(decision) = world.poll_decision() {
        if let Decision::Answer { ask, .. } = decision {
            let asked = open.get_mut(&ask).expect("an answer to an open ask");
            assert!(
                *asked > 0,
                "{ask:?} is answered more often than it was asked"
            );
            *asked -= 1;
        }
    }
}

proptest! {
    #![proptest_config(cases::config(1))]

    #[test]
    fn nothing_anybody_says_breaks_the_books(
        events in vec((0..9_000u64, prop_oneof![2 => comings_and_goings(), 2 => asks_and_facts(), 1 => reports()]), 1..250),
        recovering: bool,
    ) {
        let policy = Policy::default();
        let mut world = if recovering { World::recovering(policy, Nanos::secs(20)) } else { World::new(policy) };
        let mut now = Nanos::ZERO;
        let mut open = BTreeMap::new();
        for (millis, event) in events {
            now = now + Nanos::millis(millis);
            if let Event::Open { process, ask, .. }
            | Event::OpenMore { process, ask, .. }
            | Event::OpenAgain { process, ask, .. }
            | Event::Ask { process, ask, .. }
            | Event::DriverRefused { process, ask, .. } = &event
            {
                *open.entry((*process, *ask)).or_default() += 1;
            }
            world.handle(now, event.clone());
            drain(&mut world, &mut open);
            prop_assert_eq!(world.check(), Ok(()), "after {:?}", event);
        }
        for _ in 0..10_000 {
            let Some(at) = world.next_timeout().filter(|at| *at < Nanos::MAX) else { break };
            world.advance(at);
            drain(&mut world, &mut open);
            prop_assert_eq!(world.check(), Ok(()));
        }
    }
}
