//! Tenants that are moved out by command, at every moment of a move.

use crate::node::swap::{Obeys, policy, swapping};
use crate::node::{Node, ranked, secs, spec};
use crate::swap_spread::{on, set_works};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Place, Quota, Resolver, State, TenantId, TenantSpec,
};

/// A tenant that leaves for another, at that place; the other one.
fn leaving(place: Place) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = Node::swaps(1536, 64);
    let [first, second] = [(); 2].map(|()| {
        let (tenant, process) = node.run(swapping(device, 1024));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (false, 1 << 30);
        node.want(process, device, Bytes::gib(1));
        tenant
    });
    node.devices.get_mut(&device).expect("it exists").returns = Nanos::millis(300);
    let end = node.now + secs(30);
    while node.place(first, device) != place && node.now < end {
        node.pass(Nanos::millis(1));
        if node.now.0 / 1_000_000 % 250 == 0 {
            node.sample(device);
        }
    }
    assert_eq!(node.place(first, device), place);
    (node, device, [first, second])
}

const PLACES: [Place; 4] = [
    Place::Sealing,
    Place::Leaving,
    Place::Confirming,
    Place::Out,
];

#[test]
fn a_call_that_waits_already_wakes_a_tenant_that_is_suspended_then() {
    for place in PLACES {
        for calls in [true, false] {
            let (mut node, device, [first, second]) = leaving(place);
            if calls {
                // It is said once, however long the tenant is sealed.
                let process = node.processes_of(first)[0];
                node.tell(Event::WantsIn { process, device });
            }
            node.tell(Event::Suspend { tenant: first });
            assert_eq!(node.world.is_suspended(first), !calls);
            node.live(secs(3));
            node.finish(second);
            node.live(secs(5));
            let expected = if calls { Place::In } else { Place::Out };
            assert_eq!(node.place(first, device), expected, "{place:?}");
        }
    }
}

#[test]
fn what_comes_back_from_a_file_of_a_command_is_told_in_bytes() {
    for elsewhere in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        let (tenant, process) = node.run(swapping(device, 1024));
        node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
        node.want(process, device, Bytes::gib(1));
        node.tell(Event::Suspend { tenant });
        node.live(secs(3));
        if elsewhere {
            node.tell(Event::Elsewhere { tenant });
            node.tell(Event::Elsewhere { tenant });
        }
        node.tell(Event::Resume { tenant });
        node.live(secs(3));
        assert_eq!(node.place(tenant, device), Place::In);
        let back = node.notices.iter().filter_map(|one| match one {
            Notice::Returned { bytes, .. } => Some(*bytes),
            _ => None,
        });
        assert_eq!(back.collect::<Vec<_>>(), [Bytes::gib(1)]);
        let residence = node.world.residence(tenant, device).expect("it may swap");
        assert_eq!(residence.moved, Bytes::gib(2));
    }
}

#[test]
fn a_tenant_resumed_while_it_leaves_comes_back() {
    for place in PLACES {
        let (mut node, device, [first, second]) = leaving(place);
        node.tell(Event::Suspend { tenant: first });
        node.tell(Event::Suspend { tenant: first });
        node.tell(Event::Resume { tenant: first });
        assert!(!node.world.is_suspended(first));
        node.live(secs(3));
        node.finish(second);
        node.live(secs(5));
        assert_eq!(node.place(first, device), Place::In, "{place:?}");
    }
}

#[test]
fn a_tenant_that_dies_while_it_leaves_gives_everything_back() {
    for place in PLACES {
        let (mut node, device, [first, second]) = leaving(place);
        node.finish(first);
        node.live(secs(5));
        let host = node.world.host();
        assert_eq!(host.reserved, Bytes::ZERO, "{place:?}");
        assert_eq!(node.charged(second, device), Bytes::gib(1), "{place:?}");
        let taken = node.world.device(device).expect("it exists").taken;
        assert_eq!(taken, Bytes::gib(1), "{place:?}");
    }
}

#[test]
fn the_request_of_a_suspended_tenant_is_kept_once_and_comes_back_at_once() {
    let (mut node, device) = Node::swaps(1536, 64);
    let requested = TenantSpec {
        quotas: vec![(
            device,
            Quota {
                request: Bytes::gib(1),
                limit: Bytes::gib(1),
            },
        )],
        ..swapping(device, 1024)
    };
    let (tenant, process) = node.run(requested);
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.want(process, device, Bytes::gib(1));
    node.tell(Event::Suspend { tenant });
    node.live(secs(2));
    assert_eq!(node.place(tenant, device), Place::Out);
    // A second request of a GiB is not admitted: the first one's holds while it is out.
    let other = node.register(spec(device, 1, 1));
    node.live(secs(5));
    assert!(!node.guests[&other].admitted);
    // Nor is it lent: others have the rest of the card, and it comes back at once.
    let (_, process) = node.run(swapping(device, 1024));
    let much = node.want(process, device, Bytes::mib(513));
    let rest = node.want(process, device, Bytes::mib(512));
    assert!(!node.granted(much) && node.granted(rest));
    node.calls(tenant, device);
    node.live(secs(1));
    assert_eq!(node.place(tenant, device), Place::In);
}

#[test]
fn limits_set_while_a_tenant_is_out_hold_when_it_is_back() {
    let (mut node, device, [first, second]) = leaving(Place::Out);
    let lower = TenantSpec {
        on_collision: vec![Resolver::Fail],
        ..swapping(device, 512)
    };
    node.guests
        .get_mut(&first)
        .expect("it runs")
        .spec
        .on_collision = lower.on_collision.clone();
    node.tell(Event::Set {
        tenant: first,
        spec: lower,
    });
    node.live(secs(2));
    let account = node.world.account(first, device).expect("it runs");
    assert_eq!(
        (account.quota.limit, account.in_use),
        (Bytes::mib(512), Bytes::gib(1))
    );
    assert_eq!(node.place(first, device), Place::Out);
    node.finish(second);
    node.calls(first, device);
    node.live(secs(5));
    assert_eq!(node.place(first, device), Place::In, "with all it has");
    let process = node.processes_of(first)[0];
    node.free(process, device, Bytes::mib(600));
    node.live(secs(2));
    let page = node.guests[&first].page[&device];
    assert_eq!(
        page,
        Bytes::mib(512),
        "above the limit it never grows again"
    );
}

#[test]
fn a_suspended_tenant_that_only_says_that_it_left_is_asked_again() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, Bytes::gib(1));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.obeys(tenant, Obeys::Lying);
    node.tell(Event::Suspend { tenant });
    node.live(secs(3));
    assert!(node.world.is_suspended(tenant));
    assert_eq!(node.place(tenant, device), Place::In, "it runs on");
    assert!(!node.world.has_left(tenant));
    assert!(node.world.did_not_suspend(tenant) > Some(node.now));
    node.obeys(tenant, Obeys::Honestly);
    node.live(secs(61));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert!(node.world.is_suspended(tenant));
}

#[test]
fn a_tenant_that_only_said_that_it_left_stays_once_it_is_resumed() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, Bytes::gib(1));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.obeys(tenant, Obeys::Lying);
    node.tell(Event::Suspend { tenant });
    node.live(secs(3));
    node.tell(Event::Resume { tenant });
    node.obeys(tenant, Obeys::Honestly);
    node.live(secs(61));
    assert_eq!(node.place(tenant, device), Place::In);
    assert!(!node.world.is_suspended(tenant));
}

#[test]
fn the_next_program_of_a_suspended_tenant_runs() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, process) = node.run(swapping(device, 1024));
    node.want(process, device, Bytes::gib(1));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.tell(Event::Suspend { tenant });
    node.live(secs(2));
    assert_eq!(node.place(tenant, device), Place::Out);
    node.exit(process);
    runs(&mut node, device, tenant);
}

#[test]
fn a_tenant_without_a_program_is_not_suspended_later() {
    let (mut node, device) = Node::swaps(1536, 64);
    let tenant = node.register(swapping(device, 1024));
    node.tell(Event::Suspend { tenant });
    assert!(node.world.has_left(tenant));
    runs(&mut node, device, tenant);
}

/// A program starts in the tenant, takes memory and is never moved.
fn runs(node: &mut Node, device: DeviceId, tenant: TenantId) {
    let process = node.start(tenant);
    let ask = node.want(process, device, Bytes::mib(512));
    assert!(node.granted(ask));
    for _ in 0..20 {
        assert_eq!(node.place(tenant, device), Place::In);
        assert!(!node.world.is_suspended(tenant));
        node.live(Nanos::millis(100));
    }
}

#[test]
fn a_suspended_tenant_stays_so_while_one_of_its_programs_lives() {
    let (mut node, device) = Node::swaps(1536, 64);
    let (tenant, first) = node.run(swapping(device, 1024));
    let second = node.start(tenant);
    for process in [first, second] {
        node.want(process, device, Bytes::mib(256));
    }
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.tell(Event::Suspend { tenant });
    node.live(secs(2));
    node.exit(first);
    node.live(secs(2));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert!(node.world.is_suspended(tenant));
}

#[test]
fn an_ask_of_a_tenant_that_is_out_brings_it_back_at_once() {
    for context in [false, true] {
        let (mut node, device) = Node::swaps(1536, 64);
        let (tenant, process) = node.run(swapping(device, 1024));
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (false, 1 << 30);
        node.want(process, device, Bytes::mib(512));
        node.tell(Event::Suspend { tenant });
        node.live(secs(10));
        node.pass(Nanos::ZERO);
        assert_eq!(node.place(tenant, device), Place::Out, "without an ask");
        match context {
            true => drop(node.start(tenant)),
            false => drop(node.want(process, device, Bytes::mib(256))),
        }
        node.pass(Nanos::ZERO);
        assert_eq!(node.place(tenant, device), Place::Entering);
        let state = node.world.tenant(tenant).expect("it runs").state;
        assert_eq!(state, State::Running, "an ask is work, as any call");
    }
}

#[test]
fn an_ask_from_before_a_tenant_was_moved_is_no_work() {
    let (mut node, device) = Node::swaps(1536, 64);
    let start = |node: &mut Node, spec: TenantSpec, mib| {
        let (tenant, process) = node.run(spec);
        let moves = &mut node.guests.get_mut(&tenant).expect("it runs").moves;
        (moves.works, moves.rate) = (false, 1 << 30);
        (tenant, process, node.want(process, device, Bytes::mib(mib)))
    };
    let (out, ..) = start(&mut node, ranked(600, swapping(device, 1024)), 1024);
    node.tell(Event::Suspend { tenant: out });
    node.live(secs(2));
    let quota = Quota {
        request: Bytes::ZERO,
        limit: Bytes::mib(512),
    };
    let fixed = TenantSpec {
        quotas: vec![(device, quota)],
        ..spec(device, 0, 1)
    };
    start(&mut node, fixed, 512);
    let waits = TenantSpec {
        on_collision: vec![Resolver::Swap, Resolver::Wait],
        wait_timeout: secs(600),
        idle_end: Some(secs(60)),
        ..swapping(device, 1536)
    };
    let (tenant, process, _) = start(&mut node, waits, 1024);
    let ask = node.want(process, device, Bytes::mib(256));
    node.live(secs(10));
    let is_idle = |node: &Node| {
        let known = node.world.tenant(tenant).expect("it runs");
        matches!(known.state, State::Idle { .. })
    };
    assert!(is_idle(&node) && node.waits(ask));
    assert_eq!(node.place(tenant, device), Place::In);
    node.calls(out, device);
    let mut left = false;
    for _ in 0..200 {
        node.live(Nanos::millis(100));
        left |= node.place(tenant, device) == Place::Out;
        assert!(is_idle(&node) && node.waits(ask));
    }
    assert!(left, "it made way");
    node.live(secs(40));
    assert!(!node.guests.contains_key(&tenant), "its idle end is kept");
}

#[test]
fn an_ask_of_a_tenant_that_is_out_waits_where_others_have_its_room() {
    let (mut node, device, [first, second]) = leaving(Place::Out);
    node.tell(Event::Suspend { tenant: second });
    node.tell(Event::Resume { tenant: second });
    node.until("the second has its memory", 10, |node| {
        node.place(second, device) == Place::In
    });
    let process = node.start(first);
    node.pass(Nanos::ZERO);
    assert!(node.is_asking(process), "for its context");
    assert_eq!(node.place(first, device), Place::Out);
}

/// A tenant on its way back to a device of which a program of no tenant takes the most meanwhile.
fn without_room() -> (Node, DeviceId, TenantId) {
    let (mut node, device) = Node::swaps(1536, 64);
    node.guarantees = false;
    let (tenant, process) = node.run(swapping(device, 1024));
    node.guests.get_mut(&tenant).expect("it runs").moves.works = false;
    node.want(process, device, Bytes::gib(1));
    node.tell(Event::Suspend { tenant });
    node.live(secs(2));
    set_foreign(&mut node, device, Bytes::gib(1));
    node.calls(tenant, device);
    assert_eq!(node.place(tenant, device), Place::Entering);
    (node, device, tenant)
}

fn set_foreign(node: &mut Node, device: DeviceId, bytes: Bytes) {
    node.devices.get_mut(&device).expect("it exists").foreign = bytes;
}

#[test]
fn a_suspended_tenant_gives_up_a_return_that_finds_no_room() {
    // Before it finds that out, and after.
    for after in [0, 20] {
        let (mut node, device, tenant) = without_room();
        if after > 0 {
            node.live(secs(after));
        }
        assert!(!node.world.is_suspended(tenant));
        node.tell(Event::Suspend { tenant });
        node.live(secs(5));
        assert_eq!(node.place(tenant, device), Place::Out, "after {after} s");
        assert!(node.world.has_left(tenant) && node.world.is_suspended(tenant));
        set_foreign(&mut node, device, Bytes::ZERO);
        node.live(secs(30));
        assert_eq!(node.place(tenant, device), Place::Out, "until it calls");
        node.calls(tenant, device);
        node.live(secs(1));
        assert_eq!(node.place(tenant, device), Place::In);
    }
}

#[test]
fn a_return_that_finds_no_room_goes_on_where_nobody_suspends_its_tenant() {
    let (mut node, device, tenant) = without_room();
    node.live(secs(20));
    assert_eq!(node.place(tenant, device), Place::Entering);
    assert!(
        !node.world.is_stuck_in_return(tenant),
        "nobody waits for it"
    );
    set_foreign(&mut node, device, Bytes::ZERO);
    node.live(secs(60));
    assert_eq!(node.place(tenant, device), Place::In);
}

#[test]
fn a_tenant_that_stops_in_its_return_leaves_once_it_is_back() {
    let (mut node, device, tenant) = without_room();
    set_foreign(&mut node, device, Bytes::ZERO);
    node.obeys(tenant, Obeys::Silently);
    node.live(secs(60));
    assert_eq!(node.place(tenant, device), Place::Entering);
    node.tell(Event::Suspend { tenant });
    node.live(Nanos::millis(10));
    assert!(node.world.is_stuck_in_return(tenant), "it is told at once");
    node.obeys(tenant, Obeys::Honestly);
    node.live(secs(20));
    assert_eq!(node.place(tenant, device), Place::Out);
    assert!(node.world.has_left(tenant) && !node.world.is_stuck_in_return(tenant));
}

/// A tenant of 512 MiB on each of two devices. The host has so many MiB, of which another tenant
/// was given a GiB in advance, and this one 512 MiB.
fn on_two_devices(host: u64) -> (Node, [DeviceId; 2], TenantId) {
    let mut terms = policy(0);
    terms.swap.host = Bytes::mib(host);
    let mut node = Node::with(terms);
    let devices = [(); 2].map(|()| node.device_of(Bytes::mib(1536)));
    let (other, keeps) = node.run(swapping(devices[0], 1024));
    node.store.hoards.insert(keeps);
    node.processes.get_mut(&keeps).expect("it lives").host = Bytes::gib(1);
    node.tell_held(other);
    let (tenant, process) = node.run(on(&devices, 512));
    set_works(&mut node, tenant, false);
    for device in devices {
        let ask = node.want(process, device, Bytes::mib(512));
        assert!(node.granted(ask));
    }
    node.live(secs(5));
    (node, devices, tenant)
}

#[test]
fn a_suspend_moves_nothing_where_the_host_lacks_room_for_one_device() {
    for enough in [false, true] {
        let (mut node, devices, tenant) = on_two_devices(if enough { 2048 } else { 1536 });
        assert_eq!(node.world.may_suspend(tenant).is_ok(), enough);
        node.tell(Event::Suspend { tenant });
        node.live(secs(5));
        for device in devices {
            let expected = if enough { Place::Out } else { Place::In };
            assert_eq!(node.place(tenant, device), expected);
        }
    }
}
