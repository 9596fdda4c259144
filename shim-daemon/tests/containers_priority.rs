//! The priorities that containers get: above the default by the operator's word only.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode};

const CLASS: &str =
    "[classes.first]\ndevices = [\"0\"]\n[classes.first.limits]\nGPUSHARE_PRIORITY = \"900\"\n";

#[test]
fn a_container_has_a_priority_above_the_default_by_a_maximum_only() {
    let of = |priority: &str| {
        let mut wanted = asks("a", "1GiB");
        let priority = ("GPUSHARE_PRIORITY".to_owned(), priority.to_owned());
        wanted.environment.push(priority);
        wanted.labels = vec![("namespace".to_owned(), "team".to_owned())];
        wanted
    };
    let inject = |text: &str, priority: &str| {
        let first = First::start(&group("a"));
        let mut machine = Machine::configured(text);
        machine.inject(&of(priority), &first).map(drop)
    };
    let rule = |namespace: &str| {
        format!(
            "[[containers.rules]]\nnamespace = \"{namespace}\"\n[containers.rules.maxima]\nGPUSHARE_PRIORITY = \"800\"\n"
        )
    };
    let maximum = "[maxima]\nGPUSHARE_PRIORITY = \"800\"\n";
    for text in [
        "",
        &rule("other"),
        "[defaults]\nGPUSHARE_PRIORITY = \"900\"\n",
    ] {
        let refused = inject(text, "501").unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadLimits, "{refused}");
        for word in ["GPUSHARE_PRIORITY=\"501\"", "at most 500", "[maxima]"] {
            assert!(refused.message.contains(word), "{text}: {refused}");
        }
        inject(text, "500").unwrap();
    }
    for text in [maximum, &rule("team")] {
        inject(text, "800").unwrap();
        let refused = inject(text, "801").unwrap_err();
        assert!(refused.message.contains("at most 800"), "{text}: {refused}");
    }
}

#[test]
fn a_nodes_default_priority_reaches_containers_and_root_may_set_more() {
    let mut machine = Machine::configured("[defaults]\nGPUSHARE_PRIORITY = \"700\"\n");
    let first = First::start(&group("a"));
    machine.inject(&asks("a", "1GiB"), &first).unwrap();
    let from = machine.connection();
    machine.node.command_came(from, "/", None);
    let raise = Control::Set {
        tenant: "a".to_owned(),
        changes: vec![("GPUSHARE_PRIORITY".to_owned(), "900".to_owned())],
    };
    machine.node.command(NOW, from, 1, &raise);
    assert!(matches!(machine.drain().0, Some(ControlReply::Done)));
}

#[test]
fn a_class_gives_the_priority_that_its_operator_wrote() {
    let mut machine = Machine::configured(CLASS);
    let id = "0123456789abcdef".repeat(4);
    let process = peer(ROOT, &group(&id));
    machine
        .node
        .enter_class(NOW, ("first", false), &process)
        .unwrap();
}
