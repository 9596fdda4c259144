//! `set` of a tenant that waits for its admission.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::Ordering;

use crate::support::{Client, Daemon, Wire, create, until};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::server::SOCKET;

/// The command of a tenant that queues, and its request's id.
fn queued(daemon: &Daemon, name: &str, request: &str) -> (Wire, u32) {
    let mut command = daemon.command();
    let id = command.ask(&create(name, &[("GPUSHARE_MEM_REQUEST", request)]));
    match command.answer(id) {
        ControlReply::Queued { .. } => (command, id),
        other => panic!("{other:?}"),
    }
}

fn set(daemon: &Daemon, name: &str, changes: &[(&str, &str)]) -> ControlReply {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    daemon.command().call(&Control::Set {
        tenant: name.to_owned(),
        changes: changes.iter().map(pair).collect(),
    })
}

/// All tenants that have begun, by name, with their requests in GiB.
fn requests(wire: &mut Wire) -> Vec<(String, u64)> {
    match wire.call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => {
            let mut all: Vec<_> = rows
                .into_iter()
                .map(|row| (row.name, row.request))
                .collect();
            all.sort();
            all.into_iter()
                .map(|(name, bytes)| (name, bytes / GIB))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

fn admitted(command: &mut Wire, id: u32) {
    let reply: ControlReply = command.answer(id);
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
}

#[test]
fn a_refused_change_of_a_queued_tenant_is_told_to_its_command_alone() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (holder, _) = daemon.tenant("holder", &[("GPUSHARE_MEM_REQUEST", "7GiB")]);
    let (mut waits, id) = queued(&daemon, "waits", "12GiB");
    let reply = set(&daemon, "waits", &[("GPUSHARE_MEM_REQUEST", "16GiB")]);
    let ControlReply::Error(error) = reply else {
        panic!("{reply:?}");
    };
    assert!(error.message.contains("can guarantee at most"), "{error:?}");
    assert_eq!(requests(&mut waits).len(), 1, "it has not begun");
    assert!(!waits.has_answer(id), "it waits on");
    drop(holder);
    admitted(&mut waits, id);
    // Nothing of it stays behind.
    drop(waits);
    let mut command = daemon.command();
    while !requests(&mut command).is_empty() {}
    daemon.tenant("next", &[("GPUSHARE_MEM_REQUEST", "15GiB")]);
}

#[test]
fn a_queued_tenant_that_fits_by_a_change_begins_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_holder, _) = daemon.tenant("holder", &[("GPUSHARE_MEM_REQUEST", "7GiB")]);
    let (mut waits, id) = queued(&daemon, "waits", "12GiB");
    let changes = [
        ("GPUSHARE_MEM_REQUEST", "3GiB"),
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_SM_LIMIT", "30"),
    ];
    assert_eq!(set(&daemon, "waits", &changes), ControlReply::Done);
    admitted(&mut waits, id);
    let both = [("holder".to_owned(), 7), ("waits".to_owned(), 3)];
    assert_eq!(requests(&mut waits), both);
    let file = folder.path().join("registered").join("waits.json");
    let stored = std::fs::read_to_string(file).unwrap();
    assert!(
        stored.contains("3GiB") && !stored.contains("12GiB"),
        "{stored}"
    );
    let socket = folder.path().join("sockets").join("waits").join(SOCKET);
    let process = Client::register(&socket);
    let limit = process.page().devices[0].limit.load(Ordering::Relaxed);
    assert_eq!(limit, 8 * GIB);
    match waits.call(&Listing::Shares.first()) {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => assert!(rows.iter().any(|row| row.cap == Some(300))),
        other => panic!("{other:?}"),
    }
    // The next daemon gives it as much.
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    assert_eq!(requests(&mut daemon.command()), both);
}

#[test]
fn a_queued_tenant_that_a_change_leaves_too_large_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (holder, _) = daemon.tenant("holder", &[("GPUSHARE_MEM_REQUEST", "7GiB")]);
    let (mut waits, id) = queued(&daemon, "waits", "12GiB");
    let reply = set(&daemon, "waits", &[("GPUSHARE_MEM_REQUEST", "11GiB")]);
    assert_eq!(reply, ControlReply::Done);
    let file = folder.path().join("registered").join("waits.json");
    assert!(!file.exists(), "the next daemon would let it run");
    assert!(!folder.path().join("sockets").join("waits").exists());
    assert!(!waits.has_answer(id));
    drop(holder);
    admitted(&mut waits, id);
    until("it is stored as it is now", || {
        std::fs::read_to_string(&file).is_ok_and(|stored| stored.contains("11GiB"))
    });
}
