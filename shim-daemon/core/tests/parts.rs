//! Limits in percent: as many equal parts as fit a device run on it side by side, whatever contexts
//! turn out to take.

use crate::node::further::Call;
use crate::node::{Node, gib, secs, spec};
use gpushare_core::{
    Bytes, DeviceId, Event, Implied, Policy, Preemptible, ProcessId, SpecError, TenantId,
    TenantSpec,
};

/// A node on which a context is expected to take 512 MiB and takes `real`.
fn node(real: u64) -> (Node, DeviceId) {
    let mut node = Node::with(Policy {
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(16);
    node.devices.get_mut(&device).expect("it is there").context = Bytes::mib(real);
    (node, device)
}

/// A limit in percent, and no request.
fn part(device: DeviceId, percent: u64) -> TenantSpec {
    let mut spec = spec(device, 0, 16);
    let limit = Bytes(gib(16).0 * percent / 100);
    spec.quotas[0].1.limit = limit;
    spec.quotas[0].1.request = limit;
    spec.implied = vec![(device, Implied::new(percent * 1_000_000, Bytes::MAX))];
    spec
}

fn admitted(node: &Node, tenant: TenantId) -> bool {
    node.guests[&tenant].admitted
}

fn request(node: &Node, tenant: TenantId, device: DeviceId) -> Bytes {
    node.world
        .account(tenant, device)
        .expect("it was admitted")
        .quota
        .request
}

/// Starts as many of that part as fit a device and has each take all that is guaranteed to it.
fn all_run(percent: u64, real: u64, learned: bool) {
    let (mut node, device) = node(real);
    if learned {
        let (teacher, _) = node.run(spec(device, 1, 1));
        node.sample(device);
        node.finish(teacher);
        node.sample(device);
    }
    let tenants: Vec<_> = (0..100 / percent)
        .map(|_| node.run(part(device, percent)))
        .collect();
    node.sample(device);
    for (tenant, process) in tenants {
        assert!(admitted(&node, tenant), "{percent} % of {real} MiB");
        let bytes = request(&node, tenant, device);
        assert!(bytes > Bytes::ZERO);
        let ask = node.want(process, device, bytes);
        assert!(node.granted(ask), "{percent} %: {bytes:?}");
    }
}

#[test]
fn as_many_equal_parts_as_fit_run_before_anything_is_learned() {
    for percent in [100, 50, 33, 25, 10] {
        all_run(percent, 64, false);
    }
}

#[test]
fn as_many_equal_parts_as_fit_run_when_contexts_are_known() {
    for percent in [100, 50, 33, 25, 10] {
        all_run(percent, 64, true);
    }
}

#[test]
fn dearer_contexts_than_expected_keep_no_part_from_running() {
    for percent in [50, 25] {
        all_run(percent, 900, false);
        all_run(percent, 900, true);
    }
}

#[test]
fn a_second_half_runs_when_the_first_ones_context_has_grown() {
    let (mut node, device) = node(64);
    let (first, process) = node.run(part(device, 50));
    node.sample(device);
    // Libraries are loaded: 800 MiB more than any context was expected to take.
    let grown = node.processes.get_mut(&process).unwrap();
    grown.contexts.insert(device, Bytes::mib(1312));
    node.sample(device);
    assert_eq!(
        request(&node, first, device),
        gib(8) - Bytes::mib(1312),
        "its own contexts are part of its half"
    );
    let (second, _) = node.run(part(device, 50));
    assert!(admitted(&node, second));
}

#[test]
fn a_request_that_was_asked_for_is_exact_and_two_halves_queue() {
    let (mut node, device) = node(64);
    let (first, _) = node.run(spec(device, 8, 8));
    let (second, _) = node.run(spec(device, 8, 8));
    assert!(admitted(&node, first) && !admitted(&node, second));
    node.sample(device);
    assert_eq!(request(&node, first, device), gib(8));
    assert!(!admitted(&node, second), "16 GiB and two contexts");
    node.finish(first);
    node.sample(device);
    assert!(admitted(&node, second));
}

#[test]
fn half_beside_a_request_in_bytes_that_leaves_less_queues() {
    let (mut node, device) = node(64);
    node.run(spec(device, 10, 10));
    let (half, _) = node.run(part(device, 50));
    assert!(!admitted(&node, half));
}

#[test]
fn a_second_half_starts_with_what_a_first_at_its_limit_leaves() {
    let (mut node, device) = node(64);
    let (first, process) = node.run(part(device, 50));
    node.sample(device);
    let ask = node.want(process, device, gib(8));
    assert!(node.granted(ask), "its limit is half of the device");
    let (second, _) = node.run(part(device, 50));
    assert!(admitted(&node, second));
    let cut = request(&node, second, device);
    assert_eq!(cut, gib(8) - Bytes::mib(128));
    // A change of something else does not ask for more.
    let mut changed = part(device, 50);
    changed.priority = 400;
    node.tell(Event::Set {
        tenant: second,
        spec: changed,
    });
    assert_eq!(node.guests[&second].refused, None);
    node.free(process, device, gib(8));
    node.sample(device);
    node.sample(device);
    assert_eq!(request(&node, second, device), gib(8) - Bytes::mib(64));
    assert_eq!(
        request(&node, first, device),
        request(&node, second, device)
    );
}

#[test]
fn half_of_what_may_be_borrowed_for_ever_is_not_given_twice() {
    // A first tenant that may be ended for others does not reduce the guarantee.
    let (mut node, device) = node(64);
    let (_, process) = node.run(TenantSpec {
        preemptible: Preemptible::Kill,
        ..part(device, 50)
    });
    node.sample(device);
    node.want(process, device, gib(8));
    let (second, _) = node.run(part(device, 50));
    node.sample(device);
    assert_eq!(request(&node, second, device), gib(8) - Bytes::mib(64));
}

#[test]
fn a_change_to_a_limit_in_percent_follows_contexts_from_then_on() {
    let (mut node, device) = node(64);
    let (first, _) = node.run(spec(device, 8, 8));
    let (second, _) = node.run(part(device, 50));
    assert!(!admitted(&node, second));
    node.tell(Event::Set {
        tenant: first,
        spec: part(device, 50),
    });
    assert_eq!(node.guests[&first].refused, None);
    assert!(admitted(&node, second), "the first one's part became less");
    node.tell(Event::Set {
        tenant: first,
        spec: part(device, 60),
    });
    assert!(matches!(
        node.guests[&first].refused,
        Some(SpecError::NoRoom { .. })
    ));
}

#[test]
fn a_whole_device_can_be_asked_for() {
    let (mut node, device) = node(64);
    let (whole, process) = node.run(part(device, 100));
    assert!(admitted(&node, whole));
    node.sample(device);
    assert_eq!(request(&node, whole, device), gib(16) - Bytes::mib(64));
    let ask = node.want(process, device, gib(16) - Bytes::mib(64));
    assert!(node.granted(ask));
}

/// Two halves of a device whose contexts take 512 MiB. The first one's process holds so many MiB.
fn halves(held: u64) -> (Node, DeviceId, [(TenantId, ProcessId); 2]) {
    let (mut node, device) = node(512);
    let both = [(); 2].map(|()| node.run(part(device, 50)));
    node.live(secs(2));
    assert_eq!(request(&node, both[0].0, device), Bytes::mib(7680));
    let ask = node.want(both[0].1, device, Bytes::mib(held));
    assert!(node.granted(ask));
    (node, device, both)
}

#[test]
fn further_contexts_of_a_half_are_at_the_cost_of_its_own_request() {
    let (mut node, device, [(tenant, process), (other, neighbour)]) = halves(4096);
    let more = node.open_more(process, device, Call::Made);
    assert!(node.granted(more));
    let second = node.start(tenant);
    assert!(node.processes[&second].contexts.contains_key(&device));
    node.live(secs(2));
    assert_eq!(request(&node, tenant, device), Bytes::mib(7680 - 1024));
    assert_eq!(request(&node, other, device), Bytes::mib(7680));
    let ask = node.want(neighbour, device, Bytes::mib(7680));
    assert!(node.granted(ask), "the other half is whole");
}

#[test]
fn a_further_context_of_a_half_that_is_full_takes_nothing_of_the_other() {
    let (mut node, device, [(_, process), (_, neighbour)]) = halves(7680);
    let more = node.open_more(process, device, Call::Made);
    node.live(secs(2));
    assert!(node.waits(more));
    let ask = node.want(neighbour, device, Bytes::mib(7680));
    assert!(node.granted(ask));
    assert!(node.waits(more));
}
