//! The command line's connection to a daemon: replies of several requests on one connection.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use gpushare_client::Talk;
use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, Hello, Listing, Rows, decode, encode,
};

/// The last page of the list of devices, of which there are none.
fn devices() -> ControlReply {
    ControlReply::Page {
        rows: Rows::Devices(Vec::new()),
        next: None,
    }
}

/// A daemon that answers the first request at the second, before that one, and leaves.
fn late(listener: &UnixListener) {
    drop(answers(listener, 2));
}

/// Gives the answers to so many of two requests once both have come. Returns the connection.
fn answers(listener: &UnixListener, many: usize) -> UnixStream {
    let (mut socket, _) = listener.accept().expect("the test connects");
    let mut decoder = Decoder::default();
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let mut buffer = [0; 4096];
        let bytes = socket.read(&mut buffer).expect("the test asks");
        assert!(bytes > 0, "the test hung up after {asked:?}");
        decoder.push(&buffer[..bytes]);
        while let Some((id, body)) = decoder.next_frame().expect("frames") {
            let mut frame = Vec::new();
            match decode::<Control>(id, &body) {
                Ok(_) if id > 0 => asked.push(id),
                _ => encode(0, &Hello::of_this_build(0), &mut frame).expect("a hello"),
            }
            socket.write_all(&frame).expect("the test reads");
        }
    }
    let mut frames = Vec::new();
    let replies = [ControlReply::Done, devices()];
    for (id, reply) in asked.iter().zip(replies).take(many) {
        encode(*id, &reply, &mut frames).expect("a reply");
    }
    socket.write_all(&frames).expect("the test reads");
    socket
}

#[test]
fn a_reply_to_an_earlier_request_is_kept_for_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join(gpushare_client::CONTROL);
    let listener = UnixListener::bind(socket).expect("the folder is writable");
    let daemon = thread::spawn(move || late(&listener));
    let mut talk = Talk::connect(folder.path()).expect("it greets");
    let first = talk.ask(&Listing::Devices.first()).expect("it listens");
    let second = talk.call(&Listing::Devices.first()).expect("it answers");
    assert_eq!(second, devices());
    assert_eq!(talk.reply(first).expect("it was kept"), ControlReply::Done);
    daemon.join().expect("it served");
}

#[test]
fn what_came_early_comes_next() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join(gpushare_client::CONTROL);
    let listener = UnixListener::bind(socket).expect("the folder is writable");
    let daemon = thread::spawn(move || late(&listener));
    let mut talk = Talk::connect(folder.path()).expect("it greets");
    let first = talk.ask(&Listing::Devices.first()).expect("it listens");
    talk.call(&Listing::Devices.first()).expect("it answers");
    let next = talk.next().expect("it came");
    assert_eq!(next, (first, ControlReply::Done));
    let ended = talk.next();
    assert!(ended.is_err(), "the daemon has left: {ended:?}");
    daemon.join().expect("it served");
}

#[test]
fn a_reply_that_is_here_already_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join(gpushare_client::CONTROL);
    let listener = UnixListener::bind(socket).expect("the folder is writable");
    let daemon = thread::spawn(move || late(&listener));
    let mut talk = Talk::connect(folder.path()).expect("it greets");
    let first = talk.ask(&Listing::Devices.first()).expect("it listens");
    talk.call(&Listing::Devices.first()).expect("it answers");
    daemon.join().expect("it served");
    let reply = talk.reply_within(first, Duration::ZERO);
    assert_eq!(reply.expect("it was kept"), Some(ControlReply::Done));
}

#[test]
fn a_bounded_wait_is_bounded_where_another_reply_comes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join(gpushare_client::CONTROL);
    let listener = UnixListener::bind(socket).expect("the folder is writable");
    let daemon = thread::spawn(move || answers(&listener, 1));
    let most = Some(Duration::from_secs(2));
    let mut talk = Talk::connect_within(folder.path(), most).expect("it greets");
    let first = talk.ask(&Listing::Devices.first()).expect("it listens");
    let second = talk.ask(&Listing::Devices.first()).expect("it listens");
    // It is there, and silent from now on.
    let silent = daemon.join().expect("it served");
    let reply = talk.reply_within(second, Duration::from_millis(20));
    assert_eq!(reply.expect("the daemon is there"), None);
    assert_eq!(talk.reply(first).expect("it was kept"), ControlReply::Done);
    drop(silent);
}
