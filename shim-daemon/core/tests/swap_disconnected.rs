//! Tenants that swap and lose their connection: a process that exits does a moment before it is
//! gone, and one that stays disconnected gives nothing.

use crate::node::swap::swapping;
use crate::node::{Node, mib, resolving, secs};
use crate::swap::denials;
use gpushare_core::{AskKey, Denial, Event, Nanos, Place, ProcessId, Resolver};

/// A tenant at work that has just lost its connection, as every process does that exits, and one
/// that wants its memory.
fn disconnected(resolvers: &[Resolver]) -> (Node, ProcessId, AskKey) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (_, one) = node.run(swapping(device, 1024));
    node.want(one, device, mib(1024));
    node.live(Nanos::millis(100));
    let (process, away) = (one, true);
    node.tell(Event::Away { process, away });
    let (_, two) = node.run(resolving(resolvers, swapping(device, 1024)));
    let ask = node.want(two, device, mib(1024));
    (node, one, ask)
}

#[test]
fn memory_of_a_process_that_exits_is_waited_for_by_every_resolver() {
    for next in [Resolver::Swap, Resolver::Fail, Resolver::Priority] {
        let (mut node, one, ask) = disconnected(&[Resolver::Swap, next]);
        node.live(Nanos::millis(50));
        assert!(node.waits(ask), "{next:?}: {:?}", denials(&node));
        node.exit(one);
        node.live(Nanos::secs(1));
        assert!(node.granted(ask), "{next:?}: {:?}", denials(&node));
    }
}

#[test]
fn behind_a_process_that_stays_disconnected_the_next_resolver_decides() {
    let (mut node, _, ask) = disconnected(&[Resolver::Swap, Resolver::Fail]);
    node.live(secs(1));
    assert!(node.waits(ask), "{:?}", denials(&node));
    node.live(secs(2));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    let (mut node, _, ask) = disconnected(&[Resolver::Swap]);
    node.live(secs(20));
    assert!(node.waits(ask), "it may come again: {:?}", denials(&node));
    node.live(secs(20));
    assert!(matches!(node.denied(ask), Some(Denial::TimedOut { .. })));
}

#[test]
fn a_process_that_is_connected_again_leaves_when_its_stay_is_over() {
    let (mut node, process, ask) = disconnected(&[Resolver::Swap, Resolver::Fail]);
    node.live(secs(1));
    let away = false;
    node.tell(Event::Away { process, away });
    node.live(secs(10));
    assert!(node.granted(ask), "{:?}", denials(&node));
}

#[test]
fn a_tenant_without_a_process_is_on_its_device_since_its_admission() {
    let (mut node, device) = Node::swaps(2048, 64);
    node.live(secs(100));
    let tenant = node.register(swapping(device, 1024));
    node.live(secs(3));
    let residence = node.world.residence(tenant, device).expect("it may swap");
    assert_eq!(residence.place, Place::In);
    let least = secs(3);
    assert!((least..least + Nanos::millis(1)).contains(&residence.since));
}
