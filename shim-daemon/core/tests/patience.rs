//! How long an ask waits that is one of several of the same call: for the call's remaining time,
//! and no longer.

use crate::node::{Node, gib, secs, spec};
use gpushare_core::{Denial, DeviceId, Nanos, TenantSpec};

/// All memory is taken by a tenant that may not be ended, and an unmanaged process took the memory
/// guaranteed to one asker.
fn full(request: u64) -> (Node, DeviceId, gpushare_core::ProcessId) {
    let (mut node, device) = Node::with_device(16);
    let (_, process) = node.run(TenantSpec {
        wait_timeout: secs(5),
        ..spec(device, request, 16)
    });
    node.devices.get_mut(&device).expect("it is there").foreign = gib(16);
    node.guarantees = false;
    node.sample(device);
    (node, device, process)
}

fn ends_after(request: u64, patience: Option<Nanos>, least: Nanos, most: Nanos) {
    let (mut node, device, process) = full(request);
    let ask = node.want_with(process, device, gib(4), patience);
    node.pass(least);
    assert!(node.waits(ask), "{patience:?}: it waits for {least:?}");
    node.pass(most - least);
    let denied = node.denied(ask);
    assert!(
        matches!(denied, Some(Denial::TimedOut { .. } | Denial::Cycle)),
        "{patience:?}: {denied:?} after {most:?}"
    );
}

#[test]
fn above_its_request_an_ask_waits_for_the_timeout_or_what_is_left_of_it() {
    let soon = Nanos::millis(100);
    ends_after(0, None, secs(5) - soon, secs(5) + soon);
    ends_after(0, Some(secs(2)), secs(2) - soon, secs(2) + soon);
    ends_after(0, Some(secs(60)), secs(5) - soon, secs(5) + soon);
}

#[test]
fn within_its_request_an_ask_waits_as_long_as_ending_a_victim_takes() {
    let soon = Nanos::millis(100);
    ends_after(8, None, secs(17) - soon, secs(17) + soon);
    ends_after(8, Some(secs(47)), secs(17) - soon, secs(17) + soon);
}

#[test]
fn within_its_request_an_ask_waits_no_longer_than_its_call_has_left() {
    let soon = Nanos::millis(100);
    ends_after(8, Some(secs(3)), secs(3) - soon, secs(3) + soon);
}
