//! Tenants that swap and do not obey, die, or find no room.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, Proc, Rng, killable, mib, ranked, resolving, secs};
use crate::swap::denials;
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Event, Nanos, Notice, Order, Place, ProcessId, Quota,
    Resolver, Sample, TenantId, TenantSpec, Told,
};

/// A tenant that obeys so, and one that wants its memory.
fn victim(obeys: Obeys, resolvers: &[Resolver]) -> (Node, DeviceId, [TenantId; 2], AskKey) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (first, one) = node.run(swapping(device, 1024));
    node.obeys(first, obeys);
    node.want(one, device, mib(1024));
    node.live(secs(4));
    let (second, two) = node.run(resolving(resolvers, swapping(device, 1024)));
    let ask = node.want(two, device, mib(1024));
    (node, device, [first, second], ask)
}

fn told(node: &Node, what: impl Fn(&Notice) -> bool) -> bool {
    node.notices.iter().any(what)
}

#[test]
fn behind_a_victim_that_cannot_be_sealed_the_next_resolver_decides() {
    for obeys in [Obeys::Busy, Obeys::Silently, Obeys::Halting] {
        let (mut node, device, [first, _], ask) = victim(obeys, &[Resolver::Swap]);
        node.live(secs(35));
        assert!(node.denied(ask).is_some(), "{obeys:?}");
        assert!(told(&node, |one| matches!(one, Notice::DidNotLeave { .. })));
        let order = node.guests[&first].moves.orders[&device].1;
        let runs = matches!(order, Order::In | Order::Return) || obeys != Obeys::Busy;
        assert!(runs, "{obeys:?}: {order:?}");
        let account = node.world.account(first, device).expect("it runs");
        assert_eq!(account.away, Bytes::ZERO);
    }
}

/// A tenant that obeys so, one that may be ended, and one that wants the memory of one of them: it
/// has that, and the second is ended for it.
#[track_caller]
fn another_is_ended(obeys: Obeys) -> (Node, TenantId) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (stuck, one) = node.run(swapping(device, 700));
    node.obeys(stuck, obeys);
    let (doomed, two) = node.run(ranked(100, killable(device, 0, 1)));
    node.want(one, device, mib(700));
    node.want(two, device, mib(800));
    let resolvers = [Resolver::Swap, Resolver::Priority];
    let (_, three) = node.run(resolving(&resolvers, swapping(device, 700)));
    node.live(secs(5));
    let ask = node.want(three, device, mib(700));
    node.live(secs(5));
    assert!(node.granted(ask), "{:?}", denials(&node));
    assert!(!node.guests.contains_key(&doomed));
    assert!(node.guests.contains_key(&stuck));
    assert_eq!(node.place(stuck, device), Place::In, "it runs on");
    (node, stuck)
}

#[test]
fn behind_a_victim_that_stays_the_next_resolver_ends_another() {
    let (node, _) = another_is_ended(Obeys::Busy);
    assert!(told(&node, |one| matches!(one, Notice::DidNotLeave { .. })));
}

#[test]
fn behind_a_victim_that_lies_the_next_resolver_ends_another() {
    let (node, liar) = another_is_ended(Obeys::Lying);
    let lied = |one: &Notice| matches!(one, Notice::LeftLess { tenant, .. } if *tenant == liar);
    assert!(told(&node, lied));
}

#[test]
fn beside_a_tenant_at_work_on_two_devices_the_next_resolver_decides() {
    for works in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        let (request, limit) = (Bytes::ZERO, mib(1024));
        let quotas = [device, node.device(1)].map(|on| (on, Quota { request, limit }));
        let (first, one) = node.run(TenantSpec {
            quotas: quotas.to_vec(),
            ..swapping(device, 1024)
        });
        node.guests.get_mut(&first).expect("it runs").moves.works = false;
        node.want(one, device, mib(1024));
        for _ in 0..40 {
            if works {
                node.tell(Event::Worked { tenant: first });
            }
            node.live(Nanos::millis(250));
        }
        let resolvers = [Resolver::Swap, Resolver::Fail];
        let (_, two) = node.run(resolving(&resolvers, swapping(device, 1024)));
        let ask = node.want(two, device, mib(1024));
        assert_eq!(node.denied(ask).is_some(), works);
        node.live(secs(2));
        assert_eq!(node.granted(ask), !works);
    }
}

#[test]
fn a_victim_that_was_busy_leaves_when_it_is_asked_again() {
    let (mut node, device, [first, second], ask) = victim(Obeys::Busy, &[Resolver::Swap]);
    node.live(Nanos::millis(500));
    assert!(node.waits(ask) && node.place(first, device) == Place::In);
    node.obeys(first, Obeys::Honestly);
    let end = node.now + secs(5);
    while node.waits(ask) && node.now < end {
        node.live(Nanos::millis(50));
    }
    assert!(node.granted(ask));
    assert_eq!(node.place(second, device), Place::In);
    assert_eq!(node.place(first, device), Place::Out);
}

#[test]
fn a_victim_that_lies_gives_nothing_and_is_told_of() {
    let (mut node, device, [first, _], ask) = victim(Obeys::Lying, &[Resolver::Swap]);
    node.live(secs(6));
    assert!(!node.granted(ask));
    let lied = |one: &Notice| {
        let nothing = matches!(one, Notice::LeftLess { seen, .. } if seen.is_zero());
        nothing && matches!(one, Notice::LeftLess { tenant, .. } if *tenant == first)
    };
    assert!(told(&node, lied));
    node.live(secs(40));
    assert!(node.denied(ask).is_some());
    assert_eq!(node.place(first, device), Place::In, "it may run on");
}

#[test]
fn a_victim_that_dies_while_it_leaves_gives_its_memory() {
    for after in [1, 20, 200] {
        let (mut node, _, [first, _], ask) = victim(Obeys::Honestly, &[Resolver::Swap]);
        node.guarantees = true;
        node.pass(Nanos::millis(after));
        node.finish(first);
        node.live(secs(3));
        assert!(node.granted(ask), "after {after} ms");
    }
}

#[test]
fn a_tenant_that_dies_while_it_is_out_frees_the_host_and_no_card() {
    let (mut node, device) = Node::swaps(1536, 2);
    let run = |node: &mut Node| {
        let (tenant, process) = node.run(swapping(device, 1024));
        (tenant, process, node.want(process, device, mib(1024)))
    };
    let first = run(&mut node);
    let second = run(&mut node);
    node.live(secs(4));
    assert!(node.granted(second.2) && node.place(first.0, device) == Place::Out);
    node.exit(first.1);
    let view = node.world.device(device).expect("it is there");
    assert_eq!((view.limbo, view.taken), (Bytes::ZERO, mib(1024)));
    let third = run(&mut node);
    node.live(secs(4));
    assert!(
        node.granted(third.2),
        "the host has room again: {:?}",
        denials(&node)
    );
}

#[test]
fn a_victim_stays_out_when_its_asker_goes_until_it_runs() {
    let (mut node, device, [first, second], _) = victim(Obeys::Honestly, &[Resolver::Swap]);
    node.guests.get_mut(&first).expect("it runs").moves.works = false;
    node.pass(Nanos::millis(1));
    node.finish(second);
    node.live(secs(10));
    assert_eq!(node.place(first, device), Place::Out);
    node.calls(first, device);
    node.live(secs(1));
    assert_eq!(node.place(first, device), Place::In);
}

#[test]
fn all_processes_of_a_tenant_move_or_none() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (pair, one) = node.run(swapping(device, 1024));
    let two = node.start(pair);
    node.want(one, device, mib(512));
    node.want(two, device, mib(512));
    let (_, three) = node.run(swapping(device, 1024));
    node.live(secs(4));
    let ask = node.want(three, device, mib(1024));
    node.live(secs(1));
    assert!(node.granted(ask));
    let away = [one, two].map(|process| node.processes[&process].away(device));
    assert_eq!(away, [mib(512); 2]);
}

#[test]
fn a_process_that_cannot_move_keeps_its_tenant_in() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (pair, one) = node.run(swapping(device, 1024));
    let old = ProcessId(node.fresh());
    node.add(old, Proc::new(pair));
    node.tell(Event::ProcessStarted {
        process: old,
        tenant: pair,
        adopted: true,
        gated: true,
    });
    node.open(old, device);
    node.want(one, device, mib(1024));
    let (_, three) = node.run(swapping(device, 1024));
    node.live(secs(4));
    let ask = node.want(three, device, mib(1024));
    assert!(matches!(node.denied(ask), Some(Denial::NoRoom { .. })));
    node.exit(old);
    let again = node.want(three, device, mib(1024));
    node.live(secs(1));
    assert!(node.granted(again));
}

#[test]
fn a_return_into_memory_that_strangers_took_is_tried_again() {
    let (mut node, device, [first, second], ask) = victim(Obeys::Honestly, &[Resolver::Swap]);
    node.guests.get_mut(&first).expect("it runs").moves.works = false;
    node.live(secs(1));
    assert!(node.granted(ask));
    node.finish(second);
    node.live(secs(1));
    node.devices.get_mut(&device).expect("it exists").foreign = mib(1024);
    node.calls(first, device);
    node.live(secs(20));
    assert!(told(&node, |one| matches!(one, Notice::NoReturn { .. })));
    assert_eq!(node.place(first, device), Place::Entering);
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.live(secs(60));
    assert_eq!(node.place(first, device), Place::In);
}

#[test]
fn beside_one_that_can_make_way_a_return_into_lost_memory_waits_its_turn() {
    let (mut node, device) = Node::swaps(3 << 10, 64);
    let all = [(); 2].map(|()| {
        let (tenant, process) = node.run(swapping(device, 1024));
        node.want(process, device, mib(1024));
        tenant
    });
    node.tell(Event::Suspend { tenant: all[1] });
    node.guests.get_mut(&all[1]).expect("it runs").moves.works = false;
    node.live(secs(2));
    assert_eq!(node.place(all[1], device), Place::Out);
    node.guests.get_mut(&all[1]).expect("it runs").moves.works = true;
    node.devices.get_mut(&device).expect("it exists").foreign = mib(1280);
    node.calls(all[1], device);
    for turn in 0..4 {
        let (one, other) = (all[(turn + 1) % 2], all[turn % 2]);
        node.until("its turn has come", 20, |node| {
            node.place(one, device) == Place::In && node.place(other, device) != Place::In
        });
    }
    assert!(told(&node, |one| matches!(one, Notice::NoReturn { .. })));
}

/// How often it was told that a tenant cannot return.
fn no_returns(node: &Node) -> usize {
    let is_one = |one: &&Notice| matches!(one, Notice::NoReturn { .. });
    node.notices.iter().filter(is_one).count()
}

#[test]
fn a_process_of_a_tenant_that_is_in_and_cannot_return_is_told_of_once() {
    let (mut node, device, [first, _], _) = victim(Obeys::Busy, &[Resolver::Swap]);
    node.live(Nanos::millis(500));
    assert_eq!(node.place(first, device), Place::In, "it did not leave");
    let (epoch, order) = node.guests[&first].moves.orders[&device];
    assert_eq!(order, Order::In);
    let process = node.processes_of(first)[0];
    let says = |node: &mut Node, epoch| {
        let told = Told::NoRoom { bytes: mib(64) };
        node.tell(Event::Moved {
            process,
            device,
            epoch,
            told,
        });
        no_returns(node)
    };
    assert_eq!(says(&mut node, epoch - 1), 0, "that is about another order");
    assert_eq!([says(&mut node, epoch), says(&mut node, epoch)], [1, 1]);
    assert_eq!(node.place(first, device), Place::In);
}

/// Beside a tenant of a GiB that works, a second one of two processes comes back to a card on which
/// strangers took memory: there is room for the first of them alone.
fn half_back() -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = Node::swaps(3 << 10, 64);
    let (beside, process) = node.run(swapping(device, 1024));
    node.want(process, device, mib(1024));
    let (pair, small) = node.run(swapping(device, 1024));
    let large = node.start(pair);
    node.want(small, device, mib(256));
    node.want(large, device, mib(768));
    node.tell(Event::Suspend { tenant: pair });
    node.guests.get_mut(&pair).expect("it runs").moves.works = false;
    node.live(secs(2));
    assert_eq!(node.place(pair, device), Place::Out);
    node.devices.get_mut(&device).expect("it exists").foreign = mib(1280);
    node.calls(pair, device);
    node.until("it finds no room", 5, |node| {
        told(node, |one| matches!(one, Notice::NoReturn { .. }))
    });
    (node, device, [beside, pair])
}

#[test]
fn a_return_of_which_a_process_is_back_is_not_taken_back() {
    let (mut node, device, [beside, pair]) = half_back();
    // It is at work, and does not drain.
    node.obeys(pair, Obeys::Halting);
    node.live(secs(10));
    assert_eq!(node.place(pair, device), Place::Entering);
    node.finish(beside);
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.until("it is back", 60, |node| {
        node.place(pair, device) == Place::In
    });
}

#[test]
fn a_return_that_was_taken_back_goes_on_where_a_process_is_at_work() {
    for busy in [true, false] {
        let (mut node, device) = Node::swaps(3 << 10, 64);
        let all = [(); 2].map(|()| {
            let (tenant, process) = node.run(swapping(device, 1024));
            node.want(process, device, mib(1024));
            (tenant, process)
        });
        let (late, process) = all[1];
        node.tell(Event::Suspend { tenant: late });
        node.guests.get_mut(&late).expect("it runs").moves.works = false;
        node.live(secs(2));
        node.devices.get_mut(&device).expect("it exists").foreign = mib(1280);
        node.obeys(late, Obeys::Halting);
        node.calls(late, device);
        node.until("it is taken back", 20, |node| {
            node.place(late, device) == Place::Leaving
        });
        let (epoch, _) = node.guests[&late].moves.orders[&device];
        let told = Told::Busy {
            retry: 0,
            late: false,
        };
        if busy {
            // Its word that it is back came too late.
            node.tell(Event::Moved {
                process,
                device,
                epoch,
                told,
            });
        }
        let goes_on = node.place(late, device) == Place::Entering;
        assert_eq!(goes_on, busy);
    }
}

#[test]
fn moves_that_take_most_of_the_time_are_told_of_and_made_rare() {
    let mut all = policy(64);
    (all.swap.stay, all.swap.urgent_stay) = (1, 1);
    let mut node = Node::with(all);
    let device = node.device_of(mib(1536));
    for _ in 0..2 {
        let (tenant, process) = node.run(swapping(device, 1024));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 29;
        node.want(process, device, mib(1024));
    }
    node.live(secs(300));
    assert!(told(&node, |one| matches!(one, Notice::Thrashing { .. })));
    let (mut calm, device) = Node::swaps(1536, 64);
    for _ in 0..2 {
        let (_, process) = calm.run(swapping(device, 1024));
        calm.want(process, device, mib(1024));
    }
    calm.live(secs(300));
    assert!(!told(&calm, |one| matches!(one, Notice::Thrashing { .. })));
}

#[test]
fn moves_at_the_same_time_take_the_devices_time_once() {
    let (mut node, device) = Node::swaps(2048, 64);
    for _ in 0..3 {
        let (tenant, process) = node.run(swapping(device, 512));
        node.guests.get_mut(&tenant).expect("it runs").moves.rate = 1 << 28;
        node.want(process, device, mib(512));
    }
    node.live(secs(9));
    assert_eq!(node.world.moving(device), Nanos::ZERO);
    let (_, process) = node.run(swapping(device, 1536));
    let ask = node.want(process, device, mib(1536));
    node.until("it has their memory", 20, |node| node.granted(ask));
    let left = node.notices.iter().filter_map(|one| match one {
        Notice::Left { took, .. } => Some(*took),
        _ => None,
    });
    let left: Vec<Nanos> = left.collect();
    let sum = left.iter().fold(Nanos::ZERO, |sum, took| sum + *took);
    let moving = node.world.moving(device);
    // Each takes two seconds by itself.
    assert!(moving >= secs(2) && moving < secs(3), "{moving:?}");
    assert!(left.len() > 1 && sum > moving + secs(1), "{left:?}");
}

/// Five tenants of a GiB on a card of 1.7 GiB that only swap, one of them of higher priority.
/// Twelve times a program that has its memory ends, and another one comes. Replies are late by as
/// much.
fn crowd(seed: u64, late: Nanos) -> (Node, Vec<AskKey>) {
    let (mut node, device) = Node::swaps(1696, 64);
    node.guarantees = false;
    node.lag = Some((Rng(seed), late));
    node.devices.get_mut(&device).expect("it is there").returns = Nanos::millis(100);
    let (mut rng, mut asks, mut tenants) = (Rng(seed), Vec::new(), Vec::new());
    while asks.len() < 17 {
        if tenants.len() < 5 {
            let spec = resolving(&[Resolver::Swap], swapping(device, 1024));
            let priority = if asks.is_empty() { 900 } else { 500 };
            let (tenant, process) = node.run(ranked(priority, spec));
            asks.push(node.want(process, device, mib(1024)));
            tenants.push(tenant);
        }
        for tenant in &tenants {
            node.tell(Event::Worked { tenant: *tenant });
        }
        node.live(Nanos::millis(100));
        let works = |tenant: &TenantId| {
            node.place(*tenant, device) == Place::In && !node.charged(*tenant, device).is_zero()
        };
        if rng.below(20) == 0
            && let Some(at) = tenants.iter().position(works)
        {
            node.finish(tenants.remove(at));
        }
    }
    node.live(secs(120));
    (node, asks)
}

#[test]
fn of_five_tenants_that_only_swap_none_is_refused() {
    for seed in 0..16 {
        let (node, asks) = crowd(seed, Nanos::millis(1 << (seed % 8)));
        assert_eq!(denials(&node), [], "seed {seed}");
        assert!(!asks.iter().any(|ask| node.waits(*ask)), "seed {seed}");
    }
}

/// The next look at a device, whose total was read before a tenant gave so much back, and whose
/// list of processes after that.
fn torn_look(node: &mut Node, device: DeviceId, bytes: Bytes) -> Event {
    match node.look_at(device) {
        Event::Sampled { device, sample } => Event::Sampled {
            device,
            sample: Sample {
                used: sample.used + bytes,
                free: sample.free - bytes,
                ..sample
            },
        },
        other => other,
    }
}

#[test]
fn memory_of_a_leaving_tenant_is_its_own_until_the_total_shows_it_gone() {
    let (mut node, device, [first, _], ask) = victim(Obeys::Honestly, &[Resolver::Swap]);
    node.lag = Some((Rng(1), Nanos::millis(100)));
    while node.place(first, device) != Place::Confirming {
        node.pass(Nanos::millis(1));
    }
    let torn = torn_look(&mut node, device, mib(1024));
    node.tell(torn);
    assert_eq!(node.place(first, device), Place::Confirming);
    assert!(node.waits(ask), "{:?}", denials(&node));
    node.lag = None;
    node.live(Nanos::millis(300));
    assert!(node.granted(ask));
}
