//! A new daemon: the books are rebuilt from what clients present, and the old grants count until
//! all adopted.

use crate::node::{Guest, Manners, Node, Proc, gib, secs, spec};
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Notice, Policy, Preemptible, ProcessId, Running, Signal,
    TenantId, TenantSpec, World,
};
use std::collections::BTreeMap;

/// A node whose daemon was restarted; its recovery ends after two seconds.
fn restarted() -> Node {
    expecting(Bytes::ZERO)
}

/// The same where a context is expected to take so much.
fn expecting(first_overhead: Bytes) -> Node {
    let policy = Policy {
        first_overhead,
        step: Bytes(1),
        ..Policy::default()
    };
    let mut node = Node::of(World::recovering(policy, secs(3)), policy);
    // Claims may be lies.
    node.guarantees = false;
    node
}

/// A tenant that ran before, with one process holding `charged` of its `credit`.
fn survivor(
    node: &mut Node,
    spec: TenantSpec,
    charged: Bytes,
    credit: Bytes,
) -> (TenantId, ProcessId) {
    survivor_of(node, Running::default(), spec, charged, credit)
}

fn survivor_of(
    node: &mut Node,
    running: Running,
    spec: TenantSpec,
    charged: Bytes,
    credit: Bytes,
) -> (TenantId, ProcessId) {
    let (tenant, process) = (TenantId(node.fresh()), ProcessId(node.fresh()));
    let device = spec.quotas[0].0;
    let (page, signals) = (BTreeMap::from([(device, credit)]), Vec::new());
    let guest = Guest {
        spec: spec.clone(),
        admitted: true,
        refused: None,
        manners: Manners::Polite,
        page,
        signals,
        worked: false,
        moves: crate::node::swap::Moves::default(),
        leases: BTreeMap::new(),
    };
    node.guests.insert(tenant, guest);
    let mut proc = Proc::new(tenant);
    proc.charged.insert(device, charged);
    node.add(process, proc);
    node.thorough = false;
    node.tell(Event::Register {
        tenant,
        spec,
        running: Some(running),
    });
    node.tell(Event::ProcessStarted {
        process,
        tenant,
        adopted: false,
        gated: true,
    });
    node.tell(Event::Presented {
        process,
        device,
        charged,
        credit,
        grant: credit,
    });
    node.thorough = true;
    (tenant, process)
}

#[test]
fn what_was_granted_before_is_granted_still() {
    let mut node = restarted();
    let device = node.device(16);
    let (tenant, _) = survivor(&mut node, spec(device, 4, 12), gib(6), gib(10));
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.grant, account.in_use), (gib(10), gib(6)));
}

#[test]
fn a_running_request_stays_where_contexts_are_expected_to_take_more() {
    let mut node = expecting(Bytes::mib(512));
    let device = node.device(16);
    let (tenant, process) = survivor(&mut node, spec(device, 16, 16), gib(8), gib(8));
    node.tell(Event::Adopted { process });
    assert_eq!(node.guests[&tenant].refused, None);
    let guaranteed = node.register(spec(device, 1, 1));
    let other = node.register(spec(device, 0, 1));
    node.pass(secs(3));
    let quota = node.world.account(tenant, device).expect("it runs").quota;
    assert_eq!(quota.request, gib(16));
    let ask = node.want(process, device, gib(7));
    assert!(node.granted(ask), "within its request");
    assert!(!node.guests[&guaranteed].admitted && node.guests[&other].admitted);
    node.finish(tenant);
    assert!(node.guests[&guaranteed].admitted);
}

#[test]
fn waiters_are_served_once_all_had_time_to_present() {
    let mut node = restarted();
    let device = node.device(16);
    let (_, process) = survivor(&mut node, spec(device, 4, 12), gib(6), gib(6));
    node.tell(Event::Adopted { process });
    let ask = node.want(process, device, gib(1));
    let newcomer = node.register(spec(device, 2, 2));
    node.pass(secs(1));
    assert!(node.waits(ask) && !node.guests[&newcomer].admitted);
    node.pass(secs(1));
    assert!(node.granted(ask) && node.guests[&newcomer].admitted);
}

#[test]
fn a_recovery_lasts_from_when_the_daemon_listens() {
    let mut node = restarted();
    let device = node.device(16);
    let newcomer = node.register(spec(device, 2, 2));
    node.world.recover_until(secs(10));
    node.pass(secs(8));
    assert!(!node.guests[&newcomer].admitted);
    node.pass(secs(1));
    assert!(node.guests[&newcomer].admitted);
}

#[test]
fn a_recovery_that_is_over_does_not_begin_again() {
    let mut node = restarted();
    let device = node.device(16);
    node.pass(secs(2));
    node.world.recover_until(secs(10));
    let newcomer = node.register(spec(device, 2, 2));
    assert!(node.guests[&newcomer].admitted);
}

#[test]
fn an_old_grant_counts_until_every_process_has_adopted() {
    let mut node = restarted();
    let device = node.device(16);
    let (_, old) = survivor(&mut node, spec(device, 0, 16), gib(4), gib(12));
    node.pass(secs(3));
    let (_, process) = node.run(spec(device, 0, 16));
    let ask = node.want(process, device, gib(8));
    assert!(
        node.waits(ask),
        "its unused grant cannot be called back yet"
    );
    node.tell(Event::Adopted { process: old });
    assert!(node.granted(ask));
}

#[test]
fn a_claim_above_the_registered_limit_is_not_believed() {
    let mut node = restarted();
    let device = node.device(16);
    let (tenant, _) = survivor(&mut node, spec(device, 0, 4), gib(4), gib(16));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(4));
}

/// A tenant that held 10 GiB when its limit was lowered to 4 GiB, which the previous daemon wrote
/// down, and says that it holds so much; a neighbour with a request of 8 GiB.
fn lowered(claims: Bytes) -> (Node, DeviceId, TenantId, ProcessId) {
    let mut node = restarted();
    let device = node.device(16);
    let terms = TenantSpec {
        preemptible: Preemptible::Kill,
        ..spec(device, 4, 4)
    };
    let running = Running {
        above: vec![(device, gib(10))],
        ..Running::default()
    };
    let (tenant, process) = survivor_of(&mut node, running, terms, claims, claims);
    let guest = node.guests.get_mut(&tenant).expect("it runs");
    guest.page = BTreeMap::from([(device, gib(4))]);
    guest.spec.quotas[0].1.limit = gib(16);
    node.tell(Event::Adopted { process });
    (node, device, tenant, process)
}

fn says_excess(node: &Node) -> bool {
    let excess = |notice: &Notice| matches!(notice, Notice::Excess { .. });
    node.notices.iter().any(excess)
}

#[test]
fn what_was_held_above_a_lowered_limit_is_held_still() {
    let (mut node, device, tenant, process) = lowered(gib(10));
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.grant, account.in_use), (gib(10), gib(10)));
    assert_eq!(node.world.above(tenant, device), gib(10));
    node.pass(secs(3));
    node.sample(device);
    assert!(!says_excess(&node));
    let ask = node.want(process, device, gib(1));
    assert!(!node.granted(ask), "its limit is 4 GiB");
    // The device shows what is freed a moment later.
    node.free(process, device, gib(6));
    node.sample(device);
    node.free(process, device, gib(1));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(4));
    assert_eq!(node.world.above(tenant, device), gib(0));
}

#[test]
fn a_claim_above_what_a_lowered_tenant_held_is_not_believed() {
    let (node, device, tenant, _) = lowered(gib(12));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(10));
}

#[test]
fn a_burst_above_a_lowered_limit_is_taken_back_after_a_restart() {
    let (mut node, device, tenant, _) = lowered(gib(10));
    node.pass(secs(3));
    let (_, neighbour) = node.run(spec(device, 8, 8));
    let ask = node.want(neighbour, device, gib(8));
    node.pass(secs(20));
    assert!(node.granted(ask));
    assert_ne!(
        node.guests.get(&tenant).map(|one| one.signals.len()),
        Some(0)
    );
}

#[test]
fn what_was_held_above_is_known_until_it_is_presented() {
    let mut node = restarted();
    let device = node.device(16);
    let running = Running {
        above: vec![(device, gib(10))],
        ..Running::default()
    };
    let (tenant, process) = survivor_of(&mut node, running, spec(device, 4, 4), gib(0), gib(0));
    node.pass(secs(3));
    assert_eq!(node.world.above(tenant, device), gib(10));
    let (within, _) = survivor(&mut node, spec(device, 4, 12), gib(6), gib(10));
    assert_eq!(node.world.above(within, device), gib(0));
    node.tell(Event::Adopted { process });
    assert_eq!(node.world.above(tenant, device), gib(0));
}

#[test]
fn a_claim_made_twice_counts_once_and_none_counts_after_adoption() {
    let mut node = restarted();
    let device = node.device(16);
    let (tenant, process) = survivor(&mut node, spec(device, 0, 16), gib(2), gib(4));
    let claim = |credit| Event::Presented {
        process,
        device,
        charged: gib(2),
        credit,
        grant: credit,
    };
    node.tell(claim(gib(4)));
    assert_eq!(node.world.account(tenant, device).unwrap().in_use, gib(2));
    node.tell(Event::Adopted { process });
    node.tell(claim(gib(16)));
    assert_eq!(node.world.account(tenant, device).unwrap().grant, gib(4));
}

#[test]
fn a_process_counted_before_it_comes_presents_what_it_got_meanwhile() {
    let mut node = restarted();
    let device = node.device(16);
    let (tenant, process) = survivor(&mut node, spec(device, 0, 16), gib(2), gib(4));
    node.pass(secs(3));
    node.tell(Event::ProcessStarted {
        process,
        tenant,
        adopted: false,
        gated: true,
    });
    node.tell(Event::Presented {
        process,
        device,
        charged: gib(5),
        credit: gib(6),
        grant: gib(6),
    });
    let account = node.world.account(tenant, device).unwrap();
    assert_eq!((account.grant, account.in_use), (gib(6), gib(2)));
    node.tell(Event::Usage {
        tenant,
        device,
        in_use: gib(5),
    });
    assert_eq!(node.world.account(tenant, device).unwrap().in_use, gib(5));
}

#[test]
fn claims_that_together_exceed_the_device_stop_new_grants_and_mend() {
    let mut node = restarted();
    let device = node.device(16);
    let (_, honest) = survivor(&mut node, spec(device, 0, 16), gib(10), gib(10));
    let (_, liar) = survivor(&mut node, spec(device, 0, 16), gib(1), gib(16));
    node.tell(Event::Adopted { process: honest });
    node.pass(secs(3));
    let ask = node.want(honest, device, gib(2));
    assert!(node.waits(ask));
    node.tell(Event::Adopted { process: liar });
    assert!(
        node.granted(ask),
        "the claim was unused, by its own page and by the device"
    );
}

/// A tenant whose run limit was set when it began, at the clock's origin. The next daemon came a
/// second later.
fn limited(run_limit: u64) -> (Node, TenantId) {
    let mut node = restarted();
    let device = node.device(16);
    let spec = TenantSpec {
        run_limit: Some(secs(run_limit)),
        ..spec(device, 4, 12)
    };
    let (tenant, process) = survivor(&mut node, spec, gib(1), gib(1));
    node.tell(Event::Adopted { process });
    (node, tenant)
}

#[test]
fn a_run_limit_goes_on_where_the_previous_daemon_left_it() {
    let (mut node, tenant) = limited(100);
    node.pass(secs(38));
    let told = |node: &Node| {
        let soon = |notice: &&Notice| matches!(notice, Notice::EndsSoon { .. });
        node.notices.iter().filter(soon).count()
    };
    assert_eq!(told(&node), 0, "39 s after its start");
    node.pass(secs(1));
    assert_eq!(told(&node), 1, "a minute before its end");
    node.pass(secs(59));
    assert!(node.guests.contains_key(&tenant));
    node.pass(secs(1));
    assert!(!node.guests.contains_key(&tenant), "100 s after its start");
}

#[test]
fn the_overdue_are_ended_once_the_next_daemon_knows_them() {
    let (mut node, tenant) = limited(1);
    node.guests.get_mut(&tenant).unwrap().manners = Manners::Unkillable;
    node.pass(Nanos::millis(1_900));
    assert_eq!(node.guests[&tenant].signals, []);
    node.pass(Nanos::millis(100));
    assert_eq!(node.guests[&tenant].signals, [Signal::Terminate]);
}

#[test]
fn a_tenant_that_claims_to_run_since_tomorrow_runs_since_now() {
    let mut node = restarted();
    let device = node.device(16);
    let spec = TenantSpec {
        run_limit: Some(secs(100)),
        ..spec(device, 4, 12)
    };
    let (tenant, _) = survivor_of(&mut node, secs(90_000).into(), spec, gib(1), gib(1));
    node.pass(secs(100));
    assert!(!node.guests.contains_key(&tenant));
}

/// A tenant of which one process holds nothing any more of 12 GiB that it was granted, and another
/// has not come, which holds 1 GiB and has so much unused credit. A neighbour with a request.
fn beside_a_late_one(unused: Bytes) -> (Node, TenantId, ProcessId, ProcessId) {
    let mut node = restarted();
    let device = node.device(16);
    let terms = TenantSpec {
        preemptible: Preemptible::Kill,
        ..spec(device, 0, 16)
    };
    let credit = gib(1) + unused;
    let (tenant, first) = survivor(&mut node, terms, gib(0), gib(12) - credit);
    let late = ProcessId(node.fresh());
    let mut proc = Proc::new(tenant);
    proc.charged.insert(device, gib(1));
    node.add(late, proc);
    node.thorough = false;
    node.tell(Event::ProcessStarted {
        process: late,
        tenant,
        adopted: false,
        gated: true,
    });
    node.tell(Event::Late { process: late });
    node.tell(Event::Presented {
        process: late,
        device,
        charged: gib(1),
        credit,
        grant: gib(12),
    });
    node.thorough = true;
    node.tell(Event::Adopted { process: first });
    node.pass(secs(3));
    let account = node.world.account(tenant, device).expect("it is admitted");
    assert_eq!((account.grant, account.in_use), (gib(12), gib(1)));
    let (_, neighbour) = node.run(spec(device, 8, 16));
    (node, tenant, late, neighbour)
}

#[test]
fn what_nobody_uses_beside_a_process_that_has_not_come_is_called_back() {
    let (mut node, tenant, _, neighbour) = beside_a_late_one(gib(0));
    let device = node.guests[&tenant].spec.quotas[0].0;
    let ask = node.want(neighbour, device, gib(8));
    assert!(node.granted(ask));
    assert_eq!(node.guests[&tenant].signals, []);
    let more = node.want(neighbour, device, gib(7));
    assert!(node.granted(more), "down to what is in use");
}

#[test]
fn what_a_process_that_has_not_come_may_charge_is_not_called_back() {
    let (mut node, tenant, late, neighbour) = beside_a_late_one(gib(5));
    let device = node.guests[&tenant].spec.quotas[0].0;
    let ask = node.want(neighbour, device, gib(8));
    assert!(node.granted(ask), "the other process's part is enough");
    let more = node.want(neighbour, device, gib(4));
    assert!(node.waits(more));
    let account = node.world.account(tenant, device).unwrap();
    assert!(account.grant >= gib(6), "{account:?}");
    node.tell(Event::ProcessStarted {
        process: late,
        tenant,
        adopted: false,
        gated: true,
    });
    assert!(node.waits(more), "it obeys the old page");
    node.tell(Event::Adopted { process: late });
    assert!(node.granted(more));
}
