//! Which containers that name a gang are of one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_core::{Gang, TenantId};
use gpushare_protocol::wire::{Control, ControlReply, Injection};
use gpushared::node::Settings;

/// A container of a pod of that namespace, if any, that names the gang `train`.
fn train(id: &str, namespace: Option<&str>) -> Injection {
    let mut wanted = asks(id, "1GiB");
    let gang = ("GPUSHARE_GANG".to_owned(), "train".to_owned());
    wanted.environment.push(gang);
    let labels = namespace.map(|name| ("namespace".to_owned(), name.to_owned()));
    wanted.labels = labels.into_iter().collect();
    wanted
}

fn gang(machine: &Machine, tenant: TenantId) -> Gang {
    machine.node.gang(tenant).cloned().expect("it names one")
}

#[test]
fn a_gang_is_of_one_namespace_as_of_one_user() {
    let firsts = ["a", "b", "c", "d", "e"].map(|id| First::start(&group(id)));
    let mut machine = Machine::new();
    let mut run =
        |id: &str, namespace, first| machine.inject(&train(id, namespace), first).unwrap();
    let [a, b, c, d, e] = [
        run("a", Some("team-a"), &firsts[0]),
        run("b", Some("team-b"), &firsts[1]),
        run("c", Some("team-a"), &firsts[2]),
        run("d", None, &firsts[3]),
        run("e", None, &firsts[4]),
    ];
    let of = |tenant| gang(&machine, tenant);
    assert_eq!(of(a), of(c), "one job, one namespace");
    assert_eq!(of(d), of(e), "containers of no pod");
    for (one, other) in [(a, b), (a, d), (b, d)] {
        assert_ne!(of(one), of(other));
    }
}

#[test]
fn a_gang_keeps_its_namespace_through_a_change_and_a_restart() {
    let first = First::start(&group("a"));
    let mut machine = Machine::new();
    let tenant = machine.inject(&train("a", Some("team-a")), &first).unwrap();
    let before = gang(&machine, tenant);
    let from = machine.connection();
    machine.node.command_came(from, "/", None);
    let change = |value: &str| Control::Set {
        tenant: "a".to_owned(),
        changes: vec![("GPUSHARE_GANG".to_owned(), value.to_owned())],
    };
    machine.node.command(NOW, from, 1, &change("other"));
    assert!(matches!(machine.drain().0, Some(ControlReply::Done)));
    let after = gang(&machine, tenant);
    assert_eq!(
        (after.name.as_str(), after.namespace.as_deref()),
        ("other", Some("team-a"))
    );
    machine.node.command(NOW, from, 2, &change("train"));
    machine.drain();
    assert_eq!(gang(&machine, tenant), before);
    let registration = machine.made.pop().expect("it listens").1;
    let mut next = Machine::with(&Settings::default(), true);
    let restored = next.node.restore(NOW, &registration).unwrap();
    assert_eq!(gang(&next, restored), before);
}
