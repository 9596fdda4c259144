//! Estimated reservations for contexts: how soon they are measured, which asks wait for that, and
//! when they are released.

use crate::node::{Node, gib, resolving, secs, spec};
use gpushare_core::{Bytes, Denial, DeviceId, Event, Nanos, Notice, Policy, ProcessId, Resolver};

/// Contexts are expected to take 512 MiB and take 64.
fn node(gib: u64) -> (Node, DeviceId) {
    let mut node = Node::with(Policy {
        step: Bytes(1),
        ..Policy::default()
    });
    let device = node.device(gib);
    node.devices.get_mut(&device).expect("it is there").context = Bytes::mib(64);
    (node, device)
}

fn failing(device: DeviceId) -> gpushare_core::TenantSpec {
    resolving(&[Resolver::Fail], spec(device, 0, 16))
}

fn made(node: &mut Node, process: ProcessId, device: DeviceId) {
    node.tell(Event::ContextMade { process, device });
}

fn has_context(node: &Node, process: ProcessId, device: DeviceId) -> bool {
    node.processes[&process].contexts.contains_key(&device)
}

/// Takes a process's context off the device: it is still being made, or will never be.
fn unmade(node: &mut Node, process: ProcessId, device: DeviceId) {
    let process = node.processes.get_mut(&process).expect("it was started");
    process.contexts.remove(&device);
}

#[test]
fn sixteen_contexts_that_fit_are_all_made_once_the_first_is_measured() {
    for resolver in [Resolver::Fail, Resolver::Wait] {
        let (mut node, device) = node(4);
        let tenant = node.register(resolving(&[resolver], spec(device, 0, 4)));
        let processes: Vec<_> = (0..16).map(|_| node.start(tenant)).collect();
        let began = node.now;
        for process in &processes {
            if has_context(&node, *process, device) {
                made(&mut node, *process, device);
            }
        }
        node.pass(Nanos::millis(50));
        assert!(
            processes.iter().all(|it| has_context(&node, *it, device)),
            "{resolver:?}"
        );
        assert!(node.now - began <= Nanos::millis(51));
    }
}

#[test]
fn a_context_that_is_told_of_is_looked_at_at_once() {
    let (mut node, device) = node(16);
    let (tenant, process) = node.run(spec(device, 1, 1));
    let account = |node: &Node| node.world.account(tenant, device).unwrap();
    assert_eq!(account(&node).overhead, Bytes::mib(512));
    made(&mut node, process, device);
    assert_eq!(account(&node).overhead, Bytes::mib(64));
    assert_eq!(node.world.context_cost(device), Bytes::mib(64));
}

#[test]
fn what_is_learned_of_one_context_is_set_aside_for_those_still_being_made() {
    let (mut node, device) = node(16);
    let (_, process) = node.run(spec(device, 1, 1));
    let (second, other) = node.run(spec(device, 1, 1));
    unmade(&mut node, other, device);
    made(&mut node, process, device);
    let account = node.world.account(second, device).unwrap();
    assert_eq!(account.overhead, Bytes::mib(64));
    assert_eq!(
        node.world.device(device).unwrap().firm,
        gib(2) + Bytes::mib(128)
    );
}

#[test]
fn with_fail_an_ask_is_refused_after_a_look_that_shows_no_room() {
    let (mut node, device) = node(4);
    let (_, holder) = node.run(spec(device, 0, 4));
    made(&mut node, holder, device);
    let ask = node.want(holder, device, gib(3));
    assert!(node.granted(ask));
    let (_, process) = node.run(failing(device));
    made(&mut node, process, device);
    let began = node.now;
    let ask = node.want(process, device, gib(2));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    assert!(node.now - began < Nanos::millis(1), "one look");
}

#[test]
fn with_fail_an_ask_waits_no_longer_for_guesses_than_it_may() {
    let (mut node, device) = node(4);
    let (_, guess) = node.run(spec(device, 0, 4));
    unmade(&mut node, guess, device);
    let (_, process) = node.run(failing(device));
    unmade(&mut node, process, device);
    let ask = node.want(process, device, gib(4) - Bytes::mib(256));
    assert!(node.waits(ask), "1 GiB is set aside by guess");
    node.pass(secs(1));
    assert!(node.waits(ask));
    node.pass(secs(2));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
}

#[test]
fn where_contexts_are_never_measured_fail_refuses_after_one_look() {
    let (mut node, device) = node(4);
    node.devices.get_mut(&device).unwrap().lists_processes = false;
    node.run(spec(device, 0, 4));
    let (_, process) = node.run(failing(device));
    node.live(secs(3));
    let began = node.now;
    let ask = node.want(process, device, gib(4) - Bytes::mib(256));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    assert!(node.now - began < Nanos::millis(1), "one look");
}

#[test]
fn an_ask_that_may_not_wait_is_refused_without_a_look() {
    let (mut node, device) = node(4);
    let (_, guess) = node.run(spec(device, 0, 4));
    unmade(&mut node, guess, device);
    let (_, process) = node.run(failing(device));
    let ask = node.want_with(process, device, gib(4) - Bytes::mib(256), Some(Nanos::ZERO));
    node.pass(Nanos::ZERO);
    assert!(node.denied(ask).is_some());
}

#[test]
fn what_was_set_aside_for_a_context_that_never_comes_is_given_up() {
    let (mut node, device) = node(8);
    let tenant = node.register(spec(device, 0, 8));
    let forged: Vec<_> = (0..15).map(|_| node.start(tenant)).collect();
    for process in &forged {
        unmade(&mut node, *process, device);
    }
    assert!(node.world.device(device).unwrap().taken >= Bytes::mib(15 * 512));
    node.live(secs(9));
    assert!(node.world.device(device).unwrap().taken >= Bytes::mib(15 * 512));
    node.live(secs(2));
    assert_eq!(node.world.device(device).unwrap().taken, Bytes::ZERO);
    let lapsed = node.notices.iter();
    let lapsed = lapsed.filter(|notice| matches!(notice, Notice::Lapsed { .. }));
    assert_eq!(lapsed.count(), 15, "each is said once");
    node.live(secs(20));
    let again = node.open(forged[0], device);
    assert!(node.granted(again));
    unmade(&mut node, forged[0], device);
    assert_eq!(
        node.world.device(device).unwrap().taken,
        Bytes::ZERO,
        "nothing is set aside for it a second time"
    );
}

#[test]
fn a_context_that_comes_late_is_measured_when_it_does() {
    let (mut node, device) = node(8);
    let (tenant, process) = node.run(spec(device, 0, 8));
    unmade(&mut node, process, device);
    node.live(secs(11));
    let overhead = |node: &Node| node.world.account(tenant, device).unwrap().overhead;
    assert_eq!(overhead(&node), Bytes::ZERO);
    let late = node.processes.get_mut(&process).expect("it was started");
    late.contexts.insert(device, Bytes::mib(64));
    made(&mut node, process, device);
    assert_eq!(overhead(&node), Bytes::mib(64));
}

#[test]
fn a_context_that_was_seen_is_never_given_up() {
    let (mut node, device) = node(8);
    let (tenant, _) = node.run(spec(device, 0, 8));
    node.live(secs(60));
    assert_eq!(
        node.world.account(tenant, device).unwrap().overhead,
        Bytes::mib(64)
    );
}

#[test]
fn where_processes_are_not_listed_nothing_is_given_up() {
    let (mut node, device) = node(8);
    node.devices.get_mut(&device).unwrap().lists_processes = false;
    let (tenant, _) = node.run(spec(device, 0, 8));
    node.live(secs(60));
    assert_eq!(
        node.world.account(tenant, device).unwrap().overhead,
        Bytes::mib(512)
    );
}

#[test]
fn a_process_that_registers_anew_holds_no_more_than_one_reservation() {
    let (mut node, device) = node(8);
    let tenant = node.register(spec(device, 0, 8));
    let mut process = node.start(tenant);
    for _ in 0..15 {
        unmade(&mut node, process, device);
        node.tell(Event::ProcessReplaced {
            process,
            charged: vec![],
        });
        node.kill(process);
        process = node.start(tenant);
    }
    let taken = node.world.device(device).unwrap().taken;
    assert_eq!(taken, Bytes::mib(512));
}

/// A program asks for its first context where 512 MiB are not free, and 480 are once the first
/// context is measured. Whether it has it then.
fn is_served_once_measured(context: Bytes) -> bool {
    let (mut node, device) = node(1);
    node.devices.get_mut(&device).expect("it is there").context = context;
    let (_, first) = node.run(spec(device, 0, 1));
    unmade(&mut node, first, device);
    let ask = node.want(first, device, Bytes::mib(480));
    assert!(node.granted(ask));
    let (_, second) = node.run(spec(device, 0, 1));
    assert!(!has_context(&node, second, device));
    node.processes
        .get_mut(&first)
        .expect("it was started")
        .contexts
        .insert(device, context);
    made(&mut node, first, device);
    node.pass(secs(1));
    has_context(&node, second, device)
}

#[test]
fn an_ask_for_a_context_waits_for_what_one_is_known_to_take_by_then() {
    assert!(is_served_once_measured(Bytes::mib(64)));
    assert!(!is_served_once_measured(Bytes::mib(300)));
}
