//! What the moves of a tenant after a daemon restart teach of the link. A return is measured from
//! its order, and a process of the previous daemon may obey that order before it is heard, or long
//! after. Stays, and the bound of a wait, are as long as they were.

use crate::node::late::RECOVERY;
use crate::node::{Node, secs};
use crate::swap_late::one_late;
use gpushare_core::{Bytes, DeviceId, Nanos, Notice, Order, Place, ProcessId, TenantId};

/// The bound of a wait on a device.
fn bound(node: &Node, device: DeviceId) -> Nanos {
    node.world.rotation_bound(device, Nanos::ZERO)
}

/// A tenant of two processes. The first came in time with what it has on the host; the second, with
/// 512 MiB there, has not come.
fn late(first_away: u64) -> (Node, DeviceId, TenantId, ProcessId) {
    let (node, device, [tenant, _], [_, late]) =
        one_late((2048, 64), [(512, first_away), (512, 512)], 512);
    (node, device, tenant, late)
}

#[test]
fn a_return_that_waits_for_a_late_process_teaches_no_rate() {
    let (mut node, device, tenant, late) = late(512);
    assert_eq!(node.place(tenant, device), Place::Out);
    node.calls(tenant, device);
    node.comes(late);
    let before = bound(&node, device);
    node.live(Nanos::millis(1500));
    assert_eq!(node.place(tenant, device), Place::Entering);
    node.speaks(late, false);
    node.until("it runs", 2, |node| node.runs(tenant, device));
    assert_eq!(bound(&node, device), before);
}

#[test]
fn a_return_that_was_made_before_it_was_ordered_teaches_no_rate() {
    let (mut node, device, tenant, late) = late(0);
    assert_eq!(node.place(tenant, device), Place::In);
    node.comes(late);
    let before = bound(&node, device);
    node.live(secs(1));
    node.speaks(late, true);
    node.until("it runs", 2, |node| node.runs(tenant, device));
    assert_eq!(bound(&node, device), before);
}

#[test]
fn a_return_of_processes_that_were_heard_in_time_teaches_one() {
    let (mut node, device, tenant, late) = late(512);
    node.comes(late);
    node.speaks(late, false);
    node.live(secs(1));
    let before = bound(&node, device);
    node.calls(tenant, device);
    node.until("it runs", 2, |node| node.runs(tenant, device));
    // The link is twice as fast as was assumed.
    assert!(bound(&node, device) < before);
}

/// A tenant that is found with so much of its 1 GiB out, of which 64 MiB cannot move, at the end of
/// the recovery; and the bound of a wait before.
fn found(away: u64) -> (Node, DeviceId, TenantId, Nanos) {
    let (mut node, device) = Node::restarted(1536, 64);
    let (tenant, own) = node.survives(device, &[(1024, away)]);
    let (_, theirs) = node.survives(device, &[(512, 0)]);
    node.guests.get_mut(&tenant).expect("it runs").moves.residue = Bytes::mib(64);
    for process in [own[0], theirs[0]] {
        node.comes(process);
        node.speaks(process, false);
    }
    let before = bound(&node, device);
    node.live(RECOVERY + secs(2));
    assert_eq!(node.place(tenant, device), Place::Out);
    (node, device, tenant, before)
}

fn has_left(node: &Node) -> bool {
    let left = |one: &Notice| matches!(one, Notice::Left { .. });
    node.notices.iter().any(left)
}

#[test]
fn a_tenant_that_rests_out_is_not_ordered_to_leave_once_more() {
    let (node, device, tenant, before) = found(960);
    assert!(!has_left(&node));
    let (_, order) = node.guests[&tenant].moves.orders[&device];
    assert_eq!((order, bound(&node, device)), (Order::Out, before));
}

#[test]
fn a_move_that_the_previous_daemon_began_teaches_no_rate() {
    let (mut node, device, tenant, before) = found(800);
    assert!(has_left(&node));
    assert_eq!(bound(&node, device), before);
    node.calls(tenant, device);
    node.until("it runs", 20, |node| node.runs(tenant, device));
    assert!(bound(&node, device) < before, "its next one does");
}
