//! Containers and hooks that outlive a daemon, and those that do not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use crate::container_node::*;
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{ControlReply, WireError};
use gpushared::groups::{Groups, Mounts};
use gpushared::node::{Effect, Registration, Settings};

const A: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const HALF: &str =
    "[classes.half]\ndevices = [\"0\"]\n[classes.half.limits]\nGPUSHARE_MEM_LIMIT = \"36GiB\"\n";

/// What a daemon stores of a container that takes most of the first device.
fn kept(machine: &mut Machine, first: &First) -> Registration {
    machine.inject(&asks("a", "36GiB"), first).unwrap();
    machine.made.pop().unwrap().1
}

/// Whether the next daemon, once it has recovered, has room for such a container.
fn takes_another(next: &mut Machine) -> bool {
    next.node.recovered(NOW + Nanos::secs(2));
    next.drain();
    let other = First::start(&group("b"));
    next.inject(&asks("b", "36GiB"), &other).is_ok()
}

#[test]
fn a_container_that_ended_between_daemons_keeps_nothing_of_the_device() {
    for lives in [true, false] {
        let first = First::start(&group("a"));
        let kept = kept(&mut Machine::new(), &first);
        let _first = lives.then_some(first);
        let mut next = Machine::with(&Settings::default(), true);
        next.node.restore(NOW, &kept).unwrap();
        assert_eq!(takes_another(&mut next), !lives, "lives: {lives}");
    }
}

fn enters(machine: &mut Machine, presents: bool, table: &str) -> Result<TenantId, WireError> {
    let peer = peer(ROOT, table);
    let entered = machine.node.enter_class(NOW, ("half", presents), &peer);
    machine.drain();
    entered
}

/// The cgroups of a container, whose folder is there, on a machine where they are mounted.
struct Cgroups(tempfile::TempDir);

impl Cgroups {
    const OWN: &str = "0::/system.slice/docker-";

    fn new() -> Self {
        let all = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(all.folder()).unwrap();
        all
    }

    fn folder(&self) -> std::path::PathBuf {
        self.0.path().join(format!("system.slice/docker-{A}.scope"))
    }

    fn table() -> String {
        format!("{}{A}.scope\n", Self::OWN)
    }

    fn mount(&self, machine: &mut Machine) {
        let point = self.0.path().display();
        let table = format!("30 25 0:26 / {point} rw - cgroup2 cgroup2 rw\n");
        machine.node.mounted(Mounts::parse(&table));
    }
}

#[test]
fn a_classs_container_that_ended_between_daemons_keeps_nothing() {
    for lives in [true, false] {
        let cgroups = Cgroups::new();
        let mut before = Machine::configured(HALF);
        cgroups.mount(&mut before);
        enters(&mut before, false, &Cgroups::table()).unwrap();
        let kept = before.made.pop().unwrap().1;
        if !lives {
            fs::remove_dir(cgroups.folder()).unwrap();
        }
        let mut next = Machine::with(&Settings::default(), true);
        cgroups.mount(&mut next);
        next.node.restore(NOW, &kept).unwrap();
        assert_eq!(takes_another(&mut next), !lives, "lives: {lives}");
    }
}

#[test]
fn programs_of_a_class_that_is_gone_come_back_and_new_ones_do_not() {
    let cgroups = Cgroups::new();
    let mut before = Machine::configured(HALF);
    cgroups.mount(&mut before);
    enters(&mut before, false, &Cgroups::table()).unwrap();
    let kept = before.made.pop().unwrap().1;
    let mut next = Machine::with(&Settings::default(), true);
    cgroups.mount(&mut next);
    let tenant = next.node.restore(NOW, &kept).unwrap();
    assert!(next.node.classes_in_use().contains("half"));
    assert_eq!(enters(&mut next, true, &Cgroups::table()).unwrap(), tenant);
    let refused = enters(&mut next, false, &Cgroups::table()).unwrap_err();
    assert!(refused.message.contains("none of this node's"), "{refused}");
    next.node.container_ended(NOW, tenant);
    next.drain();
    assert!(next.node.classes_in_use().is_empty());
}

/// A hook's second request: the answer, and what was made before it.
fn asks_again(machine: &mut Machine, id: &str, first: &First) -> (ControlReply, bool) {
    let from = machine.connection();
    machine.node.command_came(from, "/", None);
    let (asked, place) = (asks(id, "36GiB"), Groups::parse(RUNTIME));
    machine
        .node
        .inject(NOW, (from, 1), &asked, first.init(), &place);
    let mut is_made = false;
    loop {
        match machine.node.poll_effect().unwrap() {
            Effect::Listen { .. } => is_made = true,
            Effect::Command { reply, .. } => return (reply, is_made),
            _ => {}
        }
    }
}

fn is_of_a(reply: &ControlReply) -> bool {
    matches!(reply, ControlReply::Created { name, .. } if name == "a")
}

#[test]
fn a_hook_that_asks_again_is_told_its_folder_and_another_is_not() {
    let first = First::start(&group("a"));
    let mut machine = Machine::new();
    let kept = kept(&mut machine, &first);
    let (reply, is_made) = asks_again(&mut machine, "a", &first);
    assert!(is_of_a(&reply) && is_made, "{reply:?}");
    // The previous daemon ended before its answer.
    let mut next = Machine::with(&Settings::default(), true);
    let tenant = next.node.restore(NOW, &kept).unwrap();
    next.drain();
    let (reply, is_made) = asks_again(&mut next, "a", &first);
    assert!(is_of_a(&reply) && is_made, "{reply:?}");
    let (reply, _) = asks_again(&mut next, "b", &first);
    let told = format!("{reply:?}");
    assert!(told.contains("runs twice"), "{told}");
    assert_eq!(next.names(), ["a"]);
    // It is the container's hook no more once a program of it is there.
    next.node.recovered(NOW + Nanos::secs(2));
    next.drain();
    let _joined = next.stays(tenant, &group("a"));
    let (reply, _) = asks_again(&mut next, "a", &first);
    assert!(format!("{reply:?}").contains("runs twice"), "{reply:?}");
}
