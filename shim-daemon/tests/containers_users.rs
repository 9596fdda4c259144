//! Containers that a user's own hook brings: what it says of them, and whom the daemon signals
//! there in that user's name.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::AsFd as _;

use crate::container_node::*;
use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply};
use gpushared::groups::Groups;
use gpushared::node::Silent;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

#[test]
fn labels_of_a_users_own_hook_choose_no_rule_and_name_no_pod() {
    let rule = |key: &str, most: &str| {
        format!(
            "[[containers.rules]]\n{key}\n[containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"{most}\"\n"
        )
    };
    let text = [
        rule("namespace = \"prod\"", "4GiB"),
        rule("user = \"*\"", "1GiB"),
    ];
    let text = text.concat();
    let own = nix::unistd::geteuid().as_raw();
    for (user, bytes, is_taken) in [
        (None, "2GiB", true),
        (Some(own), "2GiB", false),
        (Some(own), "1GiB", true),
    ] {
        let mut machine = Machine::configured(&text);
        let first = First::start(&group("a"));
        let mut wanted = asks("a", bytes);
        wanted.labels = [("namespace", "prod"), ("pod", "web-0"), ("user", "7")]
            .map(|(kind, value)| (kind.to_owned(), value.to_owned()))
            .to_vec();
        let taken = machine.inject_as(user, &wanted, &first);
        assert_eq!(taken.is_ok(), is_taken, "{user:?} {bytes}: {taken:?}");
        let containers = machine.made.iter().map(|(_, known)| &known.container);
        let pods: usize = containers.flatten().map(|one| one.pod.len()).sum();
        assert_eq!(pods, if user.is_none() { 2 } else { 0 }, "{user:?}");
    }
}

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const CLASS: &str = "[classes.small]\ndevices = [\"0\"]\n[classes.small.limits]\n\
    GPUSHARE_MEM_LIMIT = \"1GiB\"\n";

/// An image chooses the number of its user, which is the host's without a user namespace.
#[test]
fn a_users_number_in_a_container_of_roots_runtime_is_not_that_user() {
    let own = nix::unistd::geteuid().as_raw();
    let session = "user.slice/user-1000.slice/session-1.scope";
    for (table, is_taken) in [
        (group(ID), false),
        (
            format!("0::/system.slice/docker-{ID}.scope/system.slice/app.service\n"),
            false,
        ),
        (
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n"),
            false,
        ),
        // Of an engine of that user's, which has no part of the machine's cgroups.
        (format!("0::/{session}/libpod-{ID}\n"), true),
    ] {
        let mut machine = Machine::configured(CLASS);
        let first = First::start(&table);
        let taken = machine.inject_as(Some(own), &asks("a", "1GiB"), &first);
        assert_eq!(taken.is_ok(), is_taken, "{table}: {taken:?}");
        let Err(refused) = taken else { continue };
        assert!(refused.message.contains("another user's"), "{refused}");
        machine.inject(&asks("a", "1GiB"), &first).unwrap();
    }
}

#[test]
fn a_container_enters_its_class_after_a_stranger_tried_to_register_it() {
    let own = nix::unistd::geteuid().as_raw();
    let mut machine = Machine::configured(CLASS);
    let first = First::start(&group(ID));
    let tried = machine.inject_as(Some(own), &asks("mine", "1GiB"), &first);
    let program = peer(1000, &group(ID));
    let entered = machine.node.enter_class(NOW, ("small", false), &program);
    assert!(entered.is_ok(), "{entered:?} after {tried:?}");
}

/// `prod` is a namespace that a rule allows, and no user's hook is of a pod there.
#[test]
fn a_users_own_hook_is_not_believed_that_a_rule_allows_its_container() {
    let text = "[containers]\nunlimited = \"deny\"\n\
        [[containers.rules]]\nnamespace = \"prod\"\nunlimited = \"allow\"\n";
    for (user, is_allowed) in [(None, true), (Some(1000), false)] {
        let mut machine = Machine::configured(text);
        let from = machine.connection();
        machine.node.command_came(from, "/user.slice", user);
        let labels = [("namespace", "prod"), ("pod", "web-0")];
        let silent = Silent {
            id: "a".to_owned(),
            devices: vec!["GPU-1".to_owned()],
            labels: labels
                .map(|(kind, value)| (kind.to_owned(), value.to_owned()))
                .to_vec(),
        };
        let none = (None, Groups::default());
        machine.node.judge_container(NOW, (from, 1), silent, none);
        let told = machine.drain().0.unwrap();
        let answer = matches!(told, ControlReply::Unlimited { .. });
        assert_eq!(answer, is_allowed, "{user:?}: {told:?}");
        // The event names no pod of another's.
        let events = machine.told.iter();
        let mut refusals = events.filter(|record| record.kind == "container-refused");
        let refusal = refusals.next();
        assert_eq!(refusal.is_none(), is_allowed);
        let facts = |kind| refusal.and_then(|record| record.word_of(kind));
        assert_eq!((facts("namespace"), facts("pod")), (None, None));
        assert!(refusal.is_none_or(|record| !record.text.contains("prod")));
    }
}

/// As after `sudo` in the same process.
#[test]
fn a_user_has_no_process_ended_that_became_another_users() {
    let own = nix::unistd::geteuid().as_raw();
    for (user, is_ended) in [(own, true), (own + 1000, false)] {
        let path = format!("/user.slice/user-{user}.slice/user@{user}.service/libpod-a.scope");
        let table = format!("0::{path}\n");
        let [first, member] = [(); 2].map(|()| First::start(&table));
        let mut machine = Machine::new();
        let tenant = machine.inject_as(Some(user), &asks("a", "1GiB"), &first);
        let (tenant, pidfds) = (
            tenant.unwrap(),
            [&first, &member].map(|one| one.init().pidfd),
        );
        machine.stays_as(tenant, member.peer(user, &table));
        let names = machine.made.iter().find(|(id, _)| *id == tenant);
        let end = Control::End {
            tenant: names.unwrap().1.name.clone(),
            kill: true,
        };
        let from = machine.connection();
        machine.node.command_came(from, "/user.slice", Some(user));
        machine.node.command(NOW + Nanos::secs(1), from, 1, &end);
        assert_eq!(machine.drain().0, Some(ControlReply::Done));
        let within = PollTimeout::from(if is_ended { 10_000_u16 } else { 200 });
        for pidfd in pidfds {
            let ended = poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], within);
            assert_eq!(ended, Ok(i32::from(is_ended)), "{user}");
        }
    }
}
