//! Limits and terms that change while tenants of the device take turns.

use crate::node::swap::swapping;
use crate::node::{Node, gib, killable, secs, spec};
use gpushare_core::{
    Bytes, DeviceId, Event, Place, Preemptible, Quota, SpecError, TenantId, TenantSpec,
};

/// Two tenants that may have so many GiB each on a card of 16, and take them: the first is in.
fn pair(sizes: [u64; 2]) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let tenants = sizes.map(|size| {
        let (tenant, process) = node.run(swapping(device, size << 10));
        node.want(process, device, gib(size));
        tenant
    });
    node.live(secs(30));
    node.until(
        "the first is in, with the whole of the second",
        60,
        |node| {
            let charged = [0, 1].map(|at| node.charged(tenants[at], device));
            node.place(tenants[0], device) == Place::In && charged == sizes.map(gib)
        },
    );
    (node, device, tenants)
}

/// The same terms, with this request, and no other tenant may take its memory back.
fn never(spec: &TenantSpec, device: DeviceId, request: u64) -> TenantSpec {
    let (_, quota) = spec.quotas[0];
    let request = gib(request);
    TenantSpec {
        preemptible: Preemptible::Never,
        quotas: vec![(device, Quota { request, ..quota })],
        ..spec.clone()
    }
}

/// Changes the terms of a tenant. What keeps them from that.
fn set(node: &mut Node, tenant: TenantId, spec: TenantSpec) -> Option<SpecError> {
    let event = Event::Set {
        tenant,
        spec: spec.clone(),
    };
    node.tell(event);
    let guest = node.guests.get_mut(&tenant).expect("it runs");
    let refused = guest.refused.take();
    if refused.is_none() {
        guest.spec = spec;
    }
    refused
}

fn makes_firm(node: &mut Node, device: DeviceId, tenant: TenantId, request: u64) -> Option<Bytes> {
    let spec = never(&node.guests[&tenant].spec, device, request);
    match set(node, tenant, spec) {
        None => None,
        Some(SpecError::NoReturn { device: on, short }) if on == device => Some(short),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn memory_is_not_made_firm_where_another_could_not_return() {
    for request in [0, 6] {
        let (mut node, device, [first, second]) = pair([12, 12]);
        assert_eq!(node.place(second, device), Place::Out);
        let short = makes_firm(&mut node, device, first, request);
        assert_eq!(short, Some(gib(8)), "with a request of {request}");
        assert!(node.world.device(device).expect("it is there").rotates);
        node.until("the second returns", 60, |node| {
            node.place(second, device) == Place::In
        });
    }
}

#[test]
fn memory_that_is_out_is_not_made_firm_either() {
    let (mut node, device, [_, second]) = pair([12, 12]);
    assert_eq!(node.place(second, device), Place::Out);
    assert_eq!(makes_firm(&mut node, device, second, 0), Some(gib(8)));
}

#[test]
fn memory_is_made_firm_where_all_others_can_return() {
    for (sizes, request) in [([12, 3], 0), ([12, 4], 6)] {
        let (mut node, device, [first, second]) = pair(sizes);
        assert_eq!(makes_firm(&mut node, device, first, request), None);
        node.live(secs(60));
        let places = [first, second].map(|tenant| node.place(tenant, device));
        assert_eq!(places, [Place::In; 2]);
    }
}

#[test]
fn a_request_may_take_the_room_to_return_whoever_is_preemptible() {
    let (mut node, device, [first, _]) = pair([12, 12]);
    assert_eq!(makes_firm(&mut node, device, first, 12), None);
    assert!(!node.world.device(device).expect("it is there").rotates);
}

#[test]
fn memory_is_made_firm_beside_tenants_that_do_not_move() {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let (tenant, process) = node.run(swapping(device, 12 << 10));
    let (_, fixed) = node.run(spec(device, 0, 4));
    let asks = [(process, 12), (fixed, 4)].map(|(one, size)| node.want(one, device, gib(size)));
    assert!(asks.iter().all(|ask| node.granted(*ask)));
    assert_eq!(makes_firm(&mut node, device, tenant, 0), None);
}

/// What is shown free to a tenant of these terms that holds 4 of 16 GiB, beside one that may be
/// moved and has so many, in or suspended. It is the largest ask that is granted at once.
fn shown(size: u64, is_out: bool, terms: impl Fn(DeviceId) -> TenantSpec) -> Bytes {
    let begin = || {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        let (tenant, process) = node.run(swapping(device, size << 10));
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        node.want(process, device, gib(size));
        if is_out {
            node.tell(Event::Suspend { tenant });
            node.live(secs(20));
            assert_eq!(node.place(tenant, device), Place::Out);
        }
        let (tenant, process) = node.run(terms(device));
        let ask = node.want(process, device, gib(4));
        assert!(node.granted(ask));
        (node, device, tenant, process)
    };
    let (mut node, device, tenant, process) = begin();
    let shown = node.world.grantable(tenant, device);
    let ask = node.want(process, device, shown + Bytes(1));
    assert!(!node.granted(ask), "more than {shown:?}");
    let (mut node, device, _, process) = begin();
    let ask = node.want(process, device, shown);
    assert!(node.granted(ask), "{shown:?}");
    shown
}

#[test]
fn free_memory_leaves_room_for_one_that_is_out_to_return() {
    for is_out in [false, true] {
        assert_eq!(shown(8, is_out, |on| spec(on, 2, 14)), gib(4), "{is_out}");
        assert_eq!(shown(8, is_out, |on| killable(on, 0, 14)), gib(4));
    }
    // A request takes that room.
    assert_eq!(shown(12, true, |on| spec(on, 6, 14)), gib(2));
    assert_eq!(shown(8, true, |on| spec(on, 10, 14)), gib(6));
}

#[test]
fn free_memory_is_all_that_is_where_both_can_be_moved() {
    assert_eq!(shown(8, true, |on| swapping(on, 14 << 10)), gib(10));
    assert_eq!(shown(8, false, |on| swapping(on, 14 << 10)), gib(4));
    assert_eq!(shown(2, true, |on| spec(on, 2, 14)), gib(10));
}
