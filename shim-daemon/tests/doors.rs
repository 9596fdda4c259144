//! The listening sockets: removed, impossible to make, or with more clients than descriptors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::binary::Binary;
use crate::support::{Client, Daemon, FakeDevices, TICK, create, until};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::server::{CONTROL, Folder, Server, Start};
use nix::sys::eventfd::EventFd;

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "4GiB")];

/// Removes a folder at one instant, by way of `away`: the daemon makes what is missing anew.
fn removes(folder: &Path, away: &Path) {
    fs::rename(folder, away).unwrap();
    fs::remove_dir_all(away).unwrap();
}

fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[test]
fn a_removed_socket_is_put_back_and_clients_notice_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    for removed in [socket.clone(), folder.path().join(CONTROL)] {
        fs::remove_file(&removed).unwrap();
        until("it is put back", || answers(&removed));
    }
    assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
    assert!(matches!(
        Client::register(&socket).open(),
        Reply::Granted { .. }
    ));
    daemon.tenant("two", &LIMIT);
}

#[test]
fn a_folder_that_was_emptied_is_filled_again_and_stays_this_daemons() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let daemon = Daemon::start(&root);
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    removes(&root, &folder.path().join("away"));
    until("the control socket is back", || {
        answers(&root.join(CONTROL))
    });
    until("the tenant's socket is back", || answers(&socket));
    until("the registration is back", || {
        root.join("registered/one.json").exists()
    });
    let start = Start {
        folder: Folder::open(root, true).unwrap(),
        settings: gpushared::node::Settings::default(),
        tick: TICK,
        stop: EventFd::new().unwrap().into(),
        reload: None,
        transient: false,
        starter: None,
        journal: None,
    };
    let second = Server::new(start, Box::new(FakeDevices::default()));
    assert!(second.is_err_and(|error| error.contains("another daemon")));
    assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
}

#[test]
fn a_tenant_is_refused_until_it_can_have_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    // Something that is no socket, and that cannot be removed as one.
    let way = folder.path().join("sockets/one/gpushare.sock/in the way");
    fs::create_dir_all(&way).unwrap();
    let mut command = daemon.command();
    let refused: ControlReply = command.call(&create("one", &LIMIT));
    let ControlReply::Error(error) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.message.contains("socket"), "{error:?}");
    let away = folder.path().join("away");
    removes(&folder.path().join("sockets/one"), &away);
    until("it is made", || {
        let again: ControlReply = daemon.command().call(&create("one", &LIMIT));
        matches!(again, ControlReply::Created { .. })
    });
}

#[test]
fn limits_that_could_not_be_written_are_told_and_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut command, _socket) = daemon.tenant("one", &LIMIT);
    let written = || fs::read_to_string(folder.path().join("registered/one.json")).unwrap();
    assert!(written().contains("4GiB"));
    // In the way of the file that is written before it takes the old one's place.
    let way = folder.path().join("registered/one.new");
    fs::create_dir(&way).unwrap();
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "2GiB".to_owned())],
    };
    assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
    let mut follower = daemon.command();
    let id = follower.ask(&Control::Follow { past: 1024 });
    loop {
        let ControlReply::Event(event) = follower.answer(id) else {
            panic!("an event")
        };
        if event.kind == "unsaved" {
            assert_eq!(event.tenant.as_deref(), Some("one"));
            break;
        }
    }
    assert!(written().contains("4GiB"));
    fs::remove_dir(way).unwrap();
    until("it is written", || written().contains("2GiB"));
}

/// CPU time the process has used, in clock ticks (of 10 ms).
fn used(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn callers_beyond_the_descriptors_are_heard_when_others_leave() {
    callers_beyond_the_descriptors(Binary::control);
}

#[test]
fn callers_of_a_class_beyond_the_descriptors_cost_no_time() {
    callers_beyond_the_descriptors(|daemon| daemon.of_class("one"));
}

fn callers_beyond_the_descriptors(at: impl Fn(&Binary) -> PathBuf) {
    let daemon = Binary::configured(&[], "ulimit -n 48", "[classes.one]\n");
    let mut greeted = daemon.command();
    let callers: Vec<UnixStream> = (0..100)
        .map(|_| UnixStream::connect(at(&daemon)).unwrap())
        .collect();
    let full = || {
        let held = fs::read_dir(format!("/proc/{}/fd", daemon.child.id()));
        held.unwrap().count() >= 48
    };
    until("all descriptors are taken", full);
    let before = used(daemon.child.id());
    std::thread::sleep(Duration::from_secs(2));
    let spent = used(daemon.child.id()) - before;
    assert!(spent < 30, "{spent} of 200 ticks, without a client");
    assert!(matches!(
        greeted.call(&Listing::Devices.first()),
        ControlReply::Page {
            rows: Rows::Devices(_),
            ..
        }
    ));
    drop(callers);
    assert!(matches!(
        daemon.command().call(&Listing::Devices.first()),
        ControlReply::Page {
            rows: Rows::Devices(_),
            ..
        }
    ));
}

#[test]
fn a_reserve_that_leaves_nothing_of_any_device_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = |reserve| {
        let start = Start {
            folder: Folder::open(folder.path().to_owned(), true).unwrap(),
            settings: gpushared::node::Settings {
                reserve: gpushare_protocol::units::Bytes(reserve),
                ..gpushared::node::Settings::default()
            },
            tick: TICK,
            stop: EventFd::new().unwrap().into(),
            reload: None,
            transient: false,
            starter: None,
            journal: None,
        };
        Server::new(start, Box::new(FakeDevices::default())).map(drop)
    };
    let refused = start(16 * GIB).unwrap_err();
    assert!(
        refused.contains("reserve = 16 GiB") && refused.contains("GPU-"),
        "{refused}"
    );
    assert_eq!(start(15 * GIB), Ok(()));
}
