//! Processes on a device that belong to no tenant: reported, and ended only where the settings say
//! so. The processes are real.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, Daemon, FakeDevices, Wire};
use gpushare_core::Nanos;
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;
use gpushared::node::{Settings, Unmanaged};

/// A shell that has said that it is ready.
fn program(script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 1];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    child
}

fn lists(devices: &FakeDevices, pids: &[u32], bytes: u64) {
    let all = pids.iter().map(|pid| (*pid, Bytes(bytes))).collect();
    devices.0.lock().unwrap().processes = all;
}

fn settings(end: bool) -> Settings {
    let mut settings = Settings {
        unmanaged: Unmanaged {
            end,
            // These tests may run as root.
            root: true,
            grace: Nanos(0),
            ..Unmanaged::default()
        },
        ..Settings::default()
    };
    settings.policy.term_grace = Nanos::secs(1);
    settings
}

/// Follows the events from the first one on.
fn follow(daemon: &Daemon) -> (Wire, u32) {
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 1024 });
    (wire, id)
}

/// The next event of that kind.
fn next(events: &mut (Wire, u32), kind: &str) -> String {
    loop {
        match events.0.answer::<ControlReply>(events.1) {
            ControlReply::Event(row) if row.kind == kind => return row.text,
            ControlReply::Event(row) => assert_ne!(row.kind, "unmanaged-ended", "{}", row.text),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stranger_is_told_of_when_it_comes_and_when_it_grows_and_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let mut child = program("echo; read line || exit 0");
    lists(&devices, &[child.id()], 512 * MIB);
    let daemon = Daemon::with_settings(folder.path(), devices.clone(), settings(false));
    let mut events = follow(&daemon);
    let told = next(&mut events, "unmanaged");
    assert!(told.contains(&child.id().to_string()), "{told}");
    lists(&devices, &[child.id()], 2 * GIB);
    // `next` fails if anything is ended meanwhile.
    assert!(next(&mut events, "unmanaged").contains('2'));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn where_set_a_stranger_is_terminated_and_one_that_stays_killed() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let mut deaf = program("trap '' TERM; echo; while read line; do :; done; exit 3");
    lists(&devices, &[deaf.id()], GIB);
    let daemon = Daemon::with_settings(folder.path(), devices.clone(), settings(true));
    let mut events = follow(&daemon);
    assert!(next(&mut events, "unmanaged-ended").contains("SIGTERM"));
    assert!(next(&mut events, "unmanaged-ended").contains("SIGKILL"));
    assert_eq!(deaf.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_stranger_that_only_draws_lives_on_beside_one_that_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let mut draws = program("echo; read line || exit 0");
    let mut computes = program("echo; read line || exit 0");
    lists(&devices, &[draws.id(), computes.id()], GIB);
    devices.0.lock().unwrap().drawing = vec![draws.id()];
    let mut patient = settings(true);
    patient.policy.term_grace = Nanos::secs(60);
    let daemon = Daemon::with_settings(folder.path(), devices.clone(), patient);
    let mut events = follow(&daemon);
    // Both were told of and listed for as long when this one is ended.
    let told = next(&mut events, "unmanaged-ended");
    assert!(told.contains(&computes.id().to_string()), "{told}");
    assert_eq!(computes.wait().unwrap().signal(), Some(15));
    devices.until_looked_at();
    drop(draws.stdin.take());
    assert!(draws.wait().unwrap().success());
}

#[test]
fn the_daemon_itself_and_the_first_process_are_spared() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    lists(&devices, &[1, std::process::id()], GIB);
    let daemon = Daemon::with_settings(folder.path(), devices, settings(true));
    let mut events = follow(&daemon);
    // `next` fails if anything is ended meanwhile.
    next(&mut events, "unmanaged-spared");
    next(&mut events, "unmanaged-spared");
}

/// The accounts (unmanaged, overhead) once a client has charged 4 GiB and the device lists 64 MiB
/// more, for `pid`, or for the client itself.
fn beside_a_client(own_pids: bool, pid: Option<u32>) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let settings = Settings {
        own_pids,
        ..settings(false)
    };
    let daemon = Daemon::with_settings(folder.path(), devices.clone(), settings);
    let (_owner, socket) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "8GiB")]);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 4 * GIB), Reply::Granted { .. }));
    client.charge(4 * GIB);
    let pid = pid.unwrap_or_else(|| client.process.pid());
    lists(&devices, &[pid], 4 * GIB + 64 * MIB);
    devices.until_looked_at();
    match daemon.command().call(&Listing::Devices.first()) {
        ControlReply::Page {
            rows: Rows::Devices(rows),
            ..
        } => (rows[0].unmanaged, rows[0].overhead),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pids_of_another_namespace_make_no_stranger_of_our_processes() {
    let foreign = Some(4_000_000);
    let reserved = beside_a_client(false, foreign);
    assert_eq!(reserved.0, 0, "the charges explain the memory in use");
    assert_eq!(beside_a_client(true, foreign).0, 4 * GIB + 64 * MIB);
    assert_eq!(
        beside_a_client(false, None),
        (0, 64 * MIB),
        "a list that shows our process counts"
    );
}
