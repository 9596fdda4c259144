//! A hostile or broken client costs itself its connection, and others nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use support::{Client, Daemon, Wire};

const LIMIT: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "4GiB")];

/// Runs `attack` against the socket of one container while a client of another works before, between and after.
fn while_another_works(attack: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_good, good) = daemon.container("good", &LIMIT);
    let (_bad, bad) = daemon.container("bad", &LIMIT);
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
            drop(raw(socket, &garbage));
        }
    });
}

#[test]
fn a_huge_length_is_cut_off_before_its_bytes_come() {
    while_another_works(|socket| {
        let stream = raw(socket, &[0xff; 8]);
        let mut end = Vec::new();
        assert!(std::io::Read::read_to_end(&mut &stream, &mut end).is_ok());
        assert!(end.is_empty());
    });
}

#[test]
fn thousands_of_silent_connections_leave_room_for_others() {
    while_another_works(|socket| {
        let crowd: Vec<_> = (0..1500)
            .map_while(|_| UnixStream::connect(socket).ok())
            .collect();
        assert!(crowd.len() > 100, "{}", crowd.len());
    });
}

#[test]
fn one_that_asks_and_never_reads_is_cut_off() {
    while_another_works(|socket| {
        let mut wire = Wire::connect(socket);
        wire.socket
            .set_write_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        let mut frames = Vec::new();
        for id in 1..5000 {
            encode(id, &Request::Freed { column: 0 }, &mut frames).unwrap();
        }
        for _ in 0..20 {
            if wire.socket.write_all(&frames).is_err() {
                break;
            }
        }
    });
}

#[test]
fn asking_before_registering_and_registering_twice_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.container("one", &LIMIT);
    let mut early = Wire::connect(&socket);
    let reply: Reply = early.call(&Request::Open { column: 0 });
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
fn a_column_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.container("one", &LIMIT);
    let mut client = Client::register(&socket);
    for column in [1, 15, 16, 255] {
        let reply: Reply = client.wire.call(&Request::Open { column });
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
    let (_owner, socket) = daemon.container("one", &LIMIT);
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
    assert!(
        matches!(
            reply,
            Reply::Error(WireError {
                code: ErrorCode::BadPage,
                ..
            })
        ),
        "{reply:?}"
    );
}

#[test]
fn forged_words_of_one_container_do_not_change_what_another_gets() {
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
        let done: Reply = client.wire.call(&Request::Freed { column: 0 });
        assert_eq!(done, Reply::Done);
    });
}

#[test]
fn a_client_is_no_command_and_a_command_no_client() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.container("one", &LIMIT);
    let mut client = Wire::connect(&socket);
    let id = client.ask(&Control::Set {
        container: "one".into(),
        changes: vec![("GPUSHARE_MEM_LIMIT".into(), "9GiB".into())],
    });
    let reply: Reply = client.answer(id);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    let mut command = daemon.command();
    let rows: ControlReply = command.call(&Control::List);
    let ControlReply::Containers(rows) = rows else {
        panic!("{rows:?}")
    };
    assert_eq!(rows[0].limit, 4 * GIB);
}
