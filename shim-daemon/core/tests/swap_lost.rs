//! A device is lost while memory of tenants is out of it, or on its way: they go on.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, mib, ranked, resolving, secs, spec};
use crate::swap_spread::{devices, fills, on, set_works, work};
use gpushare_core::{
    Bytes, Compute, DeviceId, Event, Nanos, Order, Place, Quota, Resolver, SpecError, TenantId,
    TenantSpec,
};
use gpushare_protocol::units::Permille;

fn order(node: &Node, tenant: TenantId, device: DeviceId) -> Option<Order> {
    let orders = &node.guests[&tenant].moves.orders;
    orders.get(&device).map(|(_, order)| *order)
}

/// A tenant with memory on two devices that is on its way out of the first, or out.
fn moved(place: Place) -> (Node, [DeviceId; 2], TenantId, gpushare_core::ProcessId) {
    let (mut node, both) = devices();
    let (wide, process) = fills(&mut node, on(&both, 1024));
    if place != Place::Out {
        // It stays in that place.
        let moves = &mut node.guests.get_mut(&wide).expect("it runs").moves;
        moves.drain = secs(3);
        if place == Place::Leaving {
            (moves.drain, moves.obeys) = (Nanos::millis(5), Obeys::Halting);
        }
    }
    let asker = resolving(
        &[Resolver::Swap, Resolver::Wait],
        ranked(600, swapping(both[0], 1024)),
    );
    let (asker, other) = node.run(asker);
    node.want(other, both[0], mib(1024));
    let mut beats = 0;
    while node.place(wide, both[0]) != place {
        work(&mut node, &[asker], Nanos::millis(50));
        beats += 1;
        assert!(beats < 1000, "{:?}", node.place(wide, both[0]));
    }
    (node, both, wide, process)
}

#[test]
fn a_tenant_is_freed_from_a_lost_device_wherever_its_memory_is() {
    for place in [Place::Sealing, Place::Leaving, Place::Out] {
        let (mut node, both, wide, process) = moved(place);
        node.tell(Event::DeviceLost { device: both[0] });
        assert_eq!(order(&node, wide, both[0]), Some(Order::Lost), "{place:?}");
        assert!(node.guests[&wide].moves.open.is_some(), "it is sealed");
        assert_eq!(node.world.place(wide, both[0]), None);
        // On its other device all is as before: it gives way there, and comes back.
        let moves = &mut node.guests.get_mut(&wide).expect("it runs").moves;
        (moves.drain, moves.obeys) = (Nanos::millis(5), Obeys::Honestly);
        set_works(&mut node, wide, true);
        node.tell(Event::WantsIn {
            process,
            device: both[0],
        });
        work(&mut node, &[wide], secs(1));
        assert_eq!(node.place(wide, both[1]), Place::In);
        let last = node.guests[&wide].moves.orders[&both[0]];
        let (rival, other) = node.run(ranked(600, on(&[both[1]], 1024)));
        let ask = node.want(other, both[1], mib(1024));
        work(&mut node, &[rival], secs(20));
        assert!(node.granted(ask));
        set_works(&mut node, rival, false);
        node.calls(wide, both[1]);
        work(&mut node, &[wide], secs(60));
        assert_eq!(node.place(wide, both[1]), Place::In);
        assert_eq!(
            node.guests[&wide].moves.orders[&both[0]], last,
            "the last word"
        );
    }
}

#[test]
fn a_tenant_elsewhere_hears_nothing_of_a_lost_device() {
    let (mut node, both) = devices();
    let (here, _) = fills(&mut node, on(&[both[0]], 1024));
    let (there, _) = fills(&mut node, on(&[both[1]], 1024));
    node.tell(Event::DeviceLost { device: both[0] });
    assert_eq!(order(&node, here, both[0]), Some(Order::Lost), "also in");
    assert_eq!(order(&node, there, both[1]), None);
    assert_eq!(node.place(there, both[1]), Place::In);
}

#[test]
fn no_tenant_waits_for_its_turn_on_a_lost_device() {
    let mut node = Node::new();
    let both = [node.device(16), node.device(16)];
    let all: Vec<_> = (0..2)
        .flat_map(|_| both.map(|device| (node.run(spec(device, 0, 4)), device)))
        .collect();
    for ((_, process), device) in &all {
        node.want(*process, *device, Bytes::gib(1));
    }
    node.live(secs(2));
    let lease = |node: &Node, tenant, device| node.guests[&tenant].leases.get(&device).copied();
    let bound = |node: &Node, device| {
        let there = all.iter().filter(|(_, on)| *on == device);
        let leases = there.filter_map(|((tenant, _), _)| lease(node, *tenant, device));
        leases
            .filter(|lease| lease.kind != gpushare_core::LeaseKind::Free)
            .count()
    };
    assert!(bound(&node, both[0]) > 0 && bound(&node, both[1]) > 0);
    node.tell(Event::DeviceLost { device: both[0] });
    assert_eq!(bound(&node, both[0]), 0, "the driver answers");
    assert!(bound(&node, both[1]) > 0, "turns go on");
}

/// These limits of a tenant on two devices.
fn limits(both: [DeviceId; 2], requests: [u64; 2], cap: u16) -> TenantSpec {
    let quota = |gib| Quota {
        request: Bytes::gib(gib),
        limit: Bytes::gib(12),
    };
    let compute = Compute {
        limit: Permille::new(cap),
        ..Compute::default()
    };
    TenantSpec {
        quotas: vec![(both[0], quota(requests[0])), (both[1], quota(requests[1]))],
        compute: both.map(|device| (device, compute)).to_vec(),
        ..spec(both[0], 0, 12)
    }
}

#[test]
fn a_change_says_what_it_likes_of_a_lost_device_and_not_of_others() {
    let mut node = Node::new();
    let both = [node.device(16), node.device(16)];
    let (tenant, _) = node.run(limits(both, [1, 1], 500));
    let (other, _) = node.run(limits(both, [1, 1], 500));
    let change = |node: &mut Node, requests| {
        let spec = limits(both, requests, 250);
        node.tell(Event::Set { tenant, spec });
        let known = node.world.spec(tenant).expect("it runs");
        (known.quotas[1].1.request, known.compute(both[1]).limit)
    };
    node.tell(Event::DeviceLost { device: both[0] });
    let done = (Bytes::gib(2), Permille::new(250));
    assert_eq!(change(&mut node, [1, 2]), done);
    assert_eq!(change(&mut node, [1, 20]), done, "more than there is");
    // The time of a GPU that is lost is nobody's, and that of the other is shared.
    let half = |node: &mut Node, tenant| {
        let mut spec = limits(both, [1, 2], 250);
        for (_, compute) in &mut spec.compute {
            (compute.request, compute.limit) = (Permille::new(600), None);
        }
        spec.compute[1].1.request = Permille::new(300);
        node.tell(Event::Set { tenant, spec });
        let known = node.world.spec(tenant).expect("it runs");
        known.compute(both[0]).request
    };
    assert_eq!(half(&mut node, tenant), Permille::new(600));
    assert_eq!(half(&mut node, other), Permille::new(600));
    let late = node.register(limits(both, [0, 0], 500));
    let refused = &node.guests[&late].refused;
    assert_eq!(*refused, Some(SpecError::Device(both[0])));
}
