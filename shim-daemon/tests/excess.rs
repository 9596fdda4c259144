//! Memory that a tenant's processes hold beyond what they may, by a way that nothing accounts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, Daemon, FakeDevices, GPU, until};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;

const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "8GiB"),
];

fn device(daemon: &Daemon) -> DeviceRow {
    match daemon.command().call(&Listing::Devices.first()) {
        ControlReply::Page {
            rows: Rows::Devices(mut rows),
            ..
        } => rows.remove(0),
        other => panic!("{other:?}"),
    }
}

fn excess(daemon: &Daemon) -> Vec<ExcessRow> {
    let (of, from) = (Listing::Excess, Cursor::default());
    match daemon.command().call(&Control::Page { of, from }) {
        ControlReply::Page {
            rows: Rows::Excess(rows),
            next: None,
        } => rows,
        other => panic!("{other:?}"),
    }
}

/// The device lists so much for a process.
fn lists(daemon: &Daemon, pid: u32, bytes: u64) {
    daemon.devices.0.lock().unwrap().processes = vec![(pid, Bytes(bytes))];
    daemon.devices.until_looked_at();
}

#[test]
fn what_a_tenant_holds_beyond_its_grant_is_told_while_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::default());
    let (_a, socket) = daemon.tenant("a", &LIMITS);
    let (_b, other) = daemon.tenant("b", &LIMITS);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 4 * GIB), Reply::Granted { .. }));
    client.charge(4 * GIB);
    let mut other = Client::register(&other);
    assert!(matches!(other.open(), Reply::Granted { .. }));
    assert!(matches!(other.grow(0, 2 * GIB), Reply::Granted { .. }));
    let pid = client.process.pid();
    lists(&daemon, pid, 4 * GIB + 64 * MIB);
    assert_eq!(excess(&daemon), [], "a context is none");
    // By Vulkan, say, up to the end of the device.
    let row = device(&daemon);
    let (capacity, usable) = (row.capacity, row.capacity - row.reserve);
    lists(&daemon, pid, capacity);
    let [told] = &excess(&daemon)[..] else {
        panic!("{:?}", excess(&daemon))
    };
    assert_eq!((&*told.name, told.device), ("a", GPU));
    let row = device(&daemon);
    let known = row.granted + row.overhead + row.limbo + row.unmanaged;
    assert!(known <= usable, "{row:?}");
    assert!(known + told.bytes > usable, "{told:?} beside {row:?}");
    lists(&daemon, pid, 4 * GIB + 64 * MIB);
    assert_eq!(excess(&daemon), [], "it has given it back");
    // A lost device shows nothing.
    lists(&daemon, pid, capacity);
    assert_eq!(excess(&daemon).len(), 1);
    daemon.devices.0.lock().unwrap().lost = true;
    until("it is lost", || device(&daemon).is_lost());
    assert_eq!(excess(&daemon), []);
}
