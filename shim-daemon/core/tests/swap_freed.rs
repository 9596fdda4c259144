//! Tenants that free memory while they are out, or of what could not move.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, mib, secs};
use gpushare_core::{Bytes, DeviceId, Event, Notice, Place, ProcessId, TenantId};

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
fn what_a_tenant_frees_while_it_is_out_is_what_stayed_on_the_card() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(40));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(984), mib(960)));
    assert_eq!(account.in_use - account.away, node.physical(device));
}

#[test]
fn what_is_on_the_host_stays_away_until_it_is_back_and_freed() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(1024));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(960), mib(960)));
    node.tell(Event::Resume { tenant });
    node.live(secs(1));
    node.free(process, device, mib(960));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn a_tenant_that_frees_while_it_is_out_does_not_overdraw_a_full_card() {
    let (mut node, device, tenant, process) = out();
    let (_, other) = node.run(swapping(device, 1984));
    let ask = node.want(other, device, mib(1984));
    assert!(node.granted(ask));
    node.free(process, device, mib(64));
    let overdrawn = |one: &Notice| matches!(one, Notice::Overdrawn { .. });
    assert!(!node.notices.iter().any(overdrawn));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!(account.away, mib(960));
}

#[test]
fn one_that_freed_as_much_as_was_away_while_out_can_leave_again() {
    let (mut node, device) = Node::swaps(2048, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.works, moves.residue) = (false, mib(512));
    node.tell(Event::Suspend { tenant });
    node.live(secs(1));
    node.free(process, device, mib(512));
    node.tell(Event::Resume { tenant });
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::In);
    let (_, other) = node.run(swapping(device, 1792));
    let ask = node.want(other, device, mib(1792));
    node.live(secs(10));
    assert!(node.granted(ask));
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
