//! Tenants that swap: who leaves, who comes back and when. Each behaviour with its opposite. What
//! happens when a tenant does not obey is in `swap_failures`.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, gib, killable, mib, ranked, resolving, secs, spec};
use gpushare_core::{
    Answer, AskKey, Bytes, Denial, DeviceId, Event, Nanos, Notice, Oversubscribe, Place, Policy,
    Preemptible, ProcessId, Quota, Resolver, SpecError, TenantId, TenantSpec,
};

/// So many tenants of 1 GiB on a card of 1.5 GiB, each with its ask for all of it.
fn rivals(many: usize) -> (Node, DeviceId, Vec<(TenantId, ProcessId, AskKey)>) {
    let (mut node, device) = Node::swaps(1536, 64);
    let tenants = (0..many).map(|_| {
        let (tenant, process) = node.run(swapping(device, 1024));
        (tenant, process, node.want(process, device, mib(1024)))
    });
    let tenants = tenants.collect();
    (node, device, tenants)
}

pub(crate) fn denials(node: &Node) -> Vec<Denial> {
    let answers = node.answers.values();
    let denied = answers.filter_map(|answer| match answer {
        Answer::Denied(denial) => Some(*denial),
        Answer::Granted { .. } => None,
    });
    denied.collect()
}

fn moves(node: &Node) -> usize {
    let moves = node.notices.iter();
    moves
        .filter(|one| matches!(one, Notice::Leaving { .. }))
        .count()
}

fn works_all_the_time(node: &mut Node, tenants: &[TenantId], time: Nanos) {
    let (end, beat) = (node.now + time, Nanos::millis(250));
    while node.now < end {
        for tenant in tenants {
            node.tell(Event::Worked { tenant: *tenant });
        }
        node.live(beat.min(end - node.now));
    }
}

#[test]
fn the_second_of_two_gets_its_memory_when_the_first_has_left() {
    let (mut node, device, tenants) = rivals(2);
    assert!(node.granted(tenants[0].2) && node.waits(tenants[1].2));
    node.live(secs(10));
    assert!(node.granted(tenants[1].2));
    assert_ne!(
        node.place(tenants[0].0, device),
        node.place(tenants[1].0, device)
    );
}

#[test]
fn three_tenants_of_a_gib_on_a_card_of_one_and_a_half_all_work() {
    let (mut node, device, tenants) = rivals(3);
    let ids: Vec<TenantId> = tenants.iter().map(|(tenant, ..)| *tenant).collect();
    works_all_the_time(&mut node, &ids, secs(120));
    assert_eq!(denials(&node), []);
    assert!(tenants.iter().all(|(.., ask)| node.granted(*ask)));
    let useful = ids
        .iter()
        .map(|tenant| node.guests[tenant].moves.useful(node.now));
    let useful: Vec<Nanos> = useful.collect();
    assert!(useful.iter().all(|time| *time > secs(30)), "{useful:?}");
    let there = ids
        .iter()
        .filter(|tenant| node.place(**tenant, device) == Place::In);
    assert!(there.count() <= 1);
}

#[test]
fn tenants_that_fit_together_never_move() {
    let (mut node, device) = Node::swaps(4096, 64);
    let all: Vec<_> = (0..3).map(|_| node.run(swapping(device, 1024))).collect();
    for (_, process) in &all {
        node.want(*process, device, mib(1024));
    }
    node.live(secs(120));
    assert!(
        all.iter()
            .all(|(tenant, _)| node.place(*tenant, device) == Place::In)
    );
    assert_eq!(moves(&node), 0);
}

#[test]
fn a_pair_twice_the_card_has_nine_tenths_of_its_halves() {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (tenant, process) = node.run(swapping(device, 16 << 10));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 25 << 30;
        node.want(process, device, gib(16));
        ids.push(tenant);
    }
    works_all_the_time(&mut node, &ids, secs(100));
    let (begin, span) = (node.now, secs(1000));
    for tenant in &ids {
        let moves = &mut node.guests.get_mut(tenant).expect("it runs").moves;
        moves.count_anew(begin);
    }
    works_all_the_time(&mut node, &ids, span);
    for tenant in &ids {
        let useful = node.guests[tenant].moves.useful(node.now);
        let part = useful.0 * 1000 / (span.0 / 2);
        eprintln!("{tenant:?} worked {part} thousandths of its ideal half");
        assert!(part >= 900, "{part} thousandths of its half");
    }
}

#[test]
fn an_interactive_tenant_among_five_waits_less_than_the_others() {
    let (mut node, device) = Node::swaps(1536, 64);
    let run = |node: &mut Node, priority| {
        let (tenant, process) = node.run(ranked(priority, swapping(device, 1024)));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 4 << 30;
        let ask = node.want(process, device, mib(1024));
        (tenant, ask)
    };
    let others: Vec<_> = (0..4).map(|_| run(&mut node, 500)).collect();
    let (interactive, ask) = run(&mut node, 900);
    node.guests
        .get_mut(&interactive)
        .expect("it runs")
        .moves
        .works = false;
    let batch: Vec<TenantId> = others.iter().map(|(tenant, _)| *tenant).collect();
    works_all_the_time(&mut node, &batch, secs(120));
    assert_eq!(denials(&node), []);
    assert!(node.granted(ask) && others.iter().all(|(_, ask)| node.granted(*ask)));
    let (mut waits, mut calls) = (Nanos::ZERO, 0);
    for _ in 0..20 {
        works_all_the_time(&mut node, &batch, secs(20));
        let called = node.now;
        if node.place(interactive, device) != Place::Out {
            continue;
        }
        node.calls(interactive, device);
        while node.place(interactive, device) != Place::In {
            node.live(Nanos::millis(50));
        }
        node.tell(Event::Worked {
            tenant: interactive,
        });
        (waits, calls) = (waits.max(node.now - called), calls + 1);
    }
    assert!(calls > 5, "it was out {calls} times");
    let round = node.world.rotation_bound(device, Nanos::ZERO);
    assert!(waits < secs(4), "{waits:?} of a bound of {round:?}");
    let useful = batch
        .iter()
        .map(|tenant| node.guests[tenant].moves.useful(node.now));
    assert!(useful.min() > Some(secs(60)), "the others work too");
}

#[test]
fn two_that_want_each_others_memory_both_get_theirs() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (_, one) = node.run(swapping(device, 1400));
    let (_, other) = node.run(swapping(device, 1400));
    for process in [one, other] {
        node.want(process, device, mib(700));
    }
    let asks = [one, other].map(|process| node.want(process, device, mib(700)));
    assert!(asks.iter().all(|ask| node.waits(*ask)));
    node.live(secs(60));
    assert!(
        asks.iter().all(|ask| node.granted(*ask)),
        "{:?}",
        denials(&node)
    );
}

#[test]
fn one_larger_than_the_card_is_refused_and_moves_nobody() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (_, plain) = node.run(spec(device, 0, 1));
    node.want(plain, device, mib(512));
    let (_, one) = node.run(swapping(device, 1024));
    node.want(one, device, mib(1024));
    let (_, two) = node.run(swapping(device, 4096));
    let ask = node.want(two, device, mib(1100));
    node.live(secs(5));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    assert_eq!(moves(&node), 0);
}

#[test]
fn nothing_is_granted_that_would_keep_one_that_is_out_from_returning() {
    let (mut node, device, tenants) = rivals(2);
    node.live(secs(5));
    let stays = |device| resolving(&[Resolver::Fail], spec(device, 0, 1));
    let (_, process) = node.run(stays(device));
    let much = node.want(process, device, mib(768));
    assert!(matches!(node.denied(much), Some(Denial::NoRoom { .. })));
    let little = node.want(process, device, mib(512));
    assert!(node.granted(little), "{:?}", node.denied(little));
    node.live(secs(60));
    assert!(tenants.iter().all(|(.., ask)| node.granted(*ask)));
}

#[test]
fn a_burst_is_moved_before_any_tenant_is_ended() {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let (movable, first) = node.run(swapping(device, 8 << 10));
    let (doomed, second) = node.run(killable(device, 0, 8));
    node.want(first, device, gib(8));
    node.want(second, device, gib(8));
    let (_, third) = node.run(spec(device, 8, 8));
    let ask = node.want(third, device, gib(8));
    node.live(secs(30));
    assert!(node.granted(ask));
    assert!(node.guests[&doomed].signals.is_empty());
    assert_eq!(node.place(movable, device), Place::Out);
}

#[test]
fn a_burst_that_may_not_be_moved_is_not() {
    let (mut node, device) = Node::swaps(16 << 10, 64);
    let never = TenantSpec {
        preemptible: Preemptible::Never,
        ..swapping(device, 8 << 10)
    };
    let (fixed, first) = node.run(never);
    node.want(first, device, gib(8));
    let (_, second) = node.run(swapping(device, 16 << 10));
    let ask = node.want(second, device, gib(9));
    node.live(secs(30));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    assert_eq!((node.place(fixed, device), moves(&node)), (Place::In, 0));
}

#[test]
fn a_tenant_within_its_request_is_moved_only_while_it_is_idle() {
    for works in [true, false] {
        let (mut node, device) = Node::swaps(16 << 10, 64);
        let mut run = |request, wants| {
            let request = gib(request);
            let limit = gib(16);
            let (tenant, process) = node.run(TenantSpec {
                quotas: vec![(device, Quota { request, limit })],
                on_collision: vec![Resolver::Swap, Resolver::Wait],
                ..swapping(device, 1)
            });
            node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
            (tenant, node.want(process, device, gib(wants)))
        };
        let (first, _) = run(8, 8);
        let (second, ask) = run(0, 8);
        assert!(node.granted(ask));
        let process = node.processes_of(second)[0];
        let busy = if works {
            vec![first, second]
        } else {
            vec![second]
        };
        works_all_the_time(&mut node, &busy, secs(7));
        let more = node.want(process, device, gib(1));
        works_all_the_time(&mut node, &busy, secs(7));
        assert!(!node.granted(more), "the request needs its room");
        let (third, process) = node.run(swapping(device, 8 << 10));
        let ask = node.want(process, device, gib(8));
        works_all_the_time(&mut node, &[busy, vec![third]].concat(), secs(1));
        let place = node.place(first, device);
        assert_eq!(place == Place::In, works, "{place:?}");
        works_all_the_time(&mut node, &[second, third], secs(20));
        assert!(node.granted(ask));
    }
}

#[test]
fn an_idle_tenant_moves_before_one_that_works() {
    let (mut node, device) = Node::swaps(3 << 10, 64);
    let mut run = |mib: u64| {
        let (tenant, process) = node.run(swapping(device, 2048));
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        (tenant, process, node.want(process, device, Bytes::mib(mib)))
    };
    let (worker, ..) = run(1024);
    let (idler, ..) = run(1024);
    works_all_the_time(&mut node, &[worker], secs(10));
    let (third, process) = node.run(swapping(device, 2048));
    let ask = node.want(process, device, mib(2048));
    works_all_the_time(&mut node, &[worker, third], secs(5));
    assert!(node.granted(ask));
    assert_eq!(node.place(idler, device), Place::Out);
    assert_eq!(node.place(worker, device), Place::In);
}

#[test]
fn an_ask_whose_turn_is_certain_waits_past_its_timeout() {
    let mut all = policy(64);
    all.swap.stays.0 = secs(40);
    let mut node = Node::with(all);
    let device = node.device_of(mib(1536));
    let (first, one) = node.run(swapping(device, 1024));
    node.want(one, device, mib(1024));
    let (_, two) = node.run(TenantSpec {
        wait_timeout: secs(5),
        ..swapping(device, 1024)
    });
    let ask = node.want(two, device, mib(1024));
    works_all_the_time(&mut node, &[first], secs(30));
    assert!(node.waits(ask), "{:?}", node.denied(ask));
    works_all_the_time(&mut node, &[first], secs(15));
    assert!(node.granted(ask));
}

#[test]
fn an_ask_that_waits_for_a_tenant_that_stays_ends_at_its_timeout() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (_, one) = node.run(spec(device, 0, 1));
    node.want(one, device, mib(1024));
    let (_, two) = node.run(TenantSpec {
        wait_timeout: secs(5),
        on_collision: vec![Resolver::Swap, Resolver::Wait],
        ..swapping(device, 512)
    });
    let fits = node.want(two, device, mib(512));
    let (_, three) = node.run(TenantSpec {
        wait_timeout: secs(5),
        on_collision: vec![Resolver::Swap, Resolver::Wait],
        ..swapping(device, 1024)
    });
    let waits = node.want(three, device, mib(1024));
    node.live(secs(6));
    assert!(node.granted(fits));
    assert_eq!(
        node.denied(waits),
        Some(Denial::TimedOut { waited: secs(5) })
    );
}

#[test]
fn memory_is_free_only_when_a_look_shows_it() {
    let (mut node, device, tenants) = rivals(1);
    node.devices.get_mut(&device).expect("it exists").returns = Nanos::millis(800);
    let (_, process) = node.run(swapping(device, 1024));
    node.live(secs(3));
    let ask = node.want(process, device, mib(1024));
    node.pass(Nanos::millis(700));
    assert_eq!(node.place(tenants[0].0, device), Place::Confirming);
    assert!(
        node.waits(ask),
        "it reported its memory gone, and the device shows it"
    );
    node.pass(Nanos::millis(300));
    assert!(node.granted(ask));
    assert_eq!(node.place(tenants[0].0, device), Place::Out);
}

#[test]
fn what_is_away_is_not_on_the_card_and_stays_in_the_quota() {
    let (mut node, device, tenants) = rivals(2);
    let calm = node.guests.get_mut(&tenants[0].0).expect("it runs");
    calm.moves.works = false;
    node.live(secs(3));
    let first = node.world.account(tenants[0].0, device).expect("it runs");
    assert_eq!((first.grant, first.away), (mib(1024), mib(1024)));
    assert_eq!((first.in_use, first.overhead), (mib(1024), Bytes::ZERO));
    assert_eq!(
        node.world.device(device).expect("it is there").taken,
        mib(1024)
    );
    let over = node.want(tenants[0].1, device, mib(1));
    assert!(matches!(node.denied(over), Some(Denial::OverLimit { .. })));
}

#[test]
fn for_an_equal_a_tenant_on_two_devices_moves_only_while_it_is_idle() {
    for works in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        let other = node.device(1);
        let both = TenantSpec {
            quotas: [device, other]
                .map(|on| {
                    let limit = mib(1024);
                    let request = Bytes::ZERO;
                    (on, Quota { request, limit })
                })
                .to_vec(),
            ..swapping(device, 1024)
        };
        let (wide, one) = node.run(both);
        node.guests.get_mut(&wide).expect("it runs").moves.works = false;
        node.want(one, device, mib(1024));
        let (_, two) = node.run(TenantSpec {
            on_collision: vec![Resolver::Swap, Resolver::Wait],
            ..swapping(device, 1024)
        });
        let ask = node.want(two, device, mib(1024));
        let busy = if works { vec![wide] } else { Vec::new() };
        works_all_the_time(&mut node, &busy, secs(20));
        assert_eq!(node.granted(ask), !works);
    }
}

#[test]
fn a_suspended_tenant_is_out_until_it_calls_or_is_resumed() {
    for by_call in [true, false] {
        let (mut node, device, tenants) = rivals(1);
        let tenant = tenants[0].0;
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        assert_eq!(node.world.may_suspend(tenant), Ok(()));
        node.tell(Event::Suspend { tenant });
        node.live(secs(30));
        assert_eq!(node.place(tenant, device), Place::Out);
        assert!(node.world.is_suspended(tenant));
        match by_call {
            true => node.calls(tenant, device),
            false => node.tell(Event::Resume { tenant }),
        }
        node.live(secs(1));
        assert_eq!(node.place(tenant, device), Place::In);
        assert!(!node.world.is_suspended(tenant));
    }
}

#[test]
fn a_suspended_tenant_waits_for_its_turn_when_it_calls() {
    let (mut node, device, tenants) = rivals(1);
    let tenant = tenants[0].0;
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.tell(Event::Suspend { tenant });
    node.live(secs(1));
    let (other, process) = node.run(swapping(device, 1024));
    let ask = node.want(process, device, mib(1024));
    assert!(node.granted(ask));
    node.calls(tenant, device);
    assert_eq!(node.place(tenant, device), Place::Out);
    let end = node.now + secs(5);
    while node.place(tenant, device) != Place::In && node.now < end {
        node.live(Nanos::millis(50));
    }
    assert_eq!(node.place(tenant, device), Place::In);
    assert_eq!(node.place(other, device), Place::Out);
}

#[test]
fn a_tenant_that_does_not_swap_cannot_be_suspended() {
    use gpushare_core::NotSuspended;
    let (mut node, device) = Node::swaps(1536, 1);
    let (plain, _) = node.run(spec(device, 0, 1));
    assert_eq!(node.world.may_suspend(plain), Err(NotSuspended::Fixed));
    node.tell(Event::Suspend { tenant: plain });
    assert_eq!(moves(&node), 0);
    let nobody = TenantId(4711);
    assert_eq!(node.world.may_suspend(nobody), Err(NotSuspended::Unknown));
}

#[test]
fn swapping_needs_host_memory_and_is_chosen_before_the_start() {
    let mut node = Node::with(Policy {
        first_overhead: Bytes::ZERO,
        ..Policy::default()
    });
    let device = node.device(16);
    let refused = node.register(swapping(device, 1024));
    assert_eq!(node.guests[&refused].refused, Some(SpecError::NoHost));
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, _) = node.run(swapping(device, 1024));
    let off = TenantSpec {
        oversubscribe: Oversubscribe::Off,
        ..swapping(device, 1024)
    };
    node.tell(Event::Set { tenant, spec: off });
    let refused = node.guests[&tenant].refused;
    assert_eq!(refused, Some(SpecError::Oversubscribe));
}
