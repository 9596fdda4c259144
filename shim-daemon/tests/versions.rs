//! Peers of other versions: those of another major are refused, and those of a later minor served.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::stopped::{comes, idle, not_registered, socket, soon};
use crate::support::{Client, Daemon, FakeDevices, StandIn};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;

pub(crate) fn greeting(major: u16) -> Vec<u8> {
    let hello = Hello {
        major,
        ..Hello::of_this_build(0)
    };
    let mut frame = Vec::new();
    encode(0, &hello, &mut frame).unwrap();
    frame
}

/// All that the daemon says until it hangs up: its greeting, and nothing else.
pub(crate) fn hears_the_greeting(mut stream: UnixStream) {
    let (mut heard, mut decoder) = (Vec::new(), Decoder::default());
    stream.read_to_end(&mut heard).unwrap();
    decoder.push(&heard);
    let (id, body) = decoder.next_frame().unwrap().unwrap();
    let theirs: Hello = decode(id, &body).unwrap();
    assert_eq!((id, theirs.major), (0, MAJOR));
    assert_eq!(decoder.next_frame(), Ok(None));
}

#[test]
fn a_peer_of_another_major_hears_the_daemons_and_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut client = Client::register(&one);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    let control = daemon.folder.join(gpushared::server::CONTROL);
    for path in [&one, &control] {
        for major in [MAJOR - 1, MAJOR + 1] {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(&greeting(major)).unwrap();
            hears_the_greeting(stream);
        }
    }
    assert!(matches!(client.grow(0, GIB), Reply::Granted { .. }));
}

/// A daemon awaits a process, which comes twice by the socket at this path in the daemon's folder.
fn awaited_comes_by(path: &str) {
    let folder = tempfile::tempdir().unwrap();
    let settings = gpushared::config::read("[classes.a]\n", soon()).unwrap();
    let (daemon, mut old) = idle(folder.path(), settings, FakeDevices::default());
    for _ in 0..2 {
        let mut stream = old.process.connect(&folder.path().join(path));
        stream.write_all(&greeting(MAJOR - 1)).unwrap();
        hears_the_greeting(stream);
    }
    let (refused, _wire) = comes(&mut StandIn::start(), &socket(folder.path()));
    let Reply::Error(error) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.message.contains("its event says why"), "{error:?}");
    let told = not_registered(&daemon);
    let text = format!(
        "process {} is not registered again: it speaks protocol 1, this daemon 2; it keeps",
        old.process.pid()
    );
    assert!(told.len() == 1 && told[0].starts_with(&text), "{told:?}");
}

#[test]
fn an_awaited_process_of_another_major_is_told_of_once() {
    awaited_comes_by("sockets/one/gpushare.sock");
}

#[test]
fn an_awaited_process_of_another_major_at_a_classs_socket_is_told_of_once() {
    awaited_comes_by("classes/a/gpushare.sock");
}

#[test]
fn a_process_of_another_major_that_is_not_awaited_is_not_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let settings = gpushared::config::read("[classes.a]\n", soon()).unwrap();
    let (daemon, old) = idle(folder.path(), settings, FakeDevices::default());
    let (told, _wire) = comes(&mut StandIn::start(), &socket(folder.path()));
    let is_awaited = matches!(&told, Reply::Error(error) if error.message.contains("is stopped"));
    assert!(is_awaited, "{told:?}");
    for path in ["sockets/one/gpushare.sock", "classes/a/gpushare.sock"] {
        let mut stream = StandIn::start().connect(&folder.path().join(path));
        stream.write_all(&greeting(MAJOR - 1)).unwrap();
        hears_the_greeting(stream);
    }
    assert!(not_registered(&daemon).is_empty());
    drop(old);
}

#[test]
fn a_peer_of_a_later_minor_is_served_and_what_is_unknown_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let hello = Hello {
        minor: MINOR + 1,
        capabilities: !Hello::MPS,
        ..Hello::of_this_build(0)
    };
    let register = Request::Register(Register {
        pid: 1,
        presents_page: false,
        slot: None,
    });
    let mut frames = Vec::new();
    encode(0, &hello, &mut frames).unwrap();
    encode(1, &register, &mut frames).unwrap();
    // A request of a later minor.
    frames.extend([1, 0, 0, 0, 2, 0, 0, 0, 250]);
    let mut stream = UnixStream::connect(one).unwrap();
    stream.write_all(&frames).unwrap();
    let mut decoder = Decoder::default();
    let (mut is_registered, mut is_unknown) = (false, false);
    while !(is_registered && is_unknown) {
        let Some((id, body)) = decoder.next_frame().unwrap() else {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "it was cut off");
            decoder.push(&bytes[..read]);
            continue;
        };
        match decode::<Reply>(id, &body) {
            _ if id == 0 => {}
            Ok(Reply::Registered(_)) => is_registered = true,
            Ok(Reply::Error(error)) => {
                assert_eq!((id, error.code), (2, ErrorCode::UnknownRequest));
                is_unknown = true;
            }
            other => panic!("{other:?}"),
        }
    }
}
