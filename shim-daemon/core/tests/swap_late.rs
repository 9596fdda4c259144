//! Tenants of several processes after a daemon restart: some processes come late, say nothing of
//! their memory, or die. A tenant moves as a whole, in whatever order its processes come.

use crate::node::late::RECOVERY;
use crate::node::swap::{Obeys, swapping};
use crate::node::{Node, Rng, mib, secs, spec};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Order, Place, ProcessId, TenantId, TenantSpec,
};

/// The time from the end of the recovery until a silent process is waited for no more.
const GRACE: Nanos = Nanos::secs(2);

/// A process comes in time and says where its memory is.
fn arrives(node: &mut Node, process: ProcessId) {
    node.comes(process);
    node.speaks(process, false);
}

/// A tenant of two processes with these MiB and MiB on the host, of which only the first one came
/// within the recovery, beside a tenant of one process with `other` MiB that is in.
pub(crate) fn one_late(
    (card, host): (u64, u64),
    parts: [(u64, u64); 2],
    other: u64,
) -> (Node, DeviceId, [TenantId; 2], [ProcessId; 2]) {
    one_late_beside((card, host), parts, other, |device| swapping(device, other))
}

/// The same beside one of this kind.
fn one_late_beside(
    (card, host): (u64, u64),
    parts: [(u64, u64); 2],
    other: u64,
    spec: impl Fn(DeviceId) -> TenantSpec,
) -> (Node, DeviceId, [TenantId; 2], [ProcessId; 2]) {
    let (mut node, device) = Node::restarted(card, host);
    let (tenant, own) = node.survives(device, &parts);
    arrives(&mut node, own[0]);
    let (beside, theirs) = node.survives_as(spec(device), device, &[(other, 0)]);
    arrives(&mut node, theirs[0]);
    node.live(RECOVERY);
    (node, device, [tenant, beside], [own[0], own[1]])
}

fn away(node: &Node, process: ProcessId, device: DeviceId) -> Bytes {
    node.processes[&process].away(device)
}

/// The tenant is wholly on the card, or wholly off it and its next call brings it in.
fn is_whole(node: &mut Node, tenant: TenantId, device: DeviceId, most: u64) {
    node.until("it is in or out", most, |node| {
        node.runs(tenant, device) || node.place(tenant, device) == Place::Out
    });
    if node.place(tenant, device) == Place::Out {
        node.calls(tenant, device);
    }
    node.until("it runs", most, |node| node.runs(tenant, device));
}

#[test]
fn late_one_that_is_out_comes_in_where_the_card_has_room() {
    for eager in [false, true] {
        let (mut node, device, [tenant, _], [first, late]) =
            one_late((2048, 64), [(512, 0), (512, 512)], 512);
        assert_eq!(node.place(tenant, device), Place::In);
        node.comes(late);
        node.live(secs(1));
        let runs = |node: &Node| !node.processes[&first].is_sealed(device);
        assert!(runs(&node), "nobody waits for one that says nothing yet");
        node.speaks(late, eager);
        while !node.runs(tenant, device) {
            assert!(runs(&node), "its sibling runs on");
            assert!(node.now < secs(8));
            node.pass(Nanos::millis(1));
        }
        assert_eq!(away(&node, late, device), Bytes::ZERO);
    }
}

#[test]
fn tenant_of_a_late_one_that_is_out_leaves_where_the_card_is_full() {
    for eager in [false, true] {
        let (mut node, device, [tenant, beside], [first, late]) =
            one_late((1536, 64), [(512, 0), (512, 512)], 1024);
        assert_eq!(node.place(tenant, device), Place::In);
        node.comes(late);
        node.speaks(late, eager);
        is_whole(&mut node, tenant, device, 30);
        for process in [first, late] {
            assert_eq!(away(&node, process, device), Bytes::ZERO);
        }
        node.calls(beside, device);
        node.until("the other one too", 30, |node| node.runs(beside, device));
    }
}

#[test]
fn late_one_and_its_siblings_wait_where_card_and_host_are_full() {
    let (mut node, device, [tenant, beside], [_, late]) =
        one_late((1536, 1), [(768, 0), (512, 512)], 768);
    node.guarantees = false;
    arrives(&mut node, late);
    node.live(secs(60));
    assert!(!node.runs(tenant, device));
    assert_eq!(away(&node, late, device), mib(512));
    node.finish(beside);
    is_whole(&mut node, tenant, device, 10);
}

#[test]
fn two_tenants_that_are_partly_out_do_not_wait_for_each_other() {
    let (mut node, device) = Node::restarted(1536, 64);
    let all = [0, 1].map(|_| node.survives(device, &[(768, 0), (512, 512)]));
    for (_, own) in &all {
        arrives(&mut node, own[0]);
    }
    node.live(RECOVERY);
    for (_, own) in &all {
        arrives(&mut node, own[1]);
    }
    for (tenant, _) in &all {
        is_whole(&mut node, *tenant, device, 60);
    }
}

#[test]
fn late_one_that_is_in_follows_its_siblings_out() {
    let (mut node, device, [tenant, beside], [first, late]) =
        one_late((1536, 64), [(512, 512), (512, 0)], 1024);
    assert_eq!(node.place(tenant, device), Place::Out);
    arrives(&mut node, late);
    node.live(secs(2));
    assert_eq!(node.place(tenant, device), Place::Out);
    for process in [first, late] {
        assert_eq!(away(&node, process, device), mib(512));
    }
    assert!(node.runs(beside, device));
    is_whole(&mut node, tenant, device, 30);
}

#[test]
fn late_one_that_is_in_waits_for_its_siblings_where_the_host_is_full() {
    let (mut node, device, [tenant, beside], [_, late]) =
        one_late((1536, 1), [(1024, 1024), (512, 0)], 1024);
    node.guarantees = false;
    arrives(&mut node, late);
    node.live(secs(5));
    assert_eq!(away(&node, late, device), Bytes::ZERO);
    node.calls(tenant, device);
    node.live(secs(5));
    node.finish(beside);
    is_whole(&mut node, tenant, device, 10);
}

/// Where its tenant is when the late one comes.
fn reaches(node: &mut Node, device: DeviceId, tenants: [TenantId; 2], place: Place) {
    let [tenant, beside] = tenants;
    if matches!(place, Place::Entering) {
        // It has to be out first.
        reaches(node, device, tenants, Place::Out);
        node.finish(beside);
        node.calls(tenant, device);
    } else if place != Place::In {
        let spec = swapping(device, 1024);
        let (_, process) = node.run(spec);
        node.want(process, device, mib(1024));
    }
    let end = node.now + secs(60);
    let mut looked = node.now;
    while node.place(tenant, device) != place {
        assert!(node.now < end, "it does not become {place:?}");
        node.pass(Nanos::millis(1));
        if node.now >= looked + Nanos::millis(100) {
            looked = node.now;
            node.sample(device);
        }
    }
}

#[test]
fn tenant_moves_as_a_whole_wherever_it_is_when_a_late_one_comes() {
    let places = [
        Place::In,
        Place::Sealing,
        Place::Leaving,
        Place::Confirming,
        Place::Out,
        Place::Entering,
    ];
    for place in places {
        for (out, eager) in [
            (512, false),
            (0, false),
            (512, true),
            (0, true),
            (256, true),
        ] {
            for base in [2048, 3072] {
                let card = base + 512 - out;
                let scene = (place, out, eager, card);
                eprintln!("{scene:?}");
                let (mut node, device, tenants, [_, late]) =
                    one_late_beside((card, 64), [(512, 0), (512, out)], base - 1024, |device| {
                        spec(device, 0, 2)
                    });
                for tenant in tenants {
                    let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
                    (moves.rate, moves.drain) = (1 << 30, Nanos::millis(50));
                }
                node.devices.get_mut(&device).expect("it is there").returns = Nanos::millis(30);
                // Looks take a while, so that what they confirm does.
                node.lag = Some((Rng(1), Nanos::millis(40)));
                reaches(&mut node, device, tenants, place);
                node.lag = None;
                node.comes(late);
                node.speaks(late, eager);
                is_whole(&mut node, tenants[0], device, 90);
            }
        }
    }
}

#[test]
fn tenants_of_three_are_whole_in_every_order_of_arrival() {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        for outs in 0..8_u64 {
            for late in 0..4_usize {
                let (mut node, device) = Node::restarted(1536, 64);
                let part = |at: u64| (256, if outs >> at & 1 == 1 { 256 } else { 0 });
                let (tenant, own) = node.survives(device, &[part(0), part(1), part(2)]);
                let there = 256 * (3 - u64::from(outs.count_ones()));
                let (beside, other) = node.survives(device, &[(1536 - there, 0)]);
                arrives(&mut node, other[0]);
                for (nth, at) in order.into_iter().enumerate() {
                    if nth + late == 3 {
                        node.live(RECOVERY);
                    }
                    arrives(&mut node, own[at]);
                    node.pass(Nanos::millis(5));
                }
                node.live(RECOVERY);
                eprintln!("{order:?} {outs} {late}: {:?}", node.place(tenant, device));
                is_whole(&mut node, tenant, device, 60);
                node.calls(beside, device);
                node.until("the other one too", 60, |node| node.runs(beside, device));
            }
        }
    }
}

fn is_silent(node: &Node, silent: ProcessId) -> bool {
    let told = |one: &Notice| matches!(one, Notice::Silent { process, .. } if *process == silent);
    node.notices.iter().any(told)
}

#[test]
fn silent_process_keeps_its_siblings_sealed_for_a_while_only() {
    for out in [0, 512] {
        let (mut node, device) = Node::restarted(2048, 64);
        let (tenant, own) = node.survives(device, &[(512, 0), (512, out)]);
        arrives(&mut node, own[0]);
        node.comes(own[1]);
        node.live(RECOVERY);
        assert_eq!(node.place(tenant, device), Place::Out, "it may say more");
        assert!(!is_silent(&node, own[1]));
        node.live(GRACE + Nanos::millis(500));
        assert!(is_silent(&node, own[1]));
        assert_eq!(node.place(tenant, device), Place::In);
        assert!(!node.processes[&own[0]].is_sealed(device));
        node.live(secs(20));
        node.speaks(own[1], false);
        is_whole(&mut node, tenant, device, 10);
        assert_eq!(away(&node, own[1], device), Bytes::ZERO);
    }
}

#[test]
fn process_that_speaks_within_the_bound_is_waited_for() {
    let (mut node, device) = Node::restarted(2048, 64);
    let (tenant, own) = node.survives(device, &[(512, 0), (512, 512)]);
    arrives(&mut node, own[0]);
    node.comes(own[1]);
    node.live(RECOVERY + Nanos::millis(500));
    assert_eq!(node.place(tenant, device), Place::Out);
    node.speaks(own[1], false);
    node.live(secs(5));
    assert!(!is_silent(&node, own[1]));
    is_whole(&mut node, tenant, device, 10);
}

#[test]
fn tenant_of_a_silent_one_on_a_full_card_takes_its_turns() {
    for out in [0, 512] {
        for siblings in [0, 512] {
            let card = 1024 + (512 - out) + (512 - siblings);
            let (mut node, device) = Node::restarted(card, 64);
            let (tenant, own) = node.survives(device, &[(512, siblings), (512, out)]);
            let (beside, other) = node.survives(device, &[(1024, 0)]);
            arrives(&mut node, other[0]);
            arrives(&mut node, own[0]);
            node.comes(own[1]);
            node.live(RECOVERY + GRACE + Nanos::millis(500));
            eprintln!("{out} {siblings}: {:?}", node.place(tenant, device));
            if node.place(tenant, device) == Place::Out {
                node.calls(tenant, device);
            }
            let first = own[0];
            node.until("the sibling runs", 60, |node| {
                let proc = &node.processes[&first];
                !proc.is_sealed(device) && proc.away(device).is_zero()
            });
            node.until("its tenant is in", 60, |node| {
                node.place(tenant, device) == Place::In
            });
            node.speaks(own[1], true);
            is_whole(&mut node, tenant, device, 60);
            node.calls(beside, device);
            node.until("the other one too", 60, |node| node.runs(beside, device));
        }
    }
}

#[test]
fn silent_process_that_dies_is_waited_for_no_more() {
    for out in [0, 512] {
        for after in [0, 1, 4, 20] {
            let (mut node, device) = Node::restarted(1536, 64);
            let (tenant, own) = node.survives(device, &[(512, 0), (512, out)]);
            let (_, other) = node.survives(device, &[(512 + out, 0)]);
            arrives(&mut node, other[0]);
            arrives(&mut node, own[0]);
            node.comes(own[1]);
            node.live(RECOVERY);
            node.live(secs(after));
            node.exit(own[1]);
            is_whole(&mut node, tenant, device, 30);
        }
    }
}

#[test]
fn late_process_that_dies_unheard_leaves_its_siblings_as_they_are() {
    let (mut node, device, [tenant, _], [first, late]) =
        one_late((1536, 64), [(512, 0), (512, 512)], 1024);
    node.comes(late);
    node.live(Nanos::millis(500));
    node.exit(late);
    assert_eq!(node.place(tenant, device), Place::In);
    node.live(secs(5));
    assert!(node.runs(tenant, device) && !node.processes[&first].is_sealed(device));
}

#[test]
fn tenant_whose_silent_process_is_on_the_card_moves_without_it() {
    let (mut node, device) = Node::restarted(1536, 64);
    let (tenant, own) = node.survives(device, &[(768, 0), (256, 0)]);
    arrives(&mut node, own[0]);
    node.comes(own[1]);
    node.live(RECOVERY + secs(5));
    assert_eq!(node.place(tenant, device), Place::In);
    let (other, process) = node.run(swapping(device, 1024));
    let ask = node.want(process, device, mib(1024));
    node.live(secs(20));
    assert!(node.granted(ask));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert_eq!(away(&node, own[1], device), Bytes::ZERO);
    node.speaks(own[1], false);
    is_whole(&mut node, tenant, device, 30);
    node.calls(other, device);
    node.until("the other one too", 60, |node| node.runs(other, device));
}

#[test]
fn sibling_that_cannot_be_sealed_does_not_keep_a_late_one_out() {
    let (mut node, device, [tenant, beside], [_, late]) =
        one_late((1536, 64), [(512, 0), (512, 512)], 1024);
    node.guarantees = false;
    node.obeys(tenant, Obeys::Busy);
    node.comes(late);
    node.speaks(late, false);
    node.live(secs(30));
    if node.place(tenant, device) == Place::Out {
        node.calls(tenant, device);
    }
    node.until("its memory is in", 60, |node| {
        away(node, late, device).is_zero() && node.place(tenant, device) == Place::In
    });
    let (_, order) = node.guests[&beside].moves.orders[&device];
    assert_ne!(order, Order::Return);
}

#[test]
fn process_that_cannot_move_runs_on_after_a_restart() {
    for late in [false, true] {
        let (mut node, device) = Node::restarted(2048, 64);
        let (tenant, own) = node.survives_as(swapping(device, 1024), device, &[(512, 0)]);
        if late {
            node.live(RECOVERY + secs(1));
        }
        node.comes_fixed(own[0]);
        node.live(RECOVERY + secs(1));
        assert_eq!(node.place(tenant, device), Place::In);
        let ask = node.want(own[0], device, mib(64));
        node.live(secs(1));
        assert!(node.granted(ask));
    }
}

#[test]
fn one_that_cannot_move_comes_together_with_a_sibling_that_is_out() {
    for card in [1536, 2048] {
        for late in [false, true] {
            let (mut node, device) = Node::restarted(card, 64);
            let (tenant, own) = node.survives(device, &[(512, 0), (512, 512)]);
            let (beside, other) = node.survives(device, &[(1024, 0)]);
            arrives(&mut node, other[0]);
            arrives(&mut node, own[1]);
            if late {
                node.live(RECOVERY + secs(1));
            }
            node.comes_fixed(own[0]);
            node.live(RECOVERY + secs(1));
            assert!(node.runs(beside, device));
            if card == 2048 && !late {
                assert!(node.runs(tenant, device), "there is room");
            }
            is_whole(&mut node, tenant, device, 30);
            assert!(!node.processes[&own[1]].is_sealed(device));
            node.live(secs(30));
            assert_eq!(node.place(tenant, device), Place::In, "it cannot leave");
        }
    }
}

#[test]
fn tenant_without_a_process_is_in_once_the_recovery_is_over() {
    for early in [false, true] {
        let (mut node, device) = Node::restarted(2048, 64);
        let (tenant, _) = node.survives_as(swapping(device, 1024), device, &[]);
        let new = early.then(|| node.start(tenant));
        node.live(RECOVERY);
        assert_eq!(node.place(tenant, device), Place::In);
        let new = new.unwrap_or_else(|| node.start(tenant));
        let ask = node.want(new, device, mib(512));
        node.live(secs(1));
        assert!(node.granted(ask));
    }
}

#[test]
fn tenant_of_a_stopped_process_alone_lets_a_new_one_run() {
    let (mut node, device) = Node::restarted(2048, 64);
    let (tenant, own) = node.survives_as(swapping(device, 1024), device, &[(512, 512)]);
    node.comes(own[0]);
    node.live(RECOVERY + GRACE + secs(1));
    assert_eq!(node.place(tenant, device), Place::Out);
    let new = node.start(tenant);
    let ask = node.want(new, device, mib(512));
    node.until("it is granted", 10, |node| node.granted(ask));
    node.speaks(own[0], false);
    is_whole(&mut node, tenant, device, 10);
    assert_eq!(away(&node, own[0], device), Bytes::ZERO);
}

#[test]
fn next_program_returns_though_a_late_one_died_unheard() {
    let (mut node, device, [tenant, _], own) = one_late((1536, 64), [(512, 0), (512, 512)], 1024);
    node.comes(own[1]);
    own.into_iter().for_each(|process| node.exit(process));
    node.live(secs(5));
    let new = node.start(tenant);
    let ask = node.want(new, device, mib(512));
    node.live(secs(1));
    assert!(node.granted(ask));
    node.tell(Event::Suspend { tenant });
    node.until("it is out", 10, |node| {
        node.place(tenant, device) == Place::Out
    });
    node.calls(tenant, device);
    node.until("it runs", 60, |node| node.runs(tenant, device));
}
