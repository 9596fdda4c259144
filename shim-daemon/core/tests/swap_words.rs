//! Processes that say that more of their memory is on the host than they have. Others lose nothing
//! by that.

use crate::node::late::RECOVERY;
use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, mib, secs};
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Place, ProcessId, Shown, TenantId, Told};

/// A process says this about the order in force.
fn says(node: &mut Node, device: DeviceId, process: ProcessId, told: Told) {
    let tenant = node.processes[&process].tenant;
    let (epoch, _) = node.guests[&tenant].moves.orders[&device];
    node.tell(Event::Moved {
        process,
        device,
        epoch,
        told,
    });
}

/// Three tenants of a GiB on a card of two and a half, with 64 GiB of host memory. The first one
/// was asked to leave, said that so much of it left, and moves nothing.
fn boasting(away: Bytes) -> (Node, DeviceId, [TenantId; 3]) {
    let (mut node, device) = Node::swaps(2560, 64);
    node.guarantees = false;
    let all = [(); 3].map(|()| {
        let (tenant, process) = node.run(swapping(device, 1024));
        if node.guests.len() == 1 {
            node.obeys(tenant, Obeys::Silently);
        }
        node.want(process, device, mib(1024));
        node.live(secs(1));
        tenant
    });
    let liar = node.processes_of(all[0])[0];
    node.until("it is asked", 10, |node| {
        node.place(all[0], device) == Place::Sealing
    });
    says(&mut node, device, liar, Told::Sealed);
    assert_eq!(node.place(all[0], device), Place::Leaving);
    let residue = Bytes::ZERO;
    says(&mut node, device, liar, Told::Away { away, residue });
    node.live(secs(3));
    (node, device, all)
}

#[test]
fn host_memory_is_reserved_for_no_more_than_a_tenant_has() {
    for away in [mib(1024), Bytes::gib(63), Bytes::MAX] {
        let (mut node, device, [liar, ..]) = boasting(away);
        assert_eq!(node.place(liar, device), Place::Entering);
        assert!(node.world.host().reserved <= mib(2048), "{away}");
        node.world.check().expect("the sums are right");
        node.finish(liar);
        assert!(node.world.host().reserved <= mib(1024), "{away}");
    }
}

#[test]
fn beside_one_that_said_too_much_others_take_turns() {
    let (mut node, device, [_, one, other]) = boasting(Bytes::gib(63));
    for (out, next) in [(one, other), (other, one), (one, other)] {
        node.until("the other one is in", 10, |node| {
            node.place(next, device) == Place::In && node.place(out, device) == Place::Out
        });
    }
}

/// A tenant of the previous daemon with a GiB of which so much is out, and says `away`.
fn found(out: u64, away: Bytes) -> (Node, DeviceId, TenantId) {
    let (mut node, device) = Node::restarted(1536, 64);
    node.guarantees = false;
    let (tenant, processes) = node.survives(device, &[(1024, out)]);
    node.comes(processes[0]);
    node.tell(Event::Shown {
        process: processes[0],
        device,
        shown: Shown::Out { away, rests: true },
    });
    (node, device, tenant)
}

#[test]
fn a_late_process_is_believed_no_more_than_its_tenant_may_have() {
    for away in [mib(1024), Bytes::gib(63), Bytes::MAX] {
        let (mut node, device, tenant) = found(1024, away);
        let reserved = node.world.host().reserved;
        assert!(reserved >= mib(1024), "{reserved}");
        assert!(reserved <= mib(1024 + 256 + 64), "{reserved}");
        let (other, process) = node.run(swapping(device, 1024));
        node.pass(RECOVERY + Nanos::millis(10));
        node.want(process, device, mib(256));
        node.finish(tenant);
        node.world.check().expect("the sums are right");
        assert!(node.world.place(other, device).is_some());
        assert_eq!(node.world.host().reserved, Bytes::ZERO, "{away}");
    }
}
