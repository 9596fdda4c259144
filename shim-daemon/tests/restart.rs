//! A daemon follows another: its accounts are exact again, and no program had to end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::{Machine, NOW};
use crate::support;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Client, Daemon, FakeDevices, is_a_bad_page};
use gpushare_core::Nanos;
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "4GiB")];
const BURST: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "16GiB"),
];

#[test]
fn a_running_tenant_keeps_its_limits_and_its_charges() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 3 * GIB), Reply::Granted { .. }));
    client.charge(3 * GIB);
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
    let row = daemon.row("one");
    assert_eq!(
        (row.limit, row.charged, row.processes.len()),
        (4 * GIB, 3 * GIB, 1)
    );
    assert!(matches!(client.grow(3 * GIB, GIB), Reply::Granted { .. }));
    client.charge(GIB);
    assert_eq!(
        client.grow(4 * GIB, 512),
        Reply::Refused(Refusal::OverLimit { limit: 4 * GIB })
    );
}

#[test]
fn what_runs_is_not_given_away_before_it_has_come_back() {
    is_not_given_away(FakeDevices::default());
}

/// NVML initialises each GPU that is not persistent, which takes seconds.
#[test]
fn a_start_longer_than_the_recovery_gives_nothing_away() {
    let devices = FakeDevices::default();
    devices.0.lock().unwrap().start = Duration::from_millis(2100);
    is_not_given_away(devices);
}

/// The next daemon has these devices.
fn is_not_given_away(devices: FakeDevices) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a_socket) = daemon.tenant("a", &BURST);
    let mut a = Client::register(&a_socket);
    assert!(matches!(a.open(), Reply::Granted { .. }));
    assert!(matches!(a.grow(0, 12 * GIB), Reply::Granted { .. }));
    a.charge(12 * GIB);
    drop(daemon);
    let daemon = Daemon::with(folder.path(), devices);
    let mut command = daemon.command();
    let newcomer = command.ask(&support::create("b", &[("GPUSHARE_MEM_LIMIT", "8GiB")]));
    let first: ControlReply = command.answer(newcomer);
    assert!(matches!(first, ControlReply::Queued { .. }), "{first:?}");
    assert!(matches!(a.reconnect(&a_socket), Reply::Registered(_)));
    a.free(11 * GIB);
    let admitted: ControlReply = command.answer(newcomer);
    assert!(
        matches!(admitted, ControlReply::Created { .. }),
        "{admitted:?}"
    );
}

/// What has become of a process by the time the next daemon comes.
#[derive(PartialEq)]
enum Fate {
    Lives,
    /// It has ended, and its parent has not waited for it.
    IsAZombie,
    IsGone,
}

/// Two processes of a tenant, of which the second was not looked at before its daemon ended. The
/// next daemon has the first, and waits no longer for others to come.
fn second_process_registers_late(fate: Fate) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let (mut first, mut late) = (Client::register(&socket), Client::register(&socket));
    for client in [&mut first, &mut late] {
        assert!(matches!(client.open(), Reply::Granted { .. }));
        assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
        client.charge(GIB);
    }
    drop(daemon);
    let slot = late.slot;
    let header = &first.page().slots[slot];
    header.start.store(0, Ordering::Relaxed);
    let mut late = Some(late).filter(|_| fate != Fate::IsGone);
    if let Some(late) = late.as_ref().filter(|_| fate == Fate::IsAZombie) {
        late.process.becomes_a_zombie();
    }
    let settings = Settings {
        recovery: Nanos::millis(300),
        ..Settings::default()
    };
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    assert!(matches!(first.reconnect(&socket), Reply::Registered(_)));
    let mut command = daemon.command();
    let newcomer = command.ask(&support::create("two", &LIMIT));
    while !matches!(command.answer(newcomer), ControlReply::Created { .. }) {}
    match &mut late {
        Some(late) if fate == Fate::Lives => {
            let held = first.page().line(slot, 0).unwrap().word.load().charged;
            assert_eq!(u64::from(held) * UNIT, GIB);
            assert!(matches!(late.reconnect(&socket), Reply::Registered(_)));
            assert_eq!(daemon.row("one").charged, 2 * GIB);
        }
        _ => support::until("its row is empty", || {
            first.page().slots[slot].taken.load(Ordering::Acquire) == 0
        }),
    }
}

#[test]
fn a_late_process_that_was_never_looked_at_keeps_its_charges() {
    second_process_registers_late(Fate::Lives);
}

#[test]
fn a_dead_process_that_was_never_looked_at_has_no_row() {
    second_process_registers_late(Fate::IsGone);
    second_process_registers_late(Fate::IsAZombie);
}

#[test]
fn what_is_held_above_a_lowered_limit_is_so_under_the_next_daemons() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &BURST);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 12 * GIB), Reply::Granted { .. }));
    client.charge(12 * GIB);
    let changes = [("GPUSHARE_MEM_LIMIT".to_owned(), "4GiB".to_owned())];
    let set: ControlReply = daemon.command().call(&Control::Set {
        tenant: "one".to_owned(),
        changes: changes.to_vec(),
    });
    assert_eq!(set, ControlReply::Done);
    for _ in 0..2 {
        drop(daemon);
        daemon = Daemon::start(folder.path());
        assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
        let row = daemon.row("one");
        let held = (row.limit, row.grant, row.charged);
        assert_eq!(held, (4 * GIB, 12 * GIB, 12 * GIB));
    }
    client.free(10 * GIB);
    let file = folder.path().join("registered/one.json");
    support::until("it is written down that it is above no limit", || {
        let kept: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let above = kept["standing"]["above"].as_array().unwrap();
        above.is_empty()
    });
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
    client.charge(10 * GIB);
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
    assert_eq!(
        daemon.row("one").grant,
        4 * GIB,
        "a forged page is not believed"
    );
}

#[test]
fn a_run_limit_does_not_start_anew() {
    let folder = tempfile::tempdir().unwrap();
    let ends_in = |daemon: &Daemon| match daemon.command().call(&Listing::Ends.first()) {
        ControlReply::Page {
            rows: Rows::Ends(rows),
            ..
        } => Duration::from_millis(rows[0].in_ms),
        other => panic!("{other:?}"),
    };
    let hour = Duration::from_secs(3600);
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &[("GPUSHARE_RUN_LIMIT", "1h")]);
    let mut client = Client::register(&socket);
    let mut left = ends_in(&daemon);
    assert!(left <= hour);
    drop(daemon);
    // As if it had begun ten seconds earlier.
    let file = folder.path().join("registered/one.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let began = kept["began"].as_u64().unwrap();
    kept["began"] = began.saturating_sub(10_000_000_000).into();
    fs::write(&file, kept.to_string()).unwrap();
    left -= Duration::from_secs(10).min(Duration::from_nanos(began));
    for daemons in 2..4 {
        let daemon = Daemon::start(folder.path());
        assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
        let now = ends_in(&daemon);
        assert!(
            now <= left,
            "{now:?} of {left:?} are left to daemon {daemons}"
        );
        left = now;
    }
}

/// After a reboot the clock starts anew, and the tenant's time with it.
#[test]
fn a_run_limit_begins_at_the_latest_with_the_daemons_clock() {
    let ago = NOW - Nanos::secs(4);
    for (began, left, begins) in [
        (None, 10_000, NOW),
        (Some(ago), 6_000, ago),
        (Some(NOW + Nanos::secs(3600)), 10_000, NOW),
    ] {
        let registration = serde_json::json!({
            "name": "one",
            "environment": [["GPUSHARE_RUN_LIMIT", "10s"]],
            "devices": [],
            "began": began.map(|began| began.0),
        });
        let registration = serde_json::from_value(registration).unwrap();
        let mut machine = Machine::with(&Settings::default(), true);
        machine.node.restore(NOW, &registration).unwrap();
        let from = machine.connection();
        machine.node.command(NOW, from, 1, &Listing::Ends.first());
        match machine.drain().0 {
            Some(ControlReply::Page {
                rows: Rows::Ends(rows),
                ..
            }) => assert_eq!(rows[0].in_ms, left, "{began:?}"),
            other => panic!("{other:?}"),
        }
        let (_, written) = machine.made.last().unwrap();
        assert_eq!(written.began, Some(begins.0), "to the next daemon");
    }
}

#[test]
fn a_page_of_another_tenant_is_not_taken_for_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &LIMIT);
    let (_two, two) = daemon.tenant("two", &LIMIT);
    let (mut a, mut b) = (Client::register(&one), Client::register(&two));
    b.slot = a.slot + 1;
    drop(daemon);
    let _daemon = Daemon::start(folder.path());
    assert!(matches!(a.reconnect(&one), Reply::Registered(_)));
    let refused = b.reconnect(&one);
    is_a_bad_page(&refused);
}

#[test]
fn a_row_that_its_process_has_taken_is_no_siblings_to_claim() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let (mut first, mut second) = (Client::register(&socket), Client::register(&socket));
    for client in [&mut first, &mut second] {
        assert!(matches!(client.open(), Reply::Granted { .. }));
        assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
        client.charge(GIB);
    }
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    assert!(matches!(first.reconnect(&socket), Reply::Registered(_)));
    let own = std::mem::replace(&mut second.slot, first.slot);
    is_a_bad_page(&second.reconnect(&socket));
    second.slot = own;
    assert!(matches!(second.reconnect(&socket), Reply::Registered(_)));
    let row = daemon.row("one");
    assert_eq!((row.processes.len(), row.charged), (2, 2 * GIB));
}

/// The places of its ranges in processes' memory files follow from that number.
#[test]
fn each_daemon_of_a_folder_counts_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let number = || {
        let text = fs::read_to_string(folder.path().join("starts")).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    let mut numbers = (0..3).map(|_| {
        let _daemon = Daemon::start(folder.path());
        number()
    });
    let first = numbers.next().unwrap();
    assert!(numbers.eq([first.wrapping_add(1), first.wrapping_add(2)]));
}

/// What a command is told that raises a request to 8 GiB as soon as the next daemon listens, where
/// a neighbour that nobody may end comes back later and holds so many of the 16.
fn raised_beside(held: u64) -> ControlReply {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let none = [("GPUSHARE_MEM_REQUEST", "0")];
    let [mut holder, mut raised] = ["holder", "raised"].map(|name| {
        let (_owner, socket) = daemon.tenant(name, &none);
        let mut client = Client::register(&socket);
        assert!(matches!(client.open(), Reply::Granted { .. }));
        (client, socket)
    });
    let granted = holder.0.grow(0, held * GIB);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    holder.0.charge(held * GIB);
    drop(daemon);
    let daemon = Daemon::start(folder.path());
    let mut command = daemon.command();
    let id = command.ask(&Control::Set {
        tenant: "raised".to_owned(),
        changes: vec![("GPUSHARE_MEM_REQUEST".to_owned(), "8GiB".to_owned())],
    });
    assert!(!command.tenants().is_empty(), "it was read");
    for (client, socket) in [&mut raised, &mut holder] {
        assert!(matches!(client.reconnect(socket), Reply::Registered(_)));
    }
    command.answer(id)
}

#[test]
fn a_change_waits_until_all_that_is_held_is_counted() {
    let refused = raised_beside(10);
    assert!(matches!(refused, ControlReply::Error(_)), "{refused:?}");
    assert_eq!(raised_beside(4), ControlReply::Done);
}
