//! The accounts against the device's figures: overhead, limbo, unmanaged memory, forged pages,
//! wrong facts.

use crate::node::{Node, gib, killable, resolving, secs, spec};
use gpushare_core::{
    Bytes, Denial, DeviceId, Event, Nanos, Notice, Policy, ProcessId, Resolver, TenantId,
};

fn with_contexts(mib: u64) -> Node {
    Node::with(Policy {
        first_overhead: Bytes::mib(mib),
        step: Bytes(1),
        ..Policy::default()
    })
}

#[test]
fn a_context_is_reserved_ahead_and_then_measured() {
    let mut node = with_contexts(512);
    let device = node.device(16);
    node.devices.get_mut(&device).unwrap().context = Bytes::mib(300);
    let (tenant, _) = node.run(spec(device, 4, 8));
    assert_eq!(
        node.world.account(tenant, device).unwrap().overhead,
        Bytes::mib(512)
    );
    node.sample(device);
    assert_eq!(
        node.world.account(tenant, device).unwrap().overhead,
        Bytes::mib(300)
    );
}

#[test]
fn what_a_context_cost_is_what_the_next_one_is_expected_to_cost() {
    let mut node = with_contexts(512);
    let device = node.device(16);
    node.devices.get_mut(&device).unwrap().context = Bytes::mib(300);
    node.run(spec(device, 1, 1));
    node.sample(device);
    let (second, _) = node.run(spec(device, 1, 1));
    assert_eq!(
        node.world.account(second, device).unwrap().overhead,
        Bytes::mib(300)
    );
}

#[test]
fn a_sample_around_which_the_slot_moved_is_not_believed() {
    let mut node = with_contexts(512);
    let device = node.device(16);
    let (tenant, process) = node.run(spec(device, 4, 8));
    node.want(process, device, gib(2));
    let Event::Sampled { device, mut sample } = node.look_at(device) else {
        unreachable!()
    };
    sample.processes.iter_mut().flatten().for_each(|seen| {
        seen.used = Bytes::mib(100);
        seen.charged = None;
    });
    node.tell(Event::Sampled { device, sample });
    assert_eq!(
        node.world.account(tenant, device).unwrap().overhead,
        Bytes::mib(512)
    );
}

#[test]
fn a_context_that_does_not_fit_waits_like_an_allocation() {
    let mut node = with_contexts(1024);
    let device = node.device(16);
    let (_, first) = node.run(spec(device, 0, 16));
    node.want(first, device, gib(15));
    let second = node.register(spec(device, 0, 16));
    let process = node.start(second);
    assert!(!node.processes[&process].contexts.contains_key(&device));
    node.free(first, device, gib(1));
    assert!(node.processes[&process].contexts.contains_key(&device));
}

#[test]
fn the_context_of_an_admitted_request_takes_back_what_others_borrowed() {
    let mut node = with_contexts(1024);
    let device = node.device(16);
    let (borrower, first) = node.run(killable(device, 0, 16));
    node.want(first, device, gib(15));
    let (_, owner) = node.run(spec(device, 4, 4));
    assert!(node.processes[&owner].contexts.contains_key(&device));
    assert!(!node.guests.contains_key(&borrower));
}

#[test]
fn bytes_of_the_dead_are_granted_once_the_device_gave_them_back() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = None;
    let (dying, dead) = node.run(spec(device, 0, 16));
    let (_, waiter) = node.run(spec(device, 0, 16));
    node.want(dead, device, gib(12));
    node.finish(dying);
    let ask = node.want(waiter, device, gib(8));
    node.pass(secs(5));
    node.sample(device);
    assert!(node.waits(ask));
    assert_eq!(node.world.device(device).unwrap().limbo, gib(12));
    node.devices.get_mut(&device).unwrap().linger = Some(Nanos::ZERO);
    node.sample(device);
    assert!(node.granted(ask));
    assert_eq!(node.world.device(device).unwrap().limbo, Bytes::ZERO);
}

#[test]
fn a_sample_taken_before_a_death_does_not_end_its_limbo() {
    let (mut node, device) = Node::with_device(16);
    let stale = node.look_at(device);
    node.pass(Nanos::millis(1));
    node.devices.get_mut(&device).unwrap().linger = Some(secs(9));
    let (dying, dead) = node.run(spec(device, 0, 16));
    node.want(dead, device, gib(12));
    node.pass(Nanos::millis(1));
    node.finish(dying);
    node.tell(stale);
    assert_eq!(node.world.device(device).unwrap().limbo, gib(12));
}

#[test]
fn a_late_sample_from_before_a_death_does_not_shrink_its_limbo() {
    for listed in [true, false] {
        let (mut node, device) = Node::with_device(16);
        let hardware = node.devices.get_mut(&device).unwrap();
        (hardware.lists_processes, hardware.linger) = (listed, Some(secs(9)));
        let (dying, dead) = node.run(spec(device, 0, 16));
        node.want(dead, device, gib(1));
        let stale = node.look_at(device);
        node.pass(Nanos::millis(1));
        node.want(dead, device, gib(11));
        node.finish(dying);
        node.tell(stale);
        assert_eq!(node.world.device(device).unwrap().limbo, gib(12));
    }
}

#[test]
fn a_page_forged_to_zero_frees_nothing_at_death() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().linger = None;
    let (tenant, process) = node.run(spec(device, 0, 16));
    node.want(process, device, gib(12));
    node.sample(device);
    node.tell(Event::Usage {
        tenant,
        device,
        in_use: Bytes::ZERO,
    });
    node.kill(process);
    node.tell(Event::ProcessGone {
        process,
        charged: vec![],
    });
    assert_eq!(node.world.device(device).unwrap().limbo, gib(12));
}

#[test]
fn memory_of_strangers_counts_and_is_given_back() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(spec(device, 0, 16));
    node.devices.get_mut(&device).unwrap().foreign = gib(12);
    node.sample(device);
    let ask = node.want(process, device, gib(8));
    assert!(node.waits(ask));
    node.devices.get_mut(&device).unwrap().foreign = Bytes::ZERO;
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn facts_that_break_the_books_stop_all_grants_until_they_hold_again() {
    let (mut node, device) = Node::with_device(16);
    let (_, owner) = node.run(spec(device, 8, 8));
    let (lender, lending) = node.run(spec(device, 0, 8));
    node.want(lending, device, gib(8));
    node.want(owner, device, gib(4));
    node.free(lending, device, gib(3));
    node.devices.get_mut(&device).unwrap().foreign = gib(9);
    node.sample(device);
    let overdrawn = Notice::Overdrawn {
        device,
        by: gib(5),
        unmanaged: gib(9),
    };
    assert!(node.notices.contains(&overdrawn), "{:?}", node.notices);
    assert_eq!(
        node.world.account(lender, device).unwrap().grant,
        gib(5),
        "unused grants are called back"
    );
    let ask = node.want(owner, device, gib(1));
    assert!(
        node.waits(ask),
        "even within its request: the memory is not there"
    );
    node.devices.get_mut(&device).unwrap().foreign = gib(6);
    node.sample(device);
    assert!(node.granted(ask));
    assert!(node.notices.contains(&Notice::Balanced { device }));
}

#[test]
fn a_burst_pays_for_strangers_when_a_request_needs_the_memory() {
    let (mut node, device) = Node::with_device(16);
    let (borrower, first) = node.run(killable(device, 0, 16));
    let (_, owner) = node.run(spec(device, 8, 8));
    node.want(first, device, gib(8));
    node.devices.get_mut(&device).unwrap().foreign = gib(4);
    node.sample(device);
    assert!(
        node.guests.contains_key(&borrower),
        "no ask needs its memory yet"
    );
    let ask = node.want(owner, device, gib(8));
    assert!(node.granted(ask));
    assert!(!node.guests.contains_key(&borrower));
}

/// A tenant on a device of 16 GiB on which contexts take 1 GiB at most, and nothing at first.
fn with_one_of_little_overhead() -> (Node, DeviceId, (TenantId, ProcessId)) {
    let mut node = Node::with(Policy {
        most_overhead: gib(1),
        first_overhead: Bytes::ZERO,
        ..Policy::default()
    });
    let device = node.device(16);
    let one = node.run(spec(device, 0, 8));
    (node, device, one)
}

#[test]
fn what_a_tenant_holds_beyond_its_grant_is_noticed_and_counts() {
    let (mut node, device, (tenant, process)) = with_one_of_little_overhead();
    node.processes
        .get_mut(&process)
        .unwrap()
        .contexts
        .insert(device, gib(5));
    node.sample(device);
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.overhead, account.excess), (gib(1), gib(4)));
    assert!(node.notices.contains(&Notice::Excess {
        tenant,
        device,
        bytes: gib(4)
    }));
    assert_eq!(node.world.device(device).unwrap().taken, gib(5));
}

#[test]
fn what_a_tenant_holds_beyond_its_grant_follows_the_device_down_and_up() {
    let (mut node, device, (tenant, process)) = with_one_of_little_overhead();
    for (shown, excess, noticed) in [(5, 4, 1), (3, 2, 1), (6, 5, 1), (1, 0, 1), (2, 1, 2)] {
        let proc = node.processes.get_mut(&process).unwrap();
        proc.contexts.insert(device, gib(shown));
        node.sample(device);
        let account = node.world.account(tenant, device).unwrap();
        assert_eq!(account.excess, gib(excess));
        let notices = node.notices.iter();
        let of_excess = notices.filter(|notice| matches!(notice, Notice::Excess { .. }));
        assert_eq!(of_excess.count(), noticed);
    }
}

#[test]
fn without_a_process_list_limbo_ends_when_the_device_as_a_whole_shows_it() {
    let (mut node, device) = Node::with_device(16);
    let hardware = node.devices.get_mut(&device).unwrap();
    (hardware.lists_processes, hardware.linger) = (false, Some(secs(3)));
    let (dying, dead) = node.run(spec(device, 0, 16));
    let (_, waiter) = node.run(spec(device, 0, 16));
    node.want(dead, device, gib(12));
    node.want(waiter, device, gib(1));
    node.finish(dying);
    let ask = node.want(waiter, device, gib(8));
    node.pass(secs(2));
    node.sample(device);
    assert!(node.waits(ask));
    node.pass(secs(2));
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn without_a_process_list_strangers_count_too() {
    let (mut node, device) = Node::with_device(16);
    node.devices.get_mut(&device).unwrap().lists_processes = false;
    let (_, process) = node.run(spec(device, 0, 16));
    node.want(process, device, gib(2));
    node.devices.get_mut(&device).unwrap().foreign = gib(3);
    node.sample(device);
    assert_eq!(node.world.device(device).unwrap().unmanaged, gib(3));
}

#[test]
fn out_of_memory_inside_a_grant_is_resolved_when_facts_are_seen() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(spec(device, 8, 8));
    node.want(process, device, gib(4));
    node.devices.get_mut(&device).unwrap().foreign = gib(12);
    let ask = node.refused(process, device, gib(2));
    assert!(node.waits(ask), "the device is full");
    assert_eq!(
        node.world.device(device).unwrap().unmanaged,
        gib(12),
        "it was looked at at once"
    );
    node.pass(secs(5));
    node.devices.get_mut(&device).unwrap().foreign = gib(6);
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn a_driver_out_of_memory_inside_a_request_takes_back_a_burst() {
    let (mut node, device) = Node::with_device(16);
    let (borrower, first) = node.run(killable(device, 0, 16));
    let (_, owner) = node.run(spec(device, 8, 8));
    node.want(owner, device, gib(2));
    node.want(first, device, gib(8));
    node.devices.get_mut(&device).unwrap().foreign = gib(6);
    let ask = node.refused(owner, device, gib(2));
    assert!(node.granted(ask));
    assert!(!node.guests.contains_key(&borrower));
}

#[test]
fn a_driver_out_of_memory_beyond_a_request_goes_to_its_own_resolvers() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(resolving(&[Resolver::Fail], spec(device, 0, 8)));
    node.want(process, device, gib(4));
    node.devices.get_mut(&device).unwrap().foreign = gib(12);
    let ask = node.refused(process, device, gib(2));
    assert_eq!(node.denied(ask), Some(Denial::NoRoom { short: gib(2) }));
}

#[test]
fn a_lost_device_refuses_its_waiters_and_leaves_the_others() {
    let mut node = Node::new();
    let (device, other) = (node.device(16), node.device(16));
    let (_, holder) = node.run(spec(device, 0, 16));
    let (_, process) = node.run(spec(device, 0, 16));
    let (_, elsewhere) = node.run(spec(other, 0, 16));
    node.want(holder, device, gib(16));
    let ask = node.want(process, device, gib(8));
    node.tell(Event::DeviceLost { device });
    assert_eq!(node.denied(ask), Some(Denial::DeviceLost));
    let late = node.want(process, device, gib(1));
    assert_eq!(node.denied(late), Some(Denial::DeviceLost));
    let ask = node.want(elsewhere, other, gib(16));
    assert!(node.granted(ask));
}
