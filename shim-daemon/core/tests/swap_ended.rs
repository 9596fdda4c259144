//! Tenants that may be moved and ended: while one leaves, its end gives only what its move does
//! not.

use crate::node::swap::{policy, swapping};
use crate::node::{Manners, Node, ranked, resolving, secs, spec};
use gpushare_core::{
    AskKey, Bytes, DeviceId, Event, Nanos, Place, Preemptible, Quota, Resolver, TenantId,
    TenantSpec,
};

/// The scale of the scene: its card has 80 parts of so many MiB.
const PART: u64 = 16;

fn parts(count: u64) -> Bytes {
    Bytes::mib(count * PART)
}

/// A tenant that does not move, with so many parts and no request.
fn fixed(device: DeviceId, count: u64) -> TenantSpec {
    let quota = Quota {
        request: Bytes::ZERO,
        limit: parts(count),
    };
    TenantSpec {
        quotas: vec![(device, quota)],
        ..spec(device, 0, 1)
    }
}

fn ended_first(spec: TenantSpec) -> TenantSpec {
    TenantSpec {
        preemptible: Preemptible::Kill,
        ..ranked(100, spec)
    }
}

/// Runs a tenant that asks for all it may have. Its memory takes a second a GiB each way, and it
/// does not call once it is out.
fn run(node: &mut Node, device: DeviceId, spec: TenantSpec) -> (TenantId, AskKey) {
    let limit = spec.quotas[0].1.limit;
    let (tenant, process) = node.run(spec);
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.works, moves.rate) = (false, 1 << 30);
    (tenant, node.want(process, device, limit))
}

/// A card of 80 parts beside contexts, 5 of them free. The victim has 30 of them, may be moved and
/// ended, and is of the lowest priority. One that only moves has 25, one that does not move has 5,
/// and another one of those, which may be ended, has 15. One of 30 is out.
struct Scene {
    node: Node,
    device: DeviceId,
    victim: TenantId,
    other: TenantId,
    out: TenantId,
}

impl Scene {
    /// `other_may`: the other one may be ended.
    fn new(duplex: bool, other_may: bool) -> Self {
        Self::with(duplex, other_may, 0)
    }

    /// With contexts of so many parts.
    fn with(duplex: bool, other_may: bool, context: u64) -> Self {
        let mut policy = policy(64);
        (policy.swap.duplex, policy.first_overhead) = (duplex, parts(context));
        let mut node = Node::with(policy);
        let device = node.device_of(parts(80 + 6 * context));
        let moves = |count: u64| swapping(device, count * PART);
        let (out, _) = run(&mut node, device, moves(30));
        node.tell(Event::Suspend { tenant: out });
        node.live(secs(2));
        assert_eq!(node.place(out, device), Place::Out);
        let other = match other_may {
            true => ended_first(fixed(device, 15)),
            false => fixed(device, 15),
        };
        let all = [fixed(device, 5), other, ended_first(moves(30)), moves(25)];
        let all = all.map(|spec| run(&mut node, device, spec));
        assert!(all.iter().all(|(_, ask)| node.granted(*ask)));
        let [_, (other, _), (victim, _), _] = all;
        Self {
            node,
            device,
            victim,
            other,
            out,
        }
    }

    /// The tenant that is out comes back, and the victim has begun to leave for it.
    fn comes_back(&mut self) {
        let end = self.node.now + secs(60);
        self.node.calls(self.out, self.device);
        while self.node.place(self.victim, self.device) != Place::Leaving {
            assert!(self.node.now < end, "it leaves");
            self.node.pass(Nanos::millis(5));
        }
    }

    /// A tenant of the highest priority asks for so many parts, and may end others for them.
    fn asks(&mut self, count: u64) -> AskKey {
        let resolvers = [Resolver::Priority, Resolver::Fail];
        let spec = resolving(&resolvers, fixed(self.device, count));
        run(&mut self.node, self.device, ranked(900, spec)).1
    }

    /// The tenant that is out may be ended, too.
    fn out_may_be_ended(&mut self) {
        let guest = self.node.guests.get_mut(&self.out).expect("it runs");
        guest.spec = ended_first(guest.spec.clone());
        let (tenant, spec) = (self.out, guest.spec.clone());
        self.node.tell(Event::Set { tenant, spec });
    }

    fn is_ended(&self, tenant: TenantId) -> bool {
        !self.node.guests.contains_key(&tenant)
    }
}

#[test]
fn a_tenant_that_leaves_is_not_ended_for_the_bytes_that_it_gives() {
    for duplex in [true, false] {
        let mut scene = Scene::new(duplex, false);
        scene.comes_back();
        let ask = scene.asks(20);
        scene.node.live(secs(10));
        assert!(!scene.is_ended(scene.victim), "duplex: {duplex}");
        // What leaves is promised to the return, or nobody's yet: then the better one gets it.
        assert_eq!(scene.node.granted(ask), !duplex);
        assert_eq!(scene.node.place(scene.out, scene.device), Place::In);
    }
}

#[test]
fn the_end_of_a_follower_gives_what_is_withheld_of_it_too() {
    for may in [true, false] {
        let mut scene = Scene::new(true, false);
        scene.comes_back();
        assert_eq!(scene.node.place(scene.out, scene.device), Place::Entering);
        if may {
            scene.out_may_be_ended();
        }
        // The follower has 5 of its 30, and waits for 25 of the victim's.
        let ask = scene.asks(20);
        scene.node.live(secs(10));
        assert_eq!(scene.is_ended(scene.out), may);
        assert_eq!(scene.node.granted(ask), may);
        assert!(!scene.is_ended(scene.victim));
    }
}

#[test]
fn a_follower_that_ends_is_enough_for_as_long_as_that_takes() {
    for count in [25, 20] {
        let mut scene = Scene::new(true, true);
        scene.comes_back();
        scene.out_may_be_ended();
        let guest = scene.node.guests.get_mut(&scene.out);
        guest.expect("it runs").manners = Manners::Stubborn;
        let ask = scene.asks(count);
        scene.node.live(secs(30));
        assert!(scene.node.granted(ask) && !scene.is_ended(scene.victim));
        // 5 are on their way to nobody, and the other one gives 15.
        assert_eq!(scene.is_ended(scene.out), count == 25);
        assert_eq!(scene.is_ended(scene.other), count == 20);
    }
}

#[test]
fn a_tenant_that_leaves_is_ended_for_what_its_move_does_not_give() {
    for count in [7, 10] {
        let mut scene = Scene::with(true, false, 4);
        scene.comes_back();
        // 9 are more than the return needs. The asker's context takes 4 of them, and the victim's
        // would give as many.
        let ask = scene.asks(count);
        scene.node.live(secs(10));
        assert_eq!(scene.is_ended(scene.victim), count == 7);
        assert_eq!(scene.node.granted(ask), count == 7);
    }
}

#[test]
fn the_same_tenant_is_ended_while_it_stays() {
    let mut scene = Scene::new(true, false);
    let ask = scene.asks(20);
    scene.node.live(secs(1));
    assert!(scene.is_ended(scene.victim) && scene.node.granted(ask));
}

#[test]
fn the_memory_of_a_victim_that_leaves_and_ends_counts_once() {
    for count in [20, 5] {
        let mut scene = Scene::new(true, true);
        scene.comes_back();
        let guest = scene.node.guests.get_mut(&scene.victim);
        let guest = guest.expect("it runs");
        guest.manners = Manners::Stubborn;
        guest.spec.run_limit = Some(Nanos(1));
        let (tenant, spec) = (scene.victim, guest.spec.clone());
        scene.node.tell(Event::Set { tenant, spec });
        let ask = scene.asks(count);
        assert!(scene.node.waits(ask));
        // Of the victim's 30 the return takes 25.
        assert_eq!(scene.is_ended(scene.other), count == 20);
        scene.node.live(secs(30));
        assert!(scene.node.granted(ask) && scene.is_ended(scene.victim));
    }
}
