//! Processes that are stopped while one daemon follows another: the next one waits for them, and
//! for no others.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

use crate::support::{self, Client, Daemon, FakeDevices, StandIn, Wire};
use gpushare_core::Nanos;
use gpushare_protocol::units::{Bytes, GIB};
use gpushare_protocol::wire::*;
use gpushared::node::{Settings, Unmanaged};
use gpushared::peer::{inspect, is_dead};

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "4GiB")];

/// Waits until a tenant's registration names these processes, and no others.
pub(crate) fn until_written_down(folder: &Path, tenant: &str, processes: &[&StandIn]) {
    let file = folder.join(format!("registered/{tenant}.json"));
    let mut wanted: Vec<u64> = processes.iter().map(|one| one.pid().into()).collect();
    wanted.sort_unstable();
    support::until("its processes are written down", || {
        let text = fs::read(&file).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let members = kept["members"].as_array().into_iter().flatten();
        let pids: Vec<u64> = members
            .filter_map(|member| member["pid"].as_u64())
            .collect();
        pids == wanted
    });
}

/// A client that holds 3 of its tenant's 4 GiB, and says nothing while one daemon follows another.
pub(crate) fn idle(folder: &Path, settings: Settings, devices: FakeDevices) -> (Daemon, Client) {
    let daemon = Daemon::start(folder);
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 3 * GIB), Reply::Granted { .. }));
    client.charge(3 * GIB);
    until_written_down(folder, "one", &[&client.process]);
    drop(daemon);
    (Daemon::with_settings(folder, devices, settings), client)
}

/// The daemon's events of processes that are not registered again.
pub(crate) fn not_registered(daemon: &Daemon) -> Vec<String> {
    let _last = daemon.tenant("last", &LIMIT);
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 1024 });
    let mut told = Vec::new();
    loop {
        match wire.answer::<ControlReply>(id) {
            ControlReply::Event(row) if row.kind == "not-registered" => told.push(row.text),
            ControlReply::Event(row) if row.tenant.as_deref() == Some("last") => return told,
            ControlReply::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn soon() -> Settings {
    Settings {
        recovery: Nanos::millis(100),
        ..Settings::default()
    }
}

pub(crate) fn socket(folder: &Path) -> std::path::PathBuf {
    folder.join("sockets/one/gpushare.sock")
}

/// The answer to a process that registers for the first time, once it is not the recovery any more
/// that it waits for.
pub(crate) fn comes(process: &mut StandIn, socket: &Path) -> (Reply, Wire) {
    loop {
        let mut wire = Wire::greet(process.connect(socket), 0);
        let register = Register {
            pid: process.pid(),
            presents_page: false,
            slot: None,
        };
        let reply: Reply = wire.call(&Request::Register(register));
        match &reply {
            Reply::Error(error) if error.message.contains("are being counted") => {}
            _ => return (reply, wire),
        }
    }
}

#[test]
fn a_newcomer_waits_until_a_stopped_process_has_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut old) = idle(folder.path(), soon(), FakeDevices::default());
    let socket = socket(folder.path());
    let mut newcomer = StandIn::start();
    let (refused, _wire) = comes(&mut newcomer, &socket);
    let Reply::Error(error) = refused else {
        panic!("{refused:?}")
    };
    let text = format!(
        "process {} was here before the daemon's restart and is stopped",
        old.process.pid()
    );
    assert!(
        error.can_retry && error.message.starts_with(&text),
        "{error:?}"
    );
    assert!(matches!(old.reconnect(&socket), Reply::Registered(_)));
    let mut newcomer = Client::register_as(newcomer, &socket, 0);
    assert!(
        newcomer
            .usage
            .is(&old.usage.descriptor().try_clone_to_owned().unwrap())
    );
    assert_eq!(
        newcomer.grow(3 * GIB, 2 * GIB),
        Reply::Refused(Refusal::OverLimit { limit: 4 * GIB })
    );
}

#[test]
fn a_newcomer_does_not_wait_for_a_process_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, old) = idle(folder.path(), soon(), FakeDevices::default());
    let socket = socket(folder.path());
    let mut newcomer = StandIn::start();
    let (refused, _wire) = comes(&mut newcomer, &socket);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    drop(old);
    support::until("it registers", || {
        let (reply, _wire) = comes(&mut StandIn::start(), &socket);
        matches!(reply, Reply::Registered(_))
    });
}

#[test]
fn a_newcomer_is_told_of_an_old_process_that_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut old) = idle(folder.path(), soon(), FakeDevices::default());
    let socket = socket(folder.path());
    let slot = std::mem::replace(&mut old.slot, 9999);
    let refused = old.reconnect(&socket);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    let (refused, _wire) = comes(&mut StandIn::start(), &socket);
    let says = |what: &str| matches!(&refused, Reply::Error(error) if error.message.contains(what));
    assert!(says("is not registered again"), "{refused:?}");
    old.slot = slot;
    assert!(matches!(old.reconnect(&socket), Reply::Registered(_)));
    let (reply, _wire) = comes(&mut StandIn::start(), &socket);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
}

#[test]
fn those_are_written_down_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut old) = idle(folder.path(), soon(), FakeDevices::default());
    let socket = socket(folder.path());
    assert!(matches!(old.reconnect(&socket), Reply::Registered(_)));
    let mut newcomer = StandIn::start();
    let (reply, _wire) = comes(&mut newcomer, &socket);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    until_written_down(folder.path(), "one", &[&old.process, &newcomer]);
    drop(old);
    until_written_down(folder.path(), "one", &[&newcomer]);
}

#[test]
fn one_that_no_daemon_saw_come_back_is_awaited_by_the_one_after() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut old) = idle(folder.path(), soon(), FakeDevices::default());
    daemon.devices.until_looked_at();
    until_written_down(folder.path(), "one", &[&old.process]);
    drop(daemon);
    let _daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), soon());
    let socket = socket(folder.path());
    let (refused, _wire) = comes(&mut StandIn::start(), &socket);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    assert!(matches!(old.reconnect(&socket), Reply::Registered(_)));
}

#[test]
fn an_end_of_the_tenant_reaches_a_process_that_has_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, old) = idle(folder.path(), soon(), FakeDevices::default());
    let pidfd = inspect(old.process.pid()).unwrap().pidfd;
    let end = Control::End {
        tenant: "one".to_owned(),
        kill: true,
    };
    let done: ControlReply = daemon.command().call(&end);
    assert_eq!(done, ControlReply::Done);
    support::until("it is killed", || is_dead(&pidfd).unwrap());
}

#[test]
fn a_process_that_has_not_come_back_is_no_stranger() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        unmanaged: Unmanaged {
            end: true,
            root: true,
            grace: Nanos(0),
            ..Unmanaged::default()
        },
        ..soon()
    };
    let devices = FakeDevices::default();
    let (daemon, mut old) = idle(folder.path(), settings, devices.clone());
    let stranger = StandIn::start();
    let pids = [old.process.pid(), stranger.pid()];
    devices.0.lock().unwrap().processes = pids.map(|pid| (pid, Bytes(GIB))).to_vec();
    let pidfd = inspect(stranger.pid()).unwrap().pidfd;
    support::until("the other is ended", || is_dead(&pidfd).unwrap());
    daemon.devices.until_looked_at();
    assert!(matches!(
        old.reconnect(&socket(folder.path())),
        Reply::Registered(_)
    ));
}

#[test]
fn a_page_that_is_refused_again_and_again_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &LIMIT);
    let (_two, two) = daemon.tenant("two", &LIMIT);
    let (mut a, mut b) = (Client::register(&one), Client::register(&two));
    for client in [&mut a, &mut b] {
        // Its rows are another's there.
        client.slot += 1;
    }
    for _ in 0..3 {
        for (client, other) in [(&mut a, &two), (&mut b, &one)] {
            let refused = client.reconnect(other);
            assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
        }
    }
    let told = not_registered(&daemon);
    assert_eq!(told.len(), 2, "{told:?}");
    for (client, text) in [&a, &b].into_iter().zip(told) {
        let pid = client.process.pid();
        assert!(text.starts_with(&format!("process {pid} ")), "{text}");
    }
}

/// A client that holds 3 GiB of 4 and comes to the next daemon after the recovery, when this limit
/// was set there. The limit in its page, and whether its words are bound.
fn comes_after_a_set(limit: Option<&str>) -> (u64, bool) {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = idle(folder.path(), soon(), FakeDevices::default());
    if let Some(limit) = limit {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: vec![("GPUSHARE_MEM_LIMIT".to_owned(), limit.to_owned())],
        };
        assert_eq!(
            daemon.command().call::<_, ControlReply>(&set),
            ControlReply::Done
        );
    }
    let again = client.reconnect(&socket(folder.path()));
    assert!(matches!(again, Reply::Registered(_)), "{again:?}");
    let page = client.page();
    let word = page.line(client.slot, 0).unwrap().word.load();
    let limit = page.devices[0]
        .limit
        .load(std::sync::atomic::Ordering::Relaxed);
    (limit, word.credit == 0)
}

#[test]
fn a_process_that_comes_late_is_told_the_limits_that_were_set_meanwhile() {
    assert_eq!(comes_after_a_set(None), (4 * GIB, false));
    assert_eq!(comes_after_a_set(Some("12GiB")), (12 * GIB, false));
    assert_eq!(comes_after_a_set(Some("2GiB")), (2 * GIB, true));
}
