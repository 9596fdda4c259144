//! Pairs of a victim and the tenant that returns into its room while it still leaves: how far they
//! overlap, and what happens when one of the two fails, stops, ends, or the daemon does.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, Rng, secs};
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Notice, Order, Place, Policy, TenantId};

const SIZE: Bytes = Bytes::mib(1024);

/// Two tenants of 1 GiB on a card of 1.5 GiB whose moves take a second; both always have work. The
/// first one is out and waits, the stay of the second is over soon.
fn pair(policy: Policy) -> (Node, DeviceId, [TenantId; 2]) {
    let mut node = Node::with(policy);
    let device = node.device_of(Bytes::mib(1536));
    let run = |node: &mut Node| {
        let (tenant, process) = node.run(swapping(device, 1024));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 30;
        node.want(process, device, SIZE);
        tenant
    };
    let first = run(&mut node);
    node.live(secs(30));
    let second = run(&mut node);
    until(&mut node, "the second has its memory", |node| {
        node.charged(second, device) == SIZE
    });
    assert_eq!(node.place(first, device), Place::Out);
    (node, device, [first, second])
}

/// The same, at the moment at which the second has handed over a part of its memory to the first.
fn halfway(policy: Policy) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device, [first, second]) = pair(policy);
    node.guarantees = false;
    until(&mut node, "half of it is handed over", |node| {
        away(node, first, device) <= Bytes::mib(512)
    });
    assert_eq!(
        places(&node, device, [first, second]),
        [Place::Entering, Place::Leaving]
    );
    (node, device, [first, second])
}

fn until(node: &mut Node, what: &str, is_so: impl Fn(&Node) -> bool) {
    let end = node.now + secs(200);
    let mut looked = node.now;
    while !is_so(node) {
        assert!(node.now < end, "{what}");
        node.pass(Nanos::millis(5));
        for device in node.devices.keys().copied().collect::<Vec<_>>() {
            if node.now >= looked + Nanos::millis(250) {
                looked = node.now;
                node.sample(device);
            }
        }
    }
}

fn away(node: &Node, tenant: TenantId, device: DeviceId) -> Bytes {
    node.world.account(tenant, device).expect("it runs").away
}

fn places(node: &Node, device: DeviceId, tenants: [TenantId; 2]) -> [Place; 2] {
    tenants.map(|tenant| node.place(tenant, device))
}

/// From the order to leave to the end of the other's return, and the time in which both moved.
fn change(policy: Policy) -> (Nanos, Nanos) {
    let (mut node, device, tenants) = pair(policy);
    until(&mut node, "the second leaves", |node| {
        node.place(tenants[1], device) == Place::Leaving
    });
    let (from, mut both) = (node.now, Nanos::ZERO);
    while node.place(tenants[0], device) != Place::In {
        let step = Nanos::millis(1);
        node.pass(step);
        let moving = places(&node, device, tenants) == [Place::Entering, Place::Leaving];
        let copies = node
            .processes
            .values()
            .filter(|one| one.copies.contains(&device));
        if moving && copies.count() > 0 {
            both = both + step;
        }
        assert!(node.now < from + secs(60));
    }
    (node.now - from, both)
}

fn alone() -> Policy {
    let mut alone = policy(64);
    alone.swap.duplex = false;
    alone
}

#[test]
fn a_change_takes_little_longer_than_one_of_its_moves() {
    let (took, both) = change(policy(64));
    let (serial, never) = change(alone());
    eprintln!("a change takes {took:?} instead of {serial:?}; {both:?} of it both ways");
    assert!(took <= Nanos::millis(1_250), "{took:?}");
    assert!(serial >= secs(2), "{serial:?}");
    assert!(both >= Nanos::millis(700), "{both:?}");
    assert_eq!(never, Nanos::ZERO);
}

#[test]
fn of_two_that_wait_only_the_first_returns_early() {
    let (mut node, device, [first, second]) = pair(policy(64));
    let (third, process) = node.run(swapping(device, 1024));
    node.want(process, device, SIZE);
    let all = [first, second, third];
    let mut early = 0;
    let end = node.now + secs(100);
    while node.now < end {
        node.pass(Nanos::millis(50));
        let of = |place| {
            let all = all.iter();
            all.filter(|one| node.place(**one, device) == place).count()
        };
        assert!(of(Place::Entering) <= 1);
        early += usize::from(of(Place::Entering) == 1 && of(Place::Leaving) == 1);
    }
    assert!(early > 0);
}

fn is_taken_back(node: &Node) -> bool {
    let told = |one: &Notice| matches!(one, Notice::NoReturn { .. });
    node.notices.iter().any(told)
}

/// After a victim failed or stopped: it works on first, and the other one comes in after it.
fn both_work_on(mut node: Node, device: DeviceId, [first, second]: [TenantId; 2]) {
    until(&mut node, "the return is taken back", is_taken_back);
    until(&mut node, "the victim is back", |node| {
        node.place(second, device) == Place::In
    });
    assert_eq!(away(&node, second, device), Bytes::ZERO);
    assert_eq!(node.place(first, device), Place::Out);
    assert_eq!(away(&node, first, device), SIZE);
    assert_eq!(node.physical(device), SIZE);
    node.obeys(second, Obeys::Honestly);
    until(&mut node, "the other one is in its place", |node| {
        places(node, device, [first, second]) == [Place::In, Place::Out]
    });
    assert_eq!(node.physical(device), SIZE);
}

#[test]
fn a_victim_whose_copy_fails_halfway_comes_back_and_the_return_later() {
    let (mut node, device, tenants) = halfway(policy(64));
    node.obeys(tenants[1], Obeys::Failing);
    both_work_on(node, device, tenants);
}

#[test]
fn a_victim_that_stops_halfway_is_given_its_room_back() {
    let (mut node, device, tenants) = halfway(policy(64));
    node.obeys(tenants[1], Obeys::Stopping);
    both_work_on(node, device, tenants);
}

#[test]
fn memory_that_the_device_gives_back_late_delays_both_and_no_more() {
    for returns in [Nanos::millis(20), Nanos::millis(300)] {
        let (mut node, device, tenants) = halfway(policy(64));
        node.devices.get_mut(&device).expect("it is there").returns = returns;
        node.obeys(tenants[1], Obeys::Failing);
        both_work_on(node, device, tenants);
    }
}

#[test]
fn a_return_that_does_not_give_its_room_back_is_asked_again() {
    let (mut node, device, [first, second]) = halfway(policy(64));
    node.obeys(second, Obeys::Failing);
    node.obeys(first, Obeys::Silently);
    until(&mut node, "the return is taken back", is_taken_back);
    let (epoch, _) = node.guests[&first].moves.orders[&device];
    node.live(secs(60));
    assert_eq!(
        places(&node, device, [first, second]),
        [Place::Leaving, Place::Entering]
    );
    let (later, order) = node.guests[&first].moves.orders[&device];
    assert!(later > epoch && order == Order::Leave, "{later} {order:?}");
    node.obeys(first, Obeys::Honestly);
    until(&mut node, "the victim is back", |node| {
        node.place(second, device) == Place::In
    });
}

#[test]
fn a_return_that_ends_halfway_leaves_the_victim_its_room() {
    for fails in [false, true] {
        let (mut node, device, [first, second]) = halfway(policy(64));
        if fails {
            node.obeys(second, Obeys::Failing);
        }
        node.finish(first);
        let left = |one: &Notice| matches!(one, Notice::Left { tenant, .. } if *tenant == second);
        let before = node.notices.iter().filter(|one| left(one)).count();
        until(&mut node, "the victim's move is over", |node| {
            let leaves = node.place(second, device) == Place::Leaving;
            !leaves && fails == (node.notices.iter().filter(|one| left(one)).count() == before)
        });
        until(&mut node, "it is back", |node| {
            node.place(second, device) == Place::In
        });
        assert_eq!(node.physical(device), SIZE);
    }
}

#[test]
fn the_room_of_a_victim_that_fails_later_is_nobody_elses() {
    let (mut node, device, [first, second]) = halfway(policy(64));
    node.finish(first);
    let (_, process) = node.run(swapping(device, 1024));
    node.want(process, device, SIZE);
    node.obeys(second, Obeys::Failing);
    until(&mut node, "the victim is back", |node| {
        node.place(second, device) == Place::In
    });
}

#[test]
fn a_victim_that_ends_halfway_makes_room_for_the_return() {
    for linger in [Nanos::ZERO, Nanos::millis(400)] {
        let (mut node, device, [first, second]) = halfway(policy(64));
        node.devices.get_mut(&device).expect("it is there").linger = Some(linger);
        node.finish(second);
        until(&mut node, "the return is complete", |node| {
            node.place(first, device) == Place::In
        });
        assert_eq!(away(&node, first, device), Bytes::ZERO);
    }
}

#[test]
fn a_return_into_memory_that_never_comes_is_given_up() {
    let (mut node, device, [first, second]) = halfway(policy(64));
    let moves = &mut node.guests.get_mut(&second).expect("it runs").moves;
    moves.residue = Bytes::mib(768);
    until(&mut node, "the return is taken back", is_taken_back);
    until(&mut node, "all of it is out again", |node| {
        node.place(first, device) == Place::Out
    });
    assert_eq!(away(&node, first, device), SIZE);
}

#[test]
fn the_pair_has_nineteen_twentieths_of_the_device() {
    let mut parts = Vec::new();
    for policy in [policy(64), alone()] {
        let (mut node, device, tenants) = pair(policy);
        let (begin, span) = (node.now, secs(1000));
        for tenant in &tenants {
            let moves = &mut node.guests.get_mut(tenant).expect("it runs").moves;
            moves.count_anew(begin);
        }
        while node.now < begin + span {
            for tenant in tenants {
                node.tell(Event::Worked { tenant });
            }
            node.live(Nanos::millis(250));
        }
        let useful = tenants.map(|tenant| node.guests[&tenant].moves.useful(node.now).0);
        parts.push(useful.iter().sum::<u64>() / 1_000_000_000);
        assert_eq!(
            node.world.device(device).expect("it is there").limbo,
            Bytes::ZERO
        );
    }
    eprintln!("{parts:?} thousandths useful, with pairs and without");
    assert!(parts[0] >= 945 && parts[1] < 930, "{parts:?}");
}

#[test]
fn pairs_whose_tenants_fail_stop_and_end_leave_nothing_behind() {
    let (mut taken_back, mut returned) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut node = Node::with(policy(64));
        node.guarantees = false;
        let device = node.device_of(Bytes::mib(1536));
        node.lag = Some((Rng(seed), Nanos::millis(1 << (seed % 7))));
        let hardware = node.devices.get_mut(&device).expect("it is there");
        (hardware.returns, hardware.linger) = (Nanos::millis(30), Some(Nanos::millis(50)));
        let mut tenants: Vec<TenantId> = Vec::new();
        for _ in 0..400 {
            if tenants.len() < 4 {
                let (tenant, process) = node.run(swapping(device, 1024));
                node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 31;
                node.want(process, device, Bytes::mib(rng.below(8) * 32 + 800));
                tenants.push(tenant);
            }
            let obeys = [
                Obeys::Honestly,
                Obeys::Honestly,
                Obeys::Failing,
                Obeys::Stopping,
                Obeys::Silently,
                Obeys::Busy,
            ];
            let one = *rng.pick(&tenants);
            node.obeys(one, *rng.pick(&obeys));
            for tenant in &tenants {
                node.tell(Event::Worked { tenant: *tenant });
            }
            node.live(Nanos::millis(100 + rng.below(400)));
            if rng.one_in(60) {
                node.finish(one);
                tenants.retain(|tenant| *tenant != one);
            }
        }
        // In the end all are honest: no move is stuck.
        for tenant in &tenants {
            node.obeys(*tenant, Obeys::Honestly);
        }
        node.live(secs(30));
        for tenant in &tenants {
            until(&mut node, &format!("seed {seed}: the move ends"), |node| {
                matches!(node.place(*tenant, device), Place::In | Place::Out)
            });
        }
        let back = |one: &&Notice| matches!(one, Notice::NoReturn { .. });
        taken_back += node.notices.iter().filter(back).count();
        let early = |one: &&Notice| matches!(one, Notice::Returned { .. });
        returned += node.notices.iter().filter(early).count();
    }
    eprintln!("{taken_back} returns were taken back, {returned} came to their end");
    assert!(taken_back > 10 && returned > 100);
}
