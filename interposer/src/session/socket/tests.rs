use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;

use gpushare_protocol::wire::{Reply, encode};

use super::*;

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("it is open");
    let socket = Descriptor::new(ours.into_raw_fd()).expect("a descriptor");
    let connection = Connection {
        socket: Arc::new(socket),
        decoder: Decoder::default(),
        descriptors: VecDeque::new(),
    };
    (connection, theirs)
}

fn frame(id: u32) -> Vec<u8> {
    let reply = Reply::HostRange {
        offset: 1,
        bytes: 2,
    };
    let mut frame = Vec::new();
    encode(id, &reply, &mut frame).expect("it is small");
    frame
}

fn passes(theirs: &UnixStream, id: u32, file: c_int, copies: usize) {
    send_copies(theirs.as_raw_fd(), &frame(id), file, copies);
}

#[test]
fn replies_that_come_together_have_each_its_own_descriptor() {
    let (mut connection, theirs) = pair();
    let files = [(); 3].map(|()| tempfile::tempfile().expect("a file"));
    (0..)
        .zip(&files)
        .for_each(|(id, file)| passes(&theirs, id, file.as_raw_fd(), 1));
    for (id, file) in (0..).zip(&files) {
        connection.receive().expect("a reply came");
        let got = connection.next_frame().expect("a frame");
        assert_eq!(got.map(|(id, _)| id), Some(id));
        let passed = connection.take_descriptor().expect("it came with it");
        let file = Descriptor::new(again(file)).expect("a file");
        assert_eq!(passed.identity(), file.identity(), "{id}");
    }
    assert!(connection.take_descriptor().is_none());
}

fn again(file: &File) -> c_int {
    file.try_clone().expect("one more").into_raw_fd()
}

/// More than there is place for. So it is where the program has no more descriptors.
#[test]
fn message_that_lost_a_descriptor_ends_the_connection() {
    let (mut connection, mut theirs) = pair();
    let (mut reads, writes) = io::pipe().expect("a pipe");
    theirs.write_all(&frame(1)).expect("it is read");
    passes(&theirs, 2, writes.as_raw_fd(), CONTROL_WORDS * 2);
    let other = tempfile::tempfile().expect("a file");
    passes(&theirs, 3, other.as_raw_fd(), 1);
    drop(writes);
    let lost = connection.receive().expect_err("one is missing");
    assert_eq!(lost.kind(), io::ErrorKind::Other);
    assert!(connection.take_descriptor().is_none());
    assert_eq!(reads.read(&mut [0]).expect("all are closed"), 0);
}

fn is_end(answer: &io::Result<()>) -> bool {
    let error = answer.as_ref().map_err(io::Error::kind);
    error == Err(io::ErrorKind::UnexpectedEof)
}

#[test]
fn frame_that_comes_with_the_end_of_the_connection_is_read() {
    let (mut connection, mut theirs) = pair();
    theirs.write_all(&frame(7)).expect("it is read");
    drop(theirs);
    connection.receive().expect("something came");
    let got = connection.next_frame().expect("a frame");
    assert_eq!(got.map(|(id, _)| id), Some(7));
    assert!(is_end(&connection.receive()));
}

#[test]
fn connection_that_ends_without_a_word_is_at_its_end() {
    let (mut connection, theirs) = pair();
    connection.receive().expect("nothing has come yet");
    drop(theirs);
    assert!(is_end(&connection.receive()));
}
