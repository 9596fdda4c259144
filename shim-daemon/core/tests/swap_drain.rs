//! Of tenants that take turns on a card each has it for about the same time, however long one takes
//! to leave.

use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, secs};
use gpushare_core::{
    AskKey, Bytes, DeviceId, LeaseKind, Nanos, Notice, Place, TenantId, TenantSpec,
};

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

/// Two tenants of a GiB that always work, on a card with room for one. The first one has so much
/// work queued whenever it is sealed; the second one asks for its memory.
fn behind(drain: Nanos) -> (Node, DeviceId, [TenantId; 2], AskKey) {
    behind_for(drain, secs(30))
}

/// The same with an ask that waits for so long.
fn behind_for(drain: Nanos, wait: Nanos) -> (Node, DeviceId, [TenantId; 2], AskKey) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (first, one) = node.run(swapping(device, 1024));
    node.guests.get_mut(&first).expect("it runs").moves.drain = drain;
    node.want(one, device, Bytes::mib(1024));
    node.live(secs(4));
    let asks = TenantSpec {
        wait_timeout: wait,
        ..swapping(device, 1024)
    };
    let (second, two) = node.run(asks);
    let ask = node.want(two, device, Bytes::mib(1024));
    (node, device, [first, second], ask)
}

/// How often a tenant did not leave.
fn stayed(node: &Node, of: TenantId) -> usize {
    let stays = |one: &&Notice| matches!(one, Notice::DidNotLeave { tenant, .. } if *tenant == of);
    node.notices.iter().filter(stays).count()
}

#[test]
fn a_tenant_with_a_deep_queue_takes_turns_with_another() {
    for (drain, attempts) in [(Nanos::millis(1500), 0), (secs(4), 1), (secs(15), 3)] {
        let (mut node, device, [first, second], ask) = behind(drain);
        node.until("the second has its memory", 60, |node| node.granted(ask));
        assert_eq!(stayed(&node, first), attempts, "{drain:?}");
        for (tenant, name) in [(first, "first"), (second, "second")].repeat(3) {
            let is_in = |node: &Node| node.place(tenant, device) == Place::In;
            node.until(&format!("the {name} has its turn"), 60, is_in);
        }
        assert_eq!(stayed(&node, first), attempts, "it is given that time");
    }
}

#[test]
fn an_ask_beside_a_deep_queue_does_not_end_between_two_attempts() {
    for (wait, queue) in [(30, 25), (30, 50), (10, 15), (3, 5)] {
        let (mut node, _, _, ask) = behind_for(secs(queue), secs(wait));
        node.until("it has its memory", 100, |node| node.answer(ask).is_some());
        assert!(node.granted(ask), "{wait} s beside {queue} s of work");
    }
    // Beside work that does not end it waits for some three times as long, or half a minute.
    for (wait, most) in [(30, 100), (10, 40), (3, 40)] {
        let (mut node, _, _, ask) = behind_for(secs(1 << 20), secs(wait));
        node.until("it ends", most, |node| node.denied(ask).is_some());
    }
}

#[test]
fn an_endless_kernel_stays_and_is_sealed_in_vain_ever_more_rarely() {
    let (mut node, device, [first, second], ask) = behind(secs(1 << 20));
    let mut sealed = [Nanos::ZERO; 2];
    for step in 0..3600 {
        node.live(secs(1));
        let place = node.place(first, device);
        assert!(matches!(place, Place::In | Place::Sealing), "{place:?}");
        if place == Place::Sealing {
            sealed[step / 1800] = sealed[step / 1800] + secs(1);
        }
        // Its neighbour asks for as long as it lives.
        if node.denied(ask).is_some() {
            let process = node.processes_of(second)[0];
            node.want(process, device, Bytes::mib(1024));
        }
    }
    assert!(node.denied(ask).is_some() && stayed(&node, first) > 6);
    assert!(sealed[1] <= secs(1800 / 7), "{sealed:?}");
}

#[test]
fn an_overdue_return_gives_the_longest_time_to_drain_at_once() {
    let (mut node, device, [first, second], ask) = behind(secs(1));
    node.until("the second has its memory", 60, |node| node.granted(ask));
    let is_in = |tenant| move |node: &Node| node.place(tenant, device) == Place::In;
    node.until("the first is back", 60, is_in(first));
    // It is not asked for a whole round.
    node.obeys(first, Obeys::Busy);
    node.live(secs(90));
    node.obeys(first, Obeys::Honestly);
    node.guests.get_mut(&first).expect("it runs").moves.drain = secs(50);
    let before = stayed(&node, first);
    node.until("the second is back", 120, is_in(second));
    assert_eq!(stayed(&node, first), before);
}

#[test]
fn others_are_beside_a_sealed_tenant_until_its_work_has_ended() {
    let (mut node, device, [first, second], _) = behind(Nanos::millis(1500));
    let is_alone = |node: &Node| {
        let lease = node.guests[&second].leases.get(&device);
        lease.is_none_or(|lease| lease.kind == LeaseKind::Free)
    };
    let place = |node: &Node| node.place(first, device);
    node.until("it is sealed", 60, |node| place(node) == Place::Sealing);
    node.live(secs(1));
    assert!(place(&node) == Place::Sealing && !is_alone(&node));
    node.until("its work is done", 1, |node| place(node) != Place::Sealing);
    assert!(place(&node) != Place::In && is_alone(&node));
}
