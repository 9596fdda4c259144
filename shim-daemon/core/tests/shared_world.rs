//! A shared device in the world: the decisions when tenants come, leave, are idle or busy, and when
//! the node's settings change. The steering of service has tests of its own: see `together_*.rs`.

use crate::node::{Node, spec};
use gpushare_core::{
    DeviceId, Event, Lease, LeaseKind, LeasePolicy, Mode, Nanos, ProcessId, Sharing, TenantId, Work,
};

fn lease(node: &Node, tenant: TenantId, device: DeviceId) -> Lease {
    let said = node.guests[&tenant].leases.get(&device).copied();
    let said = said.unwrap_or(Lease::FREE);
    assert_eq!(node.world.lease(tenant, device), Some(said));
    said
}

/// The slice of an open gate.
fn slice(node: &Node, tenant: TenantId, device: DeviceId) -> Option<Nanos> {
    match lease(node, tenant, device).kind {
        LeaseKind::Open {
            deadline: None,
            slice,
            ..
        } => slice,
        other => panic!("{tenant:?} is {other:?}"),
    }
}

fn is_free(node: &Node, tenant: TenantId, device: DeviceId) -> bool {
    lease(node, tenant, device).kind == LeaseKind::Free
}

/// Two tenants with a process each on one shared device.
fn pair() -> (Node, DeviceId, [(TenantId, ProcessId); 2]) {
    let (mut node, device) = Node::with_device(16);
    let first = node.run(spec(device, 1, 4));
    assert!(is_free(&node, first.0, device), "alone it is free");
    let second = node.run(spec(device, 1, 4));
    (node, device, [first, second])
}

fn says(node: &mut Node, (tenant, process): (TenantId, ProcessId), device: DeviceId, idle: bool) {
    let epoch = lease(node, tenant, device).epoch;
    node.tell(if idle {
        Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Idle,
        }
    } else {
        Event::Reported {
            process,
            device,
            epoch,
            report: gpushare_core::Report::Busy,
        }
    });
}

/// Time passes in which the pages are read whenever the world asks: each process had so many
/// thousandths of it, and works.
fn work(node: &mut Node, time: Nanos, parts: &[(ProcessId, u64)]) {
    let end = node.now + time;
    let begin = node.now;
    while let Some(at) = node.world.next_sample().filter(|at| *at <= end) {
        node.pass(at - node.now);
        let due = node.world.due_samples(node.now);
        assert!(!due.is_empty(), "its time has come");
        for (device, processes) in due {
            let works = processes.into_iter().filter_map(|process| {
                let (_, part) = parts.iter().find(|(of, _)| *of == process)?;
                let work = Work {
                    service: node.now.0 * part / 1000,
                    busy: 0,
                    since: Some(begin),
                    guessed: false,
                };
                Some((process, work))
            });
            let works = works.collect();
            node.tell(Event::Served { device, works });
        }
        assert!(
            node.world.next_sample() > Some(node.now),
            "it would not end"
        );
    }
    node.pass(end - node.now);
}

fn set(node: &mut Node, sharing: Sharing) {
    let policy = LeasePolicy {
        sharing,
        ..LeasePolicy::default()
    };
    node.world.set_lease_policy(node.now, policy);
    // The decisions are carried out.
    node.pass(Nanos::ZERO);
}

#[test]
fn alone_a_tenant_is_free_and_a_second_makes_both_open() {
    let (mut node, device, [first, second]) = pair();
    for (tenant, _) in [first, second] {
        assert_eq!(slice(&node, tenant, device), Some(Nanos::ZERO));
    }
    let sharing = node.world.sharing(device).expect("a known device");
    assert_eq!((sharing.mode, sharing.changes), (Some(Mode::Together), 0));
    node.exit(second.1);
    assert!(is_free(&node, first.0, device));
    assert_eq!(node.world.next_sample(), None, "no sample is needed");
}

#[test]
fn an_idle_neighbour_is_latched_and_its_next_launch_ends_that() {
    let (mut node, device, [first, second]) = pair();
    assert!(node.world.next_sample().is_some());
    let before = lease(&node, first.0, device).epoch;
    says(&mut node, second, device, true);
    assert!(is_free(&node, first.0, device));
    assert_eq!(slice(&node, second.0, device), Some(Nanos::ZERO));
    assert_eq!(node.world.next_sample(), None);
    says(&mut node, second, device, false);
    assert_eq!(slice(&node, first.0, device), Some(Nanos::ZERO));
    assert!(lease(&node, first.0, device).epoch > before);
    assert!(node.world.next_sample().is_some());
}

#[test]
fn old_news_of_idleness_latches_nobody() {
    let (mut node, device, [first, second]) = pair();
    let epoch = lease(&node, second.0, device).epoch;
    node.tell(Event::Reported {
        process: second.1,
        device,
        epoch: epoch + 1,
        report: gpushare_core::Report::Idle,
    });
    assert_eq!(slice(&node, first.0, device), Some(Nanos::ZERO));
}

#[test]
fn a_tenant_that_falls_behind_makes_the_other_yield_and_close() {
    let (mut node, device, [first, second]) = pair();
    let (ahead, behind) = ((first.1, 900), (second.1, 100));
    work(&mut node, Nanos::millis(20), &[ahead, behind]);
    assert!(slice(&node, first.0, device) > Some(Nanos::ZERO), "yields");
    // After 20 ms of service it is known to leave no gaps, which the other one would fill.
    work(&mut node, Nanos::millis(200), &[ahead, behind]);
    let closed = lease(&node, first.0, device);
    assert!(closed.kind.is_closed());
    assert_eq!(slice(&node, second.0, device), Some(Nanos::ZERO));
    // It goes on as soon as the other has left, under another epoch.
    node.exit(second.1);
    assert!(is_free(&node, first.0, device));
    assert!(lease(&node, first.0, device).epoch > closed.epoch);
}

#[test]
fn the_even_work_of_two_changes_nothing() {
    let (mut node, device, [first, second]) = pair();
    work(
        &mut node,
        Nanos::secs(2),
        &[(first.1, 500), (second.1, 500)],
    );
    let sharing = node.world.sharing(device).expect("a known device");
    assert_eq!((sharing.mode, sharing.changes), (Some(Mode::Together), 0));
}

#[test]
fn a_process_that_is_away_is_not_steered_and_binds_nobody() {
    let (mut node, device, [first, second]) = pair();
    let process = second.1;
    node.tell(Event::Away {
        process,
        away: true,
    });
    assert!(is_free(&node, first.0, device));
    node.tell(Event::Away {
        process,
        away: false,
    });
    assert_eq!(slice(&node, first.0, device), Some(Nanos::ZERO));
}

#[test]
fn other_settings_at_run_time_leave_nobody_stuck() {
    let (mut node, device, [first, second]) = pair();
    let all = [first, second];
    let epochs = |node: &Node| all.map(|(tenant, _)| lease(node, tenant, device).epoch);
    for _ in 0..3 {
        // In the middle of a hold, too.
        work(
            &mut node,
            Nanos::millis(400),
            &[(first.1, 900), (second.1, 100)],
        );
        assert!(lease(&node, first.0, device).kind.is_closed());
        let before = epochs(&node);
        set(&mut node, Sharing::Turns);
        let sharing = node.world.sharing(device).expect("a known device");
        assert_eq!(sharing.mode, None);
        assert_eq!(node.world.next_sample(), None);
        let mut open = [false; 2];
        // A closed tenant has demand, and no work in flight.
        for _ in 0..50 {
            for (at, (tenant, process)) in all.into_iter().enumerate() {
                let Lease { epoch, kind } = lease(&node, tenant, device);
                open[at] |= !kind.is_closed();
                if kind.is_closed() {
                    node.tell(Event::Reported {
                        process,
                        device,
                        epoch,
                        report: gpushare_core::Report::Drained,
                    });
                    node.tell(Event::Reported {
                        process,
                        device,
                        epoch,
                        report: gpushare_core::Report::Wanted,
                    });
                }
            }
            node.pass(Nanos::millis(10));
        }
        assert_eq!(open, [true; 2], "both have turns");
        let between = epochs(&node);
        assert!(before.iter().max() < between.iter().max());
        set(&mut node, Sharing::Together);
        for (tenant, _) in all {
            assert_eq!(slice(&node, tenant, device), Some(Nanos::ZERO));
        }
        let after = epochs(&node);
        assert!(
            after.iter().min() > between.iter().max(),
            "{between:?} {after:?}"
        );
    }
}
