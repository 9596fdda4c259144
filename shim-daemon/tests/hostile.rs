//! A hostile or broken client loses its own connection and affects no other client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::silent::not_runnable_here;
use crate::support::{Client, Daemon, FakeDevices, StandIn, Wire, is_a_bad_page, until};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;
use gpushared::node::Settings;
use gpushared::server::SOCKET;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "4GiB")];

/// Runs `attack` against the socket of one tenant while a client of another works before,
/// between and after.
fn while_another_works(attack: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_good, good) = daemon.tenant("good", &LIMIT);
    let (_bad, bad) = daemon.tenant("bad", &LIMIT);
    let mut client = Client::register(&good);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    for _ in 0..3 {
        attack(&bad);
        assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
    }
    assert!(
        matches!(client.grow(0, 4 * GIB), Reply::Granted { .. }),
        "its share is untouched"
    );
    client.charge(4 * GIB);
    assert_eq!(
        client.grow(4 * GIB, 512),
        Reply::Refused(Refusal::OverLimit { limit: 4 * GIB })
    );
}

fn raw(socket: &Path, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    // A daemon that has cut the connection off already is as good.
    let _ = stream.write_all(bytes);
    stream
}

#[test]
fn garbage_is_cut_off() {
    while_another_works(|socket| {
        for seed in 0..20_u8 {
            let garbage: Vec<u8> = (0..4096_u32)
                .map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed)
                .collect();
            let mut end = Vec::new();
            // Bytes that were not read reset the connection.
            let cut = (&raw(socket, &garbage)).read_to_end(&mut end);
            let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
            assert!(cut.as_ref().err().is_none_or(is_reset), "{cut:?}");
        }
    });
}

#[test]
fn a_huge_length_is_cut_off_before_its_bytes_come() {
    while_another_works(|socket| {
        let stream = raw(socket, &[0xff; 8]);
        let mut end = Vec::new();
        assert!(Read::read_to_end(&mut &stream, &mut end).is_ok());
        assert!(end.is_empty());
    });
}

#[test]
fn a_message_cut_short_costs_its_connection_only() {
    let mut whole = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut whole).unwrap();
    let register = Request::Register(Register {
        pid: 1,
        presents_page: false,
        slot: None,
    });
    encode(1, &register, &mut whole).unwrap();
    while_another_works(|socket| {
        for length in 0..whole.len() {
            drop(raw(socket, &whole[..length]));
        }
    });
}

/// How many of these connections the daemon has not closed.
fn kept(crowd: &[UnixStream]) -> usize {
    let is_open = |mut stream: &UnixStream| {
        let read = stream.read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    crowd.iter().filter(|stream| is_open(stream)).count()
}

#[test]
fn thousands_of_silent_connections_leave_room_for_others() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    for at_a_tenant in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        // No tick closes those that have said nothing for seconds.
        let daemon = Daemon::with(folder.path(), FakeDevices::without_ticks());
        let (_good, good) = daemon.tenant("good", &LIMIT);
        let (_bad, bad) = daemon.tenant("bad", &LIMIT);
        let control = daemon.folder.join(gpushared::server::CONTROL);
        let socket = if at_a_tenant { bad } else { control };
        let connect = |_| {
            let stream = UnixStream::connect(&socket).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let crowd: Vec<_> = (0..1500).map(connect).collect();
        until("those beyond the bound are closed", || kept(&crowd) <= 1024);
        assert!(kept(&crowd) > 1000, "others may still greet");
        let mut client = Client::register(&good);
        assert!(matches!(client.open(), Reply::Granted { .. }));
        assert!(matches!(client.grow(0, 4 * GIB), Reply::Granted { .. }));
    }
}

#[test]
fn charges_that_are_zeroed_do_not_free_what_the_device_still_shows() {
    let burst = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "3s"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with(folder.path(), devices.clone());
    let (_good, good) = daemon.tenant("good", &burst);
    let (_bad, bad) = daemon.tenant("bad", &burst);
    let mut good = Client::register(&good);
    assert!(matches!(good.open(), Reply::Granted { .. }));
    let mut bad = Client::register(&bad);
    assert!(matches!(bad.open(), Reply::Granted { .. }));
    assert!(matches!(bad.grow(0, 10 * GIB), Reply::Granted { .. }));
    bad.charge(10 * GIB);
    let held = Bytes(10 * GIB + 64 * MIB);
    devices.0.lock().unwrap().processes = vec![(bad.process.pid(), held)];
    devices.until_looked_at();
    bad.page().line(bad.slot, 0).unwrap().word.clear();
    let done: Reply = bad.wire.call(&Request::Freed { device_index: 0 });
    assert_eq!(done, Reply::Done);
    let answer = good.grow(0, 10 * GIB);
    assert!(
        matches!(answer, Reply::Refused(_)),
        "what another holds is not given: {answer:?}"
    );
    assert!(
        matches!(good.grow(0, 4 * GIB), Reply::Granted { .. }),
        "all memory that is free can be had"
    );
}

/// A daemon with two classes, and their sockets.
fn two_classes(root: &Path) -> (Daemon, [PathBuf; 2]) {
    let settings = gpushared::config::read("[classes.a]\n[classes.b]\n", Settings::default());
    let daemon = Daemon::with_settings(root, FakeDevices::default(), settings.unwrap());
    let sockets = ["classes/a", "classes/b"].map(|class| root.join(class).join(SOCKET));
    (daemon, sockets)
}

#[test]
fn refused_requests_at_one_socket_delay_none_of_that_user_at_another() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, [a, b]) = two_classes(folder.path());
    // As many as are served in one go, each refused: 30 s of waiting at the rate of connections.
    let mut refused = Vec::new();
    for id in 1..=31 {
        encode(id, &Request::Open { device_index: 0 }, &mut refused).unwrap();
    }
    let mut crowd: Vec<Wire> = (0..230).map(|_| Wire::connect(&a)).collect();
    for wire in &mut crowd {
        wire.socket.write_all(&refused).unwrap();
    }
    for wire in &mut crowd {
        assert!(matches!(wire.answer(31), Reply::Error(_)));
    }
    // Before it is heard, it would wait longer than the test does.
    Wire::connect(&b);
}

#[test]
fn one_that_asks_and_never_reads_delays_no_other() {
    while_another_works(|socket| {
        let mut wire = Wire::connect(socket);
        wire.socket
            .set_write_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut frames = Vec::new();
        for id in 1..5000 {
            encode(id, &Request::Freed { device_index: 0 }, &mut frames).unwrap();
        }
        let failed = (0..20).find_map(|_| wire.socket.write_all(&frames).err());
        let kind = failed.map(|error| error.kind());
        // It is read as seldom as its budget says, or cut off.
        assert!(kind.is_some(), "100,000 requests were taken at once");
    });
}

#[test]
fn asking_before_registering_and_registering_twice_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut early = Wire::connect(&socket);
    let reply: Reply = early.call(&Request::Open { device_index: 0 });
    assert!(matches!(
        reply,
        Reply::Error(WireError {
            code: ErrorCode::OutOfOrder,
            ..
        })
    ));
    let mut client = Client::register(&socket);
    let again = Register {
        pid: 1,
        presents_page: false,
        slot: None,
    };
    let reply: Reply = client.wire.call(&Request::Register(again));
    assert!(matches!(
        reply,
        Reply::Error(WireError {
            code: ErrorCode::OutOfOrder,
            ..
        })
    ));
}

#[test]
fn a_second_registration_is_refused_without_a_look_at_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    let pid = client.process.pid();
    // A look would find it dead.
    client.process.becomes_a_zombie();
    let again = Register {
        pid,
        presents_page: false,
        slot: None,
    };
    let reply: Reply = client.wire.call(&Request::Register(again));
    let is_refused = matches!(&reply, Reply::Error(error) if error.code == ErrorCode::OutOfOrder);
    assert!(is_refused, "{reply:?}");
}

/// Sends without end over all of these, and reads what comes, until told to stop.
fn flood(crowd: Vec<Wire>, stop: &AtomicBool) {
    let register = Request::Register(Register {
        pid: 1,
        presents_page: false,
        slot: None,
    });
    let mut words = Vec::new();
    (10..42).for_each(|id| encode(id, &register, &mut words).unwrap());
    for wire in &crowd {
        wire.socket.set_nonblocking(true).unwrap();
    }
    let mut left = vec![Vec::new(); crowd.len()];
    let mut answers = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        for (wire, left) in crowd.iter().zip(&mut left) {
            while (&wire.socket).read(&mut answers).is_ok_and(|read| read > 0) {}
            if left.is_empty() {
                left.clone_from(&words);
            }
            if let Ok(sent) = (&wire.socket).write(left) {
                left.drain(..sent);
            }
        }
    }
}

#[test]
fn a_process_that_floods_replaced_connections_delays_no_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_good, good) = daemon.tenant("good", &LIMIT);
    let (_bad, bad) = daemon.tenant("bad", &LIMIT);
    let mut client = Client::register(&good);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    let mut process = StandIn::start();
    let register = Register {
        pid: process.pid(),
        presents_page: false,
        slot: None,
    };
    let crowd: Vec<Wire> = (0..300)
        .map(|_| {
            let mut wire = Wire::greet(process.connect(&bad), 0);
            let reply: Reply = wire.call(&Request::Register(register.clone()));
            assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
            wire
        })
        .collect();
    let stop = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        scope.spawn(|| flood(crowd, &stop));
        let began = Instant::now();
        for _ in 0..100 {
            assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
        }
        stop.store(true, Ordering::Relaxed);
        began.elapsed()
    });
    // While each of them had a process's rate, it took half a minute.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_column_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Client::register(&socket);
    for device_index in [1, 15, 16, 255] {
        let reply: Reply = client.wire.call(&Request::Open { device_index });
        assert!(
            matches!(
                reply,
                Reply::Error(WireError {
                    code: ErrorCode::NotFound,
                    ..
                })
            ),
            "{reply:?}"
        );
    }
}

#[test]
fn a_presented_page_that_is_not_sealed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    drop(daemon);
    let _daemon = Daemon::start(folder.path());
    let mut wire = Wire::connect(&socket);
    let mut frame = Vec::new();
    let register = Register {
        pid: 1,
        presents_page: true,
        slot: Some(0),
    };
    encode(1, &Request::Register(register), &mut frame).unwrap();
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    let rights = [std::os::fd::AsRawFd::as_raw_fd(&file)];
    sendmsg::<()>(
        std::os::fd::AsRawFd::as_raw_fd(&wire.socket.as_fd()),
        &[std::io::IoSlice::new(&frame)],
        &[ControlMessage::ScmRights(&rights)],
        MsgFlags::empty(),
        None,
    )
    .unwrap();
    let reply: Reply = wire.answer(1);
    let Reply::Error(error) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(error.code, ErrorCode::BadPage);
    assert!(error.message.contains("sealed"), "{error:?}");
}

#[test]
fn forged_words_of_one_tenant_do_not_change_what_another_gets() {
    while_another_works(|socket| {
        let client = Client::register(socket);
        for slot in 0..gpushare_protocol::page::MAX_SLOTS {
            client
                .page()
                .line(slot, 0)
                .unwrap()
                .word
                .charge_anyway(u32::MAX);
        }
        let mut client = client;
        let id = client.ask(0, 512);
        let _: Reply = client.wire.answer(id);
        let done: Reply = client.wire.call(&Request::Freed { device_index: 0 });
        assert_eq!(done, Reply::Done);
    });
}

#[test]
fn a_client_is_no_command_and_a_command_no_client() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &LIMIT);
    let mut client = Wire::connect(&socket);
    let id = client.ask(&Control::Set {
        tenant: "one".into(),
        changes: vec![("GPUSHARE_MEM_LIMIT".into(), "9GiB".into())],
    });
    let reply: Reply = client.answer(id);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    assert_eq!(daemon.row("one").limit, 4 * GIB);
}

#[test]
fn a_page_without_a_previous_daemon_is_refused_and_grants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let (_own, own) = daemon.tenant("own", &limits);
    let (mut command, _victim) = daemon.tenant("victim", &limits);
    let (_other, other) = daemon.tenant("other", &limits);
    // A page that says that all of the limit is held, as after a restart; but there was none.
    let mut forger = Client::register(&other);
    forger.charge(12 * GIB);
    let refused = forger.reconnect(&own);
    is_a_bad_page(&refused);
    let rows = command.tenants();
    let grants: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.grant))
        .collect();
    assert_eq!(grants, [("own", 0), ("victim", 0), ("other", 0)]);
    assert!(matches!(
        Client::register(&own).open(),
        Reply::Granted { .. }
    ));
}

/// Another process with the pid of one that has ended. `None` where this user cannot have one, or
/// others were faster: whatever the machine runs beside this takes pids.
fn with_pid(pid: u32) -> Option<StandIn> {
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    let before = std::fs::read_to_string(LAST).ok()?;
    let other = (0..20).find_map(|_| {
        std::fs::write(LAST, (pid - 1).to_string()).ok()?;
        Some(StandIn::start()).filter(|other| other.pid() == pid)
    });
    // Other tests go by pids that are not given again at once.
    let _ = std::fs::write(LAST, before.trim());
    other
}

#[test]
fn a_connection_whose_maker_has_ended_registers_no_other_process() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &[]);
    let mut maker = StandIn::start();
    let pid = maker.pid();
    let mut wire = Wire::greet(maker.connect(&socket), 0);
    // The greeting is over once this is answered.
    let early: Reply = wire.call(&Request::Open { device_index: 0 });
    assert!(matches!(early, Reply::Error(_)), "{early:?}");
    drop(maker);
    let Some(_other) = with_pid(pid) else {
        let test = "a_connection_whose_maker_has_ended_registers_no_other_process";
        not_runnable_here(test, "the pid cannot be had again");
        return;
    };
    let register = Register {
        pid,
        presents_page: false,
        slot: None,
    };
    let reply: Reply = wire.call(&Request::Register(register));
    let is_refused = matches!(&reply, Reply::Error(error) if error.code == ErrorCode::NotFound);
    assert!(is_refused, "{reply:?}");
}
