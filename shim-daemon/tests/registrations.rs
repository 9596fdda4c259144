//! A process has one registration, whatever it sends. Memory that it reserves is measured at once,
//! or released.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;
use std::path::Path;

use crate::support::{Client, Daemon, FakeDevices, StandIn, Wire};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;

const BURST: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "8GiB"),
];

/// Another connection of the same process, registered and with a context set aside for.
fn again(process: &mut StandIn, socket: &Path) -> Wire {
    let mut wire = Wire::greet(process.connect(socket), 0);
    let register = Register {
        pid: process.pid(),
        presents_page: false,
        slot: None,
    };
    let reply: Reply = wire.call(&Request::Register(register));
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    let reply: Reply = wire.call(&Request::Open { device_index: 0 });
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    wire
}

#[test]
fn connections_of_one_process_reserve_one_context_and_leave_others_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_liar, liar) = daemon.tenant("liar", &BURST);
    let (_other, other) = daemon.tenant("other", &BURST);
    let mut process = StandIn::start();
    let crowd: Vec<Wire> = (0..30).map(|_| again(&mut process, &liar)).collect();
    let row = daemon.row("liar");
    assert_eq!((row.processes.len(), row.overhead), (1, 512 * MIB));
    assert_eq!(row.limbo, 0);
    let mut client = Client::register(&other);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 8 * GIB), Reply::Granted { .. }));
    drop(crowd);
}

#[test]
fn registering_over_and_over_costs_the_daemon_no_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &BURST);
    let mut process = StandIn::start();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let first = again(&mut process, &socket);
    let before = open();
    drop(first);
    for _ in 0..300 {
        drop(again(&mut process, &socket));
    }
    // Ends of connections are noticed a moment later.
    support::until("its descriptors are closed", || open() < before + 20);
}

#[test]
fn one_process_is_in_one_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &BURST);
    let (_b, b) = daemon.tenant("b", &BURST);
    let mut process = StandIn::start();
    let _first = again(&mut process, &a);
    let _second = again(&mut process, &b);
    let counts = ["a", "b"].map(|name| daemon.row(name).processes.len());
    assert_eq!(counts, [0, 1]);
}

#[test]
fn a_connection_whose_process_has_registered_anew_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &BURST);
    let mut process = StandIn::start();
    let mut first = again(&mut process, &socket);
    let mut second = again(&mut process, &socket);
    let reply: Reply = first.call(&Request::Open { device_index: 0 });
    let Reply::Error(error) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(error.code, ErrorCode::OutOfOrder);
    let reply: Reply = second.call(&Request::Open { device_index: 0 });
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
}

#[test]
fn processes_of_one_tenant_each_have_their_registration() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &BURST);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::register(&socket)).collect();
    for client in &mut clients {
        assert!(matches!(client.open(), Reply::Granted { .. }));
    }
    let row = daemon.row("one");
    assert_eq!((row.processes.len(), row.overhead), (4, 2 * GIB));
}

#[test]
fn after_a_restart_a_process_comes_back_as_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (owner, socket) = daemon.tenant("one", &BURST);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::register(&socket)).collect();
    for client in &mut clients {
        assert!(matches!(client.open(), Reply::Granted { .. }));
        client.charge(GIB);
    }
    drop((daemon, owner));
    let daemon = Daemon::start(folder.path());
    for client in &mut clients {
        let reply = client.reconnect(&socket);
        assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    }
    let row = daemon.row("one");
    assert_eq!((row.processes.len(), row.charged), (2, 2 * GIB));
}

#[test]
fn a_context_that_is_made_is_measured_before_the_next_tick() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with(folder.path(), devices.clone());
    let (_owner, socket) = daemon.tenant("one", &BURST);
    let mut client = Client::register(&socket);
    assert!(matches!(client.opening(), Reply::Granted { .. }));
    let pid = client.process.pid();
    // A half-made context: the process has not reported it, and the memory that the device shows is
    // not counted.
    devices.0.lock().unwrap().processes = vec![(pid, Bytes(20 * MIB))];
    devices.until_looked_at();
    assert_eq!(daemon.row("one").overhead, 512 * MIB);
    devices.0.lock().unwrap().processes = vec![(pid, Bytes(64 * MIB))];
    let looks = devices.0.lock().unwrap().looks;
    client.wire.ask(&Request::ContextMade { device_index: 0 });
    support::until("it is measured", || daemon.row("one").overhead == 64 * MIB);
    assert!(devices.0.lock().unwrap().looks > looks);
}

#[test]
fn charges_of_a_sibling_that_just_died_are_not_held_against_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [("GPUSHARE_MEM_LIMIT", "4GiB")];
    let (_owner, socket) = daemon.tenant("one", &limits);
    let mut survivor = Client::register(&socket);
    assert!(matches!(survivor.open(), Reply::Granted { .. }));
    for _ in 0..20 {
        let mut dying = Client::register(&socket);
        assert!(matches!(dying.open(), Reply::Granted { .. }));
        assert!(matches!(dying.grow(0, 3 * GIB), Reply::Granted { .. }));
        dying.charge(3 * GIB);
        // The process is dead and reaped when this returns; the daemon may not have noticed yet.
        drop(dying.process);
        let reply = survivor.grow(3 * GIB, 3 * GIB);
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }
}

#[test]
fn what_a_living_sibling_has_charged_is_held_against_the_limit_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let (mut a, mut b) = (Client::register(&socket), Client::register(&socket));
    for client in [&mut a, &mut b] {
        assert!(matches!(client.open(), Reply::Granted { .. }));
    }
    assert!(matches!(a.grow(0, 3 * GIB), Reply::Granted { .. }));
    a.charge(3 * GIB);
    let limit = 4 * GIB;
    assert_eq!(
        b.grow(3 * GIB, 3 * GIB),
        Reply::Refused(Refusal::OverLimit { limit })
    );
}
