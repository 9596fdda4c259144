//! When unmanaged processes are told of, counted, ended and left alone.

use super::*;
use gpushare_protocol::units::MIB;

const END: Unmanaged = Unmanaged {
    end: true,
    root: false,
    grace: Nanos::secs(10),
    spare: Vec::new(),
};

/// A look at second `at` that lists pid 7 with these MiB, and none without.
fn look(strangers: &mut Strangers, rules: &Unmanaged, at: u64, mib: Option<u64>) -> Vec<Step> {
    look_at(strangers, rules, (at, 0), mib, None)
}

/// The same on a device, where it may be set aside.
fn look_at(
    strangers: &mut Strangers,
    rules: &Unmanaged,
    (at, device): (u64, usize),
    mib: Option<u64>,
    aside: Option<Aside>,
) -> Vec<Step> {
    let listed = mib.map(|mib| (7, Bytes(mib * MIB))).into_iter().collect();
    let aside = aside.map(|aside| (7, aside)).into_iter().collect();
    let now = Nanos::secs(at);
    let rules = (rules, Nanos::secs(5));
    strangers.seen((now, now), device, (&listed, &aside), rules)
}

fn is_report(steps: &[Step]) -> bool {
    matches!(steps, [Step::Report { pid: 7, .. }])
}

#[test]
fn a_stranger_is_told_of_once_and_again_when_it_has_doubled() {
    let (mut strangers, rules) = (Strangers::default(), Unmanaged::default());
    let report = |mib: u64| {
        vec![Step::Report {
            pid: 7,
            bytes: Bytes(mib * MIB),
        }]
    };
    assert_eq!(look(&mut strangers, &rules, 0, Some(100)), report(100));
    assert_eq!(look(&mut strangers, &rules, 1, Some(150)), []);
    assert_eq!(look(&mut strangers, &rules, 2, Some(200)), report(200));
    assert_eq!(look(&mut strangers, &rules, 3, None), []);
    assert_eq!(look(&mut strangers, &rules, 4, Some(10)), report(10));
}

#[test]
fn a_stranger_is_inspected_then_terminated_then_killed() {
    let mut strangers = Strangers::default();
    look(&mut strangers, &END, 0, Some(1));
    assert_eq!(look(&mut strangers, &END, 9, Some(1)), []);
    assert_eq!(
        look(&mut strangers, &END, 10, Some(1)),
        [Step::Inspect { pid: 7 }]
    );
    strangers.hold(7, Nanos::secs(10));
    assert_eq!(look(&mut strangers, &END, 10, Some(1)), []);
    assert_eq!(
        look(&mut strangers, &END, 11, Some(1)),
        [Step::Terminate { pid: 7 }]
    );
    assert_eq!(look(&mut strangers, &END, 15, Some(1)), []);
    assert_eq!(
        look(&mut strangers, &END, 16, Some(1)),
        [Step::Kill { pid: 7 }]
    );
    assert_eq!(look(&mut strangers, &END, 60, Some(1)), []);
}

#[test]
fn one_that_only_draws_is_told_of_and_neither_counted_nor_ended() {
    let (mut strangers, draws) = (Strangers::default(), Some(Aside::Draws));
    let first = look_at(&mut strangers, &END, (0, 0), Some(1), draws);
    assert!(is_report(&first));
    for at in 1..100 {
        assert_eq!(look_at(&mut strangers, &END, (at, 0), Some(1), draws), []);
    }
    assert_eq!(strangers.count_on(0), 0);
    // It computes from now on: it is told of once more, and has the time that any other has.
    assert!(is_report(&look(&mut strangers, &END, 100, Some(1))));
    assert_eq!(strangers.count_on(0), 1);
    assert_eq!(look_at(&mut strangers, &END, (101, 0), Some(1), draws), []);
    assert_eq!(strangers.count_on(0), 0);
    assert_eq!(look(&mut strangers, &END, 109, Some(1)), []);
    let inspect = [Step::Inspect { pid: 7 }];
    assert_eq!(look(&mut strangers, &END, 110, Some(1)), inspect);
}

#[test]
fn one_that_draws_on_one_device_and_computes_on_another_is_ended() {
    let (mut strangers, draws) = (Strangers::default(), Some(Aside::Draws));
    for at in 0..10 {
        look_at(&mut strangers, &END, (at, 0), Some(1), draws);
        look_at(&mut strangers, &END, (at, 1), Some(1), None);
    }
    assert_eq!((strangers.count_on(0), strangers.count_on(1)), (0, 1));
    assert_eq!(look_at(&mut strangers, &END, (10, 0), Some(1), draws), []);
    let inspect = [Step::Inspect { pid: 7 }];
    let other = look_at(&mut strangers, &END, (10, 1), Some(1), None);
    assert_eq!(other, inspect);
}

#[test]
fn one_in_a_named_cgroup_is_told_of_once_and_neither_counted_nor_ended() {
    is_told_of_once(Aside::Named);
}

#[test]
fn one_of_an_allowed_container_is_told_of_once_and_not_counted_or_ended() {
    is_told_of_once(Aside::Allowed);
}

fn is_told_of_once(aside: Aside) {
    let (mut strangers, named) = (Strangers::default(), Some(aside));
    let first = look_at(&mut strangers, &END, (0, 0), Some(1), named);
    assert!(is_report(&first));
    for at in 1..100 {
        for device in [0, 1] {
            let steps = look_at(&mut strangers, &END, (at, device), Some(at), named);
            assert_eq!(steps, []);
            assert_eq!(strangers.count_on(device), 0);
        }
    }
    // Another process of that pid, which no look has missed.
    assert!(is_report(&look(&mut strangers, &END, 100, Some(99))));
    assert_eq!(strangers.count_on(0), 1);
    let inspect = [Step::Inspect { pid: 7 }];
    assert_eq!(look(&mut strangers, &END, 110, Some(99)), inspect);
}

#[test]
fn one_whose_end_has_begun_is_not_killed_in_a_named_cgroup() {
    let (mut strangers, named) = (Strangers::default(), Some(Aside::Named));
    look(&mut strangers, &END, 0, Some(1));
    assert_eq!(strangers.count_on(0), 1);
    look(&mut strangers, &END, 10, Some(1));
    strangers.hold(7, Nanos::secs(10));
    let terminate = [Step::Terminate { pid: 7 }];
    assert_eq!(look(&mut strangers, &END, 11, Some(1)), terminate);
    let told = look_at(&mut strangers, &END, (12, 0), Some(1), named);
    assert!(is_report(&told) && !strangers.lists(7));
    assert_eq!(look_at(&mut strangers, &END, (20, 0), Some(1), named), []);
}

#[test]
fn one_that_left_in_between_starts_anew_and_a_spared_one_is_left_alone() {
    let mut strangers = Strangers::default();
    look(&mut strangers, &END, 0, Some(1));
    look(&mut strangers, &END, 5, None);
    assert!(!strangers.lists(7));
    look(&mut strangers, &END, 10, Some(1));
    assert_eq!(
        look(&mut strangers, &END, 20, Some(1)),
        [Step::Inspect { pid: 7 }]
    );
    strangers.spare(7);
    assert_eq!(look(&mut strangers, &END, 90, Some(1)), []);
}

/// A process whose only hierarchy is the unified one.
fn is_spared(pid: u32, uids: &[u32], cgroup: &str, tenants: &Places<'_>, root: bool) -> bool {
    let known = Known {
        pid,
        uids,
        cgroup,
        groups: &Groups::parse(&format!("0::{cgroup}")),
    };
    spared(&known, 99, tenants, &Unmanaged { root, ..END }).is_some()
}

#[test]
fn neither_tenants_nor_root_nor_the_daemon_may_be_ended() {
    let tenants = Places {
        shared: BTreeSet::from(["/pod/a"]),
        ..Places::default()
    };
    let spared = |pid, uids: &[u32], cgroup, root| is_spared(pid, uids, cgroup, &tenants, root);
    assert!(!spared(7, &[1000, 1000], "/pod/b", false));
    assert!(!spared(7, &[0, 0], "/pod/b", true));
    assert!(spared(7, &[1000, 0], "/pod/b", false));
    assert!(spared(7, &[], "/pod/b", false));
    assert!(spared(1, &[1000], "/pod/b", true));
    assert!(spared(99, &[1000], "/pod/b", true));
    assert!(spared(7, &[1000], "/pod/a", true));
}

#[test]
fn all_below_a_cgroup_that_a_runtime_made_is_the_tenants() {
    let groups = "4:memory:/docker/a\n0::/docker/a";
    for tenants in [
        Places {
            made: BTreeSet::from(["/docker/a"]),
            ..Places::default()
        },
        Places {
            containers: vec![Groups::parse(groups).in_those_of(&Groups::parse("0::/"))],
            ..Places::default()
        },
    ] {
        let spared = |cgroup| is_spared(7, &[1000], cgroup, &tenants, true);
        assert!(spared("/docker/a") && spared("/docker/a/init.scope"));
        assert!(!spared("/docker") && !spared("/docker/ab") && !spared("/"));
    }
}

#[test]
fn a_session_with_a_registered_process_spares_nothing_below_it() {
    let tenants = Places {
        shared: BTreeSet::from(["/user.slice/session-3.scope"]),
        ..Places::default()
    };
    let spared = |cgroup| is_spared(7, &[1000], cgroup, &tenants, true);
    assert!(spared("/user.slice/session-3.scope"));
    assert!(!spared("/user.slice/session-3.scope/other") && !spared("/user.slice"));
}
