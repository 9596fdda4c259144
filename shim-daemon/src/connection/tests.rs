use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use gpushare_protocol::wire::{Reply, decode};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn pair() -> (Connection, Connection) {
    let (a, b) = UnixStream::pair().unwrap();
    (Connection::alone(a).unwrap(), Connection::alone(b).unwrap())
}

fn drain(connection: &mut Connection) -> Vec<(u32, Reply)> {
    connection.receive(usize::MAX).unwrap();
    std::iter::from_fn(|| connection.next_frame().unwrap())
        .map(|(id, body)| (id, decode(id, &body).unwrap()))
        .collect()
}

#[test]
fn frames_and_descriptors_arrive_together() {
    let (mut ours, mut theirs) = pair();
    ours.send(1, &Reply::Done, vec![]).unwrap();
    ours.send(2, &Reply::Granted { grant: 7 }, vec![file().into()])
        .unwrap();
    let seen = drain(&mut theirs);
    assert_eq!(seen, [(1, Reply::Done), (2, Reply::Granted { grant: 7 })]);
    assert!(theirs.take_descriptor().is_some());
    assert!(theirs.take_descriptor().is_none());
}

#[test]
fn a_reader_that_never_reads_is_cut_off_and_the_sender_is_not_blocked() {
    let (mut ours, _theirs) = pair();
    let end = (0..).find_map(|id| ours.send(id, &Reply::Done, vec![]).err());
    assert!(matches!(end, Some(Closed::SlowReader)), "{end:?}");
}

#[test]
fn an_end_within_a_frame_is_told_from_an_end_between_two() {
    let of = |sent: &[u8], frames: usize| {
        let (mut ours, theirs) = pair();
        let mut socket = theirs.socket.as_ref();
        io::Write::write_all(&mut socket, sent).unwrap();
        drop(theirs);
        let end = ours.receive(usize::MAX).unwrap_err();
        for _ in 0..frames {
            assert!(ours.next_frame().unwrap().is_some());
        }
        assert!(ours.next_frame().unwrap().is_none());
        ours.ended(end)
    };
    let mut whole = Vec::new();
    encode(1, &Reply::Done, &mut whole).unwrap();
    assert!(matches!(of(&[], 0), Closed::Ended));
    assert!(matches!(of(&whole, 1), Closed::Ended));
    let part = [9, 0, 0, 0, 1];
    assert!(matches!(of(&part, 0), Closed::Truncated));
    assert!(matches!(
        of(&[&whole, &part[..]].concat(), 1),
        Closed::Truncated
    ));
}

fn file() -> OwnedFd {
    tempfile::tempfile().unwrap().into()
}

#[test]
fn a_burst_of_messages_with_descriptors_is_read_message_by_message() {
    let (mut ours, mut theirs) = pair();
    // Of every second message none, of the others one or two.
    let of = |id: u32| id % 2 * (1 + id / 2 % 2);
    for id in 2..=201 {
        let files = (0..of(id)).map(|_| file().into()).collect();
        ours.send(id, &Reply::Done, files).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 200 {
        theirs.receive(usize::MAX).unwrap();
        while let Some((id, _)) = theirs.next_frame().unwrap() {
            for _ in 0..of(id) {
                assert!(theirs.take_descriptor().is_some(), "of message {id}");
            }
            seen.push(id);
        }
        assert!(theirs.descriptors.is_empty(), "read ahead of its message");
    }
    assert!(seen.into_iter().eq(2..=201));
}

#[test]
fn descriptors_of_one_message_beyond_the_most_end_the_connection() {
    for (many, is_cut_off) in [(MAX_DESCRIPTORS, false), (MAX_DESCRIPTORS + 1, true)] {
        let (mut ours, mut theirs) = pair();
        let files = (0..many).map(|_| file().into()).collect();
        ours.send(1, &Reply::Done, files).unwrap();
        let end = theirs.receive(usize::MAX).err();
        assert_eq!(matches!(end, Some(Closed::Descriptors)), is_cut_off);
    }
}

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_of_a_message_that_not_all_have_a_place_are_closed() {
    let own = std::env::current_exe().unwrap();
    let child = Command::new(own)
        .args(["--ignored", "--exact"])
        .arg("connection::tests::a_process_with_two_descriptors_left")
        .env(CHILD, "")
        .output();
    let child = child.unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Set for a child.
const CHILD: &str = "GPUTEST_CONNECTION_CHILD";

#[test]
#[ignore = "the process another test starts: its limit holds for a whole process"]
fn a_process_with_two_descriptors_left() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let before = open();
    let (mut ours, mut theirs) = pair();
    let files = (0..MAX_DESCRIPTORS).map(|_| file().into()).collect();
    ours.send(1, &Reply::Done, files).unwrap();
    // The kernel gives the lowest free numbers.
    let [_, next] = [file(), file()].map(|file| file.as_raw_fd());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let most = u64::try_from(next).unwrap() + 1;
    setrlimit(Resource::RLIMIT_NOFILE, most, hard).unwrap();
    let end = theirs.receive(usize::MAX).err();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert!(matches!(end, Some(Closed::Io(_))), "{end:?}");
    drop((ours, theirs));
    // A lane closes them.
    let until = Instant::now() + Duration::from_secs(10);
    while open() > before {
        assert!(Instant::now() < until, "{} more than {before}", open());
        std::thread::yield_now();
    }
}

#[test]
fn a_flood_of_descriptors_ends_the_connection() {
    let (mut ours, mut theirs) = pair();
    let end = (0..=MAX_DESCRIPTORS).find_map(|_| {
        ours.send(1, &Reply::Done, vec![file().into()]).unwrap();
        theirs.receive(usize::MAX).err()
    });
    assert!(matches!(end, Some(Closed::Descriptors)), "{end:?}");
}
