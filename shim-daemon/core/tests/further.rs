//! Contexts that a process makes beside its first one, or after its last one has ended: whose
//! memory they may take, and when what is set aside for them is given back.

use crate::node::further::Call;
use crate::node::{Node, killable, mib, resolving, secs, spec};
use gpushare_core::{
    AskKey, Bytes, Denial, DeviceId, Event, Nanos, Notice, Policy, ProcessId, Quota, Resolver,
    TenantId, TenantSpec, World,
};

fn policy() -> Policy {
    Policy {
        step: Bytes(1),
        first_overhead: mib(64),
        ..Policy::default()
    }
}

/// A device of 1 GiB whose contexts take 64 MiB.
fn node() -> (Node, DeviceId) {
    let mut node = Node::with(policy());
    let device = node.device(1);
    (node, device)
}

fn requesting(device: DeviceId, request: u64) -> TenantSpec {
    let quota = Quota {
        request: mib(request),
        limit: mib(request),
    };
    TenantSpec {
        quotas: vec![(device, quota)],
        ..spec(device, 0, 1)
    }
}

/// A tenant that holds so much of what it requested, and a neighbour without a request.
fn neighbours(request: u64, held: u64) -> (Node, DeviceId, [(TenantId, ProcessId); 2]) {
    let (mut node, device) = node();
    let one = node.run(requesting(device, request));
    let ask = node.want(one.1, device, mib(held));
    assert!(node.granted(ask));
    let other = node.run(spec(device, 0, 1));
    node.live(secs(2));
    (node, device, [one, other])
}

fn overhead(node: &Node, tenant: TenantId, device: DeviceId) -> Bytes {
    node.world
        .account(tenant, device)
        .expect("it runs")
        .overhead
}

fn lapses(node: &Node) -> Vec<Bytes> {
    let all = node.notices.iter();
    let lapsed = all.filter_map(|one| match one {
        Notice::Lapsed { bytes, .. } => Some(*bytes),
        _ => None,
    });
    lapsed.collect()
}

#[test]
fn a_further_context_leaves_a_request_what_it_was_promised() {
    let (mut node, device, [(_, one), (_, other)]) = neighbours(864, 784);
    let more = node.open_more(other, device, Call::Made);
    node.live(secs(5));
    assert!(node.waits(more), "32 MiB are nobody's");
    let ask = node.want(one, device, mib(80));
    assert!(node.granted(ask));
    node.live(secs(5));
    node.exit(one);
    node.live(secs(1));
    assert!(node.waits(more), "the tenant may start another process");
}

#[test]
fn a_further_context_that_waits_is_made_when_the_request_is_gone() {
    let (mut node, device, [(tenant, _), (own, other)]) = neighbours(864, 784);
    let more = node.open_more(other, device, Call::Made);
    node.live(secs(5));
    node.finish(tenant);
    node.live(secs(1));
    assert!(node.granted(more));
    assert_eq!(overhead(&node, own, device), mib(128));
}

#[test]
fn a_further_context_takes_at_once_what_no_request_covers() {
    let (mut node, device, [(_, one), (own, other)]) = neighbours(784, 700);
    let more = node.open_more(other, device, Call::Made);
    assert!(node.granted(more));
    node.live(secs(1));
    assert_eq!(overhead(&node, own, device), mib(128));
    let ask = node.want(one, device, mib(84));
    assert!(node.granted(ask));
}

/// On a device that two tenants without a request have filled, one makes a second context after it
/// has freed so much. Whether it had room.
fn has_room_once_it_freed(freed: u64) -> bool {
    let (mut node, device) = node();
    let (_, one) = node.run(resolving(&[Resolver::Fail], spec(device, 0, 1)));
    let (_, other) = node.run(spec(device, 0, 1));
    node.live(secs(2));
    for process in [one, other] {
        let ask = node.want(process, device, mib(448));
        assert!(node.granted(ask));
    }
    if freed > 0 {
        node.free(one, device, mib(freed));
    }
    let more = node.open_more(one, device, Call::Made);
    node.live(secs(3));
    node.granted(more)
}

#[test]
fn what_a_tenant_has_freed_makes_room_for_its_further_context() {
    assert!(has_room_once_it_freed(64));
    assert!(!has_room_once_it_freed(63));
    assert!(!has_room_once_it_freed(0));
}

#[test]
fn a_further_context_that_does_not_fit_ends_as_its_resolvers_say() {
    let (mut node, device) = node();
    let (_, one) = node.run(requesting(device, 864));
    let ask = node.want(one, device, mib(784));
    assert!(node.granted(ask));
    let (_, other) = node.run(resolving(&[Resolver::Fail], spec(device, 0, 1)));
    node.live(secs(2));
    let more = node.open_more(other, device, Call::Made);
    node.live(secs(3));
    assert!(matches!(node.denied(more), Some(Denial::NoRoom { .. })));
}

#[test]
fn a_request_covers_one_context_of_its_tenant_and_no_second_one() {
    let (mut node, device) = node();
    // Takes what nobody requested.
    let (_, borrower) = node.run(killable(device, 0, 1));
    let ask = node.want(borrower, device, mib(300));
    assert!(node.granted(ask));
    let (tenant, process) = node.run(requesting(device, 864));
    node.live(secs(2));
    let more = node.open_more(process, device, Call::Made);
    node.live(secs(5));
    assert!(node.waits(more), "beside the first one");
    assert_eq!(node.guests.len(), 2, "nobody is ended for it");
    node.tell(Event::Cancel {
        process,
        ask: more.1,
    });
    node.asks.remove(&more);
    node.ends_context(process, device);
    node.live(secs(1));
    assert_eq!(overhead(&node, tenant, device), Bytes::ZERO);
    let again = node.open_more(process, device, Call::Made);
    assert!(node.granted(again), "in the place of the first one");
}

#[test]
fn a_look_at_half_a_context_changes_nothing_that_is_set_aside() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let more = node.open_more(other, device, Call::Hangs);
    assert!(node.granted(more));
    for half in [0, 20, 64] {
        let known = node.processes.get_mut(&other).expect("it lives");
        known.contexts.insert(device, mib(64 + half));
        node.sample(device);
        assert_eq!(overhead(&node, own, device), mib(128), "{half}");
    }
    node.returns_from(more, device);
    assert_eq!(overhead(&node, own, device), mib(128));
    assert_eq!(lapses(&node), []);
}

#[test]
fn a_context_that_fails_gives_back_what_was_set_aside_at_once() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let more = node.open_more(other, device, Call::Fails);
    assert!(node.granted(more));
    node.pass(Nanos::millis(50));
    assert_eq!(overhead(&node, own, device), mib(64));
    assert_eq!(lapses(&node), []);
}

#[test]
fn a_call_that_never_returns_keeps_its_memory_ten_seconds() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let more = node.open_more(other, device, Call::Hangs);
    assert!(node.granted(more));
    node.live(secs(9));
    assert_eq!(overhead(&node, own, device), mib(128));
    node.live(secs(2));
    assert_eq!(overhead(&node, own, device), mib(64));
    assert_eq!(lapses(&node), [mib(64)]);
    node.returns_from(more, device);
    node.live(secs(1));
    assert_eq!(overhead(&node, own, device), mib(64));
}

#[test]
fn a_process_that_dies_in_the_call_leaves_nothing_set_aside() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let before = node.world.device(device).expect("it exists").taken;
    let more = node.open_more(other, device, Call::Hangs);
    assert!(node.granted(more));
    node.exit(other);
    node.live(secs(2));
    assert_eq!(overhead(&node, own, device), Bytes::ZERO);
    let after = node.world.device(device).expect("it exists").taken;
    assert_eq!(after, before - mib(64), "its first one is gone too");
}

#[test]
fn a_process_that_becomes_another_program_in_the_call_keeps_nothing() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let more = node.open_more(other, device, Call::Hangs);
    assert!(node.granted(more));
    node.tell(Event::ProcessReplaced {
        process: other,
        charged: vec![],
    });
    let taken = node.world.device(device).expect("it exists");
    assert_eq!(overhead(&node, own, device), Bytes::ZERO);
    assert_eq!(taken.limbo, mib(64), "as much as was seen of it");
}

#[test]
fn contexts_in_a_loop_leave_nothing_set_aside_and_wait_for_looks_only() {
    // 32 MiB are nobody's: a context fits in the place of the one before.
    for request in [800, 864] {
        let (mut node, device, [_, (own, other)]) = neighbours(request, request);
        let began = node.now;
        for round in 0..200 {
            node.ends_context(other, device);
            let more = node.open_more(other, device, Call::Made);
            node.pass(Nanos::millis(50));
            assert!(node.granted(more), "{round} beside {request}");
        }
        assert!(node.now - began <= secs(11));
        node.live(secs(2));
        assert_eq!(overhead(&node, own, device), mib(64));
        assert_eq!(lapses(&node), []);
    }
}

#[test]
fn a_context_waits_no_longer_than_the_driver_takes_for_the_one_before() {
    let (mut node, device, [_, (_, other)]) = neighbours(864, 864);
    // What ends is nobody's for a while.
    node.devices.get_mut(&device).expect("it exists").foreign = mib(64);
    node.ends_context(other, device);
    let more = node.open_more(other, device, Call::Made);
    node.pass(Nanos::millis(100));
    assert!(node.waits(more));
    node.devices.get_mut(&device).expect("it exists").foreign = Bytes::ZERO;
    node.pass(Nanos::millis(20));
    assert!(node.granted(more), "before the next regular look");
}

#[test]
fn a_process_that_says_it_has_no_context_is_believed_when_a_look_agrees() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    node.tell(Event::NoContext {
        process: other,
        device,
    });
    node.live(secs(2));
    assert_eq!(overhead(&node, own, device), mib(64), "it is seen");
    node.ends_context(other, device);
    node.live(secs(1));
    assert_eq!(overhead(&node, own, device), Bytes::ZERO);
}

#[test]
fn a_first_context_that_fails_gives_back_what_was_set_aside_at_once() {
    let (mut node, device) = node();
    let (tenant, process) = node.run(spec(device, 0, 1));
    node.ends_context(process, device);
    node.live(secs(1));
    assert_eq!(overhead(&node, tenant, device), Bytes::ZERO);
    let more = node.open_more(process, device, Call::Lasts);
    assert!(node.granted(more));
    assert_eq!(overhead(&node, tenant, device), mib(64));
}

#[test]
fn two_contexts_measured_together_are_not_taken_for_the_cost_of_one() {
    let (mut node, device) = node();
    let (_, process) = node.run(spec(device, 0, 1));
    let more = node.open_more(process, device, Call::Made);
    assert!(node.granted(more));
    node.tell(Event::ContextMade { process, device });
    node.live(secs(2));
    assert_eq!(node.world.context_cost(device), mib(64));
}

#[test]
fn an_ask_that_is_repeated_sets_memory_aside_once() {
    let (mut node, device, [_, (own, other)]) = neighbours(512, 400);
    let (process, ask) = node.open_more(other, device, Call::Hangs);
    again(&mut node, (process, ask), device);
    assert_eq!(overhead(&node, own, device), mib(128));
}

/// The same ask comes again over another connection.
fn again(node: &mut Node, (process, ask): AskKey, device: DeviceId) {
    let patience = Some(Nanos::ZERO);
    let event = Event::OpenMore {
        process,
        device,
        ask,
        patience,
    };
    node.world.handle(node.now, event);
    while node.world.poll_decision().is_some() {}
    node.world.check().expect("the books hold");
}

#[test]
fn where_processes_are_not_listed_a_further_context_is_no_tenants() {
    let (mut node, device) = node();
    let (tenant, process) = node.run(spec(device, 0, 1));
    node.devices
        .get_mut(&device)
        .expect("it exists")
        .lists_processes = false;
    node.live(secs(2));
    for count in 1..=5 {
        let more = node.open_more(process, device, Call::Made);
        assert!(node.granted(more));
        node.live(secs(1));
        assert_eq!(overhead(&node, tenant, device), mib(64));
        let unmanaged = node.world.device(device).expect("it exists").unmanaged;
        assert_eq!(unmanaged, mib(64 * count), "as before");
    }
}

#[test]
fn an_ask_that_may_not_wait_is_refused_where_there_is_no_room() {
    let (mut node, device, [_, (_, other)]) = neighbours(864, 784);
    let more = node.open_more_with(other, device, Call::Made, Some(Nanos::ZERO));
    node.pass(Nanos::ZERO);
    assert!(node.denied(more).is_some());
}

/// A tenant that waits this long at most asks for a context on a device that is full but for
/// 32 MiB, after the driver has ended its last one, if it has. No look is taken yet.
fn asks_unseen(wait: Nanos, ended: bool, more: bool) -> (Node, DeviceId, AskKey) {
    let (mut node, device) = node();
    let (_, one) = node.run(requesting(device, 864));
    let ask = node.want(one, device, mib(864));
    assert!(node.granted(ask));
    let hasty = TenantSpec {
        wait_timeout: wait,
        ..spec(device, 0, 1)
    };
    let (other, process) = node.run(hasty);
    node.live(secs(2));
    sees(&mut node, device, false);
    node.pass(Nanos::millis(1));
    if ended {
        let known = node.processes.get_mut(&process).expect("it lives");
        known.contexts.remove(&device);
        if more {
            node.tell(Event::NoContext { process, device });
        } else {
            node.exit(process);
        }
    }
    let asked = match more {
        true => node.open_more_with(process, device, Call::Made, Some(wait)),
        false => {
            let process = node.start(other);
            let mut asks = node.asks.keys();
            *asks.find(|ask| ask.0 == process).expect("it asks")
        }
    };
    (node, device, asked)
}

/// Whether looks at the device are possible.
fn sees(node: &mut Node, device: DeviceId, it: bool) {
    let hardware = node.devices.get_mut(&device).expect("it exists");
    hardware.looks_fail = !it;
}

/// What becomes of that ask when a look is possible after 5 ms.
fn seen_later(wait: Nanos, ended: bool, more: bool) -> (Node, AskKey) {
    let (mut node, device, ask) = asks_unseen(wait, ended, more);
    node.pass(Nanos::millis(5));
    assert!(node.waits(ask), "no look was taken since it asked");
    sees(&mut node, device, true);
    node.sample(device);
    (node, ask)
}

#[test]
fn an_ask_for_a_context_waits_for_one_look_though_its_time_is_over() {
    for wait in [Nanos::ZERO, Nanos::millis(1)] {
        for more in [true, false] {
            let (node, ask) = seen_later(wait, true, more);
            assert!(node.granted(ask), "more: {more}, within {wait:?}");
        }
    }
}

#[test]
fn a_look_without_room_ends_a_wait_whose_time_is_over() {
    for wait in [Nanos::ZERO, Nanos::millis(1)] {
        for more in [true, false] {
            let (node, ask) = seen_later(wait, false, more);
            assert!(node.denied(ask).is_some(), "more: {more}, within {wait:?}");
        }
    }
}

#[test]
fn an_ask_for_a_context_waits_two_seconds_for_a_look_that_fails() {
    for more in [true, false] {
        let (mut node, _, ask) = asks_unseen(Nanos::millis(1), true, more);
        node.pass(Nanos::millis(1900));
        assert!(node.waits(ask));
        node.pass(Nanos::millis(200));
        let denied = node.denied(ask);
        assert!(
            matches!(denied, Some(Denial::TimedOut { .. })),
            "{denied:?}"
        );
    }
}

fn has_context(node: &mut Node, process: ProcessId, device: DeviceId) {
    let known = node.processes.get_mut(&process).expect("it lives");
    known.contexts.insert(device, mib(64));
}

#[test]
fn a_call_under_way_at_a_restart_keeps_its_memory() {
    let mut node = Node::of(World::recovering(policy(), secs(4)), policy());
    let device = node.device(1);
    let (tenant, processes) = node.survives_as(requesting(device, 600), device, &[(600, 0)]);
    let process = processes[0];
    has_context(&mut node, process, device);
    node.comes(process);
    node.live(secs(1));
    let more = node.open_again(process, device);
    assert!(node.granted(more), "the previous daemon had granted it");
    assert_eq!(overhead(&node, tenant, device), mib(128));
    node.live(secs(5));
    assert_eq!(overhead(&node, tenant, device), mib(128));
    node.returns_from(more, device);
    node.live(secs(1));
    assert_eq!(overhead(&node, tenant, device), mib(128));
}

#[test]
fn a_new_call_that_may_not_wait_is_refused_while_a_daemon_counts() {
    let mut node = Node::of(World::recovering(policy(), secs(4)), policy());
    let device = node.device(1);
    let (tenant, processes) = node.survives_as(requesting(device, 600), device, &[(600, 0)]);
    has_context(&mut node, processes[0], device);
    node.comes(processes[0]);
    node.live(secs(1));
    let more = node.open_more_with(processes[0], device, Call::Made, Some(Nanos::ZERO));
    node.live(secs(1));
    assert!(node.denied(more).is_some(), "no daemon had granted it");
    assert_eq!(overhead(&node, tenant, device), mib(64));
}

#[test]
fn a_new_call_waits_until_a_restarted_daemon_has_counted() {
    let mut node = Node::of(World::recovering(policy(), secs(4)), policy());
    let device = node.device(1);
    let (_, processes) = node.survives_as(requesting(device, 600), device, &[(600, 0)]);
    has_context(&mut node, processes[0], device);
    node.comes(processes[0]);
    let more = node.open_more(processes[0], device, Call::Made);
    node.live(secs(1));
    assert!(node.waits(more));
    node.live(secs(4));
    assert!(node.granted(more));
}
