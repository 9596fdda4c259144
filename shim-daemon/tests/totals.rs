//! The event at a tenant's end tells of its whole life, whichever daemons it had.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use crate::support::{Client, Daemon};
use gpushare_core::Nanos;
use gpushare_protocol::page::UNIT;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "12GiB")];

/// A program of the tenant "one" that had 8 GiB, and a kernel of which ran for three seconds. Its
/// daemon has left, and it has 1 GiB now.
fn after_a_daemon(folder: &Path) -> (Client, PathBuf) {
    let daemon = Daemon::start(folder);
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 8 * GIB), Reply::Granted { .. }));
    client.charge(8 * GIB);
    runs(&daemon, &client, 3);
    drop(daemon);
    let units = u32::try_from(7 * GIB / UNIT).unwrap();
    let line = client.page().line(client.slot, 0).unwrap();
    line.word.release(units);
    (client, socket)
}

fn runs(daemon: &Daemon, client: &Client, seconds: u64) {
    let busy = (client.process.pid(), Nanos::secs(seconds).0);
    daemon.devices.0.lock().unwrap().busy = vec![busy];
    daemon.devices.until_looked_at();
}

/// The most that was charged and the milliseconds of kernels, as the next end of a tenant tells.
fn next_end(daemon: &Daemon) -> (Option<u64>, Option<u64>) {
    let mut command = daemon.command();
    let id = command.ask(&Control::Follow { past: 100 });
    loop {
        let ControlReply::Event(record) = command.answer(id) else {
            panic!("an event")
        };
        if record.kind == "gone" {
            let of = |name| record.number_of(name);
            return (of("peak_bytes"), of("busy_ms"));
        }
    }
}

#[test]
fn a_tenants_end_tells_what_was_counted_before_the_daemons_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut client, socket) = after_a_daemon(folder.path());
    let daemon = Daemon::start(folder.path());
    assert!(matches!(client.reconnect(&socket), Reply::Registered(_)));
    runs(&daemon, &client, 1);
    drop(client);
    assert_eq!(next_end(&daemon), (Some(8 * GIB), Some(4000)));
}

#[test]
fn another_tenant_of_that_name_begins_at_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(after_a_daemon(folder.path()).0);
    let daemon = Daemon::start(folder.path());
    assert_eq!(next_end(&daemon), (Some(8 * GIB), Some(3000)));
    let mut command = daemon.command();
    let id = command.ask(&Control::Follow { past: 0 });
    drop(daemon.tenant("one", &LIMIT));
    loop {
        match command.answer(id) {
            ControlReply::Event(record) if record.kind == "gone" => {
                assert_eq!(record.number_of("peak_bytes"), Some(0));
                assert_eq!(record.number_of("busy_ms").unwrap_or(0), 0);
                break;
            }
            ControlReply::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
