//! Of tenants that take turns on a card each has it for about the same time, however long one takes
//! to leave.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, secs};
use gpushare_core::{Bytes, DeviceId, Nanos, Place, TenantId};

const STEP: Nanos = Nanos::millis(20);

/// Three tenants of a GiB that always work, on a card with room for one.
fn three() -> (Node, DeviceId, [TenantId; 3]) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let all = [(); 3].map(|()| {
        let (tenant, process) = node.run(swapping(device, 1024));
        node.want(process, device, Bytes::mib(1024));
        node.live(secs(4));
        tenant
    });
    (node, device, all)
}

/// How long each has the card of ten minutes, in milliseconds: from its return until its memory
/// begins to leave. Before each step `each` is told since when the first one has it.
fn times(
    (mut node, device, all): (Node, DeviceId, [TenantId; 3]),
    mut each: impl FnMut(&mut Node, Option<Nanos>),
) -> [u64; 3] {
    let (end, mut times, mut since) = (node.now + secs(600), [0; 3], None);
    while node.now < end {
        for (tenant, time) in all.iter().zip(&mut times) {
            let has = matches!(node.place(*tenant, device), Place::In | Place::Sealing);
            *time += u64::from(has) * STEP.0 / 1_000_000;
        }
        since = match node.place(all[0], device) {
            Place::In | Place::Sealing => since.or(Some(node.now)),
            _ => None,
        };
        each(&mut node, since);
        node.live(STEP);
    }
    eprintln!("{times:?} ms");
    times
}

/// All have the card, and none for more than four thirds of the time of another.
fn are_alike(times: [u64; 3]) -> bool {
    let (least, most) = (times.iter().min(), times.iter().max());
    most.zip(least)
        .is_some_and(|(most, least)| *least > 0 && 3 * most <= 4 * least)
}

#[test]
fn time_in_which_work_drains_is_residency() {
    for drain in [Nanos::millis(5), secs(4)] {
        let (mut node, device, all) = three();
        node.guests.get_mut(&all[0]).expect("it runs").moves.drain = drain;
        assert!(
            are_alike(times((node, device, all), |_, _| ())),
            "{drain:?}"
        );
    }
}

#[test]
fn a_stay_that_could_not_be_ended_at_once_counts_once() {
    let (node, device, all) = three();
    let times = times((node, device, all), |node, since| {
        let busy = since.is_some_and(|since| node.now < since + Nanos::millis(3500));
        let obeys = if busy { Obeys::Busy } else { Obeys::Honestly };
        if node.guests[&all[0]].moves.obeys != obeys {
            node.obeys(all[0], obeys);
        }
    });
    assert!(are_alike(times));
}
