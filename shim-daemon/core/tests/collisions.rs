//! Two tenants want memory that only one can have: which gets it, which waits, which is ended. Each
//! behaviour with its opposite.

use crate::node::{Node, gib, killable, ranked, resolving, secs, spec};
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Nanos, Preemptible, ProcessId, Resolver, TenantSpec,
};

#[test]
fn what_fits_is_granted_at_once() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(spec(device, 4, 8));
    let ask = node.want(process, device, gib(8));
    assert!(node.granted(ask));
}

#[test]
fn what_exceeds_the_limit_is_refused_at_once() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(spec(device, 4, 8));
    let ask = node.want(process, device, gib(8) + Bytes(1));
    assert_eq!(node.denied(ask), Some(Denial::OverLimit { limit: gib(8) }));
}

#[test]
fn a_burst_that_does_not_fit_waits_and_is_served_when_another_frees() {
    let (mut node, device) = Node::with_device(16);
    let (_, first) = node.run(spec(device, 0, 16));
    let (_, second) = node.run(spec(device, 0, 16));
    node.want(first, device, gib(12));
    let ask = node.want(second, device, gib(8));
    node.pass(secs(10));
    assert!(node.waits(ask));
    node.free(first, device, gib(4));
    assert!(node.granted(ask));
}

#[test]
fn a_burst_without_room_is_out_of_memory_at_its_timeout_not_before() {
    let (mut node, device) = Node::with_device(16);
    let (_, first) = node.run(spec(device, 0, 16));
    let (_, second) = node.run(spec(device, 0, 16));
    node.want(first, device, gib(12));
    let ask = node.want(second, device, gib(8));
    node.pass(secs(29));
    assert!(node.waits(ask));
    node.pass(secs(1));
    assert_eq!(
        node.denied(ask),
        Some(Denial::TimedOut { waited: secs(30) })
    );
    let small = node.want(second, device, gib(4));
    assert!(node.granted(small), "it goes on");
}

#[test]
fn fail_refuses_at_once_what_wait_would_have_waited_for() {
    let (mut node, device) = Node::with_device(16);
    let (_, first) = node.run(spec(device, 0, 16));
    let failing = resolving(&[Resolver::Fail], spec(device, 0, 16));
    let (_, second) = node.run(failing);
    node.want(first, device, gib(12));
    let ask = node.want(second, device, gib(8));
    assert_eq!(node.denied(ask), Some(Denial::NoRoom { short: gib(4) }));
}

#[test]
fn unused_grants_of_others_are_taken_back_before_anybody_waits() {
    let (mut node, device) = Node::with_device(16);
    let (lender, first) = node.run(spec(device, 0, 16));
    let (_, second) = node.run(resolving(&[], spec(device, 0, 16)));
    node.want(first, device, gib(12));
    node.free(first, device, gib(8));
    assert_eq!(node.world.account(lender, device).unwrap().grant, gib(12));
    let ask = node.want(second, device, gib(8));
    assert!(node.granted(ask), "although it has no resolver");
    assert_eq!(
        node.world.account(lender, device).unwrap().grant,
        gib(8),
        "no more than was missing"
    );
}

#[test]
fn a_grant_the_device_still_shows_used_is_not_taken_back() {
    let (mut node, device) = Node::with_device(16);
    let (lender, first) = node.run(spec(device, 0, 16));
    let (_, second) = node.run(spec(device, 0, 16));
    node.want(first, device, gib(12));
    // Its page says it holds nothing; the device knows better.
    node.tell(gpushare_core::Event::Usage {
        tenant: lender,
        device,
        in_use: Bytes::ZERO,
    });
    let ask = node.want(second, device, gib(8));
    assert!(node.waits(ask));
    assert_eq!(node.world.account(lender, device).unwrap().grant, gib(12));
}

#[test]
fn within_its_request_a_tenant_takes_back_what_others_borrowed() {
    let (mut node, device) = Node::with_device(16);
    let (borrower, first) = node.run(killable(device, 0, 16));
    let (_, owner) = node.run(ranked(1, resolving(&[], spec(device, 8, 8))));
    node.want(first, device, gib(16));
    let ask = node.want(owner, device, gib(8));
    assert!(
        node.granted(ask),
        "although it is lower and has no resolver"
    );
    assert!(!node.guests.contains_key(&borrower));
}

#[test]
fn who_may_not_be_ended_cannot_borrow_what_is_promised_to_others() {
    let (mut node, device) = Node::with_device(16);
    let (_, first) = node.run(spec(device, 0, 16));
    let (_, owner) = node.run(spec(device, 8, 8));
    let within = node.want(first, device, gib(8));
    assert!(node.granted(within));
    let beyond = node.want(first, device, gib(1));
    assert!(node.waits(beyond));
    let ask = node.want(owner, device, gib(8));
    assert!(node.granted(ask));
}

#[test]
fn a_better_waiter_holds_back_a_lower_one_and_an_equal_one_does_not() {
    for (priority, served) in [(400, false), (500, true)] {
        let (mut node, device) = Node::with_device(16);
        let (_, first) = node.run(spec(device, 0, 16));
        let (_, second) = node.run(spec(device, 0, 16));
        let (_, third) = node.run(TenantSpec {
            priority,
            ..spec(device, 0, 16)
        });
        node.want(first, device, gib(12));
        let large = node.want(second, device, gib(8));
        let small = node.want(third, device, gib(1));
        assert!(node.waits(large));
        assert_eq!(node.granted(small), served, "at priority {priority}");
    }
}

#[test]
fn waiters_are_served_by_priority_and_then_by_age() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    node.want(holder, device, gib(16));
    let asks: Vec<_> = [500, 500, 900]
        .map(|priority| {
            let (_, process) = node.run(TenantSpec {
                priority,
                ..spec(device, 0, 16)
            });
            node.pass(secs(1));
            node.want(process, device, gib(4))
        })
        .into();
    for turn in [2, 0, 1] {
        assert!(node.waits(asks[turn]));
        node.free(holder, device, gib(4));
        assert!(node.granted(asks[turn]), "waiter {turn}");
    }
}

#[test]
fn two_that_wait_on_each_other_do_not_hang() {
    let mut node = Node::new();
    let (one, two) = (node.device(16), node.device(16));
    let on_both = |priority| TenantSpec {
        quotas: [one, two]
            .map(|device| spec(device, 0, 16).quotas[0])
            .to_vec(),
        priority,
        ..spec(one, 0, 16)
    };
    let (_, first) = node.run(on_both(500));
    let (_, second) = node.run(on_both(400));
    node.want(first, one, gib(16));
    node.want(second, two, gib(16));
    let better = node.want(first, two, gib(8));
    let lower = node.want(second, one, gib(8));
    node.pass(Nanos::millis(900));
    assert!(node.waits(better) && node.waits(lower), "the grace");
    node.pass(secs(3));
    assert_eq!(node.denied(lower), Some(Denial::Cycle));
    assert!(node.waits(better));
    node.free(second, two, gib(16));
    assert!(node.granted(better));
}

#[test]
fn a_waiter_is_not_refused_while_somebody_runs_who_could_free() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    let (_, waiter) = node.run(spec(device, 0, 16));
    node.want(holder, device, gib(16));
    let ask = node.want(waiter, device, gib(1));
    node.pass(secs(20));
    assert!(node.waits(ask));
}

#[test]
fn within_its_request_a_tenant_waits_for_its_own_dead_process() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = Some(secs(1));
    let failing = resolving(&[Resolver::Fail], spec(device, 16, 16));
    let (tenant, first) = node.run(failing);
    node.want(first, device, gib(12));
    node.exit(first);
    let second = node.start(tenant);
    let ask = node.want(second, device, gib(12));
    assert!(node.waits(ask), "the device still holds them");
    node.pass(secs(1));
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn siblings_that_ask_together_all_get_theirs() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    let (tenant, one) = node.run(spec(device, 0, 16));
    let two = node.start(tenant);
    node.want(holder, device, gib(16));
    let asks = [
        node.want(one, device, gib(3)),
        node.want(two, device, gib(4)),
    ];
    node.free(holder, device, gib(7));
    assert!(asks.into_iter().all(|ask| node.granted(ask)));
    assert_eq!(node.charged(tenant, device), gib(7));
}

/// A full device on which two processes of a tenant wait for 2 GiB each, and one of another tenant
/// since a second later. Then 2 GiB come free, and the first has them.
fn siblings_wait() -> (Node, DeviceId, [ProcessId; 2], [AskKey; 2]) {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    let (tenant, one) = node.run(spec(device, 0, 16));
    let two = node.start(tenant);
    let (_, other) = node.run(spec(device, 0, 16));
    node.want(holder, device, gib(16));
    let first = node.want(one, device, gib(2));
    let second = node.want(two, device, gib(2));
    node.pass(secs(1));
    let younger = node.want(other, device, gib(2));
    node.free(holder, device, gib(2));
    assert!(node.granted(first));
    node.pass(secs(1));
    (node, device, [holder, one], [second, younger])
}

#[test]
fn an_ask_keeps_its_place_when_a_sibling_is_served_before_it() {
    let (mut node, device, [holder, _], [second, younger]) = siblings_wait();
    assert!(node.waits(second) && node.waits(younger));
    assert!(node.asks.contains_key(&second), "it has no answer yet");
    node.free(holder, device, gib(2));
    assert!(node.granted(second) && node.waits(younger));
}

#[test]
fn an_ask_is_served_by_what_a_sibling_was_granted_and_frees_again() {
    let (mut node, device, [_, one], [second, younger]) = siblings_wait();
    node.free(one, device, gib(2));
    assert!(node.granted(second) && node.waits(younger));
}

#[test]
fn what_the_limit_does_not_hold_beside_a_sibling_is_refused_at_once() {
    for freed in [false, true] {
        let (mut node, device) = Node::with_device(16);
        let (_, holder) = node.run(spec(device, 0, 16));
        let (tenant, one) = node.run(spec(device, 0, 4));
        let (two, three) = (node.start(tenant), node.start(tenant));
        node.want(three, device, gib(2));
        node.want(holder, device, gib(14));
        let asks = [one, two].map(|process| node.want(process, device, gib(2)));
        if freed {
            // The daemon has not read it yet.
            let third = node.processes.get_mut(&three).unwrap();
            third.charged.insert(device, gib(0));
        }
        node.free(holder, device, gib(2));
        assert!(node.granted(asks[0]));
        let limit = gib(4);
        let over = (!freed).then_some(Denial::OverLimit { limit });
        assert_eq!(node.denied(asks[1]), over);
        assert_eq!(node.granted(asks[1]), freed);
    }
}

#[test]
fn preemptible_is_what_may_be_borrowed_and_what_it_costs() {
    for (preemptible, granted) in [(Preemptible::Kill, gib(16)), (Preemptible::Never, gib(8))] {
        let (mut node, device) = Node::with_device(16);
        node.run(spec(device, 8, 8));
        let (tenant, process) = node.run(TenantSpec {
            preemptible,
            ..spec(device, 0, 16)
        });
        assert_eq!(node.world.grantable(tenant, device), granted);
        let ask = node.want(process, device, granted);
        assert!(node.granted(ask));
    }
}

#[test]
fn a_request_is_shown_free_while_another_borrows_it_and_no_more_is() {
    let (mut node, device) = Node::with_device(8);
    let (tenant, process) = node.run(spec(device, 4, 6));
    let (lender, borrower) = node.run(killable(device, 1, 7));
    assert_eq!(node.world.grantable(tenant, device), gib(6));
    for held in 1..=6 {
        node.want(borrower, device, gib(1));
        assert_eq!(node.charged(lender, device), gib(held));
        let shown = gib(8 - held).min(gib(6)).max(gib(4));
        assert_eq!(node.world.grantable(tenant, device), shown);
    }
    let at_once = |bytes| node.world.fits(tenant, device, (gib(0), gib(bytes)));
    assert!(at_once(2) && !at_once(3), "the rest has to be taken back");
    let ask = node.want(process, device, gib(4));
    node.live(secs(20));
    assert!(node.granted(ask));
    assert_eq!(node.world.grantable(tenant, device), gib(2), "it has ended");
}

#[test]
fn a_request_is_assured_as_far_as_the_device_can_keep_all_promises() {
    let (mut node, device) = Node::with_device(8);
    let (tenant, process) = node.run(spec(device, 4, 6));
    let (_, borrower) = node.run(killable(device, 1, 7));
    for held in 1..=6 {
        node.want(borrower, device, gib(1));
        assert_eq!(node.world.assured(tenant, device), gib(4), "{held} lent");
    }
    // Memory of a program of no tenant: of no request at first.
    for (foreign, assured) in [(3, 4), (5, 2), (0, 4)] {
        node.devices.get_mut(&device).expect("it is there").foreign = gib(foreign);
        node.sample(device);
        assert_eq!(node.world.assured(tenant, device), gib(assured));
    }
    let ask = node.want(process, device, gib(4));
    node.live(secs(20));
    assert!(node.granted(ask));
    assert_eq!(node.world.assured(tenant, device), gib(4), "charged or not");
}

#[test]
fn without_a_request_nothing_is_assured() {
    let (mut node, device) = Node::with_device(8);
    let (tenant, process) = node.run(spec(device, 0, 6));
    assert_eq!(node.world.assured(tenant, device), gib(0));
    node.want(process, device, gib(2));
    assert_eq!(node.world.assured(tenant, device), gib(0));
}

#[test]
fn a_waiter_is_served_by_what_its_own_tenant_frees() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    let (tenant, one) = node.run(spec(device, 0, 16));
    let two = node.start(tenant);
    node.want(holder, device, gib(8));
    node.want(one, device, gib(8));
    let ask = node.want(two, device, gib(4));
    node.free(one, device, gib(3));
    assert!(node.waits(ask));
    node.free(one, device, gib(1));
    assert!(node.granted(ask));
}
