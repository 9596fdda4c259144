//! Memory of which nothing is told until all of it has moved: a handle of 40 GiB that the program
//! made is one piece.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, secs};
use gpushare_core::{AskKey, Bytes, DeviceId, Nanos, Notice, Place, TenantId, TenantSpec};

/// A tenant with one handle of so many GiB, on a link of so many GiB a second, and one that wants
/// its memory.
fn one_handle(gib: u64, rate: u64) -> (Node, DeviceId, TenantId, AskKey) {
    let (mut node, device) = Node::swaps((gib << 10) + 512, 256);
    let (first, one) = node.run(swapping(device, gib << 10));
    by_one(&mut node, first, rate);
    node.want(one, device, Bytes::gib(gib));
    node.live(secs(4));
    let (second, two) = node.run(TenantSpec {
        wait_timeout: secs(600),
        ..swapping(device, gib << 10)
    });
    by_one(&mut node, second, rate);
    let ask = node.want(two, device, Bytes::gib(gib));
    (node, device, first, ask)
}

fn by_one(node: &mut Node, tenant: TenantId, rate: u64) {
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.parts, moves.rate) = (1, rate << 30);
}

fn failures(node: &Node) -> usize {
    let all = node.notices.iter();
    all.filter(|one| matches!(one, Notice::DidNotLeave { .. }))
        .count()
}

/// How long the tenant was ordered to leave before it was seen not to.
fn found_after(node: &mut Node, device: DeviceId, tenant: TenantId) -> Nanos {
    let order = |node: &Node| node.place(tenant, device) == Place::Leaving;
    while !order(node) {
        node.live(Nanos::millis(250));
    }
    let begin = node.now;
    while failures(node) == 0 {
        node.live(Nanos::millis(250));
    }
    node.now - begin
}

#[test]
fn a_handle_of_40_gib_leaves_by_a_slow_link_at_once() {
    let (mut node, _, _, ask) = one_handle(40, 3);
    node.live(secs(150));
    assert!(node.granted(ask));
    assert_eq!(failures(&node), 0, "13 s without a word are not a failure");
}

#[test]
fn one_that_moves_nothing_is_found_out_in_time() {
    for (gib, most) in [(1, 6), (40, 17)] {
        let (mut node, device, first, _) = one_handle(gib, 3);
        node.guarantees = false;
        node.obeys(first, Obeys::Halting);
        let took = found_after(&mut node, device, first);
        assert!(took <= secs(most), "{gib} GiB: {took:?}");
        assert!(took >= secs(most - 2), "{gib} GiB: {took:?}");
    }
}

#[test]
fn a_link_slower_than_expected_is_given_more_time_until_it_suffices() {
    // 40 s, where the first rate makes the daemon expect four.
    let (mut node, _, _, ask) = one_handle(40, 1);
    node.live(secs(400));
    assert!(node.granted(ask));
    assert_eq!(failures(&node), 2, "after 16 s and 32 s");
}
