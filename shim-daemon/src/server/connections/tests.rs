use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::path::Path;

use gpushare_protocol::wire::{Control, Hello, MAX_FRAME, Register, Request, encode};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::*;
use crate::node::Settings;
use crate::peer::Maker;
use crate::server::CONTROL;
use crate::server::still::{followed, joins, machines, made, server, tenant};

const ROLE: Role = Role::Client(TenantId(1));

/// Until when the next connection waits after many that made so many requests without a
/// registration, and said at once that nothing more comes.
fn next_waits(requests: u32) -> Option<Nanos> {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let mut words = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut words).unwrap();
    for id in 0..requests {
        encode(id + 1, &Request::Freed { device_index: 0 }, &mut words).unwrap();
    }
    let mut payer = None;
    for _ in 0..200 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        payer = Caller::of(&theirs, ROLE, &server.node).unwrap().payer();
        ours.write_all(&words).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        server.came(clock::now(), theirs, ROLE);
        server.talk(server.next);
        assert!(server.sessions.is_empty(), "it is over");
    }
    server.connects.count(clock::now(), payer.unwrap())
}

#[test]
fn requests_of_a_connection_that_hangs_up_at_once_cost_the_next_one() {
    // 1,024 connections and requests are saved up. As many requests as are served at a time
    // would not be over with the first look at the connection.
    assert!(next_waits(30).is_some());
    assert_eq!(next_waits(0), None);
}

/// Until when something waits; `None`: for nothing.
#[derive(Debug)]
struct Owed {
    /// The next connection.
    connects: Option<Nanos>,
    /// The next request over a former connection.
    asks: Option<Nanos>,
    /// The first and the last of the former connections.
    rests: [Option<Nanos>; 2],
}

/// What the server owes its payer after this process has registered over so many connections,
/// one after the other, and has then asked so often over each. From the start on.
fn after(connections: usize, requests: u32) -> Owed {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let tenant = tenant(&mut server);
    let mut crowd: Vec<(u64, UnixStream)> = (0..connections)
        .map(|_| {
            let ours = joins(&mut server, tenant, &[]);
            (server.next, ours)
        })
        .collect();
    let mut words = Vec::new();
    for id in 0..requests {
        encode(id + 2, &Request::Freed { device_index: 0 }, &mut words).unwrap();
    }
    let began = clock::now();
    for (id, ours) in &mut crowd {
        ours.write_all(&words).unwrap();
        server.talk(*id);
        server.carry_out();
    }
    let [first, .., last] = &crowd[..] else {
        panic!("some")
    };
    // The last one is registered.
    let former = last.0 - 1;
    let rests = [first.0, former].map(|id| server.resting.all().get(&id).copied());
    let since = |at: Option<Nanos>| at.map(|at| at - began);
    let payer = Payer::Tenant(tenant);
    Owed {
        connects: since(server.connects.count(began, payer)),
        asks: since(server.formers.count(began, payer, 0)),
        rests: rests.map(since),
    }
}

#[test]
fn former_connections_of_a_process_send_together_what_one_may() {
    // 9,600 requests, of which 256 are saved up: 100 us each.
    let owed = after(301, 32);
    assert!(owed.asks > Some(Nanos::millis(900)), "{owed:?}");
    assert_eq!(owed.connects, None, "new connections do not pay for it");
}

#[test]
fn a_few_requests_over_former_connections_wait_for_nothing() {
    let owed = after(4, 31);
    assert_eq!((owed.connects, owed.rests), (None, [None, None]));
}

#[test]
fn a_flood_over_former_connections_leaves_the_registered_one_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let tenant = tenant(&mut server);
    let _former = joins(&mut server, tenant, &[]);
    let freed = vec![Request::Freed { device_index: 0 }; 30];
    let _ours = joins(&mut server, tenant, &freed);
    let began = clock::now();
    let payer = Payer::Tenant(tenant);
    assert!(server.formers.count(began, payer, 10_000).is_some());
    server.rest(server.next, Nanos::ZERO);
    server.end_rests().unwrap();
    assert!(!server.resting.contains(server.next));
}

#[test]
fn former_connections_at_all_tenants_of_a_user_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let (command, user) = (ConnId(7), nix::unistd::geteuid().as_raw());
    let machines = tenant(&mut server);
    server.node.command_came(command, "", Some(user));
    for (name, id) in [("a", TenantId(2)), ("b", TenantId(3))] {
        made(&mut server, command, name);
        assert_eq!(server.node.owner(id), Some(user), "{name}");
        let payer = server.payer_of_former(Payer::Tenant(id));
        assert_eq!(payer, Payer::Owner(user));
    }
    for other in [Payer::Tenant(machines), Payer::Container(2)] {
        assert_eq!(server.payer_of_former(other), other);
    }
}

/// Until when the next connection waits after 200 that asked so often to be registered, each
/// time before processes of the previous daemon are counted.
fn waits_after_tries(tries: usize) -> Option<Nanos> {
    let folder = tempfile::tempdir().unwrap();
    let mut server = followed(folder.path());
    let tenant = TenantId(1);
    let again = Request::Register(Register {
        pid: std::process::id(),
        presents_page: false,
        slot: None,
    });
    let again = vec![again; tries - 1];
    let began = clock::now();
    let crowd: Vec<_> = (0..200)
        .map(|_| joins(&mut server, tenant, &again))
        .collect();
    let silent = server.sessions.values().filter(|one| one.is_silent());
    assert_eq!(silent.count(), crowd.len(), "none is registered");
    server.connects.count(began, Payer::Tenant(tenant))
}

#[test]
fn a_connection_that_asks_again_and_again_to_be_registered_pays_for_it() {
    assert!(waits_after_tries(30).is_some());
    assert_eq!(waits_after_tries(1), None);
}

/// Until when the next connection waits after 200 whose makers have gone, and over each of which
/// another process asked so often to be registered.
fn waits_for_the_gone(tries: u32) -> Option<Nanos> {
    let folder = tempfile::tempdir().unwrap();
    let mut server = machines(folder.path());
    server.doors.maker = |_| Ok(Maker::Gone);
    let tenant = tenant(&mut server);
    let again = Request::Register(Register {
        pid: std::process::id(),
        presents_page: false,
        slot: None,
    });
    let again = vec![again; tries as usize - 1];
    let began = clock::now();
    let crowd: Vec<_> = (0..200)
        .map(|_| joins(&mut server, tenant, &again))
        .collect();
    assert_eq!(server.sessions.len(), crowd.len());
    server.connects.count(began, Payer::Tenant(tenant))
}

#[test]
fn registrations_over_a_connection_whose_maker_has_gone_are_paid_for() {
    assert!(waits_for_the_gone(30).is_some());
    assert_eq!(waits_for_the_gone(1), None);
}

#[test]
fn a_page_is_closed_where_the_process_that_sent_it_cannot_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = machines(folder.path());
    server.doors.maker = |_| Ok(Maker::Gone);
    let tenant = tenant(&mut server);
    let ours = joins(&mut server, tenant, &[]);
    let mut words = Vec::new();
    let register = Request::Register(Register {
        pid: std::process::id(),
        presents_page: true,
        slot: Some(0),
    });
    encode(2, &register, &mut words).unwrap();
    for _ in 0..10 {
        let null = File::open("/dev/null").unwrap();
        let rights = [null.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&rights)];
        let text = [IoSlice::new(&words)];
        sendmsg::<()>(ours.as_raw_fd(), &text, &rights, MsgFlags::empty(), None).unwrap();
        server.talk(server.next);
        server.carry_out();
    }
    assert_eq!(server.sessions.len(), 1, "it is not cut off");
}

/// A server, and a connection that came to it, whose maker is taken so.
fn reached(take: fn(BorrowedFd<'_>) -> io::Result<Maker>) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    server.doors.maker = take;
    let (_ours, theirs) = UnixStream::pair().unwrap();
    server.came(clock::now(), theirs, Role::Command);
    (folder, server)
}

#[test]
fn a_connection_keeps_the_maker_that_it_had_when_it_was_accepted() {
    // As before Linux 6.5.
    let (_folder, server) =
        reached(|socket| Maker::by(Path::new("/proc"), socket, Err(Errno::ENOPROTOOPT.into())));
    let session = &server.sessions[&server.next];
    assert!(matches!(session.maker, Maker::Kept(_)), "{session:?}");
}

/// Whether the server hears of a connection to its control socket.
fn is_open(folder: &Path, server: &mut Server) -> bool {
    let _knocks = UnixStream::connect(folder.join(CONTROL)).unwrap();
    let heard = server.poller.wait(Nanos::ZERO, Nanos::ZERO).unwrap();
    heard.iter().any(|heard| matches!(heard, Source::Control))
}

#[test]
fn new_connections_wait_once_no_descriptor_is_left_for_a_maker() {
    let (folder, mut server) = reached(|_| Err(Errno::EMFILE.into()));
    assert!(!is_open(folder.path(), &mut server));
    let lane = server.node.lanes().own();
    let tended = server.doors.tend(&server.folder, &server.poller, &lane);
    assert!(!tended.unwrap(), "the folder is as it was");
    assert!(is_open(folder.path(), &mut server));
}

#[test]
fn new_connections_are_heard_of_after_one_whose_maker_is_not_known() {
    let (folder, mut server) = reached(|_| Err(io::ErrorKind::Other.into()));
    assert!(server.sessions.is_empty());
    assert!(is_open(folder.path(), &mut server));
}

/// The head of a message as long as may be, without a byte of its body.
fn announced() -> Vec<u8> {
    let length = u32::try_from(MAX_FRAME).unwrap();
    [length.to_le_bytes(), [0; 4]].concat()
}

/// This connection is served after each of so many pieces of one message, each of so many bytes.
fn brings(server: &mut Server, (id, ours): (u64, &mut UnixStream), pieces: usize, bytes: usize) {
    ours.write_all(&announced()).unwrap();
    for _ in 0..pieces {
        ours.write_all(&vec![7; bytes]).unwrap();
        server.talk(id);
    }
}

#[test]
fn a_message_that_comes_byte_by_byte_costs_a_request_for_each_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let tenant = tenant(&mut server);
    let mut ours = joins(&mut server, tenant, &[]);
    let id = server.next;
    let began = clock::now();
    brings(&mut server, (id, &mut ours), 3000, 1);
    let rests = server.resting.all().get(&id).copied();
    let owed = rests.map(|until| until - began);
    assert!(owed > Some(Nanos::millis(200)), "{owed:?}");
}

#[test]
fn a_long_message_in_large_pieces_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let tenant = tenant(&mut server);
    let mut ours = joins(&mut server, tenant, &[]);
    let id = server.next;
    brings(&mut server, (id, &mut ours), 15, 16 << 10);
    // Nothing has come since.
    (0..1000).for_each(|_| server.talk(id));
    assert!(!server.resting.contains(id));
}

#[test]
fn parts_of_messages_before_a_registration_cost_as_much_as_connections() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let payer = Caller::of(&theirs, ROLE, &server.node).unwrap().payer();
    server.came(clock::now(), theirs, ROLE);
    let id = server.next;
    let began = clock::now();
    brings(&mut server, (id, &mut ours), 1200, 1);
    let owed = server.connects.count(began, payer.unwrap());
    assert!(owed > Some(began + Nanos::millis(500)), "{owed:?}");
}

#[test]
fn parts_of_messages_over_former_connections_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let tenant = tenant(&mut server);
    let mut former = joins(&mut server, tenant, &[]);
    let id = server.next;
    let _ours = joins(&mut server, tenant, &[]);
    let began = clock::now();
    brings(&mut server, (id, &mut former), 3000, 1);
    let owed = server.formers.count(began, Payer::Tenant(tenant), 0);
    assert!(owed > Some(began + Nanos::millis(200)), "{owed:?}");
}

/// A server at which this process has registered over so many connections at two tenants of one
/// user, which may have so many.
fn crowd_of_a_user(
    most: usize,
    connections: usize,
) -> (tempfile::TempDir, Server, Vec<UnixStream>) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    server.users_crowd.set_most(most);
    let (command, user) = (ConnId(u64::MAX), nix::unistd::geteuid().as_raw());
    server.node.command_came(command, "", Some(user));
    let tenants = [("a", TenantId(1)), ("b", TenantId(2))];
    for (name, id) in tenants {
        made(&mut server, command, name);
        assert_eq!(server.node.owner(id), Some(user), "{name}");
    }
    let crowd = (0..connections).map(|at| joins(&mut server, tenants[at % 2].1, &[]));
    let crowd = crowd.collect();
    (folder, server, crowd)
}

#[test]
fn former_connections_at_all_tenants_of_a_user_make_room_for_its_next() {
    let (_folder, server, _crowd) = crowd_of_a_user(10, 40);
    assert!(server.sessions.len() <= 10, "{}", server.sessions.len());
    let last = &server.sessions[&server.next];
    assert!(!last.is_silent(), "the last one is registered");
}

#[test]
fn a_user_below_its_bound_keeps_its_former_connections() {
    let (_folder, server, _crowd) = crowd_of_a_user(50, 40);
    assert_eq!(server.sessions.len(), 40);
}

#[test]
fn a_user_without_former_connections_gets_no_more_than_its_bound() {
    let (_folder, mut server, mut crowd) = crowd_of_a_user(3, 1);
    for _ in 0..5 {
        // None of them registers.
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.came(clock::now(), theirs, Role::Client(TenantId(2)));
        crowd.push(ours);
    }
    assert_eq!(server.sessions.len(), 3);
    let (_ours, theirs) = UnixStream::pair().unwrap();
    server.came(clock::now(), theirs, Role::Command);
    assert_eq!(server.sessions.len(), 4, "root's commands are served");
}

/// This user's command connects and greets. Its number, if it was taken, and its end.
fn greets(server: &mut Server, user: u32) -> Option<(u64, UnixStream)> {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut words = Vec::new();
    encode(0, &Hello::of_this_build(0), &mut words).unwrap();
    ours.write_all(&words).unwrap();
    let maker = (server.doors.maker)(theirs.as_fd()).unwrap();
    let caller = Caller::commands(user);
    let lane = server.node.lanes().lane(caller.owner());
    let socket = Accepted::new(theirs, &lane).unwrap();
    let now = clock::now();
    let session = Session::new(socket, (caller, maker), now);
    let id = server.take(session).unwrap()?;
    let session = server.sessions.get_mut(&id).unwrap();
    let place = (&server.folder, None);
    let greeted = session.exchange(now, ConnId(id), &mut server.node, place);
    assert!(greeted.is_ok() && !session.is_silent(), "{greeted:?}");
    Some((id, ours))
}

#[test]
fn a_connection_that_says_nothing_is_closed_after_five_seconds() {
    let since = Nanos::secs(1000);
    let (at_last, late) = (Nanos::secs(5), Nanos::secs(6));
    // A throttled one may have sent its greeting unread.
    for (waited, rests, is_closed) in [
        (at_last, false, false),
        (late, false, true),
        (late, true, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let _commands = greets(&mut server, 1000);
        let (_ours, theirs) = UnixStream::pair().unwrap();
        server.came(since, theirs, ROLE);
        if rests {
            server.rest(server.next, Nanos::MAX);
        }
        server.close_silent(since + waited);
        let left = if is_closed { 1 } else { 2 };
        assert_eq!(server.sessions.len(), left, "{waited:?} {rests}");
    }
}

#[test]
fn each_tick_closes_connections_that_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let (_ours, theirs) = UnixStream::pair().unwrap();
    // Since the machine's start.
    server.came(Nanos::ZERO, theirs, ROLE);
    server.pass_time().unwrap();
    assert!(server.sessions.is_empty());
}

#[test]
fn idle_commands_of_two_users_make_room_for_the_next_and_needed_ones_stay() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut server = server(folder.path(), Settings::default());
    let mut keepers = vec![];
    for (user, name) in [(1000, "one"), (1001, "two")] {
        let first = greets(&mut server, user).unwrap();
        made(&mut server, ConnId(first.0), name);
        keepers.push(first);
        let second = greets(&mut server, user).unwrap();
        let follow = Control::Follow { past: 0 };
        let follower = ConnId(second.0);
        server.node.command(clock::now(), follower, 1, &follow);
        server.carry_out();
        keepers.push(second);
        while greets(&mut server, user).is_some() {}
    }
    assert_eq!(server.sessions.len(), 1024);
    let third = (0..600).map_while(|_| greets(&mut server, 1002));
    let third: Vec<u64> = third.map(|(id, _)| id).collect();
    assert!(third.len() > 300, "{}", third.len());
    assert_eq!(server.sessions.len(), 1024);
    for (id, _) in &keepers {
        assert!(server.sessions.contains_key(id), "{id} is needed");
    }
}
