//! Which tenants start, which queue, and the effects of a change of limits.

use crate::node::{Node, gib, killable, ranked, resolving, secs, spec};
use gpushare_core::{
    Bytes, Denial, Event, Policy, Quota, Resolver, SpecError, State, TenantId, TenantSpec,
};

fn admitted(node: &Node, tenant: TenantId) -> bool {
    node.guests[&tenant].admitted
}

#[test]
fn a_request_is_admitted_if_it_fits_and_else_queues_until_it_does() {
    let (mut node, device) = Node::with_device(16);
    let first = node.register(spec(device, 10, 10));
    let second = node.register(spec(device, 8, 8));
    assert!(admitted(&node, first) && !admitted(&node, second));
    assert_eq!(
        node.world.tenant(second).unwrap().state,
        State::Queued { since: secs(1) }
    );
    node.finish(first);
    assert!(admitted(&node, second));
}

#[test]
fn a_request_that_can_never_fit_is_refused_with_the_numbers() {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        ..Policy::default()
    });
    let device = node.device(16);
    let tenant = node.register(spec(device, 16, 16));
    let error = node.guests[&tenant].refused.expect("it is refused");
    assert_eq!(
        error,
        SpecError::TooLarge {
            device,
            request: gib(16),
            most: gib(15)
        }
    );
    assert!(
        error
            .to_string()
            .contains("at most 15GiB can be guaranteed, 16GiB were requested"),
        "{error}"
    );
}

/// A tenant that runs with a request of 15 of 16 GiB, and what a change to this request and limit
/// is refused with after contexts turned out to take 2 GiB.
fn changed(request: u64, limit: u64) -> Option<SpecError> {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        ..Policy::default()
    });
    // Contexts take more than was set aside for them.
    node.guarantees = false;
    let device = node.device(16);
    node.devices.get_mut(&device).expect("it is there").context = gib(2);
    let (tenant, _) = node.run(spec(device, 15, 16));
    node.sample(device);
    assert_eq!(node.world.context_cost(device), gib(2));
    node.tell(Event::Set {
        tenant,
        spec: ranked(900, spec(device, request, limit)),
    });
    let priority = node.world.spec(tenant).expect("it is there").priority;
    assert_eq!(priority == 900, node.guests[&tenant].refused.is_none());
    node.guests[&tenant].refused
}

#[test]
fn a_request_that_does_not_rise_may_be_one_that_contexts_have_outgrown() {
    assert_eq!([changed(15, 16), changed(15, 15)], [None; 2]);
    let raised = changed(16, 16).expect("no tenant could have that");
    assert!(matches!(raised, SpecError::TooLarge { most, .. } if most == gib(14)));
}

#[test]
fn a_request_above_the_limit_is_refused() {
    let (mut node, device) = Node::with_device(16);
    let tenant = node.register(spec(device, 5, 4));
    assert!(matches!(
        node.guests[&tenant].refused,
        Some(SpecError::AboveLimit { .. })
    ));
}

#[test]
fn a_resolver_behind_one_that_always_decides_is_refused() {
    let (mut node, device) = Node::with_device(16);
    let on_collision = vec![Resolver::Wait, Resolver::Priority];
    let tenant = node.register(TenantSpec {
        on_collision,
        ..spec(device, 1, 4)
    });
    assert_eq!(
        node.guests[&tenant].refused,
        Some(SpecError::Unreachable(Resolver::Wait))
    );
    let on_collision = vec![Resolver::Priority, Resolver::Wait];
    let tenant = node.register(TenantSpec {
        on_collision,
        ..spec(device, 1, 4)
    });
    assert!(admitted(&node, tenant));
}

#[test]
fn the_queue_goes_by_priority_and_then_by_age() {
    let (mut node, device) = Node::with_device(16);
    let running = node.register(spec(device, 16, 16));
    let queued: Vec<_> = [500, 500, 900]
        .map(|priority| {
            node.pass(secs(1));
            node.register(TenantSpec {
                priority,
                ..spec(device, 16, 16)
            })
        })
        .into();
    let mut last = running;
    for turn in [2, 0, 1] {
        assert!(!admitted(&node, queued[turn]));
        node.finish(last);
        assert!(admitted(&node, queued[turn]), "tenant {turn}");
        last = queued[turn];
    }
}

#[test]
fn who_is_behind_in_the_queue_does_not_pass_unless_it_needs_nothing_there() {
    let mut node = Node::new();
    let (device, other) = (node.device(16), node.device(16));
    node.register(spec(device, 10, 10));
    node.register(spec(device, 8, 8));
    let behind = node.register(spec(device, 2, 2));
    let elsewhere = node.register(spec(other, 2, 2));
    let asks_nothing = node.register(spec(device, 0, 2));
    assert!(!admitted(&node, behind));
    assert!(admitted(&node, elsewhere) && admitted(&node, asks_nothing));
}

#[test]
fn only_memory_that_may_not_be_taken_back_keeps_a_tenant_out() {
    for (borrower, expected) in [(false, false), (true, true)] {
        let (mut node, device) = Node::with_device(16);
        let (_, process) = node.run(if borrower {
            killable(device, 0, 16)
        } else {
            spec(device, 0, 16)
        });
        node.want(process, device, gib(12));
        let tenant = node.register(spec(device, 8, 8));
        assert_eq!(admitted(&node, tenant), expected);
        node.free(process, device, gib(4));
        assert!(
            admitted(&node, tenant),
            "unused grants are called back for it"
        );
    }
}

#[test]
fn only_a_better_tenant_in_the_queue_holds_back_bursts() {
    for (priority, granted) in [(400, false), (500, true)] {
        let (mut node, device) = Node::with_device(16);
        let running = node.register(spec(device, 10, 10));
        let (_, process) = node.run(TenantSpec {
            priority,
            ..spec(device, 0, 16)
        });
        let queued = node.register(spec(device, 8, 8));
        assert!(!admitted(&node, queued));
        let ask = node.want(process, device, gib(4));
        assert_eq!(node.granted(ask), granted, "at priority {priority}");
        node.finish(running);
        assert!(admitted(&node, queued));
    }
}

#[test]
fn an_early_process_of_a_queued_tenant_waits_for_its_admission() {
    let (mut node, device) = Node::with_device(16);
    let running = node.register(spec(device, 10, 10));
    let queued = node.register(resolving(&[], spec(device, 8, 8)));
    let process = node.start(queued);
    let ask = node.want(process, device, gib(1));
    assert!(node.waits(ask));
    node.finish(running);
    assert!(node.granted(ask));
}

#[test]
fn a_device_without_a_quota_is_refused() {
    let mut node = Node::new();
    let (device, other) = (node.device(16), node.device(16));
    let (_, process) = node.run(spec(device, 1, 2));
    let ask = node.want(process, other, gib(1));
    assert_eq!(node.denied(ask), Some(Denial::NoQuota));
}

#[test]
fn a_raised_request_must_fit_like_a_new_one() {
    let (mut node, device) = Node::with_device(16);
    let first = node.register(spec(device, 4, 16));
    node.register(spec(device, 8, 8));
    node.tell(Event::Set {
        tenant: first,
        spec: spec(device, 9, 16),
    });
    assert_eq!(
        node.guests[&first].refused,
        Some(SpecError::NoRoom {
            device,
            short: gib(1)
        })
    );
    assert_eq!(
        node.world.account(first, device).unwrap().quota,
        Quota {
            request: gib(4),
            limit: gib(16)
        }
    );
    node.tell(Event::Set {
        tenant: first,
        spec: spec(device, 8, 16),
    });
    assert_eq!(
        node.world.account(first, device).unwrap().quota.request,
        gib(8)
    );
}

#[test]
fn a_raised_request_calls_back_what_others_do_not_use() {
    for used in [false, true] {
        let (mut node, device) = Node::with_device(16);
        let (lender, process) = node.run(spec(device, 0, 16));
        let tenant = node.register(spec(device, 1, 16));
        node.want(process, device, gib(12));
        if !used {
            node.free(process, device, gib(12));
        }
        let mut request = || {
            node.tell(Event::Set {
                tenant,
                spec: spec(device, 8, 16),
            });
            node.world.account(tenant, device).unwrap().quota.request
        };
        // A daemon asks again once it has called back what it was told to.
        assert_eq!(
            [request(), request()].last(),
            Some(&gib(if used { 1 } else { 8 }))
        );
        let short = gib(4);
        let refused = node.guests[&tenant].refused;
        assert_eq!(refused, Some(SpecError::NoRoom { device, short }));
        let left = node.world.account(lender, device).unwrap().grant;
        assert_eq!(
            left,
            gib(if used { 12 } else { 8 }),
            "no more than is needed"
        );
    }
}

#[test]
fn limbo_does_not_cover_for_a_raised_request() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = Some(secs(9));
    let (tenant, process) = node.run(killable(device, 1, 8));
    node.want(process, device, gib(8));
    node.register(spec(device, 9, 9));
    node.exit(process);
    node.tell(Event::Set {
        tenant,
        spec: killable(device, 8, 8),
    });
    assert!(matches!(
        node.guests[&tenant].refused,
        Some(SpecError::NoRoom { .. })
    ));
}

#[test]
fn a_limit_below_the_use_follows_it_down_and_then_holds() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, process) = node.run(spec(device, 0, 16));
    node.want(process, device, gib(12));
    node.free(process, device, gib(2));
    node.tell(Event::Set {
        tenant,
        spec: spec(device, 0, 4),
    });
    node.guests.get_mut(&tenant).unwrap().spec = spec(device, 0, 16);
    assert_eq!(
        node.world.account(tenant, device).unwrap().grant,
        gib(10),
        "unused memory is taken at once"
    );
    let ask = node.want(process, device, Bytes(1));
    assert_eq!(node.denied(ask), Some(Denial::OverLimit { limit: gib(4) }));
    node.free(process, device, gib(5));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(5));
    node.free(process, device, gib(5));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(4));
    let ask = node.want(process, device, gib(4));
    assert!(node.granted(ask));
}

#[test]
fn what_is_held_above_a_lowered_request_is_a_burst_like_any_other() {
    for (request, ended) in [(12, false), (4, true)] {
        let (mut node, device) = Node::with_device(16);
        let (low, first) = node.run(ranked(100, killable(device, 12, 12)));
        let on_collision = vec![Resolver::Priority];
        let (_, second) = node.run(TenantSpec {
            on_collision,
            ..killable(device, 0, 16)
        });
        node.want(first, device, gib(12));
        node.tell(Event::Set {
            tenant: low,
            spec: ranked(100, killable(device, request, 12)),
        });
        node.want(second, device, gib(8));
        assert_eq!(
            !node.guests.contains_key(&low),
            ended,
            "with a request of {request} GiB"
        );
    }
}

#[test]
fn a_waiter_above_its_lowered_limit_is_answered() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 16));
    let (tenant, process) = node.run(spec(device, 0, 16));
    node.want(holder, device, gib(12));
    let ask = node.want(process, device, gib(8));
    node.tell(Event::Set {
        tenant,
        spec: spec(device, 0, 4),
    });
    assert_eq!(node.denied(ask), Some(Denial::OverLimit { limit: gib(4) }));
}
