//! Tenants that free memory while it is on the host.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, mib, secs};
use gpushare_core::{Bytes, DeviceId, Event, Place, ProcessId, TenantId};

/// A tenant that is out, all but 64 MiB, which cannot move.
fn out() -> (Node, DeviceId, TenantId, ProcessId) {
    let (mut node, device) = Node::swaps(2048, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.works, moves.residue) = (false, mib(64));
    node.tell(Event::Suspend { tenant });
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert_eq!(node.physical(device), mib(64));
    (node, device, tenant, process)
}

#[test]
fn what_stays_on_the_card_is_counted_while_the_rest_is_freed_on_the_host() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(900));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(124), mib(60)));
    assert_eq!(account.in_use - account.away, node.physical(device));
}

#[test]
fn what_is_freed_on_the_host_is_away_no_more() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(960));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(64), Bytes::ZERO));
}

/// A tenant that was out once, when 512 MiB of its 1024 MiB could not move, and that is back.
fn back() -> (Node, DeviceId, TenantId, ProcessId) {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.works, moves.residue) = (false, mib(512));
    node.tell(Event::Suspend { tenant });
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert_eq!(node.physical(device), mib(512));
    node.tell(Event::Resume { tenant });
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::In);
    (node, device, tenant, process)
}

/// Whether another tenant that wants 1280 MiB of the card gets them.
fn makes_way(node: &mut Node, device: DeviceId) -> bool {
    let (_, other) = node.run(swapping(device, 1280));
    let ask = node.want(other, device, mib(1280));
    node.live(secs(10));
    node.granted(ask)
}

#[test]
fn a_tenant_that_frees_what_could_not_move_can_leave_again() {
    for frees in [true, false] {
        let (mut node, device, tenant, process) = back();
        if frees {
            let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
            moves.residue = Bytes::ZERO;
            node.free(process, device, mib(512));
        }
        assert_eq!(makes_way(&mut node, device), frees);
    }
}

#[test]
fn what_could_not_move_ends_with_its_program() {
    let (mut node, device, tenant, process) = back();
    node.exit(process);
    node.guests.get_mut(&tenant).expect("it runs").moves.residue = Bytes::ZERO;
    let next = node.start(tenant);
    let ask = node.want(next, device, mib(512));
    node.live(secs(2));
    assert!(node.granted(ask));
    assert!(makes_way(&mut node, device));
    assert_eq!(node.place(tenant, device), Place::Out);
}

#[test]
fn one_of_two_programs_ends_with_what_could_not_move() {
    for ends in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        let (tenant, first) = node.run(swapping(device, 1024));
        let second = node.start(tenant);
        for process in [first, second] {
            node.want(process, device, mib(512));
        }
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.residue) = (false, mib(256));
        node.tell(Event::Suspend { tenant });
        node.live(secs(1));
        assert_eq!(node.physical(device), mib(512));
        node.tell(Event::Resume { tenant });
        node.live(secs(1));
        if ends {
            node.guests.get_mut(&tenant).expect("it runs").moves.residue = Bytes::ZERO;
            node.exit(first);
        }
        assert_eq!(makes_way(&mut node, device), ends);
    }
}

#[test]
fn a_tenant_that_said_once_that_it_left_is_asked_again_later() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.obeys(tenant, Obeys::Lying);
    assert!(!makes_way(&mut node, device));
    node.obeys(tenant, Obeys::Honestly);
    node.live(secs(61));
    assert!(makes_way(&mut node, device));
    assert_eq!(node.place(tenant, device), Place::Out);
}
