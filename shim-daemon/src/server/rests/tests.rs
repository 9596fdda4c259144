use std::io::Write as _;
use std::os::unix::net::UnixStream;

use gpushare_core::TenantId;
use gpushare_protocol::wire::{Control, Hello, encode};

use super::*;
use crate::node::{ConnId, Settings};
use crate::server::TICK;
use crate::server::session::Role;
use crate::server::still::server;

/// A server at which so many connections rest.
fn crowded(size: usize) -> (tempfile::TempDir, Server, Vec<UnixStream>) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let crowd = crowd(&mut server, size);
    (folder, server, crowd)
}

/// So many connections that rest, each with a greeting in store.
fn crowd(server: &mut Server, size: usize) -> Vec<UnixStream> {
    let mut hello = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut hello).unwrap();
    let comes = |_| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&hello).unwrap();
        server.came(clock::now(), theirs, Role::Client(TenantId(1)));
        server.rest(server.next, Nanos::ZERO);
        ours
    };
    (0..size).map(comes).collect()
}

/// When the first and the last session were served.
fn served(server: &Server) -> (Nanos, Nanos) {
    let served = server.sessions.values().map(|session| session.served);
    (served.clone().min().unwrap(), served.max().unwrap())
}

#[test]
fn the_daemons_second_comes_before_the_last_of_a_crowd_is_served() {
    let (_folder, mut server, _crowd) = crowded(200);
    server.next_tick = Nanos(1);
    server.end_rests().unwrap();
    let (first, last) = served(&server);
    let came = server.next_tick - TICK;
    assert!(first <= came && came < last, "{first:?} {came:?} {last:?}");
    // One that has not passed does not.
    let later = clock::now() + Nanos::secs(1000);
    server.next_tick = later;
    let ids: Vec<u64> = server.sessions.keys().copied().collect();
    ids.into_iter().for_each(|id| server.rest(id, Nanos::ZERO));
    server.end_rests().unwrap();
    assert_eq!(server.next_tick, later);
}

#[test]
fn the_poller_comes_between_parts_of_a_crowd_and_all_have_their_turn() {
    let (_folder, mut server, _crowd) = crowded(300);
    let all: Vec<u64> = server.sessions.keys().copied().collect();
    server.end_rests().unwrap();
    let left: Vec<u64> = server.resting.all().keys().copied().collect();
    assert_eq!(left, all[AT_A_TIME..]);
    // Those that were served ask on.
    let again = &all[..AT_A_TIME];
    again.iter().for_each(|id| server.rest(*id, Nanos::ZERO));
    server.end_rests().unwrap();
    let left: Vec<u64> = server.resting.all().keys().copied().collect();
    assert_eq!(left, again[AT_A_TIME - left.len()..]);
    assert_eq!(left.len(), all.len() - AT_A_TIME);
}

#[test]
fn what_is_due_to_the_node_does_not_wait_for_a_crowd() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    server.next_tick = clock::now() + Nanos::secs(1000);
    let _crowd = crowd(&mut server, 2);
    let before = server.node.next_timeout();
    server.end_rests().unwrap();
    assert_eq!(server.node.next_timeout(), before, "nothing is due");
    // The end of a run limit, as the end of a turn is.
    let create = Control::Create {
        name: None,
        environment: vec![("GPUSHARE_RUN_LIMIT".to_owned(), "1ms".to_owned())],
        devices: vec![],
    };
    let command = ConnId(u64::MAX);
    server.node.command(clock::now(), command, 1, &create);
    server.carry_out();
    let due = server.node.next_timeout().expect("it has a limit");
    while clock::now() < due {
        std::thread::yield_now();
    }
    assert_eq!(server.node.next_timeout(), Some(due));
    server.rest(server.next, Nanos::ZERO);
    server.end_rests().unwrap();
    assert_ne!(server.node.next_timeout(), Some(due));
}

#[test]
fn sessions_rest_by_their_times_and_until_the_last_time_given() {
    let mut resting = Resting::default();
    for (id, until) in [(1, 30), (2, 10), (3, 20), (2, 25), (3, 5)] {
        resting.put_off(id, Nanos(until));
    }
    assert_eq!(resting.first(), Some(Nanos(20)));
    let until = |at| resting.until(Nanos(at)).collect::<Vec<_>>();
    assert_eq!(
        [until(19), until(25), until(30)],
        [vec![], vec![3, 2], vec![3, 2, 1]]
    );
    resting.remove(3);
    assert_eq!(resting.first(), Some(Nanos(25)));
    assert!(!resting.contains(3) && resting.contains(2));
}
