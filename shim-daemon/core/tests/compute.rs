//! Compute in the world: which tenants take turns, from when to when, and which shares are refused.
//! The schedule itself has tests of its own: see `shares.rs`, `caps.rs`, `classes.rs`,
//! `holders.rs`, `turns.rs`.

use crate::node;
use crate::node::{Node, bare, gib, spec};
use gpushare_core::{
    Compute, Decision, DeviceId, Event, Lease, LeaseKind, LeasePolicy, Nanos, Notice, Permille,
    Policy, ProcessId, ShareState, SpecError, TenantId, TenantSpec, World,
};

fn percent(percent: u16) -> Option<Permille> {
    Permille::new(percent * 10)
}

/// A tenant with a share on one device.
fn sharing(device: DeviceId, request: Option<Permille>, limit: Option<Permille>) -> TenantSpec {
    TenantSpec {
        compute: vec![(device, Compute { request, limit })],
        ..spec(device, 1, 4)
    }
}

fn lease(node: &Node, tenant: TenantId, device: DeviceId) -> Lease {
    let said = node.guests[&tenant].leases.get(&device).copied();
    let said = said.unwrap_or(Lease::FREE);
    assert_eq!(node.world.lease(tenant, device), Some(said));
    said
}

fn wanted(node: &mut Node, tenant: TenantId, process: ProcessId, device: DeviceId) {
    let epoch = lease(node, tenant, device).epoch;
    node.tell(Event::Reported {
        process,
        device,
        epoch,
        report: gpushare_core::Report::Wanted,
    });
}

#[test]
fn alone_a_tenant_is_free_and_a_second_one_ends_that() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (first, _) = node.run(spec(device, 1, 4));
    assert_eq!(lease(&node, first, device).kind, LeaseKind::Free);
    let (second, process) = node.run(spec(device, 1, 4));
    assert!(matches!(
        lease(&node, first, device).kind,
        LeaseKind::Open { deadline: None, .. }
    ));
    assert!(lease(&node, second, device).kind.is_closed());
    node.exit(process);
    assert_eq!(lease(&node, first, device).kind, LeaseKind::Free);
}

#[test]
fn a_context_is_not_answered_before_its_page_says_that_it_is_closed() {
    let mut world = World::new(Policy {
        lease: LeasePolicy::turns(),
        ..Policy::default()
    });
    let device = DeviceId(0);
    bare::add_device(&mut world, device, gib(16));
    let mut order = Vec::new();
    for id in 1..=2 {
        let (tenant, process) = (TenantId(id), ProcessId(id));
        bare::register(&mut world, tenant, spec(device, 1, 4));
        bare::join(&mut world, tenant, process);
        bare::open(&mut world, process, device);
        order = std::iter::from_fn(|| world.poll_decision()).collect();
    }
    let closes = |decision: &Decision| matches!(decision, Decision::Lease { tenant: TenantId(2), lease, .. } if lease.kind.is_closed());
    let answers = |decision: &Decision| matches!(decision, Decision::Answer { .. });
    let (closed, answered) = (
        order.iter().position(closes),
        order.iter().position(answers),
    );
    assert!(closed.is_some() && closed < answered, "{order:?}");
}

#[test]
fn turns_change_hands_when_the_holder_has_drained_and_when_it_dies() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (first, holder) = node.run(spec(device, 1, 4));
    let (second, waiter) = node.run(spec(device, 1, 4));
    wanted(&mut node, second, waiter, device);
    node.pass(Nanos::millis(20));
    let closed = lease(&node, first, device);
    assert!(closed.kind.is_closed());
    assert!(
        lease(&node, second, device).kind.is_closed(),
        "not before it has drained"
    );
    node.tell(Event::Reported {
        process: holder,
        device,
        epoch: closed.epoch,
        report: gpushare_core::Report::Drained,
    });
    assert!(matches!(
        lease(&node, second, device).kind,
        LeaseKind::Open { .. }
    ));
    wanted(&mut node, first, holder, device);
    node.exit(waiter);
    assert_eq!(lease(&node, first, device).kind, LeaseKind::Free);
}

#[test]
fn a_process_of_the_previous_daemon_takes_turns_once_it_obeys() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (first, _) = node.run(spec(device, 1, 4));
    let second = node.register(spec(device, 1, 4));
    let process = ProcessId(node.fresh());
    node.add(process, node::Proc::new(second));
    node.tell(Event::ProcessStarted {
        process,
        tenant: second,
        adopted: false,
        gated: true,
    });
    node.open(process, device);
    assert_eq!(lease(&node, first, device).kind, LeaseKind::Free);
    node.tell(Event::Adopted { process });
    assert!(lease(&node, second, device).kind.is_closed());
}

#[test]
fn a_cap_set_live_binds_at_once_and_one_lifted_frees() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (tenant, _) = node.run(spec(device, 1, 4));
    let capped = sharing(device, None, percent(30));
    node.tell(Event::Set {
        tenant,
        spec: capped,
    });
    let deadline = |lease: Lease| match lease.kind {
        LeaseKind::Open { deadline, .. } => deadline,
        _ => None,
    };
    assert!(
        deadline(lease(&node, tenant, device)).is_some(),
        "its allowance ends"
    );
    let free = spec(device, 1, 4);
    node.tell(Event::Set { tenant, spec: free });
    assert_eq!(lease(&node, tenant, device).kind, LeaseKind::Free);
}

#[test]
fn more_than_all_of_a_device_cannot_be_promised() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (first, _) = node.run(sharing(device, percent(70), None));
    let second = node.register(sharing(device, percent(40), None));
    let refused = node.guests[&second].refused;
    let (request, short) = (percent(40).unwrap(), percent(10).unwrap());
    assert_eq!(
        refused,
        Some(SpecError::ComputeTaken {
            device,
            request,
            short
        })
    );
    let third = node.register(sharing(device, percent(30), None));
    assert_eq!(node.guests[&third].refused, None);
    let more = sharing(device, percent(71), None);
    node.tell(Event::Set {
        tenant: first,
        spec: more,
    });
    assert!(matches!(
        node.guests[&first].refused,
        Some(SpecError::ComputeTaken { .. })
    ));
}

#[test]
fn a_request_above_the_cap_is_refused_and_one_as_large_is_not() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let above = node.register(sharing(device, percent(31), percent(30)));
    assert!(matches!(
        node.guests[&above].refused,
        Some(SpecError::ComputeAboveLimit { .. })
    ));
    let even = node.register(sharing(device, percent(30), percent(30)));
    assert_eq!(node.guests[&even].refused, None);
}

#[test]
fn shares_are_shown_as_they_are_dealt() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (first, _) = node.run(sharing(device, percent(70), None));
    let (second, waiter) = node.run(spec(device, 1, 4));
    wanted(&mut node, second, waiter, device);
    node.pass(Nanos::millis(5));
    let share = |tenant| node.world.share(tenant, device).expect("it has a context");
    assert_eq!((share(first).weight, share(second).weight), (700, 300));
    assert_eq!(
        (share(first).state, share(second).state),
        (ShareState::Holding, ShareState::Waiting)
    );
    assert_eq!(
        (share(first).held, share(second).held),
        (Nanos::millis(5), Nanos::ZERO)
    );
}

#[test]
fn a_process_without_a_gate_holds_nobody_up_and_is_told_of() {
    let mut node = Node::dealt_in_turns();
    let device = node.device(16);
    let (gated, process) = node.run(spec(device, 1, 4));
    let old = node.register(spec(device, 1, 4));
    let ungated = ProcessId(node.fresh());
    node.add(ungated, node::Proc::new(old));
    node.tell(Event::ProcessStarted {
        process: ungated,
        tenant: old,
        adopted: true,
        gated: false,
    });
    node.open(ungated, device);
    assert!(node.notices.contains(&Notice::Ungated {
        tenant: old,
        device
    }));
    wanted(&mut node, old, ungated, device);
    wanted(&mut node, gated, process, device);
    node.pass(Nanos::secs(1));
    assert!(matches!(
        lease(&node, gated, device).kind,
        LeaseKind::Open { .. }
    ));
}
