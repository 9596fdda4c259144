//! What is booked of managed memory while a neighbour waits for its turn: facts that lowered it for
//! a while, and siblings that died, leave its tenant in the rotation.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, Rng, mib, secs, spec};
use crate::uvm::{booked, card, leaves, managed, work};
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Place, TenantId};

/// Lives on while both work, and says whether both were in at some time.
fn meet(node: &mut Node, device: DeviceId, both: [TenantId; 2], seconds: u64) -> bool {
    let mut met = false;
    for _ in 0..seconds * 20 {
        for tenant in both {
            node.tell(Event::Worked { tenant });
        }
        node.live(Nanos::millis(50));
        let is_in = |tenant| node.place(tenant, device) == Place::In;
        met |= both.into_iter().all(is_in);
    }
    met
}

/// Two busy tenants that fill most of a card each, of a daemon that is no more. `looked`: the new
/// one has looked at the card before their processes come.
fn two_that_survive(looked: bool) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = Node::restarted(2048, 4);
    // Pages count where they could be, and not where the driver has them.
    (node.guarantees, node.card_is_checked) = (false, false);
    let both = [0, 1800].map(|away| {
        let found = node.survives_as(managed(device, 1800), device, &[(1800, away)]);
        node.guests.get_mut(&found.0).expect("it runs").moves.works = true;
        found
    });
    if looked {
        node.live(secs(1));
    }
    for (_, processes) in &both {
        for process in processes {
            node.comes(*process);
            node.speaks(*process, false);
        }
    }
    (node, device, both.map(|(tenant, _)| tenant))
}

#[test]
fn two_that_took_turns_do_so_after_a_restart() {
    for looked in [false, true] {
        let (mut node, device, both) = two_that_survive(looked);
        let met = meet(&mut node, device, both, 60);
        assert!(!met, "looked {looked}: they evict each other's pages");
        for tenant in both {
            assert!(leaves(&node, tenant) > 2, "looked {looked}: {tenant:?}");
        }
    }
}

/// A busy managed tenant that has the card, and one of which 248 MiB fit beside it.
fn one_in_and_one_out() -> (Node, DeviceId, [TenantId; 2]) {
    let mut node = Node::with(policy(4));
    let device = node.device_of(mib(2048));
    let both = [(); 2].map(|()| {
        let (tenant, process) = node.run(managed(device, 1800));
        node.want(process, device, mib(1800));
        tenant
    });
    work(&mut node, &both, 20);
    node.until("one has it and the other waits", 60, |node| {
        let places = both.map(|tenant| node.place(tenant, device));
        places.contains(&Place::In) && node.world.waiting_on(device) == 1
    });
    (node, device, both)
}

#[test]
fn a_stranger_that_has_gone_leaves_the_booking_as_it_was() {
    let (mut node, device, both) = one_in_and_one_out();
    let has = |node: &Node| {
        let mut all = both.into_iter();
        all.find(|tenant| node.place(*tenant, device) == Place::In)
    };
    let first = has(&node).expect("one has it");
    node.devices.get_mut(&device).expect("it exists").foreign = mib(300);
    node.sample(device);
    assert_eq!(booked(&node, first, device), mib(2048 - 300));
    assert_eq!(node.world.waiting_on(device), 1);
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.sample(device);
    assert_eq!(booked(&node, first, device), mib(1800));
    assert!(!meet(&mut node, device, both, 20));
}

#[test]
fn room_that_managed_memory_never_had_goes_to_a_waiting_neighbour() {
    let mut node = Node::with(policy(4));
    let device = node.device_of(mib(2048));
    let (plain, first) = node.run(spec(device, 1, 1));
    node.want(first, device, mib(1024));
    let (large, process) = node.run(managed(device, 8192));
    node.want(process, device, mib(8000));
    let (_, second) = node.run(swapping(device, 1024));
    let ask = node.want(second, device, mib(1000));
    node.tell(Event::Worked { tenant: large });
    node.finish(plain);
    node.sample(device);
    assert!(node.granted(ask));
    assert_eq!(booked(&node, large, device), mib(1048));
    assert_eq!(leaves(&node, large), 0);
}

/// On a card of 2048 MiB a process dies that is one of two of a managed tenant, each of so many
/// MiB, while a tenant of 1800 is out and waits. Returns the two tenants. `seen`: a look shows it
/// at once.
fn one_of_two_dies(each: u64, seen: bool) -> (Node, DeviceId, [TenantId; 2]) {
    let mut node = Node::with(policy(4));
    let device = node.device_of(mib(2048));
    let (large, process) = node.run(managed(device, 8192));
    let sibling = node.start(large);
    for one in [process, sibling] {
        let ask = node.want(one, device, mib(each));
        assert!(node.granted(ask));
    }
    let (other, second) = node.run(swapping(device, 1800));
    let ask = node.want(second, device, mib(1800));
    work(&mut node, &[large, other], 20);
    assert!(node.granted(ask));
    node.until("it waits", 60, |node| {
        let places = [large, other].map(|tenant| node.place(tenant, device));
        places == [Place::In, Place::Out] && node.world.waiting_on(device) == 1
    });
    node.devices.get_mut(&device).expect("it exists").linger = Some(secs(1));
    node.lag = (!seen).then_some((Rng(1), secs(1)));
    node.exit(process);
    (node, device, [large, other])
}

#[test]
fn the_sibling_of_a_dead_process_takes_turns_with_a_neighbour() {
    let (mut node, device, both) = one_of_two_dies(2000, true);
    let before = both.map(|tenant| leaves(&node, tenant));
    let met = meet(&mut node, device, both, 100);
    assert!(!met, "it works by faults beside the other");
    for (tenant, before) in both.into_iter().zip(before) {
        assert!(leaves(&node, tenant) > before + 2, "{tenant:?}");
    }
}

#[test]
fn a_dead_process_had_its_part_of_what_was_booked() {
    let (node, device, [large, _]) = one_of_two_dies(2000, false);
    assert_eq!(booked(&node, large, device), mib(1024));
    let view = node.world.device(device).expect("it exists");
    assert_eq!(view.limbo, mib(1024));
    // All of a process that was booked whole is in limbo.
    let (node, device, [large, _]) = one_of_two_dies(500, false);
    assert_eq!(booked(&node, large, device), mib(500));
    let view = node.world.device(device).expect("it exists");
    assert_eq!(view.limbo, mib(500));
}

#[test]
fn a_sibling_that_fits_beside_a_neighbour_does_not_leave() {
    let (mut node, device, both) = one_of_two_dies(240, true);
    let before = both.map(|tenant| leaves(&node, tenant));
    assert!(meet(&mut node, device, both, 10));
    assert_eq!(booked(&node, both[0], device), mib(240));
    assert_eq!(before, both.map(|tenant| leaves(&node, tenant)));
}

/// The driver keeps the memory of pages at home, or gives it back at once.
#[test]
fn what_a_managed_tenant_leaves_is_told_to_its_neighbour_as_free() {
    for keeps in [true, false] {
        let (mut node, device) = card(2048);
        node.devices.get_mut(&device).expect("it exists").keeps = keeps;
        let (large, process) = node.run(managed(device, 2048));
        let (neighbour, _) = node.run(spec(device, 0, 1));
        let ask = node.want(process, device, mib(2048));
        assert!(node.granted(ask));
        node.guests.get_mut(&large).expect("it runs").moves.works = false;
        assert_eq!(node.world.grantable(neighbour, device), Bytes::ZERO);
        node.tell(Event::Suspend { tenant: large });
        node.live(secs(2));
        assert_eq!(node.place(large, device), Place::Out);
        assert_eq!(node.world.grantable(neighbour, device), mib(1024));
    }
}
