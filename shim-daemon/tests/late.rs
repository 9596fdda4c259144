//! Processes that are stopped while one daemon follows another, beside one of their tenant that
//! comes back: what they hold, and may charge without a question, is their tenant's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::path::Path;

use crate::stopped::{not_registered, socket, soon, until_written_down};
use crate::support::{Client, Daemon, FakeDevices, StandIn, Wire, create, until};
use crate::versions::{greeting, hears_the_greeting};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;
use gpushared::server::SOCKET;

/// What a context takes.
const CONTEXT: u64 = 64 * MIB;

/// A tenant of 16 GiB without a request after a restart. Of its processes the first has come back,
/// which holds 2 GiB, and the second has not, which holds 6.
struct Restarted {
    daemon: Daemon,
    first: Client,
    second: Client,
    /// A tenant like it, whose asks never wait.
    other: Client,
    _owner: Wire,
}

const TERMS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "0"),
    ("GPUSHARE_ON_COLLISION", "fail"),
];

impl Restarted {
    /// The second process has so much unused credit.
    fn with(folder: &Path, unused: u64) -> Self {
        let before = Daemon::start(folder);
        let (_owner, path) = before.tenant("one", &TERMS);
        let [first, second] = [2, 6].map(|gib| {
            let mut client = Client::register(&path);
            assert!(matches!(client.open(), Reply::Granted { .. }));
            client.charge(gib * GIB);
            client
        });
        second.charge(unused);
        let units = u32::try_from(unused / 512).unwrap();
        second
            .page()
            .line(second.slot, 0)
            .unwrap()
            .word
            .release(units);
        until_written_down(folder, "one", &[&first.process, &second.process]);
        drop(before);
        let devices = FakeDevices::default();
        devices.0.lock().unwrap().processes = [(&first, 2), (&second, 6)]
            .map(|(client, gib)| (client.process.pid(), Bytes(gib * GIB + CONTEXT)))
            .to_vec();
        let settings = gpushared::config::read("[classes.a]\n", soon()).unwrap();
        let daemon = Daemon::with_settings(folder, devices, settings);
        let mut first = first;
        assert!(matches!(
            first.reconnect(&socket(folder)),
            Reply::Registered(_)
        ));
        let mut owner = daemon.command();
        let id = owner.ask(&create("other", &TERMS));
        let path = loop {
            match owner.answer(id) {
                ControlReply::Created { folder, .. } => break Path::new(&folder).join(SOCKET),
                ControlReply::Queued { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        let mut other = Client::register(&path);
        assert!(matches!(other.open(), Reply::Granted { .. }));
        daemon.devices.until_looked_at();
        Self {
            daemon,
            first,
            second,
            other,
            _owner: owner,
        }
    }
}

#[test]
fn what_a_stopped_process_holds_counts_once_and_in_its_tenants_asks() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Restarted::with(folder.path(), 0);
    let more = all.first.grow(8 * GIB, 5 * GIB);
    assert!(matches!(more, Reply::Granted { .. }), "{more:?}");
    all.first.charge(5 * GIB);
    let reply = all.other.grow(0, 4 * GIB);
    assert_eq!(reply, Reply::Refused(Refusal::NoMemory));
    assert!(matches!(all.other.grow(0, 2 * GIB), Reply::Granted { .. }));
}

#[test]
fn what_a_stopped_process_may_charge_is_granted_to_no_other_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Restarted::with(folder.path(), 5 * GIB);
    let reply = all.other.grow(0, 6 * GIB);
    assert_eq!(reply, Reply::Refused(Refusal::NoMemory));
    let socket = socket(folder.path());
    assert!(matches!(
        all.second.reconnect(&socket),
        Reply::Registered(_)
    ));
    let reply = all.other.grow(0, 6 * GIB);
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
}

#[test]
fn what_a_stopped_process_held_is_free_once_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let Restarted {
        daemon,
        first,
        second,
        mut other,
        ..
    } = Restarted::with(folder.path(), 5 * GIB);
    let left = first.process.pid();
    drop(second);
    let only = |(pid, _): &(u32, Bytes)| *pid == left;
    daemon.devices.0.lock().unwrap().processes.retain(only);
    until("its memory is free", || {
        daemon.devices.until_looked_at();
        matches!(other.grow(0, 12 * GIB), Reply::Granted { .. })
    });
    let row = |slot: usize| {
        first.page().slots[slot]
            .taken
            .load(std::sync::atomic::Ordering::Acquire)
    };
    assert_eq!([first.slot, first.slot + 1].map(row), [1, 0]);
}

#[test]
fn a_process_that_becomes_another_program_is_awaited_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Restarted::with(folder.path(), 5 * GIB);
    all.second.process.becomes_another();
    until_written_down(folder.path(), "one", &[&all.first.process]);
    let mut facts = all.daemon.devices.0.lock().unwrap();
    facts.processes.truncate(1);
    drop(facts);
    until("its memory is free", || {
        all.daemon.devices.until_looked_at();
        matches!(all.other.grow(0, 12 * GIB), Reply::Granted { .. })
    });
}

#[test]
fn a_stopped_process_with_a_row_is_awaited_by_the_daemon_after_too() {
    let folder = tempfile::tempdir().unwrap();
    let all = Restarted::with(folder.path(), 0);
    let both: [&StandIn; 2] = [&all.first.process, &all.second.process];
    all.daemon.devices.until_looked_at();
    until_written_down(folder.path(), "one", &both);
    let Restarted {
        daemon,
        mut first,
        mut second,
        ..
    } = all;
    drop(daemon);
    let _daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), soon());
    let socket = socket(folder.path());
    for client in [&mut first, &mut second] {
        assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
    }
    assert!(matches!(first.grow(8 * GIB, GIB), Reply::Granted { .. }));
}

#[test]
fn a_late_process_of_another_major_is_told_of_also_at_a_classs_socket() {
    for path in ["sockets/one/gpushare.sock", "classes/a/gpushare.sock"] {
        let folder = tempfile::tempdir().unwrap();
        let mut all = Restarted::with(folder.path(), 0);
        let mut stream = all.second.process.connect(&folder.path().join(path));
        stream.write_all(&greeting(MAJOR - 1)).unwrap();
        hears_the_greeting(stream);
        let told = not_registered(&all.daemon);
        let text = format!("process {} is not registered", all.second.process.pid());
        assert!(told.len() == 1 && told[0].starts_with(&text), "{told:?}");
    }
}
