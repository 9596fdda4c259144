//! Memory that is kept for a queued tenant of higher priority: nobody is shown it as free, and
//! nobody is ended for it.

use crate::node::{Node, gib, killable, ranked, resolving, secs, spec};
use gpushare_core::{Bytes, DeviceId, Resolver, TenantId};

/// A tenant that is better than all others queues for a request of so many GiB.
fn queues(node: &mut Node, device: DeviceId, request: u64) {
    let queued = node.register(ranked(900, spec(device, request, request)));
    assert!(!node.guests[&queued].admitted);
}

#[test]
fn what_is_kept_for_a_queued_tenant_is_not_shown_as_free() {
    for (request, shown) in [(12, 0), (0, 10)] {
        let (mut node, device) = Node::with_device(16);
        let (tenant, process) = node.run(spec(device, 0, 16));
        node.want(process, device, gib(6));
        if request > 0 {
            queues(&mut node, device, request);
        }
        assert_eq!(node.world.grantable(tenant, device), gib(shown));
        let (held, bytes) = (gib(6), gib(1));
        let fits = node.world.fits(tenant, device, (held, bytes));
        let ask = node.want(process, device, bytes);
        assert_eq!((fits, node.granted(ask)), (shown > 0, shown > 0));
    }
}

#[test]
fn what_is_kept_for_a_queued_tenant_does_not_lower_its_betters() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, process) = node.run(ranked(950, spec(device, 0, 16)));
    node.want(process, device, gib(6));
    queues(&mut node, device, 12);
    assert_eq!(node.world.grantable(tenant, device), gib(10));
    let ask = node.want(process, device, gib(10));
    assert!(node.granted(ask));
}

/// A card of 16 GiB on which 12 are firm, 2 are limbo and a tenant that may be ended has borrowed
/// 2. One with a request of 1 asks for 3 beyond all that. The one that may be ended.
fn asks_beside(queued: bool) -> (Node, TenantId, bool) {
    let (mut node, device) = Node::with_device(16);
    let asker = resolving(&[Resolver::Priority, Resolver::Wait], spec(device, 1, 16));
    let (_, asks) = node.run(asker);
    let (_, holder) = node.run(spec(device, 0, 12));
    node.want(holder, device, gib(12));
    let (_, dies) = node.run(spec(device, 0, 2));
    let ask = node.want(dies, device, gib(2));
    assert!(node.granted(ask));
    let (victim, borrower) = node.run(ranked(100, killable(device, 0, 2)));
    let ask = node.want(borrower, device, gib(2));
    assert!(node.granted(ask));
    node.devices.get_mut(&device).expect("it exists").linger = Some(secs(1));
    node.exit(dies);
    if queued {
        queues(&mut node, device, 8);
    }
    let ask = node.want(asks, device, gib(3));
    node.live(secs(5));
    let granted = node.granted(ask);
    (node, victim, granted)
}

#[test]
fn nobody_is_ended_for_memory_that_is_kept_for_a_queued_tenant() {
    for queued in [false, true] {
        let (node, victim, granted) = asks_beside(queued);
        let ended = !node.guests.contains_key(&victim);
        assert_eq!((ended, granted), (!queued, !queued));
        let free = node.charged(victim, DeviceId(1));
        assert!(queued || free == Bytes::ZERO);
    }
}
