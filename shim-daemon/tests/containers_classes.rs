//! Containers of a class: one socket for all, told apart by their cgroups.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use crate::container_node::*;
use gpushare_core::{Nanos, TenantId};
use gpushare_protocol::wire::{ErrorCode, WireError};
use gpushared::groups::Mounts;

const A: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const B: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
const CLASSES: &str = "[classes.half]\ndevices = [\"0\"]\n[classes.half.limits]\nGPUSHARE_MEM_LIMIT = \"31GiB\"\n\
    [classes.small]\ndevices = [\"0\"]\n[classes.small.limits]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n";

fn enters(machine: &mut Machine, class: &str, table: &str) -> Result<TenantId, WireError> {
    let entered = machine
        .node
        .enter_class(NOW, (class, false), &peer(ROOT, table));
    machine.drain();
    entered
}

#[test]
fn the_cgroup_says_which_container_came_through_the_door() {
    let mut machine = Machine::configured(CLASSES);
    let a = enters(&mut machine, "small", &group(A)).unwrap();
    let nested = group(A).replace('\n', "/init.scope\n");
    assert_eq!(enters(&mut machine, "small", &nested).unwrap(), a);
    machine.joins(a, ALICE, &nested).unwrap();
    let b = enters(&mut machine, "small", &group(B)).unwrap();
    assert_ne!(a, b);
    machine.joins(a, ROOT, &group(B)).unwrap_err();
    assert_eq!(
        machine.names(),
        ["small-0123456789ab", "small-fedcba987654"]
    );
    // In one hierarchy only, as some runtimes do.
    let unified = format!("4:memory:/\n0::/machine.slice/libpod-{A}.scope\n");
    enters(&mut machine, "small", &unified).unwrap();
}

#[test]
fn what_is_in_no_container_does_not_come_through() {
    let mut machine = Machine::configured(CLASSES);
    for table in [
        RUNTIME,
        "0::/\n",
        "",
        &group("short"),
        &format!("0::/user.slice/user-1000.slice/{A}\n"),
        &format!("0::/machine.slice/libpod-conmon-{A}.scope\n"),
    ] {
        let refused = enters(&mut machine, "small", table).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Forbidden, "{table}");
    }
    assert!(machine.names().is_empty());
    enters(&mut machine, "none", &group(A)).unwrap_err();
}

#[test]
fn a_rootless_engines_container_is_refused_with_what_it_can_do() {
    let mut machine = Machine::configured(CLASSES);
    let of = |user: u32| {
        format!(
            "0::/user.slice/user-{user}.slice/user@{user}.service/user.slice/libpod-{A}.scope/container\n"
        )
    };
    let refused = enters(&mut machine, "small", &of(1000)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Forbidden);
    for word in ["user@1000.service", "rootless", "gpushare.io/mem-limit"] {
        assert!(refused.message.contains(word), "{word} in {refused}");
    }
    let session = "0::/user.slice/user-1000.slice/session-1.scope\n";
    let refused = enters(&mut machine, "small", session).unwrap_err();
    assert!(refused.message.contains("in no container"), "{refused}");
    // Root's own engine, started in a session.
    enters(&mut machine, "small", &of(0)).unwrap();
}

#[test]
fn a_container_has_one_class() {
    let mut machine = Machine::configured(CLASSES);
    enters(&mut machine, "small", &group(A)).unwrap();
    let refused = enters(&mut machine, "half", &group(A)).unwrap_err();
    assert!(refused.message.contains("of class small"), "{refused}");
    let first = First::start(&group(B));
    machine.inject(&asks("b", "1GiB"), &first).unwrap();
    let refused = enters(&mut machine, "small", &group(B)).unwrap_err();
    assert!(refused.message.contains("by its hook"), "{refused}");
}

#[test]
fn a_containers_first_process_waits_for_room_and_keeps_its_place() {
    let mut machine = Machine::configured(CLASSES);
    let other = First::start(&group("other"));
    let holder = machine.inject(&asks("holder", "40GiB"), &other).unwrap();
    let waits = enters(&mut machine, "half", &group(A)).unwrap_err();
    assert!(
        waits.can_retry && waits.message.contains("31 GiB"),
        "{waits}"
    );
    enters(&mut machine, "half", &group(A)).unwrap_err();
    machine.node.container_ended(NOW, holder);
    machine.drain();
    let tenant = enters(&mut machine, "half", &group(A)).unwrap();
    machine.joins(tenant, ROOT, &group(A)).unwrap();
}

#[test]
fn a_container_of_a_class_ends_with_its_cgroup() {
    let mut machine = Machine::configured(CLASSES);
    let tenant = enters(&mut machine, "small", &group(A)).unwrap();
    machine.joins(tenant, ROOT, &group(A)).unwrap();
    assert_eq!(machine.names().len(), 1, "it outlives its processes");
    // These cgroups are recorded and not real: the next look finds none.
    machine.node.tick(NOW + Nanos::secs(1));
    machine.drain();
    assert!(machine.names().is_empty());
}

#[test]
fn a_container_that_is_started_again_is_another_tenant() {
    let mut machine = Machine::configured(CLASSES);
    let hierarchy = tempfile::tempdir().unwrap();
    let point = hierarchy.path().display();
    let table = format!("30 25 0:26 / {point} rw - cgroup2 cgroup2 rw\n");
    machine.node.mounted(Mounts::parse(&table));
    let own = format!("0::/system.slice/docker-{A}.scope\n");
    let folder = hierarchy
        .path()
        .join(format!("system.slice/docker-{A}.scope"));
    fs::create_dir_all(&folder).unwrap();
    let first = enters(&mut machine, "half", &own).unwrap();
    machine.joins(first, ROOT, &own).unwrap();
    assert_eq!(
        enters(&mut machine, "half", &own).unwrap(),
        first,
        "it is there"
    );
    // The engine removes its cgroup and makes it again, before a look has come by. Both folders
    // are there at a time, because a file system may give a new one the inode of a removed one.
    let again = hierarchy.path().join("again");
    fs::create_dir(&again).unwrap();
    fs::remove_dir(&folder).unwrap();
    fs::rename(&again, &folder).unwrap();
    let second = enters(&mut machine, "half", &own).unwrap();
    machine.joins(second, ROOT, &own).unwrap();
    assert_ne!(second, first);
    for seconds in 1..3 {
        machine.node.tick(NOW + Nanos::secs(seconds));
        machine.drain();
        assert_eq!(enters(&mut machine, "half", &own).unwrap(), second);
        assert_eq!(machine.names(), ["half-0123456789ab"]);
    }
}

#[test]
fn a_class_of_all_devices_goes_on_without_the_one_that_is_lost() {
    let class = |name: &str, devices: &str| {
        format!(
            "[classes.{name}]\ndevices = [\"{devices}\"]\n[classes.{name}.limits]\n\
             GPUSHARE_MEM_LIMIT_0 = \"8GiB\"\nGPUSHARE_MEM_LIMIT_1 = \"4GiB\"\n"
        )
    };
    let both = class("every", "all") + &class("first", "0");
    let mut machine = Machine::configured(&both);
    machine.loses(1);
    enters(&mut machine, "every", &group(A)).unwrap();
    let refused = enters(&mut machine, "first", &group(B)).unwrap_err();
    assert!(refused.message.contains("see no device 1"), "{refused}");
}

#[test]
fn a_class_that_cannot_be_is_refused_when_it_is_read() {
    for (text, word) in [
        ("[classes.\"a/b\"]\n", "no name of a class"),
        (
            "[classes.a.limits]\nGPUSHARE_MEM_LIMIT = \"apples\"\n",
            "apples",
        ),
        (
            "[classes.a.limits]\nGPUSHARE_SOCKET = \"/x\"\n",
            "no such limit",
        ),
        ("[classes.a]\nunknown = 1\n", "unknown"),
        ("[containers]\ncdi = \"x.json\"\n", "absolute"),
        (
            "[maxima]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n[classes.a.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n",
            "at most 1GiB",
        ),
    ] {
        let refused = gpushared::config::read(text, Default::default()).unwrap_err();
        assert!(refused.contains(word), "{text}: {refused}");
    }
}

#[test]
fn a_daemon_in_a_cgroup_namespace_of_its_own_lets_no_class_in() {
    let mut machine = Machine::configured(CLASSES);
    let table = format!("0::/../docker/{A}\n");
    let refused = enters(&mut machine, "small", &table).unwrap_err();
    assert!(refused.message.contains("--cgroupns=host"), "{refused}");
    assert!(machine.names().is_empty());
}
