//! A node's `[maxima]`: no tenant gets more, whatever its environment says and in whatever
//! variables, also not by `set`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::Ordering;

use crate::support::file::{SettingsFile, daemon_of, settings};
use crate::support::{Client, Daemon, FakeDevices, create, refusal};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;

const FILE: &str = "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\nGPUSHARE_PRIORITY = \"600\"\n";

fn limit(daemon: &Daemon, name: &str) -> u64 {
    daemon.row(name).limit
}

#[test]
fn a_tenant_that_asks_for_more_is_told_what_it_may_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_of(folder.path(), FILE);
    for (name, value, most) in [
        ("GPUSHARE_MEM_LIMIT", "9GiB", "at most 8GiB"),
        ("GPUSHARE_MEM_LIMIT", "75%", "at most 8GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "9g", "at most 8GiB"),
        ("GPUSHARE_PRIORITY", "601", "at most 600"),
    ] {
        let text = refusal(daemon.asks(&create("greedy", &[(name, value)])));
        let words = [name, value, most];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    let _modest = daemon.tenant("modest", &[("GPUSHARE_MEM_LIMIT", "8GiB")]);
    assert_eq!(limit(&daemon, "modest"), 8 * GIB);
}

#[test]
fn a_tenant_that_says_nothing_gets_no_more_than_the_maximum() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_of(folder.path(), FILE);
    let (_owner, socket) = daemon.tenant("silent", &[]);
    assert_eq!(limit(&daemon, "silent"), 8 * GIB);
    let mut client = Client::register(&socket);
    client.open();
    assert!(matches!(client.grow(0, 8 * GIB), Reply::Granted { .. }));
    client.charge(8 * GIB);
    let refused = Reply::Refused(Refusal::OverLimit { limit: 8 * GIB });
    assert_eq!(client.grow(8 * GIB, 512), refused);
}

#[test]
fn no_change_raises_a_tenant_above_the_maximum() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_of(folder.path(), FILE);
    let _owner = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let set = |limit: &str| {
        let changes = vec![("GPUSHARE_MEM_LIMIT".to_owned(), limit.to_owned())];
        let tenant = "one".to_owned();
        daemon.asks(&Control::Set { tenant, changes })
    };
    assert!(refusal(set("9GiB")).contains("at most 8GiB"));
    assert_eq!(limit(&daemon, "one"), 4 * GIB);
    assert_eq!(set("8GiB"), ControlReply::Done);
    assert_eq!(limit(&daemon, "one"), 8 * GIB);
}

#[test]
fn a_reloaded_file_holds_for_new_tenants_unless_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = SettingsFile::new(FILE);
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, settings(FILE), Some(file.reload()));
    let mut kept = Vec::new();
    let mut started = |name: &str| {
        kept.push(daemon.tenant(name, &[]));
        limit(&daemon, name)
    };
    assert_eq!(started("first"), 8 * GIB);
    for (text, most) in [
        ("[maxima]\nGPUSHARE_MEM_LIMIT = \"a lot\"\n", 8 * GIB),
        ("[maxima]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n", 2 * GIB),
        ("[maxima\n", 2 * GIB),
    ] {
        file.becomes(text);
        daemon.devices.until_looked_at();
        assert_eq!(started(&format!("after{}", text.len())), most, "{text}");
    }
    assert_eq!(
        limit(&daemon, "first"),
        8 * GIB,
        "a running tenant keeps its limit"
    );
    let join = daemon.asks(&create("first", &[]));
    assert!(matches!(join, ControlReply::Created { .. }), "{join:?}");
}

#[test]
fn the_next_daemon_keeps_the_maxima_tenants_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let first = daemon_of(folder.path(), FILE);
    let (owner, _socket) = first.tenant("one", &[]);
    drop((first, owner));
    let next = daemon_of(folder.path(), "[maxima]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n");
    assert_eq!(limit(&next, "one"), 8 * GIB);
}

/// Limit, request, the total that programs see, and the device's own, of a tenant that says this.
fn shown(daemon: &Daemon, said: &[(&str, &str)]) -> [u64; 4] {
    let (_owner, socket) = daemon.tenant("one", said);
    let client = Client::register(&socket);
    let row = &client.page().devices[0];
    let all = [&row.limit, &row.request, &row.view_total, &row.capacity];
    all.map(|one| one.load(Ordering::Relaxed) / GIB)
}

/// By the total beside the device's own a library knows that it is to show that one.
#[test]
fn percentages_and_what_programs_see_are_of_the_capacity_that_is_set() {
    let request = ("GPUSHARE_MEM_REQUEST", "50%");
    let more = ("GPUSHARE_MEM_LIMIT", "12GiB");
    let nothing = ("GPUSHARE_MEM_REQUEST", "0");
    for (said, small, whole) in [
        (&[][..], [8, 0, 8, 16], [16, 0, 16, 16]),
        (&[request], [8, 4, 8, 16], [16, 8, 16, 16]),
        (&[more, nothing], [8, 0, 8, 16], [12, 0, 12, 16]),
    ] {
        for (file, expected) in [("capacity = \"8GiB\"\n", small), ("", whole)] {
            let folder = tempfile::tempdir().unwrap();
            let found = shown(&daemon_of(folder.path(), file), said);
            assert_eq!(found, expected, "{said:?} with {file}");
        }
    }
}

#[test]
fn a_device_is_listed_with_the_capacity_that_is_set() {
    for (file, most) in [
        ("capacity = \"8GiB\"\nreserve = \"1GiB\"\n", 8),
        ("capacity = \"99GiB\"\nreserve = \"1GiB\"\n", 16),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let reply = daemon_of(folder.path(), file).asks(&Listing::Devices.first());
        let ControlReply::Page {
            rows: Rows::Devices(rows),
            ..
        } = reply
        else {
            panic!("{reply:?}")
        };
        assert_eq!((rows[0].capacity, rows[0].reserve), (most * GIB, GIB));
    }
}
