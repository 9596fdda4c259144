//! Looks at a device that are late or fail, while a tenant reports that it has left.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, killable, mib, ranked, resolving, secs};
use gpushare_core::{AskKey, DeviceId, Nanos, Notice, Place, Resolver, TenantId};

fn set_fail(node: &mut Node, device: DeviceId, fail: bool) {
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.looks_fail = fail;
}

fn is_called_a_liar(node: &Node) -> bool {
    let lied = |one: &Notice| matches!(one, Notice::LeftLess { .. });
    node.notices.iter().any(lied)
}

/// A victim that obeys so and is ordered to leave, a tenant that may be ended, and the ask for the
/// memory of one of them.
fn victim(obeys: Obeys) -> (Node, DeviceId, [TenantId; 2], AskKey) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (victim, one) = node.run(swapping(device, 700));
    node.guests.get_mut(&victim).expect("it runs").moves.works = false;
    node.obeys(victim, obeys);
    let (killable, two) = node.run(ranked(100, killable(device, 0, 1)));
    node.want(one, device, mib(700));
    node.want(two, device, mib(800));
    let resolvers = [Resolver::Swap, Resolver::Priority];
    let (_, three) = node.run(resolving(&resolvers, swapping(device, 700)));
    node.live(secs(5));
    let ask = node.want(three, device, mib(700));
    assert_ne!(node.place(victim, device), Place::In);
    (node, device, [victim, killable], ask)
}

#[test]
fn while_looks_fail_a_victim_that_has_left_is_no_liar() {
    let (mut node, device, [victim, killable], ask) = victim(Obeys::Honestly);
    set_fail(&mut node, device, true);
    node.live(secs(4));
    assert!(!is_called_a_liar(&node));
    assert_eq!(node.place(victim, device), Place::Confirming);
    set_fail(&mut node, device, false);
    node.live(secs(1));
    assert!(node.granted(ask) && node.guests.contains_key(&killable));
    assert_eq!(node.place(victim, device), Place::Out);
}

#[test]
fn a_look_that_began_before_a_report_and_ends_late_contradicts_nothing() {
    let (mut node, device, [victim, killable], ask) = victim(Obeys::Honestly);
    set_fail(&mut node, device, true);
    while node.place(victim, device) != Place::Leaving {
        node.pass(Nanos::millis(1));
    }
    // Each takes longer than a second: the second one is the first that began after the report.
    for _ in 0..2 {
        let look = node.look_at(device);
        node.pass(Nanos::millis(1200));
        assert!(!node.granted(ask));
        node.tell(look);
    }
    assert!(node.granted(ask) && !is_called_a_liar(&node));
    assert!(node.guests.contains_key(&killable));
}

#[test]
fn a_late_look_from_just_after_a_report_contradicts_nothing() {
    let (mut node, device, [victim, _], ask) = victim(Obeys::Honestly);
    let returns = Nanos::millis(300);
    node.devices.get_mut(&device).expect("it exists").returns = returns;
    set_fail(&mut node, device, true);
    while node.place(victim, device) != Place::Confirming {
        node.pass(Nanos::millis(1));
    }
    let look = node.look_at(device);
    node.pass(Nanos::millis(2500));
    node.tell(look);
    node.pass(Nanos::millis(100));
    assert!(!is_called_a_liar(&node) && node.waits(ask));
    set_fail(&mut node, device, false);
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn a_liar_is_told_of_once_a_look_shows_its_memory() {
    for fails in [3, 12] {
        let (mut node, device, [victim, killable], ask) = victim(Obeys::Lying);
        set_fail(&mut node, device, true);
        node.live(secs(fails));
        assert!(!is_called_a_liar(&node), "{fails} s");
        assert!(node.guests.contains_key(&killable), "{fails} s");
        set_fail(&mut node, device, false);
        node.live(secs(3));
        assert!(is_called_a_liar(&node), "{fails} s");
        assert_eq!(node.place(victim, device), Place::In, "{fails} s");
        assert!(node.granted(ask), "by the next resolver: {fails} s");
        assert!(!node.guests.contains_key(&killable), "{fails} s");
    }
}

#[test]
fn without_looks_a_victim_may_return_and_no_byte_of_it_is_free() {
    for calls in [true, false] {
        let (mut node, device, [victim, killable], ask) = victim(Obeys::Honestly);
        set_fail(&mut node, device, true);
        node.live(secs(9));
        assert_eq!(node.place(victim, device), Place::Confirming);
        let moves = &mut node.guests.get_mut(&victim).expect("it runs").moves;
        moves.works = calls;
        let place = if calls { Place::In } else { Place::Out };
        node.until("it is let go", 2, |node| {
            node.place(victim, device) == place
        });
        assert!(node.waits(ask) && !is_called_a_liar(&node));
        let taken = node.world.device(device).expect("it is there").taken;
        assert_eq!(taken, mib(1500));
        set_fail(&mut node, device, false);
        node.live(secs(10));
        assert!(node.granted(ask), "calls: {calls}");
        assert!(node.guests.contains_key(&killable), "calls: {calls}");
    }
}
