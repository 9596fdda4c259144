//! Whose memory goes on from the host to files first, of tenants that wait to return.

use crate::node::swap::swapping;
use crate::node::{Node, mib, ranked, secs};
use gpushare_core::{DeviceId, Event, Nanos, Notice, Place, TenantId};

/// Four tenants that do not fit together: each has the card for so long, one after the other, and
/// then they wait to return but the last one, the first one first.
fn waiting(seconds: [u64; 4], priorities: [u16; 4]) -> (Node, [TenantId; 4]) {
    let (mut node, device) = Node::swaps(1536, 64);
    let all = priorities.map(|priority| {
        let (tenant, process) = node.run(ranked(priority, swapping(device, 1024)));
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        (tenant, process)
    });
    let mut before: Option<TenantId> = None;
    for ((tenant, process), seconds) in all.into_iter().zip(seconds) {
        if let Some(tenant) = before.replace(tenant) {
            node.tell(Event::Suspend { tenant });
            node.live(secs(2));
        }
        let ask = node.want(process, device, mib(1024));
        assert!(node.granted(ask));
        works(&mut node, tenant, secs(seconds));
    }
    let all = all.map(|(tenant, _)| tenant);
    calls(&mut node, device, all);
    (node, all)
}

fn works(node: &mut Node, tenant: TenantId, time: Nanos) {
    let end = node.now + time;
    while node.now < end {
        node.tell(Event::Worked { tenant });
        node.live(Nanos::millis(250));
    }
}

fn calls(node: &mut Node, device: DeviceId, [first, second, third, last]: [TenantId; 4]) {
    node.tell(Event::Worked { tenant: last });
    for tenant in [first, second, third] {
        node.pass(Nanos::millis(10));
        node.calls(tenant, device);
        assert_eq!(node.place(tenant, device), Place::Out);
    }
}

#[test]
fn the_next_one_to_return_is_stored_last_however_late_it_has_called() {
    let (mut node, [most, more, least, last]) = waiting([30, 20, 3, 0], [500; 4]);
    assert_eq!(node.world.spill_order(), [most, more, least]);
    let returned = |node: &Node| {
        let all = node.notices.iter();
        let first = |one: &Notice| match one {
            Notice::Returned { tenant, .. } => Some(*tenant),
            _ => None,
        };
        all.filter_map(first).next()
    };
    while returned(&node).is_none() {
        works(&mut node, last, Nanos::millis(250));
    }
    assert_eq!(returned(&node), Some(least));
}

#[test]
fn a_higher_priority_is_stored_later_however_long_it_had_the_card() {
    let (node, [better, more, least, _]) = waiting([30, 20, 3, 0], [900, 500, 500, 500]);
    assert_eq!(node.world.spill_order(), [more, least, better]);
}
