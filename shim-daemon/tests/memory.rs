//! The memory that hostile users can make the daemon keep: half-sent messages, unread replies,
//! events for many followers, long limits, many tenants. The daemon is real; its own memory is read
//! from `/proc`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::binary::Binary;
use crate::support::{PATIENCE, Wire};
use gpushare_protocol::wire::*;

/// The limit for all connections together, doubled for the program, its events and the allocator's
/// overhead.
const MOST: u64 = 128 << 20;
/// Events of 4 KiB: not a megabyte.
const EVENTS: u32 = 230;

/// The most memory the daemon ever had of its own, in bytes.
fn peak(daemon: &Binary) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

fn serves(daemon: &Binary) {
    let reply: ControlReply = daemon.command().call(&Listing::Tenants.first());
    assert!(
        matches!(
            reply,
            ControlReply::Page {
                rows: Rows::Tenants(_),
                ..
            }
        ),
        "{reply:?}"
    );
}

fn frame(id: u32, message: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(id, message, &mut bytes).unwrap();
    bytes
}

/// Writes until the daemon takes no more; it may have hung up.
fn pour(stream: &mut UnixStream, bytes: &[u8]) {
    stream.set_nonblocking(true).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return,
        }
    }
}

#[test]
fn messages_that_never_end_take_a_bounded_part_of_memory() {
    let daemon = Binary::start();
    let mut half = frame(0, &Hello::of_this_build(0));
    let announced = u32::try_from(MAX_FRAME).unwrap();
    half.extend_from_slice(&announced.to_le_bytes());
    half.resize(half.len() + MAX_FRAME - 1, 7);
    let mut crowd: Vec<UnixStream> = (0..900)
        .map_while(|_| UnixStream::connect(daemon.control()).ok())
        .collect();
    let connected = crowd.len();
    // The daemon closes connections meanwhile, when they have sent too much together.
    let sent = crowd.iter_mut().filter_map(|stream| {
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&half).ok()
    });
    let sent = sent.count();
    assert!(sent > 450, "{connected} connections, {sent} have sent all");
    drop(crowd);
    serves(&daemon);
    let peak = peak(&daemon);
    println!("{} MiB", peak >> 20);
    assert!(peak < MOST, "{} MiB", peak >> 20);
}

/// A tenant of this name: what keeps it, and its socket.
fn tenant(daemon: &Binary, name: &str) -> (Wire, PathBuf) {
    let mut owner = daemon.command();
    match owner.call(&support::create(name, &[])) {
        ControlReply::Created { folder, .. } => {
            (owner, Path::new(&folder).join(gpushared::server::SOCKET))
        }
        other => panic!("{other:?}"),
    }
}

/// So many connections at a socket, each of which has sent a greeting and so many bytes of a
/// message that never ends, in three writes.
fn halves(socket: &Path, many: usize, bytes: usize) -> Vec<UnixStream> {
    let mut head = frame(0, &Hello::of_this_build(0));
    head.extend_from_slice(&u32::try_from(MAX_FRAME).unwrap().to_le_bytes());
    let part = vec![7; bytes / 3];
    let comes = |_| {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        // The daemon closes connections meanwhile, when they have sent too much together.
        let parts = [&head, &part, &part, &part];
        let sent = parts.iter().all(|part| stream.write_all(part).is_ok());
        Some((stream, sent))
    };
    let crowd: Vec<(UnixStream, bool)> = (0..many).map_while(comes).collect();
    let sent = crowd.iter().filter(|(_, sent)| *sent).count();
    assert!(sent > many / 2, "{sent} of {many} have sent all");
    let mut crowd: Vec<UnixStream> = crowd.into_iter().map(|(stream, _)| stream).collect();
    for stream in &mut crowd {
        // Its greeting, or the end.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = std::io::Read::read(stream, &mut [0; 64]);
    }
    crowd
}

#[test]
fn messages_of_32_kb_that_never_end_take_a_bounded_part_of_memory() {
    let daemon = Binary::start();
    let tenants = ["a", "b", "c", "d", "e", "f"].map(|name| tenant(&daemon, name));
    let crowd = tenants.each_ref();
    let crowd = crowd.map(|(_, socket)| halves(socket, 1000, 32_000));
    serves(&daemon);
    let peak = peak(&daemon);
    println!("{} MiB", peak >> 20);
    drop(crowd);
    assert!(peak < MOST, "{} MiB", peak >> 20);
}

#[test]
fn a_tenants_flood_of_half_messages_cuts_off_no_slow_follower() {
    let daemon = Binary::start();
    tell_much(&mut daemon.command());
    let (_owner, flooded) = tenant(&daemon, "flooded");
    let _crowd = halves(&flooded, 1020, 66_000);
    let mut follower = UnixStream::connect(daemon.control()).unwrap();
    let mut asks = frame(0, &Hello::of_this_build(0));
    asks.extend(frame(1, &Control::Follow { past: EVENTS }));
    pour(&mut follower, &asks);
    // It is told much that it has not read.
    serves(&daemon);
    let _more = halves(&flooded, 10, 66_000);
    serves(&daemon);
    let told = events_of(&mut follower);
    assert!(told >= EVENTS, "{told} of {EVENTS}");
}

/// Limits of the three devices, said as often as one may. Programs may repeat what is equal.
fn at_length(value: &str) -> Vec<(String, String)> {
    let limit = |at| format!("GPUSHARE_MEM_LIMIT_{}", at % 3);
    (0..500).map(|at| (limit(at), value.to_owned())).collect()
}

/// A tenant whose every change makes an event of maximum length. Together they stay below the
/// unread backlog of one connection.
fn tell_much(owner: &mut Wire) {
    let create = Control::Create {
        name: Some("long".to_owned()),
        environment: at_length("1GiB"),
        devices: vec![],
    };
    let reply: ControlReply = owner.call(&create);
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    for at in 0..EVENTS {
        let set = Control::Set {
            tenant: "long".to_owned(),
            changes: at_length(&format!("{}GiB", 2 + at % 2)),
        };
        let done: ControlReply = owner.call(&set);
        assert_eq!(done, ControlReply::Done);
    }
}

#[test]
fn replies_that_nobody_reads_take_a_bounded_part_of_memory() {
    let daemon = Binary::start();
    let mut owner = daemon.command();
    tell_much(&mut owner);
    let mut asks = frame(0, &Hello::of_this_build(0));
    asks.extend(frame(1, &Control::Follow { past: EVENTS }));
    let before = peak(&daemon);
    let mut crowd: Vec<UnixStream> = (0..300)
        .map_while(|_| UnixStream::connect(daemon.control()).ok())
        .collect();
    for stream in &mut crowd {
        pour(stream, &asks);
    }
    serves(&daemon);
    let more = peak(&daemon) - before;
    println!("{} MiB, {} before", more >> 20, before >> 20);
    // Nearly a megabyte is queued for each of them: they share it.
    assert!(more < MOST / 8, "{} MiB more", more >> 20);
    let told = crowd.iter_mut().map(events_of).max();
    let all = told.is_some_and(|told| told >= EVENTS);
    assert!(all, "a follower that reads gets all events: {told:?}");
}

/// How many events there are to be read, until the daemon has hung up or none has come for long.
fn events_of(stream: &mut UnixStream) -> u32 {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut decoder, mut bytes, mut events) = (Decoder::default(), [0; 1 << 16], 0);
    while events < EVENTS {
        match std::io::Read::read(stream, &mut bytes) {
            Ok(read) if read > 0 => decoder.push(&bytes[..read]),
            _ => break,
        }
        while let Some((id, _)) = decoder.next_frame().unwrap() {
            events += u32::from(id == 1);
        }
    }
    events
}

#[test]
fn one_connection_that_follows_ten_thousand_times_is_told_each_event_once() {
    let daemon = Binary::start();
    let mut follower = daemon.command();
    for _ in 0..10_000 {
        follower.ask(&Control::Follow { past: 0 });
    }
    let last = follower.ask(&Listing::Devices.first());
    let devices: ControlReply = follower.answer(last);
    assert!(
        matches!(
            devices,
            ControlReply::Page {
                rows: Rows::Devices(_),
                ..
            }
        ),
        "{devices:?}"
    );
    let mut owner = daemon.command();
    let reply: ControlReply = owner.call(&support::create("one", &[]));
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    // All its events come before the answer to a later request.
    let last = follower.ask(&Listing::Devices.first());
    let answer: ControlReply = follower.answer(last);
    assert!(
        matches!(
            answer,
            ControlReply::Page {
                rows: Rows::Devices(_),
                ..
            }
        ),
        "{answer:?}"
    );
    let told = follower.kept_replies();
    let admitted = told
        .iter()
        .filter(|reply| matches!(reply, ControlReply::Event(event) if event.kind == "admitted"));
    assert_eq!(admitted.count(), 1, "of {} replies", told.len());
}

#[test]
fn limits_of_any_length_are_neither_taken_nor_told_in_full() {
    let daemon = Binary::start();
    let mut owner = daemon.command();
    let device = |at: u32| format!("GPUSHARE_MEM_LIMIT_GPU_{at:08x}_0000_0000_0000_000000000000");
    let many: Vec<(String, String)> = (0..500)
        .map(|at| (device(at), format!("1{}GiB", " ".repeat(80))))
        .collect();
    let create = Control::Create {
        name: Some("long".to_owned()),
        environment: many,
        devices: vec![],
    };
    match owner.call(&create) {
        ControlReply::Error(error) => {
            assert!(error.message.contains("64 KiB"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    let create = |environment| Control::Create {
        name: Some("long".to_owned()),
        environment,
        devices: vec![],
    };
    let unseen = (0..500).map(|at| (device(at), "1GiB".to_owned()));
    match owner.call(&create(unseen.collect())) {
        ControlReply::Error(error) => assert!(error.message.len() <= 1024, "{}", error.message),
        other => panic!("{other:?}"),
    }
    let create = create(at_length("1GiB"));
    let reply: ControlReply = owner.call(&create);
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    let set = |value: &str| Control::Set {
        tenant: "long".to_owned(),
        changes: at_length(value),
    };
    for value in ["2GiB", "3GiB"] {
        let done: ControlReply = owner.call(&set(value));
        assert_eq!(done, ControlReply::Done);
    }
    let mut follower: Wire = daemon.command();
    follower.ask(&Control::Follow { past: 1024 });
    let last = follower.ask(&Listing::Devices.first());
    let _: ControlReply = follower.answer(last);
    let told = follower.kept_replies();
    let texts = told.iter().filter_map(|reply| match reply {
        ControlReply::Event(event) => Some((event.kind.as_str(), event.text.len())),
        _ => None,
    });
    let sets: Vec<_> = texts.filter(|(kind, _)| *kind == "set").collect();
    assert_eq!(sets.len(), 2, "{told:?}");
    assert!(sets.iter().all(|(_, length)| *length <= 4096), "{sets:?}");
}
