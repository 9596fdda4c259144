//! Devices on which no tenant moves, on a node where tenants of another device do.

use crate::node::swap::swapping;
use crate::node::{Node, gib, killable, resolving, secs, spec};
use gpushare_core::{AskKey, DeviceId, Resolver};

/// A device of 16 GiB and one with a tenant that swaps.
fn devices(elsewhere: bool) -> (Node, DeviceId) {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let other = node.device(16);
    if elsewhere {
        let (_, process) = node.run(swapping(other, 1024));
        node.want(process, other, gib(1));
    }
    (node, device)
}

/// A process with half of the device dies, which holds that for a minute.
fn dies(node: &mut Node, device: DeviceId) {
    let (_, process) = node.run(killable(device, 0, 8));
    let ask = node.want(process, device, gib(8));
    assert!(node.granted(ask));
    node.sample(device);
    node.devices.get_mut(&device).expect("it exists").linger = Some(secs(60));
    node.exit(process);
}

/// A tenant that keeps the other half, one that may be moved or not and waits for what the dead
/// process gives back, and an ask for as much that may swap, else is refused.
fn second(node: &mut Node, device: DeviceId, first_moves: bool) -> (AskKey, AskKey) {
    dies(node, device);
    let (_, keeps) = node.run(spec(device, 0, 8));
    let ask = node.want(keeps, device, gib(8));
    assert!(node.granted(ask));
    let first = match first_moves {
        true => swapping(device, 8 << 10),
        false => spec(device, 0, 8),
    };
    let first = node
        .run(resolving(&[Resolver::Swap, Resolver::Wait], first))
        .1;
    let first = node.want(first, device, gib(8));
    assert!(node.waits(first));
    let asker = resolving(&[Resolver::Swap, Resolver::Fail], spec(device, 0, 8));
    let asker = node.run(asker).1;
    (first, node.want(asker, device, gib(8)))
}

#[test]
fn memory_that_comes_is_no_turn_where_no_tenant_moves() {
    for elsewhere in [false, true] {
        let (mut node, device) = devices(elsewhere);
        let (first, ask) = second(&mut node, device, false);
        node.live(secs(1));
        assert!(node.denied(ask).is_some(), "movers elsewhere: {elsewhere}");
        assert!(node.waits(first));
    }
}

#[test]
fn memory_that_comes_is_a_turn_where_its_taker_moves() {
    let (mut node, device) = devices(false);
    let (first, ask) = second(&mut node, device, true);
    node.live(secs(1));
    assert!(node.waits(ask) && node.waits(first));
}

#[test]
fn a_request_ends_victims_whatever_moves_elsewhere() {
    for elsewhere in [false, true] {
        let (mut node, device) = devices(elsewhere);
        let [first, second] = [(); 2].map(|()| node.run(spec(device, 8, 8)).1);
        dies(&mut node, device);
        let (victim, lent) = node.run(killable(device, 0, 8));
        let ask = node.want(lent, device, gib(8));
        assert!(node.granted(ask));
        let first = node.want(first, device, gib(8));
        let ends = |node: &Node| !node.guests.contains_key(&victim);
        assert!(
            node.waits(first) && !ends(&node),
            "the dead one's is enough"
        );
        node.want(second, device, gib(8));
        assert!(ends(&node), "movers elsewhere: {elsewhere}");
    }
}
