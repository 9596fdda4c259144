//! A container that is refused leaves an event with the reason, and one that runs leaves none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_protocol::wire::{EventRecord, Injection};
use gpushared::groups::Groups;
use gpushared::node::{Settings, Silent};

fn label(kind: &str, value: &str) -> (String, String) {
    (kind.to_owned(), value.to_owned())
}

fn of_pod(injection: Injection) -> Injection {
    let labels = vec![
        label("namespace", "team"),
        label("pod", "web-0"),
        label("pod_container", "main"),
    ];
    Injection {
        labels,
        ..injection
    }
}

fn refused(machine: &Machine) -> Vec<&EventRecord> {
    let all = machine.told.iter().map(AsRef::as_ref);
    all.filter(|record| record.kind == "container-refused")
        .collect()
}

/// The reason that is told of the only container that was refused.
#[track_caller]
fn reason(machine: &Machine) -> String {
    let [record] = refused(machine)[..] else {
        panic!("{:?}", machine.told)
    };
    assert_eq!(record.tenant, None);
    assert_eq!(record.word_of("container_id"), Some("a"), "{record:?}");
    assert!(record.text.starts_with("container a "), "{}", record.text);
    record.word_of("reason").unwrap().to_owned()
}

/// What is told of this container on a node with these settings.
#[track_caller]
fn told(text: &str, injection: &Injection) -> String {
    let mut machine = Machine::configured(text);
    let first = First::start(&group("a"));
    machine.inject(injection, &first).unwrap_err();
    reason(&machine)
}

const DENY: &str = "[containers]\nunlimited = \"deny\"\n";

#[test]
fn each_refusal_of_a_container_is_an_event_with_its_reason() {
    let asked = || asks("a", "1GiB");
    let mut priority = asked();
    priority.environment = vec![label("GPUSHARE_PRIORITY", "400")];
    assert_eq!(told(DENY, &priority), "rule");
    assert_eq!(told("", &asks("a", "much")), "value");
    let device = Injection {
        devices: vec!["7".to_owned()],
        ..asked()
    };
    assert_eq!(told("", &device), "device");
    assert_eq!(told("", &asks("a", "900GiB")), "room");
}

#[test]
fn a_refused_container_of_a_pod_is_named_by_it() {
    let mut machine = Machine::configured(DENY);
    let mut wanted = of_pod(asks("a", "1GiB"));
    wanted.environment = vec![label("GPUSHARE_PRIORITY", "400")];
    let first = First::start(&group("a"));
    machine.inject(&wanted, &first).unwrap_err();
    let [record] = refused(&machine)[..] else {
        panic!("{:?}", machine.told)
    };
    let words = ["namespace", "pod", "container"].map(|name| record.word_of(name));
    assert_eq!(words, [Some("team"), Some("web-0"), Some("main")]);
    let begin = "container a of team/web-0 is refused: it has a GPU";
    assert!(record.text.starts_with(begin), "{}", record.text);
    assert!(record.is_grave());
}

#[test]
fn a_container_without_limits_that_is_refused_is_an_event_too() {
    let ask = |text: &str, id: &str| {
        let mut machine = Machine::configured(text);
        let from = machine.connection();
        let silent = Silent {
            id: id.to_owned(),
            devices: vec!["GPU-1".to_owned()],
            labels: vec![label("namespace", "team")],
        };
        let none = (None, Groups::default());
        machine.node.judge_container(NOW, (from, 1), silent, none);
        machine.drain();
        machine
    };
    let machine = ask(DENY, "a");
    assert_eq!(reason(&machine), "rule");
    assert_eq!(refused(&machine)[0].word_of("namespace"), Some("team"));
    assert_eq!(refused(&ask("", "a")), [] as [&EventRecord; 0]);
    // What a stranger calls an id may be of any length.
    let machine = ask(DENY, &"x".repeat(1_000));
    let [record] = refused(&machine)[..] else {
        panic!("{:?}", machine.told)
    };
    assert_eq!(record.word_of("container_id"), None);
}

#[test]
fn a_container_that_runs_or_is_to_ask_again_is_no_refusal() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    machine.inject(&asks("a", "1GiB"), &first).unwrap();
    assert!(refused(&machine).is_empty(), "{:?}", machine.told);
    let mut machine = Machine::with(&Settings::default(), true);
    let error = machine.inject(&asks("a", "1GiB"), &first).unwrap_err();
    assert!(error.can_retry, "the daemon recovers");
    assert!(refused(&machine).is_empty(), "{:?}", machine.told);
}

#[test]
fn a_container_without_a_first_process_is_an_event_of_that_reason() {
    let mut machine = Machine::new();
    let from = machine.connection();
    let wanted = asks("a", "1GiB");
    let none = (None, Groups::default());
    machine.node.name_container(NOW, (from, 1), wanted, none);
    machine.drain();
    assert_eq!(reason(&machine), "process");
}

#[test]
fn refused_containers_of_a_crash_loop_leave_room_for_other_events() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    for at in 0..1_000 {
        let wanted = asks(&format!("a{at}"), "much");
        machine.inject(&wanted, &first).unwrap_err();
    }
    assert_eq!(refused(&machine).len(), 128);
}

#[test]
fn a_refusal_to_another_users_hook_names_that_user() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let wanted = asks("a", "much");
    machine.inject_as(Some(ALICE), &wanted, &first).unwrap_err();
    let [record] = refused(&machine)[..] else {
        panic!("{:?}", machine.told)
    };
    assert_eq!(record.number_of("user"), Some(u64::from(ALICE)));
}

/// A class whose request no GPU of the machine can guarantee, and one that fits.
const CLASSES: &str = "[classes.large]\ndevices = [\"0\"]\n[classes.large.limits]\nGPUSHARE_MEM_LIMIT = \"64GiB\"\n\
    [classes.small]\ndevices = [\"0\"]\n[classes.small.limits]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n";

#[test]
fn a_refused_container_of_a_class_is_told_once_and_one_that_runs_is_not() {
    let mut machine = Machine::configured(CLASSES);
    let [first, second] = ["0", "1"].map(|digit| digit.repeat(64));
    let mut enters = |class: &str, id: &str| {
        let peer = peer(ROOT, &group(id));
        let entered = machine.node.enter_class(NOW, (class, false), &peer);
        machine.drain();
        entered.is_ok()
    };
    assert!(enters("small", &first));
    // Each of its programs tries, and some try again.
    assert!(!enters("large", &second) && !enters("large", &second));
    let [record] = refused(&machine)[..] else {
        panic!("{:?}", machine.told)
    };
    assert_eq!(record.word_of("container_id"), Some(&*second));
    assert_eq!(record.word_of("reason"), Some("value"));
    for words in ["is refused: class large: ", "can guarantee at most"] {
        assert!(record.text.contains(words), "{words} in {}", record.text);
    }
}
