//! Memory that a tenant's dead processes still hold counts against its limit, until the device no
//! longer shows it.

use crate::node::{Node, gib, resolving, secs, spec};
use gpushare_core::{Bytes, Denial, DeviceId, Nanos, Policy, ProcessId, Resolver, TenantId};

/// A device of 16 GiB that gives nothing of the dead back, and a tenant with a limit of 4 GiB and a
/// process that holds nothing.
fn tenant(resolvers: &[Resolver]) -> (Node, DeviceId, TenantId, ProcessId) {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let (tenant, idle) = node.run(resolving(resolvers, spec(device, 0, 4)));
    (node, device, tenant, idle)
}

/// A process of the tenant allocates so much and dies; a forked child keeps the memory.
fn leaves(node: &mut Node, tenant: TenantId, device: DeviceId, bytes: Bytes) -> bool {
    let process = node.start(tenant);
    let ask = node.want(process, device, bytes);
    let granted = node.granted(ask);
    node.exit(process);
    node.sample(device);
    granted
}

fn give_back(node: &mut Node, device: DeviceId) {
    node.devices.get_mut(&device).expect("it exists").linger = Some(Nanos::ZERO);
    node.sample(device);
}

#[test]
fn an_ask_beside_limbo_waits_until_the_device_gave_it_back() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    assert!(leaves(&mut node, tenant, device, gib(3)));
    let ask = node.want(idle, device, gib(2));
    node.live(secs(10));
    assert!(node.waits(ask));
    give_back(&mut node, device);
    assert!(node.granted(ask));
}

#[test]
fn an_ask_beside_limbo_that_stays_ends_at_its_timeout() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(2));
    node.live(secs(31));
    let waited = secs(30);
    assert_eq!(node.denied(ask), Some(Denial::TimedOut { waited }));
}

#[test]
fn what_fits_beside_limbo_is_granted_at_once() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(1));
    assert!(node.granted(ask));
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.grant, account.limbo), (gib(1), gib(3)));
}

#[test]
fn what_no_limbo_could_make_fit_is_refused_at_once() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(5));
    assert_eq!(node.denied(ask), Some(Denial::OverLimit { limit: gib(4) }));
}

#[test]
fn allocating_and_dying_again_and_again_stays_within_the_limit() {
    let (mut node, device, tenant, _) = tenant(&[Resolver::Wait]);
    let granted = (0..5).filter(|_| leaves(&mut node, tenant, device, gib(3)));
    assert_eq!(granted.count(), 1);
    assert_eq!(node.world.device(device).unwrap().limbo, gib(3));
    let (_, neighbour) = node.run(spec(device, 12, 12));
    let ask = node.want(neighbour, device, gib(12));
    assert!(node.granted(ask), "its guaranteed memory is there");
}

#[test]
fn a_tenant_with_fail_waits_for_its_dead_while_they_may_come_back() {
    for resolvers in [&[Resolver::Fail][..], &[Resolver::Priority]] {
        let (mut node, device, tenant, idle) = tenant(resolvers);
        leaves(&mut node, tenant, device, gib(3));
        let ask = node.want(idle, device, gib(2));
        node.live(Nanos::millis(1_900));
        assert!(node.waits(ask));
        node.live(Nanos::millis(300));
        assert_eq!(node.denied(ask), Some(Denial::NoRoom { short: gib(1) }));
    }
}

#[test]
fn a_tenant_that_does_not_wait_is_served_when_its_dead_are_gone() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Fail]);
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(2));
    node.live(secs(1));
    give_back(&mut node, device);
    assert!(node.granted(ask));
}

#[test]
fn limbo_of_the_last_process_counts_for_the_next_one() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let (tenant, first) = node.run(spec(device, 4, 4));
    node.want(first, device, gib(3));
    node.exit(first);
    let next = node.start(tenant);
    let ask = node.want(next, device, gib(3));
    node.live(secs(10));
    assert!(node.waits(ask));
    give_back(&mut node, device);
    assert!(node.granted(ask));
}

#[test]
fn an_unused_grant_of_the_dead_is_no_limbo_once_the_device_was_seen() {
    let mut node = Node::with(Policy {
        first_overhead: Bytes::ZERO,
        step: gib(4),
        ..Policy::default()
    });
    let device = node.device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let (tenant, first) = node.run(spec(device, 4, 4));
    node.want(first, device, gib(1));
    node.sample(device);
    node.exit(first);
    node.sample(device);
    let next = node.start(tenant);
    let ask = node.want(next, device, gib(3));
    assert!(node.granted(ask));
}

#[test]
fn contexts_of_the_dead_are_overhead_and_leave_the_limit_alone() {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let (tenant, idle) = node.run(spec(device, 0, 4));
    node.sample(device);
    let process = node.start(tenant);
    node.want(process, device, gib(1));
    node.sample(device);
    node.exit(process);
    node.sample(device);
    assert_eq!(node.world.account(tenant, device).unwrap().limbo, gib(2));
    let ask = node.want(idle, device, gib(3));
    assert!(node.granted(ask));
    let more = node.want(idle, device, gib(1));
    assert!(node.waits(more));
}

#[test]
fn contexts_of_the_dead_do_not_eat_what_a_neighbour_was_guaranteed() {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let (_, neighbour) = node.run(spec(device, 8, 8));
    let tenant = node.register(spec(device, 2, 2));
    let held = (0..12).filter(|_| {
        let process = node.start(tenant);
        let opened = node.processes[&process].contexts.contains_key(&device);
        node.exit(process);
        node.sample(device);
        opened
    });
    assert_eq!(held.count(), 5, "16 less 9 and 2 GiB that are promised");
    let ask = node.want(neighbour, device, gib(8));
    assert!(node.granted(ask), "{:?}", node.world.device(device));
}

#[test]
fn a_limit_below_limbo_grants_nothing_and_hurts_nobody() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    leaves(&mut node, tenant, device, gib(3));
    let lower = spec(device, 0, 2);
    node.tell(gpushare_core::Event::Set {
        tenant,
        spec: lower,
    });
    let ask = node.want(idle, device, gib(1));
    node.live(secs(1));
    assert!(node.waits(ask));
    give_back(&mut node, device);
    assert!(node.granted(ask));
}

#[test]
fn without_process_lists_limbo_counts_while_the_device_shows_it() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .lists_processes = false;
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(2));
    node.live(secs(10));
    assert!(node.waits(ask));
    give_back(&mut node, device);
    assert!(node.granted(ask));
}

#[test]
fn programs_are_told_of_what_is_free_beside_their_dead() {
    let (mut node, device, tenant, _) = tenant(&[Resolver::Wait]);
    leaves(&mut node, tenant, device, gib(3));
    assert_eq!(node.world.grantable(tenant, device), gib(1));
    give_back(&mut node, device);
    assert_eq!(node.world.grantable(tenant, device), gib(4));
}

#[test]
fn an_ask_within_its_request_waits_for_its_dead_no_longer_than_said() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).expect("it exists").linger = None;
    let patient = gpushare_core::TenantSpec {
        wait_timeout: secs(1),
        ..spec(device, 4, 4)
    };
    let (tenant, idle) = node.run(patient);
    leaves(&mut node, tenant, device, gib(3));
    let ask = node.want(idle, device, gib(2));
    node.live(secs(2));
    let waited = secs(1);
    assert_eq!(node.denied(ask), Some(Denial::TimedOut { waited }));
}

#[test]
fn an_unused_step_is_no_limbo_though_its_context_was_never_measured() {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        step: gib(4),
        ..Policy::default()
    });
    let device = node.device(16);
    let hardware = node.devices.get_mut(&device).expect("it exists");
    (hardware.linger, hardware.context) = (None, Bytes::mib(100));
    let (tenant, first) = node.run(spec(device, 4, 4));
    node.want(first, device, gib(3));
    node.exit(first);
    node.sample(device);
    assert_eq!(node.world.grantable(tenant, device), gib(1));
}

#[test]
fn what_a_previous_daemons_dead_hold_counts_until_a_look_shows_otherwise() {
    let (mut node, device, tenant, idle) = tenant(&[Resolver::Wait]);
    let process = ProcessId(1_000_000);
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .dead
        .insert(process, (gib(3), node.now));
    node.tell(gpushare_core::Event::Remembered {
        process,
        tenant,
        device,
        bytes: gib(3),
        charged: gib(3),
    });
    node.sample(device);
    let ask = node.want(idle, device, gib(2));
    node.live(secs(5));
    assert!(node.waits(ask));
    let held: Vec<_> = node
        .world
        .dead()
        .map(|dead| (dead.process, dead.charged))
        .collect();
    assert_eq!(held, [(process, gib(3))]);
    give_back(&mut node, device);
    assert!(node.granted(ask));
    assert_eq!(node.world.dead().count(), 0);
}
