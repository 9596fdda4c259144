//! I1 to I4 after every event, for random tenants that keep the rules on a device that is slow
//! to give back.
//!
//! The checks themselves are the harness's: see `node/react.rs`. A failing case is shrunk, printed
//! and kept in `regressions.txt`.

use crate::cases;
use crate::node::further::Call;
use crate::node::{Manners, Node, Rng, secs};
use gpushare_core::{
    Bytes, Event, LeasePolicy, Nanos, Oversubscribe, Policy, Preemptible, Quota, Resolver,
    TenantSpec,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) struct Draft {
    request: u64,
    more: u64,
    priority: u16,
    resolvers: u8,
    kill: bool,
    timeout: u64,
    stubborn: bool,
    both: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Run(Draft),
    Start(usize),
    Want(usize, usize, u64),
    Free(usize, usize, u64),
    Charge(usize, usize, u64),
    Exit(usize),
    Finish(usize),
    Work(usize),
    Set(usize, Draft),
    Cancel(usize),
    More(usize, usize, u8),
    Less(usize, usize),
    Linger(u64),
    Suspend(usize),
    Resume(usize),
    Live(u64),
}

fn draft() -> impl Strategy<Value = Draft> {
    (
        0..9u64,
        0..16u64,
        0..3u16,
        0..4u8,
        any::<bool>(),
        1..30u64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(request, more, priority, resolvers, kill, timeout, stubborn, both)| Draft {
                request,
                more,
                priority,
                resolvers,
                kill,
                timeout,
                stubborn,
                both,
            },
        )
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let who = 0..64usize;
    prop_oneof![
        3 => draft().prop_map(Op::Run),
        2 => who.clone().prop_map(Op::Start),
        12 => (who.clone(), 0..2usize, 1..6000u64).prop_map(|(who, device, mib)| Op::Want(who, device, mib)),
        6 => (who.clone(), 0..2usize, 1..6000u64).prop_map(|(who, device, mib)| Op::Free(who, device, mib)),
        6 => (who.clone(), 0..2usize, 1..6000u64).prop_map(|(who, device, mib)| Op::Charge(who, device, mib)),
        2 => who.clone().prop_map(Op::Exit),
        1 => who.clone().prop_map(Op::Finish),
        3 => who.clone().prop_map(Op::Work),
        1 => (who.clone(), draft()).prop_map(|(who, draft)| Op::Set(who, draft)),
        1 => who.clone().prop_map(Op::Cancel),
        3 => (who.clone(), 0..2usize, 0..4u8).prop_map(|(who, device, how)| Op::More(who, device, how)),
        2 => (who.clone(), 0..2usize).prop_map(|(who, device)| Op::Less(who, device)),
        1 => who.clone().prop_map(Op::Suspend),
        1 => who.prop_map(Op::Resume),
        1 => (0..1500u64).prop_map(Op::Linger),
        6 => (0..4000u64).prop_map(Op::Live),
    ]
}

impl Draft {
    fn spec(&self, node: &Node, both: bool) -> TenantSpec {
        let quota = Quota {
            request: Bytes::gib(self.request),
            limit: Bytes::gib(self.request + self.more + 1),
        };
        let devices = node.devices.keys().take(if both { 2 } else { 1 });
        let swaps = !node.policy.swap.host.is_zero() && self.more.is_multiple_of(2);
        let swap = swaps.then_some(Resolver::Swap);
        TenantSpec {
            quotas: devices.map(|device| (*device, quota)).collect(),
            implied: Vec::new(),
            compute: Vec::new(),
            priority: 400 + 100 * self.priority,
            on_collision: {
                let others = match self.resolvers {
                    0 => vec![],
                    1 => vec![Resolver::Wait],
                    2 => vec![Resolver::Priority],
                    _ => vec![Resolver::Priority, Resolver::Wait],
                };
                swap.into_iter().chain(others).collect()
            },
            wait_timeout: secs(self.timeout),
            idle_after: secs(5),
            preemptible: if self.kill {
                Preemptible::Kill
            } else if swaps {
                Preemptible::Swap
            } else {
                Preemptible::Never
            },
            oversubscribe: if swaps && self.more.is_multiple_of(6) {
                Oversubscribe::Uvm
            } else if swaps {
                Oversubscribe::Swap
            } else {
                Oversubscribe::Off
            },
            idle_end: None,
            run_limit: None,
            gang: None,
        }
    }
}

fn nth<T: Copy>(all: impl Iterator<Item = T>, at: usize) -> Option<T> {
    let all: Vec<T> = all.collect();
    (!all.is_empty()).then(|| all[at % all.len()])
}

pub(crate) fn apply(node: &mut Node, op: Op) {
    let tenant = |node: &Node, at| nth(node.guests.keys().copied(), at);
    let process = |node: &Node, at| nth(node.processes.keys().copied(), at);
    match op {
        Op::Run(draft) => {
            let spec = draft.spec(node, draft.both);
            let (tenant, _) = node.run(spec);
            if let Some(guest) = node.guests.get_mut(&tenant) {
                guest.moves.works = draft.timeout.is_multiple_of(2);
            }
            if let Some(guest) = node.guests.get_mut(&tenant) {
                guest.manners = if draft.stubborn {
                    Manners::Stubborn
                } else {
                    Manners::Polite
                };
            }
        }
        Op::Start(at) => {
            tenant(node, at).map(|tenant| node.start(tenant));
        }
        Op::Want(at, device, mib) => {
            let device = *node.devices.keys().nth(device).expect("there are two");
            let ready = process(node, at)
                .filter(|process| node.processes[process].contexts.contains_key(&device));
            ready.map(|process| node.want(process, device, Bytes::mib(mib)));
        }
        Op::Free(at, device, mib) => {
            let device = *node.devices.keys().nth(device).expect("there are two");
            if let Some(process) = process(node, at) {
                node.free(process, device, Bytes::mib(mib));
            }
        }
        Op::Charge(at, device, mib) => {
            let device = *node.devices.keys().nth(device).expect("there are two");
            let ready = process(node, at)
                .filter(|process| node.processes[process].contexts.contains_key(&device));
            let Some(process) = ready else { return };
            let tenant = node.processes[&process].tenant;
            if node.charge(process, device, Bytes::mib(mib)) {
                let limit = node
                    .world
                    .account(tenant, device)
                    .expect("it runs")
                    .quota
                    .limit;
                let charged = node.charged(tenant, device);
                assert!(
                    charged <= limit,
                    "{tenant:?} grows to {charged} above its limit of {limit}"
                );
            }
        }
        Op::Exit(at) => {
            if let Some(process) = process(node, at) {
                node.exit(process);
            }
        }
        Op::Finish(at) => {
            if let Some(tenant) = tenant(node, at) {
                node.finish(tenant);
            }
        }
        Op::Work(at) => {
            if let Some(tenant) = tenant(node, at) {
                node.tell(Event::Worked { tenant });
                node.call_where_out(tenant);
            }
        }
        Op::Set(at, draft) => {
            let Some(tenant) = tenant(node, at) else {
                return;
            };
            let old = node.guests[&tenant].spec.clone();
            let mut spec = draft.spec(node, old.quotas.len() == 2);
            spec.oversubscribe = old.oversubscribe;
            // Earlier charges and waits may stay: I2 and I4 are checked against the larger values.
            let mut lenient = spec.clone();
            lenient.wait_timeout = spec.wait_timeout.max(old.wait_timeout);
            for (quota, (_, before)) in lenient.quotas.iter_mut().zip(&old.quotas) {
                quota.1.limit = quota.1.limit.max(before.limit);
            }
            let guest = node.guests.get_mut(&tenant).expect("it runs");
            guest.spec = lenient;
            let before = guest.refused.take();
            node.tell(Event::Set { tenant, spec });
            if let Some(guest) = node.guests.get_mut(&tenant) {
                // What was refused changes none of its terms.
                match guest.refused.is_some() {
                    true => guest.spec = old,
                    false => guest.refused = before,
                }
            }
        }
        Op::Cancel(at) => {
            if let Some(ask) = nth(node.asks.keys().copied(), at) {
                node.tell(Event::Cancel {
                    process: ask.0,
                    ask: ask.1,
                });
                node.asks.remove(&ask);
            }
        }
        Op::More(at, device, how) => {
            let device = *node.devices.keys().nth(device).expect("there are two");
            let call = [Call::Made, Call::Fails, Call::Lasts, Call::Hangs][usize::from(how)];
            let ready = process(node, at).filter(|process| {
                let tenant = node.processes[process].tenant;
                node.guests[&tenant].spec.quota(device).is_some()
            });
            ready.map(|process| node.open_more(process, device, call));
        }
        Op::Less(at, device) => {
            let device = *node.devices.keys().nth(device).expect("there are two");
            let each = node.devices[&device].context;
            let ready = process(node, at).filter(|process| {
                let process = &node.processes[process];
                let contexts = process.contexts.get(&device).copied().unwrap_or_default();
                let all = contexts == each && process.charged(device).is_zero();
                contexts > each || all
            });
            if let Some(process) = ready {
                node.ends_context(process, device);
            }
        }
        Op::Linger(millis) => {
            node.devices
                .values_mut()
                .for_each(|device| device.linger = Some(Nanos::millis(millis)));
        }
        Op::Suspend(at) => {
            if let Some(tenant) = tenant(node, at) {
                node.tell(Event::Suspend { tenant });
            }
        }
        Op::Resume(at) => {
            if let Some(tenant) = tenant(node, at) {
                node.tell(Event::Resume { tenant });
            }
        }
        Op::Live(millis) => node.live(Nanos::millis(millis)),
    }
}

/// Drivers differ in whether they list managed memory.
pub(crate) fn managed_is_listed(node: &mut Node, seed: u64) {
    let listed = seed & 2 == 0;
    let all = node.devices.values_mut();
    all.for_each(|hardware| hardware.lists_managed = listed);
}

/// Devices are shared or dealt in turns by the parity of `seed`.
fn node(step: Bytes, lag: Option<(u64, Nanos)>, seed: u64) -> Node {
    let lease = if seed.is_multiple_of(2) {
        LeasePolicy::default()
    } else {
        LeasePolicy::turns()
    };
    let mut node = Node::with(Policy {
        first_overhead: Bytes::mib(200),
        step,
        lease,
        ..Policy::default()
    });
    node.claims = Some(Rng(seed));
    node.device(16);
    node.device(12);
    managed_is_listed(&mut node, seed);
    node.lag = lag.map(|(seed, most)| (Rng(seed), most));
    node
}

proptest! {
    #![proptest_config(cases::config(4))]

    #[test]
    fn the_invariants_hold_after_every_event(ops in vec(op(), 1..150), stepped: bool, seed: u64) {
        let mut node = node(if stepped { Bytes::mib(64) } else { Bytes(1) }, None, seed);
        ops.into_iter().for_each(|op| apply(&mut node, op));
        node.live(secs(120));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
    }

    #[test]
    fn they_hold_when_replies_are_late_and_out_of_order(ops in vec(op(), 1..150), seed: u64) {
        let mut node = node(Bytes::mib(64), Some((seed, Nanos::millis(40))), seed);
        ops.into_iter().for_each(|op| apply(&mut node, op));
        node.live(secs(120));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
    }

    #[test]
    fn with_strangers_and_victims_that_stay_every_wait_still_ends(
        ops in vec(op(), 1..100),
        foreign in vec(0..14u64, 4),
        seed: u64,
    ) {
        let mut node = node(Bytes::mib(64), None, seed);
        node.guarantees = false;
        let part = ops.len().div_ceil(foreign.len());
        for (ops, foreign) in ops.chunks(part).zip(foreign) {
            for op in ops {
                apply(&mut node, op.clone());
                node.guests.values_mut().filter(|guest| guest.manners == Manners::Stubborn).for_each(|guest| {
                    guest.manners = Manners::Unkillable;
                });
            }
            node.devices.values_mut().for_each(|device| device.foreign = Bytes::gib(foreign));
        }
        node.live(secs(120));
        prop_assert!(node.asks.is_empty(), "I4: these never ended: {:?}", node.asks);
    }
}
