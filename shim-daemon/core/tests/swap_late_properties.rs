//! The invariants after every event of a daemon restart, for random tenants of one to three
//! processes: some come in time, some late or never, some say nothing, some die. I1 over the bytes
//! on the card, I4, I9, and that at the end nothing stays sealed.

use crate::cases;
use crate::node::swap::{policy, swapping};
use crate::node::{Node, Rng, secs};
use gpushare_core::{Bytes, DeviceId, Nanos, Place, ProcessId, TenantId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;

/// The end of the random part.
const END: Nanos = Nanos::secs(14);

/// One process: 64 MiB steps of memory, and where that is (on the card, on the host, in part).
/// Then when it comes, says where its memory is, and dies, in units of 50 ms.
type Part = (u64, u8, u64, u64, Option<u64>, bool);

fn part() -> impl Strategy<Value = Part> {
    let comes = prop_oneof![4 => 0..40u64, 3 => 40..200u64, 1 => Just(10_000)];
    let speaks = prop_oneof![4 => 0..2u64, 2 => 2..120u64, 1 => Just(10_000)];
    let dies = prop_oneof![5 => Just(None), 1 => (0..260u64).prop_map(Some)];
    (1..9u64, 0..5u8, comes, speaks, dies, any::<bool>())
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Comes(ProcessId),
    Speaks(ProcessId, bool),
    Dies(ProcessId),
    Calls(TenantId),
    Runs(u64),
}

#[derive(Debug)]
struct Scene {
    node: Node,
    device: DeviceId,
    tenants: Vec<TenantId>,
    acts: Vec<(Nanos, Act)>,
}

/// `roomy`: each tenant fits beside all that stays on the card because its process says nothing.
fn scene(tenants: &[Vec<Part>], host: u64, roomy: bool, seed: u64) -> Scene {
    let mut rng = Rng(seed);
    let away = |part: &Part| match part.1 {
        0 | 1 => 0,
        2 | 3 => part.0 * 64,
        _ => part.0 * 32,
    };
    let all = |parts: &[Part]| parts.iter().map(|part| part.0 * 64).sum::<u64>();
    let there: u64 = tenants
        .iter()
        .flatten()
        .map(|part| part.0 * 64 - away(part))
        .sum();
    let largest = tenants.iter().map(|parts| all(parts)).max().unwrap_or(0);
    let fixed = if roomy { there } else { 0 };
    let card = there.max(largest + fixed) + rng.below(4) * 128;
    let (mut node, device) = Node::restarted(card, host);
    let mut acts = Vec::new();
    let at = |units: u64| Nanos::secs(1) + Nanos::millis(50 * units);
    let tenants: Vec<TenantId> = tenants
        .iter()
        .map(|parts| {
            let sizes: Vec<(u64, u64)> = parts.iter().map(|one| (one.0 * 64, away(one))).collect();
            let (tenant, own) = node.survives_as(swapping(device, all(parts)), device, &sizes);
            let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
            (moves.rate, moves.works) = ((1 + rng.below(8)) << 30, rng.one_in(2));
            for (process, (_, _, comes, speaks, dies, eager)) in own.iter().zip(parts) {
                acts.push((at(*comes), Act::Comes(*process)));
                acts.push((at(comes + speaks), Act::Speaks(*process, *eager)));
                acts.extend(dies.map(|dies| (at(dies), Act::Dies(*process))));
            }
            for _ in 0..2 {
                acts.push((at(rng.below(260)), Act::Calls(tenant)));
            }
            tenant
        })
        .collect();
    acts.push((
        at(60 + rng.below(200)),
        Act::Runs(64 * (1 + rng.below(largest / 64))),
    ));
    acts.retain(|(at, _)| *at < END);
    // Of two at one time the first one stays the first: it comes before it speaks.
    acts.sort_by_key(|(at, _)| *at);
    Scene {
        node,
        device,
        tenants,
        acts,
    }
}

impl Scene {
    fn plays(&mut self) {
        let mut come = std::collections::BTreeSet::new();
        for (at, act) in std::mem::take(&mut self.acts) {
            self.lives_until(at);
            match act {
                Act::Comes(process) => {
                    come.insert(process);
                    self.node.comes(process);
                }
                Act::Speaks(process, eager) if come.contains(&process) => {
                    self.node.speaks(process, eager);
                }
                Act::Dies(process) if come.contains(&process) => self.node.exit(process),
                Act::Dies(process) => self.node.vanishes(process),
                Act::Calls(tenant) => self.node.call_where_out(tenant),
                Act::Runs(mib) => {
                    let (tenant, process) = self.node.run(swapping(self.device, mib));
                    self.node.want(process, self.device, Bytes::mib(mib));
                    self.tenants.push(tenant);
                }
                Act::Speaks(..) => (),
            }
        }
        self.lives_until(END);
        // At last all speak that have come, and the others die.
        for process in self.node.processes.keys().copied().collect::<Vec<_>>() {
            match (self.node.processes[&process].deaf, come.contains(&process)) {
                (true, true) => self.node.speaks(process, false),
                (true, false) => self.node.vanishes(process),
                _ => (),
            }
        }
    }

    fn lives_until(&mut self, at: Nanos) {
        let step = Nanos::millis(250);
        while self.node.now < at {
            self.node.live(step.min(at - self.node.now));
        }
    }

    /// Each tenant is in when it has called, sooner or later.
    fn all_run(&mut self) {
        for tenant in self.tenants.clone() {
            if self.node.processes_of(tenant).is_empty() {
                continue;
            }
            let device = self.device;
            let end = self.node.now + secs(120);
            while !self.node.runs(tenant, device) {
                assert!(
                    self.node.now < end,
                    "{tenant:?} stays {:?}",
                    self.node.place(tenant, device)
                );
                if self.node.place(tenant, device) == Place::Out {
                    self.node.call_where_out(tenant);
                }
                self.node.live(Nanos::millis(50));
            }
        }
    }
}

#[test]
fn the_invariants_hold_whenever_processes_come() {
    let returns = Cell::new(0);
    let tenants = || vec(vec(part(), 1..4), 1..5);
    let lag = || prop_oneof![Just(0), 1..40u64];
    proptest!(cases::config(8), |(tenants in tenants(), lag in lag(), seed: u64)| {
        let mut scene = scene(&tenants, 64, true, seed);
        scene.node.lag = (lag > 0).then(|| (Rng(seed), Nanos::millis(lag)));
        scene.plays();
        scene.all_run();
        scene.node.live(secs(60));
        prop_assert!(scene.node.asks.is_empty(), "I4: {:?}", scene.node.asks);
        returns.set(returns.get() + scene.node.returns.done);
    });
    assert!(returns.get() > 0, "no tenant returned in any case");
}

proptest! {
    #![proptest_config(cases::config(8))]

    #[test]
    fn the_last_tenant_runs_however_small_card_and_host_are(
        tenants in vec(vec(part(), 1..4), 1..5),
        host in 1..3u64,
        seed: u64,
    ) {
        let mut scene = scene(&tenants, host, false, seed);
        scene.node.guarantees = false;
        // What is on the host from the previous daemon may be more than the budget.
        let budget = policy(host).swap.host;
        let there: Bytes = scene.node.processes.values().map(|one| one.away(scene.device)).sum();
        prop_assume!(there <= budget);
        scene.plays();
        scene.node.live(secs(60));
        while scene.tenants.len() > 1 {
            let tenant = scene.tenants.remove(0);
            scene.node.finish(tenant);
            scene.node.live(secs(1));
        }
        scene.all_run();
        scene.node.live(secs(60));
        prop_assert!(scene.node.asks.is_empty(), "I4: {:?}", scene.node.asks);
    }
}
