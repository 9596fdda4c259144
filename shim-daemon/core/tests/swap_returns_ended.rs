//! Which returns make others leave or end for their room: none of a tenant that is being ended
//! itself.

use crate::node::swap::swapping;
use crate::node::{Manners, Node, gib, killable, secs};
use gpushare_core::{DeviceId, Event, Nanos, Place, TenantId, TenantSpec};

/// A card of 16 GiB with a tenant that is out and has 8 within its request, and others
/// of these terms that have all they may.
fn beside<const N: usize>(
    of: impl Fn(DeviceId) -> [TenantSpec; N],
) -> (Node, DeviceId, TenantId, [TenantId; N]) {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let mut terms = swapping(device, 8 << 10);
    terms.quotas[0].1.request = gib(8);
    let (out, process) = node.run(terms);
    let guest = node.guests.get_mut(&out).expect("it runs");
    (guest.moves.works, guest.manners) = (false, Manners::Stubborn);
    node.want(process, device, gib(8));
    node.tell(Event::Suspend { tenant: out });
    node.until("it is out", 60, |node| {
        node.place(out, device) == Place::Out
    });
    let others = of(device).map(|terms| {
        let limit = terms.quotas[0].1.limit;
        let (other, process) = node.run(terms);
        let ask = node.want(process, device, limit);
        assert!(node.granted(ask));
        node.guests.get_mut(&other).expect("it runs").moves.works = false;
        other
    });
    (node, device, out, others)
}

/// The run limit of a tenant is over.
fn ends(node: &mut Node, tenant: TenantId) {
    let guest = node.guests.get_mut(&tenant).expect("it runs");
    guest.spec.run_limit = Some(Nanos(1));
    let spec = guest.spec.clone();
    node.tell(Event::Set { tenant, spec });
    assert_eq!(node.guests[&tenant].signals.len(), 1);
}

#[test]
fn nobody_is_ended_for_the_return_of_a_tenant_that_is_being_ended() {
    for ending in [false, true] {
        let (mut node, device, out, [other]) = beside(|device| [killable(device, 0, 16)]);
        if ending {
            ends(&mut node, out);
        }
        node.calls(out, device);
        node.live(secs(5));
        assert_eq!(node.guests.contains_key(&other), ending);
        let place = if ending { Place::Out } else { Place::In };
        assert_eq!(node.place(out, device), place);
    }
}

#[test]
fn nobody_is_moved_for_the_return_of_a_tenant_that_is_being_ended() {
    for ending in [false, true] {
        let terms = |device| [swapping(device, 8 << 10)];
        let (mut node, device, out, [other]) = beside(terms);
        node.devices.get_mut(&device).expect("it exists").foreign = gib(4);
        node.live(secs(1));
        if ending {
            ends(&mut node, out);
        }
        node.calls(out, device);
        node.live(secs(8));
        let [first, second] = match ending {
            true => [Place::Out, Place::In],
            false => [Place::In, Place::Out],
        };
        assert_eq!(node.place(out, device), first);
        assert_eq!(node.place(other, device), second);
    }
}

#[test]
fn a_tenant_that_is_being_ended_returns_where_there_is_room() {
    let (mut node, device, out, [other]) = beside(|device| [killable(device, 0, 16)]);
    ends(&mut node, out);
    node.calls(out, device);
    node.finish(other);
    node.live(secs(2));
    assert_eq!(node.place(out, device), Place::In);
}
