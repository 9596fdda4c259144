//! What changes for a victim between its SIGTERM and its SIGKILL.

use super::*;
use gpushare_core::Preemptible;

#[test]
fn a_victim_whose_last_process_has_gone_is_killed_no_more() {
    let Contest {
        mut node,
        device,
        low,
        first,
        ask,
        ..
    } = Contest::with(Manners::Stubborn, may_be_ended(0), by_priority(0));
    node.exit(first);
    assert!(node.granted(ask));
    let next = node.start(low);
    let more = node.want(next, device, gib(1));
    assert!(node.granted(more));
    node.pass(secs(60));
    assert_eq!(node.guests[&low].signals, [Signal::Terminate]);
}

#[test]
fn a_run_limit_that_comes_while_a_victim_ends_is_kept() {
    let limited = |device| TenantSpec {
        run_limit: Some(secs(5)),
        ..killable(device, 0, 16)
    };
    let Contest {
        mut node,
        low,
        first,
        ask,
        ..
    } = Contest::with(Manners::Stubborn, limited, by_priority(0));
    node.pass(secs(6));
    node.exit(first);
    assert!(node.granted(ask));
    node.pass(secs(10));
    assert!(!node.guests.contains_key(&low));
}

#[test]
fn a_victim_that_may_be_ended_no_more_is_spared_at_once() {
    for preemptible in [Preemptible::Never, Preemptible::Kill] {
        let spared = preemptible == Preemptible::Never;
        let resolvers = [Resolver::Priority, Resolver::Wait];
        let waits_too = |device| resolving(&resolvers, killable(device, 0, 16));
        let Contest {
            mut node,
            device,
            low,
            ask,
            ..
        } = Contest::with(Manners::Stubborn, may_be_ended(0), waits_too);
        assert_eq!(node.guests[&low].signals, [Signal::Terminate]);
        let changed = TenantSpec {
            preemptible,
            wait_timeout: secs(9),
            ..ranked(100, killable(device, 0, 16))
        };
        node.guests.get_mut(&low).unwrap().spec = changed.clone();
        node.tell(Event::Set {
            tenant: low,
            spec: changed,
        });
        let told = node.notices.contains(&Notice::Spared { tenant: low });
        assert_eq!(told, spared);
        node.pass(secs(10));
        assert_eq!(node.guests.contains_key(&low), spared);
        assert_eq!(node.waits(ask), spared, "{:?}", node.denied(ask));
        node.pass(secs(20));
        let waited = spared.then_some(Denial::TimedOut { waited: secs(30) });
        assert_eq!(node.denied(ask), waited);
    }
}
