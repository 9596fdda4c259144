//! Tenants all of whose memory lies in a file of a command: a return that is taken back needs
//! nothing of the host.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, mib, secs};
use gpushare_core::{Bytes, DeviceId, Event, Held, Nanos, Notice, Place, TenantId};

/// A tenant of a GiB that is suspended, to a file or not, and one that always works, on a card of
/// so many MiB, with two GiB of host memory.
fn suspended(card: u64, to_file: bool) -> (Node, DeviceId, [TenantId; 2]) {
    let mut all = policy(1);
    all.swap.host = mib(2048);
    let mut node = Node::with(all);
    node.guarantees = false;
    let device = node.device_of(mib(card));
    let run = |node: &mut Node| {
        let (tenant, process) = node.run(swapping(device, 1024));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (false, 1 << 30);
        node.want(process, device, mib(1024));
        tenant
    };
    let first = run(&mut node);
    node.tell(Event::Suspend { tenant: first });
    node.live(secs(5));
    assert_eq!(node.place(first, device), Place::Out);
    if to_file {
        node.is_elsewhere(first);
    }
    let second = run(&mut node);
    node.live(secs(30));
    for tenant in [first, second] {
        node.guests.get_mut(&tenant).expect("it runs").moves.works = true;
    }
    (node, device, [first, second])
}

fn is_taken_back(node: &Node) -> bool {
    let told = |one: &Notice| matches!(one, Notice::NoReturn { .. });
    node.notices.iter().any(told)
}

#[test]
fn a_return_from_a_file_that_is_taken_back_reserves_nothing() {
    for to_file in [true, false] {
        let (mut node, device, [first, second]) = suspended(1536, to_file);
        node.obeys(second, Obeys::Failing);
        node.calls(first, device);
        node.until("the return is taken back", 60, is_taken_back);
        let mut most = Bytes::ZERO;
        for _ in 0..40 {
            node.live(Nanos::millis(50));
            if node.place(second, device) == Place::In {
                most = most.max(node.world.host().reserved);
            }
        }
        let own = if to_file { Bytes::ZERO } else { mib(1024) };
        assert_eq!(most, own);
        node.obeys(second, Obeys::Honestly);
        node.until("the other has its turn", 100, |node| {
            node.place(first, device) == Place::In
        });
    }
}

#[test]
fn a_return_from_a_file_waits_its_turn_where_the_host_is_full() {
    let (mut node, device, [first, second]) = suspended(3 << 10, true);
    // The other one has what its own move needs.
    let (third, process) = node.run(swapping(device, 64));
    let memory = node.world.host().free();
    node.processes.get_mut(&process).expect("it runs").host = memory;
    node.store.hoards.insert(process);
    let held = Held {
        memory,
        ..Held::default()
    };
    node.tell(Event::Held {
        tenant: third,
        held,
    });
    node.devices.get_mut(&device).expect("it exists").foreign = mib(1280);
    node.calls(first, device);
    node.until("its turn has come", 60, |node| {
        node.place(first, device) == Place::In && node.place(second, device) != Place::In
    });
    assert!(is_taken_back(&node));
}
