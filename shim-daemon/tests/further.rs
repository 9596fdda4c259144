//! Further contexts of a process, as its library asks for them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{self, Client, Daemon, FakeDevices, Wire};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;

fn overhead(daemon: &Daemon) -> u64 {
    match daemon.command().call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => rows.iter().map(|row| row.overhead).sum(),
        other => panic!("{other:?}"),
    }
}

fn until_it_is(daemon: &Daemon, mib: u64) {
    support::until(&format!("{mib} MiB are booked"), || {
        overhead(daemon) == mib * MIB
    });
}

/// A process whose first context was measured.
fn with_one(folder: &std::path::Path) -> (Daemon, FakeDevices, Client, Wire) {
    let devices = FakeDevices::default();
    let daemon = Daemon::with(folder, devices.clone());
    let (owner, socket) = daemon.tenant("one", &[("GPUSHARE_MEM_REQUEST", "0")]);
    let mut client = Client::register(&socket);
    shows(&devices, &client, 64);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    until_it_is(&daemon, 64);
    (daemon, devices, client, owner)
}

fn shows(devices: &FakeDevices, client: &Client, mib: u64) {
    let used = vec![(client.process.pid(), Bytes(mib * MIB))];
    devices.0.lock().unwrap().processes = used;
}

fn more(client: &mut Client) -> u32 {
    let ask = client.wire.ask(&Request::OpenMore {
        device_index: 0,
        patience_ms: None,
    });
    let reply: Reply = client.wire.answer(ask);
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    ask
}

fn done(client: &mut Client, ask: u32) {
    client.wire.ask(&Request::OpenDone {
        device_index: 0,
        ask,
    });
}

#[test]
fn a_further_context_is_set_aside_for_until_its_call_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, devices, mut client, _owner) = with_one(folder.path());
    let ask = more(&mut client);
    assert_eq!(overhead(&daemon), 128 * MIB);
    shows(&devices, &client, 100);
    devices.until_looked_at();
    assert_eq!(overhead(&daemon), 128 * MIB, "half of it is shown");
    shows(&devices, &client, 120);
    done(&mut client, ask);
    until_it_is(&daemon, 120);
    let failed = more(&mut client);
    assert_eq!(overhead(&daemon), 184 * MIB);
    done(&mut client, failed);
    until_it_is(&daemon, 120);
}

#[test]
fn a_process_that_has_no_context_left_gives_back_what_they_took() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, devices, mut client, _owner) = with_one(folder.path());
    devices.0.lock().unwrap().processes.clear();
    devices.until_looked_at();
    assert_eq!(overhead(&daemon), 64 * MIB, "it has not said so");
    let device_index = 0;
    client.wire.ask(&Request::NoContext { device_index });
    until_it_is(&daemon, 0);
}

#[test]
fn an_ask_that_is_over_before_its_answer_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, _devices, mut client, _owner) = with_one(folder.path());
    let holds = daemon.tenant("holder", &[("GPUSHARE_MEM_REQUEST", "15GiB")]);
    let mut waits = || {
        client.wire.ask(&Request::OpenMore {
            device_index: 0,
            patience_ms: None,
        })
    };
    // One fits, of those that are not measured yet.
    let asks: Vec<u32> = (0..16).map(|_| waits()).collect();
    let last = asks[15];
    done(&mut client, last);
    let reply: Reply = client.wire.answer(last);
    assert_eq!(reply, Reply::Refused(Refusal::Cancelled));
    assert!(overhead(&daemon) <= GIB);
    drop(holds);
}

#[test]
fn what_is_wrong_about_a_context_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, _devices, mut client, _owner) = with_one(folder.path());
    for device_index in [1, 255] {
        client.wire.ask(&Request::OpenDone {
            device_index,
            ask: 1,
        });
        client.wire.ask(&Request::NoContext { device_index });
        let more = Request::OpenMore {
            device_index,
            patience_ms: None,
        };
        let reply: Reply = client.wire.call(&more);
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    done(&mut client, 12_345);
    let ask = more(&mut client);
    done(&mut client, ask);
    done(&mut client, ask);
    until_it_is(&daemon, 64);
}

#[test]
fn a_call_under_way_over_another_connection_is_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, _devices, mut client, _owner) = with_one(folder.path());
    let ask = more(&mut client);
    assert_eq!(overhead(&daemon), 128 * MIB);
    let again = Request::OpenAgain { device_index: 0 };
    client.wire.send(ask, &again);
    let reply: Reply = client.wire.answer(ask);
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    assert_eq!(overhead(&daemon), 128 * MIB);
    done(&mut client, ask);
    until_it_is(&daemon, 64);
}
