//! Followers of events that read more slowly than events come: the daemon cuts them off, and they
//! go on with what it remembers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use gpushare_client::{Talk, TalkError};
use gpushare_protocol::wire::{
    ControlReply, Decoder, ErrorCode, EventRecord, Hello, WireError, encode,
};
use gpushare_tests::Home;

/// Connections of followers to a daemon: its instance, and the events that one gets before the
/// daemon cuts it off.
type Cuts = [(u64, &'static [u64]); 2];

/// In the place of an event: too many follow already.
const REFUSED: u64 = 0;

fn record(instance: u64, number: u64) -> EventRecord {
    EventRecord {
        instance,
        number,
        at_ms: 0,
        kind: "set".to_owned(),
        tenant: None,
        device: None,
        text: String::new(),
        facts: Vec::new(),
    }
}

fn reply(instance: u64, number: u64) -> ControlReply {
    match number {
        REFUSED => ControlReply::Error(WireError::retry(ErrorCode::Full, "too many")),
        _ => ControlReply::Event(record(instance, number)),
    }
}

/// A daemon that cuts its followers off, and leaves.
fn cutting(listener: &UnixListener, cuts: Cuts) {
    for (instance, numbers) in cuts {
        let (socket, _) = listener.accept().expect("the test connects");
        let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
        let mut frames = Vec::new();
        let mut next = || loop {
            if let Some(frame) = decoder.next_frame().expect("frames") {
                return Some(frame);
            }
            match (&socket).read(&mut buffer).expect("the test asks") {
                0 => return None,
                bytes => decoder.push(&buffer[..bytes]),
            }
        };
        next().expect("a hello");
        encode(0, &Hello::of_this_build(instance), &mut frames).expect("a hello");
        (&socket).write_all(&frames).expect("the test reads");
        // A client that finds another daemon hangs up.
        let Some((id, _)) = next() else { continue };
        frames.clear();
        for number in numbers {
            encode(id, &reply(instance, *number), &mut frames).expect("an event");
        }
        (&socket).write_all(&frames).expect("the test reads");
    }
}

/// Such a daemon with its socket in this folder.
fn daemon(folder: &Path, cuts: Cuts) -> JoinHandle<()> {
    let socket = folder.join(gpushare_client::CONTROL);
    let listener = UnixListener::bind(socket).expect("the folder is writable");
    thread::spawn(move || cutting(&listener, cuts))
}

/// The numbers of the events that a follower is told of.
fn followed(cuts: Cuts) -> Vec<u64> {
    let (told, ended) = follows(cuts);
    ended.expect("the daemon has left");
    told
}

/// The same, and how it ended.
fn follows(cuts: Cuts) -> (Vec<u64>, Result<(), TalkError>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = daemon(folder.path(), cuts);
    let mut talk = Talk::connect(folder.path()).expect("it greets");
    let mut told = Vec::new();
    let ended = talk.follow::<TalkError>(u32::MAX, |record| {
        told.push(record.number);
        Ok(())
    });
    // One that was not followed again waits for a connection still.
    drop(Talk::connect(folder.path()));
    daemon.join().expect("it served");
    (told, ended)
}

#[test]
fn a_follower_that_is_cut_off_goes_on_with_what_the_daemon_remembers() {
    assert_eq!(followed([(7, &[1, 2, 3]), (7, &[2, 3, 6])]), [1, 2, 3, 6]);
}

#[test]
fn a_follower_whose_daemon_has_left_does_not_follow_the_next_one() {
    assert_eq!(followed([(7, &[1, 2, 3]), (8, &[1, 2])]), [1, 2, 3]);
}

#[test]
fn a_follower_that_is_cut_off_without_an_event_ends() {
    assert_eq!(followed([(7, &[]), (7, &[1])]), [0; 0]);
}

#[test]
fn a_follower_that_is_refused_ends_with_the_reason_and_without_the_past() {
    let (told, ended) = follows([(7, &[REFUSED, 1, 2]), (7, &[])]);
    let why = ended.expect_err("too many follow");
    assert_eq!((told, why.message.as_str()), (vec![], "too many"));
}

/// The numbers that `events --follow` prints, and its notes.
fn printed(cuts: Cuts) -> (Vec<u64>, String) {
    let home = Home::new("");
    let folder = home.folder().join("gpushare/d/gpu");
    fs::create_dir_all(&folder).expect("the folder is writable");
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(home.folder().join("gpushare"), closed).expect("it is ours");
    let daemon = daemon(&folder, cuts);
    let output = home.gpushare(&["events", "--follow", "--json"]);
    assert!(output.status.success(), "{output:?}");
    drop(Talk::connect(&folder));
    daemon.join().expect("it served");
    let lines = String::from_utf8_lossy(&output.stdout);
    let number = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        event["number"].as_u64().expect("a number")
    };
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    (lines.lines().map(number).collect(), notes)
}

#[test]
fn events_that_a_cut_off_follower_missed_are_counted_in_a_note() {
    let (numbers, notes) = printed([(7, &[1, 2, 3]), (7, &[3, 6, 7])]);
    assert_eq!(numbers, [1, 2, 3, 6, 7]);
    assert!(notes.contains("2 events are missing"), "{notes}");
}

#[test]
fn a_follower_that_missed_no_event_says_nothing() {
    let (numbers, notes) = printed([(7, &[4, 5]), (7, &[4, 5, 6])]);
    assert_eq!((numbers, notes.as_str()), (vec![4, 5, 6], ""));
}
