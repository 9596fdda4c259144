//! One count of the host budget: what the brain reserves for moves and what the store has given.

use crate::node::swap::{policy, swapping};
use crate::node::{Node, Rng, mib, resolving, secs};
use crate::swap::denials;
use crate::swap_spread::{on, set_works};
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Event, Held, Nanos, NotSuspended, Notice, Place, ProcessId,
    Resolver, TenantId,
};

/// A card of one and a half, and so much host memory.
fn card(host_mib: u64) -> (Node, DeviceId) {
    let mut all = policy(1);
    all.swap.host = mib(host_mib);
    let mut node = Node::with(all);
    let device = node.device_of(mib(1536));
    (node, device)
}

/// A tenant with all its memory, or its ask for that. Once it is out, it does not call.
fn tenant(node: &mut Node, device: DeviceId, size: u64) -> (TenantId, ProcessId, AskKey) {
    let (tenant, process) = node.run(resolving(&[Resolver::Swap], swapping(device, size)));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    (tenant, process, node.want(process, device, mib(size)))
}

fn told(node: &Node, what: impl Fn(&Notice) -> bool) -> bool {
    node.notices.iter().any(what)
}

fn is_refused(node: &Node, ask: AskKey) -> bool {
    matches!(node.denied(ask), Some(Denial::NoRoom { .. }))
}

/// A tenant has so much of the host, whatever it needs.
fn hoards(node: &mut Node, tenant: TenantId, bytes: Bytes) {
    let held = Held {
        memory: bytes,
        ..Held::default()
    };
    let process = node.processes_of(tenant)[0];
    node.processes.get_mut(&process).expect("it runs").host = bytes;
    node.store.hoards.insert(process);
    node.tell(Event::Held { tenant, held });
}

#[test]
fn a_victim_is_asked_only_where_the_store_can_give_for_its_move() {
    for free in [1000, 1024] {
        let (mut node, device) = card(4096);
        let (small, ..) = tenant(&mut node, device, 64);
        hoards(&mut node, small, mib(4096 - free));
        let (big, ..) = tenant(&mut node, device, 1024);
        let (_, _, ask) = tenant(&mut node, device, 1024);
        node.live(secs(4));
        let fits = free == 1024;
        assert_eq!(node.granted(ask), fits, "{:?}", denials(&node));
        assert_eq!(is_refused(&node, ask), !fits);
        let full = told(&node, |one| matches!(one, Notice::HostFull { .. }));
        let stayed = told(&node, |one| matches!(one, Notice::DidNotLeave { .. }));
        assert_eq!((full, stayed), (!fits, false));
        assert_eq!(node.place(big, device) == Place::In, !fits);
    }
}

#[test]
fn a_victim_that_has_its_host_memory_already_needs_no_more() {
    let (mut node, device) = card(3072);
    let (first, ..) = tenant(&mut node, device, 1024);
    node.live(secs(1));
    assert_eq!(node.world.host().held.memory, mib(1024), "in advance");
    let (second, _, ask) = tenant(&mut node, device, 1024);
    node.live(secs(4));
    assert!(node.granted(ask), "{:?}", denials(&node));
    hoards(&mut node, second, mib(2048));
    assert_eq!(node.world.host().free(), Bytes::ZERO);
    node.tell(Event::Resume { tenant: first });
    node.live(secs(10));
    assert!(told(&node, |one| matches!(one, Notice::Returned { .. })));
}

#[test]
fn in_advance_the_store_gives_only_what_leaves_room_for_one_more_move() {
    let mut all = policy(1);
    all.swap.host = mib(2048);
    let mut node = Node::with(all);
    let device = node.device(8);
    let ids: Vec<TenantId> = (0..4).map(|_| tenant(&mut node, device, 1024).0).collect();
    node.live(secs(5));
    let host = node.world.host();
    assert_eq!((host.held.memory, host.free()), (mib(1024), mib(1024)));
    // Any of them can leave: also one that was given nothing.
    let bare = ids.iter().find(|tenant| {
        let process = node.processes_of(**tenant)[0];
        node.processes[&process].host.is_zero()
    });
    let bare = *bare.expect("three of them");
    assert_eq!(node.world.may_suspend(bare), Ok(()));
    node.tell(Event::Suspend { tenant: bare });
    node.live(secs(2));
    assert_eq!(node.place(bare, device), Place::Out);
    let other = ids.iter().find(|one| {
        let process = node.processes_of(**one)[0];
        node.processes[&process].host.is_zero()
    });
    let full = node.world.may_suspend(*other.expect("two of them"));
    let (needed, free) = (mib(1024), Bytes::ZERO);
    assert_eq!(full, Err(NotSuspended::HostFull { needed, free }));
}

#[test]
fn in_advance_the_store_leaves_what_one_lacks_for_both_of_its_devices() {
    for held in [0, 512, 1024] {
        let mut all = policy(1);
        all.swap.host = mib(2048);
        let mut node = Node::with(all);
        let devices = [(); 2].map(|()| node.device_of(mib(2048)));
        let (spread, process) = node.run(on(&devices, 512));
        set_works(&mut node, spread, false);
        for device in devices {
            let ask = node.want(process, device, mib(512));
            assert!(node.granted(ask));
        }
        hoards(&mut node, spread, mib(held));
        let (other, ..) = tenant(&mut node, devices[0], 1024);
        let given = node.world.may_give(other, mib(2048));
        assert_eq!(given, mib(1024), "{held}");
        hoards(&mut node, other, given);
        assert_eq!(node.world.may_suspend(spread), Ok(()), "{held}");
    }
}

#[test]
fn what_was_given_in_advance_does_not_keep_others_on_the_card() {
    let mut all = policy(1);
    all.swap.host = mib(2048);
    let mut node = Node::with(all);
    let device = node.device(8);
    let ids: Vec<TenantId> = (0..3)
        .map(|_| {
            let (tenant, ..) = tenant(&mut node, device, 1024);
            node.live(secs(1));
            tenant
        })
        .collect();
    assert_eq!(
        node.world.host().free(),
        Bytes::ZERO,
        "two of them have all"
    );
    for at in [0, 2, 1, 2, 0, 1] {
        let tenant = ids[at];
        assert_eq!(node.world.may_suspend(tenant), Ok(()), "{at}");
        node.tell(Event::Suspend { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::Out);
        node.tell(Event::Resume { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::In);
    }
}

#[test]
fn where_the_store_fails_the_victim_runs_on_and_the_next_resolver_decides() {
    let (mut node, device) = card(4096);
    node.guarantees = false;
    node.store.fails = Some((Rng(1), 1));
    let (first, process, _) = tenant(&mut node, device, 1024);
    node.live(secs(2));
    let (_, _, ask) = tenant(&mut node, device, 1024);
    node.live(secs(40));
    assert!(node.denied(ask).is_some(), "it waits for ever");
    assert!(told(&node, |one| matches!(one, Notice::DidNotLeave { .. })));
    assert_eq!(node.place(first, device), Place::In);
    assert_eq!(node.world.host().reserved, Bytes::ZERO);
    assert!(!node.processes[&process].is_sealed(device));
    // Once the system has memory again, it leaves as any other.
    node.store.fails = None;
    node.live(secs(60));
    let (_, _, again) = tenant(&mut node, device, 1024);
    node.live(secs(10));
    assert!(node.granted(again), "{:?}", denials(&node));
}

#[test]
fn what_a_tenant_charges_until_it_is_sealed_is_reserved_too() {
    let (mut node, device) = card(4096);
    let (first, process) = node.run(swapping(device, 1200));
    node.want(process, device, mib(600));
    node.want(process, device, mib(600));
    node.free(process, device, mib(600));
    node.live(secs(4));
    node.guests.get_mut(&first).expect("it runs").moves.drain = Nanos::millis(100);
    let (_, _, ask) = tenant(&mut node, device, 1024);
    let begun = node.place(first, device) == Place::Sealing;
    node.live(secs(4));
    assert!(begun && node.granted(ask), "{:?}", denials(&node));
    let host = node.world.host();
    assert!(host.reserved >= node.charged(first, device), "{host:?}");
}

#[test]
fn what_a_tenant_had_on_the_host_is_free_once_it_has_ended() {
    for suspended in [true, false] {
        let (mut node, device) = card(2048);
        let (first, ..) = tenant(&mut node, device, 1024);
        node.live(secs(1));
        match suspended {
            true => node.tell(Event::Suspend { tenant: first }),
            false => drop(tenant(&mut node, device, 1024)),
        }
        node.live(secs(4));
        assert_eq!(node.place(first, device), Place::Out);
        node.finish(first);
        node.live(secs(2));
        let host = node.world.host();
        let others = if suspended { 0 } else { 1024 };
        assert_eq!((host.reserved, host.counted), (Bytes::ZERO, mib(others)));
    }
}

#[test]
fn what_a_process_had_on_the_host_is_free_once_it_has_ended() {
    for ends in [true, false] {
        let (mut node, _) = card(2048);
        let device = node.device(8);
        let (pair, process) = node.run(swapping(device, 1024));
        node.guests.get_mut(&pair).expect("it runs").moves.works = false;
        for process in [process, node.start(pair)] {
            node.want(process, device, mib(512));
        }
        node.tell(Event::Suspend { tenant: pair });
        node.live(secs(2));
        let (large, ..) = tenant(&mut node, device, 1200);
        node.live(secs(2));
        assert_eq!(node.place(pair, device), Place::Out);
        if ends {
            node.exit(process);
        }
        node.live(secs(1));
        let reserved = node.world.host().reserved;
        assert_eq!(reserved <= mib(514), ends, "{reserved}");
        let full = matches!(
            node.world.may_suspend(large),
            Err(NotSuspended::HostFull { .. })
        );
        assert_eq!(full, !ends);
        node.tell(Event::Suspend { tenant: large });
        node.live(secs(2));
        assert_eq!(node.place(large, device) == Place::Out, ends);
    }
}

/// Whether it says that the host is full. More is needed then than is free.
fn is_host_full(notice: &Notice) -> bool {
    let Notice::HostFull { needed, free, .. } = notice else {
        return false;
    };
    assert!(needed > free, "{notice:?}");
    true
}

#[test]
fn a_full_host_moves_nobody_and_says_so() {
    for (host, fit) in [(1, 2), (2, 3), (3, 4)] {
        let (mut node, device) = Node::swaps(2048, host);
        let run = |node: &mut Node| {
            let (tenant, process) = node.run(swapping(device, 1536));
            (tenant, node.want(process, device, mib(1024)))
        };
        let all: Vec<_> = (0..4).map(|_| run(&mut node)).collect();
        node.live(secs(4));
        let full = node.notices.iter().any(is_host_full);
        let refused = denials(&node);
        let granted = all.iter().filter(|(_, ask)| node.granted(*ask)).count();
        assert_eq!((granted, refused.len()), (fit, 4 - fit));
        assert_eq!(full, fit < 4);
        let no_room = |denial: &Denial| matches!(denial, Denial::NoRoom { .. });
        assert!(refused.iter().all(no_room));
    }
}

#[test]
fn a_host_without_room_for_a_whole_victim_is_full_however_little_is_short() {
    let (mut node, device) = Node::swaps(1536, 1);
    let (_, one) = node.run(swapping(device, 1024));
    node.want(one, device, mib(800));
    node.live(secs(4));
    let (_, two) = node.run(swapping(device, 1024));
    let ask = node.want(two, device, mib(800));
    node.live(secs(1));
    let denied = node.denied(ask);
    assert!(matches!(denied, Some(Denial::NoRoom { .. })), "{denied:?}");
    assert!(node.notices.iter().any(is_host_full));
}
