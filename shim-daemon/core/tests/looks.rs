//! While an ask waits for bytes that the books say are free, the device is looked at again: soon,
//! ever less often, and never more than so many times a second.

#![allow(clippy::print_stdout, reason = "figures for people")]

use crate::node::{Node, gib, secs, spec};
use gpushare_core::{AskKey, Bytes, DeviceId, Nanos, Notice, ProcessId};

/// A tenant holds 10 of 16 GiB, as a look has shown; another wants as much.
fn contended(returns: Nanos) -> (Node, DeviceId, ProcessId, AskKey) {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 12));
    let (_, waiter) = node.run(spec(device, 0, 12));
    let hardware = node.devices.get_mut(&device).expect("it exists");
    (hardware.returns, hardware.linger) = (returns, Some(returns));
    node.want(holder, device, gib(10));
    node.sample(device);
    let ask = node.want(waiter, device, gib(10));
    node.pass(secs(1));
    assert!(node.waits(ask));
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .looks
        .clear();
    (node, device, holder, ask)
}

/// How long after now the ask is granted, with nothing but the world's own timers.
fn granted_after(node: &mut Node, ask: AskKey) -> Nanos {
    let start = node.now;
    while node.waits(ask) {
        assert!(node.now - start < secs(2), "it is never looked at again");
        node.step();
    }
    assert!(node.granted(ask));
    node.now - start
}

fn looks(node: &Node, device: DeviceId) -> usize {
    node.devices[&device].looks.len()
}

#[test]
fn what_a_driver_returns_at_once_is_handed_on_after_one_look() {
    let (mut node, device, holder, ask) = contended(Nanos::ZERO);
    node.free(holder, device, gib(10));
    assert!(granted_after(&mut node, ask) < Nanos::millis(1));
    assert_eq!(looks(&node, device), 1);
}

#[test]
fn what_a_driver_returns_late_is_handed_on_soon_after() {
    for late in [1, 2, 3, 5, 10, 30, 100, 200, 500] {
        for dies in [false, true] {
            let (mut node, device, holder, ask) = contended(Nanos::millis(late));
            if dies {
                node.exit(holder);
            } else {
                node.free(holder, device, gib(10));
            }
            let after = granted_after(&mut node, ask);
            println!(
                "returned after {late} ms, {}: handed on after {} us, {} looks",
                if dies { "by death" } else { "by a free" },
                after.0 / 1000,
                looks(&node, device)
            );
            let most = if late <= 200 { late + 16 } else { 2 * late };
            assert!(after <= Nanos::millis(most), "{late}: {after:?}");
            assert!(looks(&node, device) <= 23);
        }
    }
}

#[test]
fn nobody_looks_again_where_nobody_waits() {
    let (mut node, device) = Node::with_device(16);
    let (_, holder) = node.run(spec(device, 0, 12));
    node.devices.get_mut(&device).unwrap().returns = secs(9);
    node.want(holder, device, gib(10));
    node.sample(device);
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .looks
        .clear();
    node.free(holder, device, gib(10));
    node.pass(secs(5));
    assert_eq!(looks(&node, device), 0);
}

#[test]
fn nobody_looks_again_for_what_the_books_say_is_taken() {
    let (mut node, device, _, ask) = contended(Nanos::ZERO);
    node.pass(secs(5));
    assert!(node.waits(ask));
    assert_eq!(looks(&node, device), 0);
}

#[test]
fn memory_that_never_comes_back_is_looked_at_ever_less_often() {
    let (mut node, device, holder, ask) = contended(secs(3600));
    node.free(holder, device, gib(10));
    node.pass(secs(20));
    assert!(node.waits(ask));
    assert!(looks(&node, device) <= 23, "{}", looks(&node, device));
}

#[test]
fn frees_without_end_are_looked_at_no_more_often_than_is_said() {
    let (mut node, device, holder, ask) = contended(secs(3600));
    for _ in 0..10_000 {
        node.free(holder, device, Bytes::mib(1));
        node.pass(Nanos::millis(1));
    }
    assert!(node.waits(ask));
    let looks = looks(&node, device);
    println!("{looks} looks in 10 s of 1,000 frees a second");
    assert!(looks <= 16 + 10 * 64, "{looks} in 10 s");
    assert!(looks > 100, "{looks}: memory freed later is late");
}

#[test]
fn each_state_of_a_wait_is_told_once() {
    let (mut node, device, holder, ask) = contended(Nanos::millis(300));
    node.free(holder, device, gib(10));
    granted_after(&mut node, ask);
    let mut told: Vec<_> = Vec::new();
    for notice in &node.notices {
        if let Notice::Waiting { ask: of, by, .. } = notice
            && *of == ask
        {
            assert!(!told.contains(by), "{by:?} is told twice");
            told.push(*by);
        }
    }
    assert!(!told.is_empty());
}

#[test]
fn a_refusal_of_the_driver_is_looked_into_until_there_is_room() {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(spec(device, 0, 16));
    let hardware = node.devices.get_mut(&device).expect("it exists");
    (hardware.returns, hardware.foreign) = (Nanos::millis(50), gib(4));
    node.want(process, device, gib(12));
    node.sample(device);
    node.free(process, device, gib(8));
    node.pass(Nanos::millis(1));
    let ask = node.refused(process, device, gib(4));
    assert!(node.waits(ask));
    assert!(granted_after(&mut node, ask) <= Nanos::millis(101));
}
