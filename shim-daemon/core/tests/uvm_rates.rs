//! What moves of managed memory cost, and teach: the pages on the card alone are copied.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, mib, secs};
use crate::uvm::{card, leaves, managed};
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Notice, Place, TenantId};

/// Bytes a second, each way.
const RATE: u64 = 2 << 30;

/// A card of 2048 MiB with a tenant that has as much as it can of so many MiB of managed memory,
/// and one that swaps 1500; both at work. Returns them after some turns.
fn beside_managed(many: u64) -> (Node, DeviceId, [TenantId; 2]) {
    let mut node = Node::with(policy(4));
    let device = node.device_of(mib(2048));
    let (large, first) = node.run(managed(device, many));
    let (plain, second) = node.run(swapping(device, 1500));
    for tenant in [large, plain] {
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = RATE;
    }
    let ask = node.want(first, device, mib(many));
    assert!(node.granted(ask));
    node.want(second, device, mib(1500));
    lives(&mut node, [large, plain], secs(120));
    (node, device, [large, plain])
}

fn lives(node: &mut Node, both: [TenantId; 2], time: Nanos) {
    let end = node.now + time;
    while node.now < end {
        for tenant in both {
            node.tell(Event::Worked { tenant });
        }
        node.live(Nanos::millis(50));
    }
}

/// Eleven times as long as so many MiB take out and back.
fn stay_of(mib: u64) -> Nanos {
    Nanos(11 * 2 * mib * 1_000_000_000 / (RATE >> 20))
}

/// How long a tenant is in at once, on the average over a while.
fn stay(node: &mut Node, device: DeviceId, both: [TenantId; 2], of: TenantId) -> Nanos {
    let (mut time, before) = (Nanos::ZERO, leaves(node, of));
    for _ in 0..12_000 {
        lives(node, both, Nanos::millis(50));
        if node.place(of, device) == Place::In {
            time = time + Nanos::millis(50);
        }
    }
    let stays = leaves(node, of) - before;
    assert!(stays > 3, "{stays}");
    Nanos(time.0 / stays as u64)
}

#[test]
fn a_plain_tenant_stays_as_long_beside_managed_memory_of_any_size() {
    let due = stay_of(1500);
    for many in [1900, 8192] {
        let (mut node, device, both) = beside_managed(many);
        let stay = stay(&mut node, device, both, both[1]);
        let part = stay.0 * 100 / due.0;
        assert!((85..=125).contains(&part), "beside {many}: {part} %");
    }
}

#[test]
fn a_tenant_above_the_card_stays_by_what_moves_of_it() {
    let due = stay_of(2048);
    let (mut node, device, both) = beside_managed(8192);
    let stay = stay(&mut node, device, both, both[0]);
    let part = stay.0 * 100 / due.0;
    assert!((85..=125).contains(&part), "{part} %");
}

#[test]
fn what_leaves_of_a_tenant_above_the_card_is_told_as_what_returns() {
    let (node, device, [large, _]) = beside_managed(8192);
    let mut out = node.notices.iter().filter_map(|one| match one {
        Notice::Left { tenant, bytes, .. } if *tenant == large => Some(*bytes),
        _ => None,
    });
    assert!(out.all(|bytes| bytes == mib(2048)));
    let residence = node.world.residence(large, device).expect("it moves");
    assert!(residence.left > 2);
    assert!(residence.moved <= Bytes(2 * residence.left * mib(2048).0));
    // Nothing of it is on the card when it is out.
    let (node, _, [large, _]) = beside_managed(1900);
    let mut out = node.notices.iter().filter_map(|one| match one {
        Notice::Left { tenant, bytes, .. } if *tenant == large => Some(*bytes),
        _ => None,
    });
    assert!(out.all(|bytes| bytes == mib(1900)));
}

/// What returns of the tenant brought so far, as told.
fn returned(node: &Node) -> Vec<Bytes> {
    let all = node.notices.iter().filter_map(|one| match one {
        Notice::Returned { bytes, .. } => Some(*bytes),
        _ => None,
    });
    all.collect()
}

#[test]
fn a_return_after_a_move_that_was_cut_off_is_told_by_what_had_left() {
    for spec in [managed, swapping] {
        let (mut node, device) = Node::swaps(2048, 64);
        let (tenant, process) = node.run(spec(device, 1024));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (false, RATE);
        node.want(process, device, mib(1024));
        node.tell(Event::Suspend { tenant });
        node.live(secs(4));
        node.tell(Event::Resume { tenant });
        node.live(secs(4));
        assert_eq!(returned(&node), [mib(1024)]);
        let bound = |node: &Node| node.world.rotation_bound(device, Nanos::ZERO).0;
        let before = bound(&node);
        node.obeys(tenant, Obeys::Failing);
        node.tell(Event::Suspend { tenant });
        node.until("it is back", 4, |node| returned(node).len() > 1);
        assert_eq!(returned(&node)[1], mib(512));
        let part = bound(&node) * 100 / before;
        assert!((99..=101).contains(&part), "taught another rate: {part} %");
    }
}

/// Pages that nobody touched leave in no time, and later ones do not: a move may take ten times
/// what is expected then.
#[test]
fn one_whose_pages_move_slower_than_any_before_leaves_in_the_end() {
    let (mut node, device) = card(100 << 10);
    node.guarantees = false;
    let both = [(); 2].map(|()| {
        let (tenant, process) = node.run(managed(device, 100 << 10));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 45;
        node.want(process, device, Bytes::gib(100));
        node.live(secs(2));
        tenant
    });
    let left = |node: &Node| {
        let all = node.notices.iter();
        all.filter(|one| matches!(one, Notice::Left { .. })).count()
    };
    node.until("both have left", 200, |node| left(node) > 3);
    let before = left(&node);
    for tenant in both {
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 4 << 30;
    }
    lives(&mut node, both, secs(400));
    assert!(left(&node) > before + 2, "{} moves", left(&node) - before);
}
