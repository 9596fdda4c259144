//! Idle tenants, idle ends and run limits.

use crate::node::swap::swapping;
use crate::node::{Manners, Node, gib, resolving, secs, spec};
use crate::swap_spread::{fills, set_works, work};
use gpushare_core::{
    Bytes, Denial, DeviceId, EndView, Event, Nanos, Notice, Place, Preemptible, Quota, Resolver,
    Signal, State, TenantId, TenantSpec, Why,
};

#[test]
fn a_tenant_without_gpu_work_becomes_idle_and_working_again_it_is_not() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(spec(device, 1, 2));
    node.pass(secs(4));
    assert_eq!(node.world.tenant(tenant).unwrap().state, State::Running);
    node.pass(secs(1));
    assert_eq!(
        node.world.tenant(tenant).unwrap().state,
        State::Idle { since: secs(1) }
    );
    node.tell(Event::Worked { tenant });
    assert_eq!(node.world.tenant(tenant).unwrap().state, State::Running);
    assert_eq!(
        node.notices,
        [Notice::Idle { tenant }, Notice::Active { tenant }]
    );
}

#[test]
fn a_tenant_that_works_on_is_never_idle() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(spec(device, 1, 2));
    for _ in 0..20 {
        node.pass(secs(4));
        node.tell(Event::Worked { tenant });
    }
    assert!(node.notices.is_empty(), "{:?}", node.notices);
}

#[test]
fn an_idle_end_warns_then_ends() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        idle_end: Some(secs(300)),
        ..spec(device, 1, 2)
    });
    node.pass(secs(239));
    assert!(
        !node
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::EndsSoon { .. }))
    );
    node.pass(secs(1));
    assert!(node.notices.contains(&Notice::EndsSoon {
        tenant,
        at: secs(301),
        why: Why::Idle
    }));
    node.pass(secs(59));
    assert!(node.guests.contains_key(&tenant));
    node.pass(secs(1));
    assert!(!node.guests.contains_key(&tenant));
}

/// The warnings that a tenant with an idle end of 30 s gets, a minute being the usual time of a
/// warning, in five minutes in which it works again and again.
fn warned(every: u64) -> usize {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        idle_end: Some(secs(30)),
        ..spec(device, 1, 2)
    });
    for _ in 0..300 / every {
        node.pass(secs(every));
        node.tell(Event::Worked { tenant });
    }
    assert!(node.guests.contains_key(&tenant));
    let soon = |notice: &&Notice| matches!(notice, Notice::EndsSoon { .. });
    node.notices.iter().filter(soon).count()
}

#[test]
fn a_tenant_at_work_is_not_warned_however_short_its_idle_end() {
    assert_eq!(warned(1), 0);
    assert_eq!(warned(10), 0);
    assert_eq!(warned(20), 15, "half of its idle end has passed each time");
}

#[test]
fn work_after_the_warning_puts_the_idle_end_off() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        idle_end: Some(secs(300)),
        ..spec(device, 1, 2)
    });
    node.pass(secs(280));
    node.tell(Event::Worked { tenant });
    node.pass(secs(299));
    assert!(node.guests.contains_key(&tenant));
    node.pass(secs(1));
    assert!(!node.guests.contains_key(&tenant));
}

#[test]
fn work_after_sigterm_saves_an_idle_tenant() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        idle_end: Some(secs(100)),
        ..spec(device, 1, 2)
    });
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Stubborn;
    node.pass(secs(105));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
    node.tell(Event::Worked { tenant });
    node.pass(secs(50));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
}

#[test]
fn a_run_limit_ends_a_tenant_at_work() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        run_limit: Some(secs(3600)),
        ..spec(device, 1, 2)
    });
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Stubborn;
    for _ in 0..899 {
        node.pass(secs(4));
        node.tell(Event::Worked { tenant });
    }
    assert!(node.guests[&tenant].signals.is_empty());
    node.pass(secs(4));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
    node.pass(secs(10));
    assert!(!node.guests.contains_key(&tenant), "the grace is over");
}

#[test]
fn a_run_limit_can_be_lifted_while_it_runs() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(TenantSpec {
        run_limit: Some(secs(100)),
        ..spec(device, 1, 2)
    });
    node.pass(secs(50));
    node.tell(Event::Set {
        tenant,
        spec: spec(device, 1, 2),
    });
    node.drive();
    assert!(node.guests.contains_key(&tenant));
}

#[test]
fn a_limit_that_is_lifted_or_put_off_after_sigterm_kills_no_tenant() {
    let limits: [fn(&mut TenantSpec) -> &mut Option<Nanos>; 2] =
        [|spec| &mut spec.run_limit, |spec| &mut spec.idle_end];
    for limit in limits {
        let with = |span: Option<u64>, mut spec: TenantSpec| {
            *limit(&mut spec) = span.map(secs);
            spec
        };
        for (changed, ends) in [
            (None, false),
            (Some(200), false),
            (Some(100), true),
            (Some(9), true),
        ] {
            let (mut node, device) = Node::with_device(16);
            let (tenant, _) = node.run(with(Some(100), spec(device, 1, 2)));
            node.guests.get_mut(&tenant).unwrap().manners = Manners::Stubborn;
            node.pass(secs(105));
            assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
            let spec = with(changed, spec(device, 1, 2));
            node.tell(Event::Set { tenant, spec });
            let spared = node.notices.contains(&Notice::Spared { tenant });
            assert_eq!(spared, !ends, "{changed:?}: at once, if at all");
            node.pass(secs(10));
            assert_eq!(!node.guests.contains_key(&tenant), ends, "{changed:?}");
        }
    }
}

#[test]
fn an_end_is_shown_before_it_and_until_sigkill() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(run_limit(spec(device, 1, 2)));
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Unkillable;
    let shown = |node: &Node| node.world.tenant(tenant).expect("it is there").ends;
    let end = |at, told| {
        let why = Why::RunLimit;
        Some(EndView { at, why, told })
    };
    node.pass(secs(99));
    assert_eq!(shown(&node), end(secs(101), false));
    node.pass(secs(4));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
    assert_eq!(shown(&node), end(secs(111), true));
    node.pass(secs(9));
    assert_eq!(node.guests[&tenant].signals.last(), Some(&Signal::Kill));
    assert_eq!(shown(&node), end(node.world.now(), true));
}

#[test]
fn an_end_that_is_called_off_is_shown_no_more() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(run_limit(spec(device, 1, 2)));
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Stubborn;
    node.pass(secs(105));
    assert!(node.world.tenant(tenant).unwrap().ends.unwrap().told);
    let spec = spec(device, 1, 2);
    node.tell(Event::Set { tenant, spec });
    assert_eq!(node.world.tenant(tenant).unwrap().ends, None);
}

#[test]
fn a_limit_that_was_put_off_after_sigterm_ends_later() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, _) = node.run(run_limit(spec(device, 1, 2)));
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Stubborn;
    node.pass(secs(105));
    node.tell(Event::Set {
        tenant,
        spec: TenantSpec {
            run_limit: Some(secs(200)),
            ..spec(device, 1, 2)
        },
    });
    node.pass(secs(94));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
    node.pass(secs(1));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate; 2]);
}

/// A tenant with one of these limits, 100 s after its start. Its program has gone at SIGTERM, and
/// something else keeps the tenant, such as a shell.
fn outlives_its_program(limits: impl Fn(TenantSpec) -> TenantSpec) -> (Node, DeviceId, TenantId) {
    let (mut node, device) = Node::with_device(16);
    let (tenant, process) = node.run(limits(spec(device, 1, 2)));
    node.guests.get_mut(&tenant).expect("it is there").manners = Manners::Stubborn;
    node.pass(secs(100));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
    node.exit(process);
    (node, device, tenant)
}

fn run_limit(spec: TenantSpec) -> TenantSpec {
    let run_limit = Some(secs(100));
    TenantSpec { run_limit, ..spec }
}

fn idle_end(spec: TenantSpec) -> TenantSpec {
    let idle_end = Some(secs(100));
    TenantSpec { idle_end, ..spec }
}

#[test]
fn a_limit_ends_all_of_a_tenant_whose_program_went_at_sigterm() {
    for limit in [run_limit, idle_end] {
        let (mut node, _, tenant) = outlives_its_program(limit);
        node.pass(Nanos::millis(9_900));
        assert!(node.guests.contains_key(&tenant), "the grace is not over");
        node.pass(Nanos::millis(100));
        assert!(!node.guests.contains_key(&tenant));
    }
}

#[test]
fn a_program_started_after_sigterm_gets_no_memory_of_an_ending_tenant() {
    for limit in [run_limit, idle_end] {
        let (mut node, device, tenant) = outlives_its_program(limit);
        let next = node.start(tenant);
        let ask = node.want(next, device, gib(1));
        assert_eq!(node.denied(ask), Some(Denial::Ending));
    }
}

/// The same after the whole ladder: what keeps the tenant is reached by no signal.
fn outlives_the_ladder(limits: impl Fn(TenantSpec) -> TenantSpec) -> (Node, DeviceId, TenantId) {
    let (mut node, device, tenant) = outlives_its_program(limits);
    node.guests.get_mut(&tenant).expect("it is there").manners = Manners::Unkillable;
    node.pass(secs(15));
    assert_eq!(
        node.guests[&tenant].signals,
        [Signal::Terminate, Signal::Kill]
    );
    (node, device, tenant)
}

#[test]
fn what_outlives_the_ladder_of_an_idle_end_runs_again_until_the_next() {
    let (mut node, device, tenant) = outlives_the_ladder(idle_end);
    node.pass(secs(1000));
    assert_eq!(node.guests[&tenant].signals.len(), 2, "nothing runs");
    let next = node.start(tenant);
    let ask = node.want(next, device, gib(1));
    assert!(node.granted(ask));
    node.pass(Nanos::millis(99_900));
    assert_eq!(node.guests[&tenant].signals.len(), 2);
    node.pass(Nanos::millis(100));
    assert_eq!(
        node.guests[&tenant].signals.last(),
        Some(&Signal::Terminate)
    );
}

#[test]
fn what_outlives_the_ladder_of_a_run_limit_is_ended_with_its_next_program() {
    let (mut node, device, tenant) = outlives_the_ladder(run_limit);
    node.pass(secs(1000));
    assert_eq!(node.guests[&tenant].signals.len(), 2, "nothing runs");
    let next = node.start(tenant);
    assert_eq!(
        node.guests[&tenant].signals.last(),
        Some(&Signal::Terminate)
    );
    let ask = node.want(next, device, gib(1));
    assert_eq!(node.denied(ask), Some(Denial::Ending));
}

#[test]
fn a_limit_lifted_from_what_outlived_the_ladder_ends_its_next_no_more() {
    for limit in [run_limit, idle_end] {
        let (mut node, device, tenant) = outlives_the_ladder(limit);
        let spec = spec(device, 1, 2);
        node.tell(Event::Set { tenant, spec });
        let next = node.start(tenant);
        let ask = node.want(next, device, gib(1));
        assert!(node.granted(ask));
        node.pass(secs(1000));
        assert_eq!(node.guests[&tenant].signals.len(), 2);
    }
}

#[test]
fn a_program_that_will_not_yield_keeps_its_tenant_ending_until_it_goes() {
    let (mut node, device) = Node::with_device(16);
    let (tenant, process) = node.run(idle_end(spec(device, 1, 2)));
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Unkillable;
    node.pass(secs(1000));
    assert_eq!(
        node.guests[&tenant].signals,
        [Signal::Terminate, Signal::Kill]
    );
    let next = node.start(tenant);
    let ask = node.want(next, device, gib(1));
    assert_eq!(node.denied(ask), Some(Denial::Ending));
    node.exit(process);
    node.exit(next);
    let next = node.start(tenant);
    let ask = node.want(next, device, gib(1));
    assert!(node.granted(ask));
}

/// A tenant with an idle end of 100 s that is out, and of which a call waits for its turn or none
/// does; the tenant that has the device, and works.
fn out(calls: bool) -> (Node, DeviceId, [TenantId; 2]) {
    let (mut node, device) = Node::swaps(1536, 64);
    let limit = Bytes::gib(1);
    let waits = TenantSpec {
        idle_end: Some(secs(100)),
        ..swapping(device, 1024)
    };
    let (waits, _) = fills(&mut node, waits);
    let request = limit;
    let (has, _) = fills(
        &mut node,
        TenantSpec {
            quotas: vec![(device, Quota { request, limit })],
            ..swapping(device, 1024)
        },
    );
    set_works(&mut node, has, true);
    work(&mut node, &[has], secs(1));
    assert_eq!(node.place(waits, device), Place::Out);
    if calls {
        node.calls(waits, device);
    }
    (node, device, [waits, has])
}

#[test]
fn an_idle_end_does_not_run_while_a_call_waits_for_its_turn() {
    let (mut node, device, [waits, has]) = out(true);
    work(&mut node, &[has], secs(150));
    assert!(node.guests.contains_key(&waits));
    let warned = |one: &Notice| matches!(one, Notice::EndsSoon { .. });
    assert!(!node.notices.iter().any(warned));
    node.finish(has);
    node.live(secs(1));
    assert_eq!(node.place(waits, device), Place::In);
    node.live(secs(97));
    assert!(node.guests.contains_key(&waits), "it was let on");
    node.live(secs(4));
    assert!(!node.guests.contains_key(&waits), "and did nothing");
}

#[test]
fn an_idle_end_runs_while_a_tenant_is_out_and_no_call_waits() {
    let (mut node, _, [waits, has]) = out(false);
    work(&mut node, &[has], secs(100));
    assert!(!node.guests.contains_key(&waits));
}

#[test]
fn a_tenant_of_which_a_call_waits_for_its_turn_is_ended_for_no_equal() {
    for calls in [true, false] {
        let (mut node, device) = Node::swaps(1536, 64);
        node.guarantees = false;
        let waits = TenantSpec {
            preemptible: Preemptible::Kill,
            ..swapping(device, 700)
        };
        let (waits, _) = fills(&mut node, waits);
        // Of it a part stays on the device.
        let moves = &mut node.guests.get_mut(&waits).expect("it runs").moves;
        moves.residue = Bytes::mib(300);
        let (request, limit) = (Bytes::gib(1), Bytes::gib(1));
        let has = TenantSpec {
            quotas: vec![(device, Quota { request, limit })],
            ..swapping(device, 1024)
        };
        let (has, _) = fills(&mut node, has);
        work(&mut node, &[has], secs(1));
        assert_eq!(node.place(waits, device), Place::Out);
        if calls {
            node.calls(waits, device);
        }
        work(&mut node, &[has], secs(10));
        let equal = resolving(&[Resolver::Priority], swapping(device, 400));
        let (_, process) = node.run(equal);
        node.want(process, device, Bytes::mib(400));
        work(&mut node, &[has], secs(1));
        assert_eq!(node.guests.contains_key(&waits), calls);
    }
}
