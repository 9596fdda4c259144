//! Tenants that free memory while it is on the host.

use crate::node::swap::swapping;
use crate::node::{Node, secs};
use gpushare_core::{Bytes, DeviceId, Event, Place, ProcessId, TenantId};

fn mib(count: u64) -> Bytes {
    Bytes::mib(count)
}

/// A tenant that is out, all but 64 MiB, which cannot move.
fn out() -> (Node, DeviceId, TenantId, ProcessId) {
    let (mut node, device) = Node::swaps(2048, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
    (moves.works, moves.residue) = (false, mib(64));
    node.tell(Event::Suspend { tenant });
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert_eq!(node.physical(device), mib(64));
    (node, device, tenant, process)
}

#[test]
fn what_stays_on_the_card_is_counted_while_the_rest_is_freed_on_the_host() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(900));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(124), mib(60)));
    assert_eq!(account.in_use - account.away, node.physical(device));
}

#[test]
fn what_is_freed_on_the_host_is_away_no_more() {
    let (mut node, device, tenant, process) = out();
    node.free(process, device, mib(960));
    let account = node.world.account(tenant, device).expect("it runs");
    assert_eq!((account.in_use, account.away), (mib(64), Bytes::ZERO));
}
