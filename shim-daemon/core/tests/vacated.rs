//! A process that becomes a program without CUDA lives on without memory: its charges are limbo,
//! and then free.

use crate::node::{Node, gib, secs, spec};
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Policy, ProcessId, TenantId};

/// A tenant of two processes, one of which holds 3 of 4 GiB and a context of 1 GiB.
fn tenant() -> (Node, DeviceId, TenantId, ProcessId, ProcessId) {
    let mut node = Node::with(Policy {
        first_overhead: gib(1),
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(16);
    let (tenant, holder) = node.run(spec(device, 4, 4));
    node.sample(device);
    let other = node.start(tenant);
    node.want(holder, device, gib(3));
    node.sample(device);
    (node, device, tenant, holder, other)
}

/// The process becomes another program; its memory stays on the device if `kept` (by a forked
/// child, say).
fn becomes_another(node: &mut Node, process: ProcessId, device: DeviceId, kept: bool) {
    let proc = node.processes.get_mut(&process).expect("it lives");
    let charged = proc.charged(device);
    let holds = proc.holds(device);
    proc.charged.clear();
    proc.contexts.clear();
    let now = node.now;
    let hardware = node.devices.get_mut(&device).expect("it exists");
    if kept {
        hardware.linger = None;
        hardware.died(process, holds, now);
    }
    node.tell(Event::Vacated {
        process,
        device,
        charged,
    });
}

#[test]
fn what_a_former_program_was_charged_is_free_once_the_device_was_seen() {
    let (mut node, device, tenant, holder, other) = tenant();
    becomes_another(&mut node, holder, device, false);
    node.live(secs(3));
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.limbo, account.overhead), (Bytes::ZERO, gib(1)));
    let ask = node.want(other, device, gib(4));
    assert!(node.granted(ask));
}

#[test]
fn what_the_device_still_shows_of_it_counts_against_the_limit() {
    let (mut node, device, tenant, holder, other) = tenant();
    becomes_another(&mut node, holder, device, true);
    node.live(secs(5));
    assert_eq!(node.world.account(tenant, device).unwrap().limbo, gib(4));
    let ask = node.want(other, device, gib(2));
    assert!(node.waits(ask));
    node.devices.get_mut(&device).expect("it exists").linger = Some(Nanos::ZERO);
    node.sample(device);
    assert!(node.granted(ask));
}

#[test]
fn one_that_was_taken_for_another_program_and_comes_back_is_there_again() {
    let (mut node, device, tenant, holder, _) = tenant();
    becomes_another(&mut node, holder, device, false);
    node.live(secs(3));
    node.open(holder, device);
    let ask = node.want(holder, device, gib(2));
    node.live(secs(1));
    assert!(node.granted(ask));
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.in_use, account.overhead), (gib(2), gib(2)));
}

#[test]
fn its_death_afterwards_is_only_a_death() {
    let (mut node, device, tenant, holder, other) = tenant();
    becomes_another(&mut node, holder, device, true);
    node.exit(holder);
    node.live(secs(5));
    node.devices.get_mut(&device).expect("it exists").linger = Some(Nanos::ZERO);
    node.sample(device);
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.limbo, account.overhead), (Bytes::ZERO, gib(1)));
    let ask = node.want(other, device, gib(4));
    assert!(node.granted(ask));
}
