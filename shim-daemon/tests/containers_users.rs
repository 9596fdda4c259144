//! Containers that a user's own hook brings: what it says of them, and whom the daemon signals
//! there in that user's name.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::AsFd as _;

use crate::container_node::*;
use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply};
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
