//! Moves that wait for the host store: what it gives a tenant that leaves, or that returns from
//! files, is progress.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, secs};
use crate::swap_spread::set_works;
use gpushare_core::{Bytes, DeviceId, Nanos, Notice, Place, ProcessId, TenantId};

/// Two tenants of a GiB on a card with room for one: the first is in, and the second asks. What
/// host memory the first gets is the test's.
fn two(obeys: Obeys) -> (Node, DeviceId, TenantId, ProcessId) {
    let mut all = policy(64);
    // A played guest heeds what is withheld of its return, whatever it obeys.
    all.swap.duplex = false;
    let mut node = Node::with(all);
    let device = node.device_of(Bytes::mib(1536));
    let (first, one) = node.run(swapping(device, 1024));
    node.store.hoards.insert(one);
    node.obeys(first, obeys);
    node.want(one, device, Bytes::mib(1024));
    node.live(secs(4));
    let (second, two) = node.run(swapping(device, 1024));
    node.guests.get_mut(&second).expect("it runs").moves.works = false;
    node.want(two, device, Bytes::mib(1024));
    (node, device, first, one)
}

/// So much time, in each second of which the store gives the process a range.
fn served(node: &mut Node, process: ProcessId, seconds: u64) {
    let tenant = node.processes[&process].tenant;
    for _ in 0..seconds {
        let proc = node.processes.get_mut(&process).expect("it lives");
        proc.host += Bytes::mib(64);
        node.tell_held(tenant);
        node.live(secs(1));
    }
}

fn said(node: &Node, what: impl Fn(&Notice) -> bool) -> usize {
    node.notices.iter().filter(|one| what(one)).count()
}

fn failures(node: &Node) -> usize {
    said(node, |one| matches!(one, Notice::DidNotLeave { .. }))
}

#[test]
fn a_victim_that_is_given_its_host_memory_piece_by_piece_goes_on() {
    let (mut node, device, first, one) = two(Obeys::Halting);
    let leaves = |node: &Node| node.place(first, device) == Place::Leaving;
    node.until("it is sealed", 5, leaves);
    served(&mut node, one, 8);
    assert!(failures(&node) == 0 && leaves(&node));
    // Nothing more comes.
    node.live(Nanos::millis(5500));
    assert_eq!(failures(&node), 1);
}

#[test]
fn a_victim_that_takes_host_memory_without_end_is_found_out() {
    let (mut node, device, first, one) = two(Obeys::Halting);
    let leaves = |node: &Node| node.place(first, device) == Place::Leaving;
    node.until("it is sealed", 5, leaves);
    served(&mut node, one, 14);
    assert_eq!(failures(&node), 1);
}

#[test]
fn a_return_from_files_is_slow_only_while_no_range_is_served() {
    let (mut node, device, first, one) = two(Obeys::Honestly);
    node.store.hoards.remove(&one);
    let place = |place| move |node: &Node| node.place(first, device) == place;
    node.until("it is out", 20, place(Place::Out));
    node.store.hoards.insert(one);
    node.obeys(first, Obeys::Silently);
    node.until("it returns", 60, place(Place::Entering));
    let slow = |one: &Notice| matches!(one, Notice::SlowReturn { .. });
    served(&mut node, one, 15);
    assert_eq!(node.place(first, device), Place::Entering);
    assert_eq!(said(&node, slow), 0);
    node.live(Nanos::millis(5500));
    assert_eq!(said(&node, slow), 1);
}

/// How often a tenant finds no room in eight seconds in which its device has less than its accounts
/// say, and in which the store gives it memory if it `is_served`.
fn misses(is_served: bool) -> usize {
    let (mut node, device, first, one) = two(Obeys::Honestly);
    node.store.hoards.remove(&one);
    set_works(&mut node, first, false);
    node.until("it is out", 20, |node| {
        node.place(first, device) == Place::Out
    });
    let mut others = node.guests.keys().copied();
    let second = others.find(|tenant| *tenant != first).expect("it runs");
    node.finish(second);
    node.live(secs(1));
    node.store.hoards.insert(one);
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::mib(1024);
    node.calls(first, device);
    match is_served {
        true => served(&mut node, one, 8),
        false => node.live(secs(8)),
    }
    assert_eq!(node.place(first, device), Place::Entering);
    said(&node, |one| matches!(one, Notice::NoReturn { .. }))
}

#[test]
fn a_refused_return_is_asked_again_as_soon_while_it_is_given_host_memory() {
    let [alone, served] = [false, true].map(misses);
    assert!(alone >= 3 && served == alone, "{alone} and {served}");
}
