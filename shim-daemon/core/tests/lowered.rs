//! A lowered limit binds from the moment it is set: memory that a process frees while its tenant is
//! above the limit does not become credit.

use crate::node::{Node, gib, secs, spec};
use gpushare_core::{Bytes, Denial, DeviceId, Event, ProcessId, TenantId};

fn set(node: &mut Node, tenant: TenantId, device: DeviceId, limit: u64) {
    node.tell(Event::Set {
        tenant,
        spec: spec(device, 0, limit),
    });
}

/// A tenant that holds 10 of 16 GiB and whose limit is then lowered to 4.
fn lowered() -> (Node, DeviceId, TenantId, ProcessId) {
    let (mut node, device) = Node::with_device(16);
    let (tenant, process) = node.run(spec(device, 0, 16));
    node.want(process, device, gib(10));
    node.sample(device);
    set(&mut node, tenant, device, 4);
    (node, device, tenant, process)
}

fn page(node: &Node, tenant: TenantId, device: DeviceId) -> Bytes {
    node.guests[&tenant].page[&device]
}

#[test]
fn what_is_freed_above_a_lowered_limit_cannot_be_charged_again() {
    let (mut node, device, tenant, process) = lowered();
    assert_eq!(page(&node, tenant, device), gib(4));
    for _ in 0..5 {
        node.free(process, device, gib(1));
        assert!(!node.charge(process, device, Bytes(1)));
        node.sample(device);
    }
    assert_eq!(node.charged(tenant, device), gib(5));
    let ask = node.want(process, device, Bytes(1));
    assert_eq!(node.denied(ask), Some(Denial::OverLimit { limit: gib(4) }));
}

#[test]
fn below_a_lowered_limit_freed_memory_is_credit_again() {
    let (mut node, device, _, process) = lowered();
    node.free(process, device, gib(8));
    assert!(node.charge(process, device, gib(2)));
    assert!(!node.charge(process, device, Bytes(1)));
}

#[test]
fn what_is_charged_above_a_lowered_limit_is_granted_to_nobody_else() {
    let (mut node, device, tenant, process) = lowered();
    let (_, other) = node.run(spec(device, 0, 16));
    let ask = node.want(other, device, gib(10));
    assert!(node.waits(ask));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(10));
    node.free(process, device, gib(4));
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn a_limit_that_is_raised_again_gives_back_what_was_charged() {
    let (mut node, device, tenant, process) = lowered();
    set(&mut node, tenant, device, 12);
    assert_eq!(page(&node, tenant, device), gib(10));
    let ask = node.want(process, device, gib(2));
    assert!(node.granted(ask));
    node.live(secs(1));
}

#[test]
fn a_limit_lowered_twice_while_the_first_is_under_way_is_the_second() {
    let (mut node, device, tenant, process) = lowered();
    set(&mut node, tenant, device, 2);
    assert_eq!(page(&node, tenant, device), gib(2));
    node.free(process, device, gib(7));
    assert!(!node.charge(process, device, Bytes(1)));
    node.free(process, device, gib(2));
    assert!(node.charge(process, device, gib(1)));
}
