//! Turns of tenants with managed memory: they need no host memory to be certain, and each tenant
//! has its part of them.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, killable, mib, ranked, secs, spec};
use crate::swap::denials;
use crate::uvm::{card, managed, work};
use gpushare_core::{
    AskKey, Denial, DeviceId, Event, Notice, Place, Preemptible, TenantId, TenantSpec,
};

fn left(node: &Node, of: TenantId) -> bool {
    let mut all = node.notices.iter();
    all.any(|one| matches!(one, Notice::Left { tenant, .. } if *tenant == of))
}

#[test]
fn of_three_each_has_its_turn_without_host_memory_and_none_is_refused() {
    let (mut node, device) = card(1024);
    let all = [(); 3].map(|()| {
        let (tenant, process) = node.run(managed(device, 768));
        node.want(process, device, mib(768));
        tenant
    });
    work(&mut node, &all, 200);
    assert_eq!(denials(&node), []);
    for tenant in &all {
        assert!(left(&node, *tenant), "{tenant:?}");
        let useful = node.guests[tenant].moves.useful(node.now);
        assert!(useful > secs(40), "{tenant:?} worked {useful:?}");
    }
}

/// One with managed memory leaves the card for a first asker, and then a second one asks, that
/// needs the host for its memory. What becomes of its ask.
fn behind(first: impl Fn(DeviceId) -> TenantSpec, host_mib: u64) -> (Node, AskKey) {
    let mut terms = policy(0);
    terms.swap.host = mib(host_mib);
    let mut node = Node::with(terms);
    let device = node.device_of(mib(1024));
    let (large, process) = node.run(managed(device, 768));
    node.guests.get_mut(&large).expect("it runs").moves.rate = 256 << 20;
    let ask = node.want(process, device, mib(768));
    assert!(node.granted(ask));
    let (_, process) = node.run(first(device));
    node.want(process, device, mib(768));
    node.until("it leaves", 200, |node| {
        node.place(large, device) == Place::Leaving
    });
    let (_, process) = node.run(swapping(device, 768));
    let ask = node.want(process, device, mib(768));
    (node, ask)
}

#[test]
fn a_plain_ask_behind_managed_memory_waits_for_its_turn() {
    let (node, ask) = behind(|device| managed(device, 768), 128);
    assert!(node.waits(ask), "{:?}", node.answer(ask));
}

#[test]
fn a_plain_ask_behind_managed_memory_that_does_not_move_is_refused() {
    let keeps = |device| TenantSpec {
        preemptible: Preemptible::Never,
        ..managed(device, 768)
    };
    let (node, ask) = behind(keeps, 128);
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
}

#[test]
fn an_ask_behind_memory_waits_where_the_host_has_room_for_that() {
    for host in [128, 4096] {
        let (node, ask) = behind(|device| swapping(device, 768), host);
        assert_eq!(node.waits(ask), host == 4096, "{:?}", node.answer(ask));
    }
}

/// A tenant asks for memory within its request, while others come back to a full card of which one
/// that may be ended has a part. Whether that one lives on.
fn spares(others: impl Fn(DeviceId) -> TenantSpec) -> bool {
    let (mut node, device) = card(3072);
    let (lent, process) = node.run(killable(device, 0, 1));
    let ask = node.want(process, device, mib(1024));
    assert!(node.granted(ask));
    let (_, third) = node.run(spec(device, 1, 1));
    let others = [(); 2].map(|()| {
        let (tenant, process) = node.run(others(device));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.rate, moves.works) = (512 << 20, false);
        let ask = node.want(process, device, mib(1024));
        assert!(node.granted(ask));
        tenant
    });
    for tenant in others {
        node.tell(Event::Suspend { tenant });
    }
    node.live(secs(10));
    for tenant in others {
        node.tell(Event::Resume { tenant });
        let place = node.world.place(tenant, device);
        assert!(matches!(place, Some(Place::Entering) | None));
    }
    let ask = node.want(third, device, mib(1024));
    node.live(secs(100));
    assert!(node.granted(ask));
    node.guests.contains_key(&lent)
}

#[test]
fn none_is_ended_where_managed_memory_on_its_way_back_makes_way() {
    assert!(spares(|device| managed(device, 1024)));
    assert!(!spares(|device| ranked(600, killable(device, 0, 1))));
}

/// How long each of three could work in half an hour, in seconds.
fn parts(sizes: [u64; 3]) -> [u64; 3] {
    let (mut node, device) = card(1024);
    let all = sizes.map(|size| {
        let (tenant, process) = node.run(managed(device, size));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 30;
        node.want(process, device, mib(size));
        tenant
    });
    work(&mut node, &all, 1800);
    assert_eq!(denials(&node), []);
    let parts = all.map(|tenant| node.guests[&tenant].moves.useful(node.now).0 / 1_000_000_000);
    eprintln!("{sizes:?}: {parts:?} s of 1800");
    parts
}

#[test]
fn memory_above_the_card_costs_a_tenant_no_turns() {
    let plain = parts([1024, 768, 768]);
    let above = parts([4096, 768, 768]);
    assert!(above[0] * 10 >= plain[0] * 9, "{above:?}, {plain:?}");
}
