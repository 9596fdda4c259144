//! What processes say of their host memory takes the node's budget only as far as a previous daemon
//! could have given it.

use super::*;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{IoSlice, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

const OFF: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "off");

/// The host memory that is given, in MiB.
fn given(daemon: &Daemon) -> u64 {
    room(daemon).host_used / MIB
}

fn room(daemon: &Daemon) -> SwapRoom {
    let page = daemon.command().call(&Control::Page {
        of: Listing::Swaps,
        from: Cursor::default(),
    });
    let ControlReply::Page {
        rows: Rows::Swaps(rows),
        ..
    } = page
    else {
        panic!("{page:?}")
    };
    match &rows[0] {
        SwapRow::Room(room) => *room,
        other => panic!("{other:?}"),
    }
}

/// A process says that it has so much host memory, and has been heard.
pub(super) fn claims(client: &mut Client, host: u64) {
    let state = Request::Residency(Residency {
        device_index: 0,
        epoch: 0,
        place: Place::In,
        movable: 0,
        away: 0,
        host,
        residue: Residue::default(),
    });
    client.wire.ask(&state);
    client.free(0);
}

/// A process presents a file.
pub(super) fn presents(client: &Client, request: &Request, file: BorrowedFd<'_>) {
    let mut frame = Vec::new();
    encode(1000, request, &mut frame).unwrap();
    sendmsg::<()>(
        client.wire.socket.as_raw_fd(),
        &[IoSlice::new(&frame)],
        &[ControlMessage::ScmRights(&[file.as_raw_fd()])],
        MsgFlags::empty(),
        None,
    )
    .unwrap();
}

/// Asks for 2 MiB of host memory.
fn asks(client: &mut Client) -> Reply {
    client.wire.call(&Request::HostRange {
        device_index: 0,
        bytes: 2 * MIB,
    })
}

#[test]
fn a_process_of_this_daemon_has_no_host_memory_but_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (_off, socket) = daemon.tenant("stays", &[LIMITS[0], OFF]);
    let mut stays = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(stays.open(), Reply::Granted { .. }));
    let (mut liar, _liars) = mover(&daemon, "liar", Hello::MOVABLE);
    let (mut one, _ones) = mover(&daemon, "one", Hello::MOVABLE);
    for client in [&mut stays, &mut liar.client] {
        claims(client, u64::MAX);
        assert_eq!(given(&daemon), 0);
    }
    let reply = asks(&mut one.client);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    assert_eq!(given(&daemon), 2);
}

/// The memory that a file takes, in MiB.
fn allocated(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512 / MIB
}

/// The daemon hears both before it begins to allocate.
#[test]
fn a_range_that_is_dropped_before_it_is_given_takes_no_host_memory() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 4);
    let (mut one, _commands) = mover(&daemon, "one", Hello::MOVABLE);
    let Reply::HostRange { offset, .. } = asks(&mut one.client) else {
        panic!("there is room");
    };
    let file = File::from(one.client.wire.descriptors.pop().unwrap());
    assert_eq!((given(&daemon), allocated(&file)), (2, 2));
    // The lowest free place is taken: the second of 64 MiB.
    let bytes = 64 * MIB;
    let range = Request::HostRange {
        device_index: 0,
        bytes,
    };
    let offset = offset + bytes;
    let mut frames = Vec::new();
    encode(2000, &range, &mut frames).unwrap();
    encode(2001, &Request::HostDrop { offset, bytes }, &mut frames).unwrap();
    one.client.wire.socket.write_all(&frames).unwrap();
    let reply: Reply = one.client.wire.answer(2000);
    assert_eq!(reply, Reply::Refused(Refusal::NoMemory));
    assert_eq!(given(&daemon), 2);
    until("its memory goes back", || allocated(&file) == 2);
    // One that is dropped once it is there was there.
    let reply: Reply = one.client.wire.call(&range);
    let Reply::HostRange { offset, bytes } = reply else {
        panic!("{reply:?}");
    };
    let all = 2 + bytes / MIB;
    assert_eq!((given(&daemon), allocated(&file)), (all, all));
    assert!(all > 2);
    one.client.wire.ask(&Request::HostDrop { offset, bytes });
    until("its memory goes back", || allocated(&file) == 2);
    assert_eq!(given(&daemon), 2);
}

#[test]
fn a_tenant_whose_memory_stays_is_given_no_host_memory() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (_off, socket) = daemon.tenant("stays", &[LIMITS[0], OFF]);
    let mut stays = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(stays.open(), Reply::Granted { .. }));
    stays.grow(0, 2 * GIB);
    assert_eq!(asks(&mut stays), Reply::Refused(Refusal::NoMemory));
}

/// A tenant with a limit of 256 MiB, and with 64 MiB of host memory, outlives its daemon.
fn outlives(folder: &Path) -> (Daemon, Client) {
    outlives_with(|| daemon(folder, 4))
}

fn outlives_with(daemon: impl Fn() -> Daemon) -> (Daemon, Client) {
    let first = daemon();
    let limits = [("GPUSHARE_MEM_LIMIT", "256MiB"), LIMITS[1]];
    let (_command, socket) = first.tenant("one", &limits);
    let mut one = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(one.open(), Reply::Granted { .. }));
    one.grow(0, 256 * MIB);
    one.charge(256 * MIB);
    let range = Request::HostRange {
        device_index: 0,
        bytes: 64 * MIB,
    };
    let reply: Reply = one.wire.call(&range);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    let file = one.wire.descriptors.pop().unwrap();
    drop(first);
    let next = daemon();
    let reply = one.reconnect_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    one.wire.descriptors.push(file);
    (next, one)
}

#[test]
fn after_a_restart_a_process_is_believed_what_its_limit_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = outlives(folder.path());
    for (said, counted) in [(64 * MIB, 64), (u64::MAX, 256 + 64 + 64), (0, 0)] {
        claims(&mut client, said);
        assert_eq!(given(&daemon), counted, "{said} said");
    }
}

#[test]
fn after_a_restart_a_presented_memory_file_shows_what_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = outlives(folder.path());
    claims(&mut client, u64::MAX);
    let file = client.wire.descriptors.pop().unwrap();
    presents(&client, &Request::HostMemory, file.as_fd());
    claims(&mut client, u64::MAX);
    assert_eq!(given(&daemon), 64);
    let client = RefCell::new(client);
    until("no more is given once all had time to come", || {
        matches!(asks(&mut client.borrow_mut()), Reply::HostRange { .. })
    });
    claims(&mut client.borrow_mut(), u64::MAX);
    assert_eq!(given(&daemon), 64 + 2);
}

/// Host memory is given as the budget allows, whichever process of the previous daemon comes first.
#[test]
fn after_a_restart_the_first_to_come_is_not_given_what_others_have() {
    let folder = tempfile::tempdir().unwrap();
    let first = daemon(folder.path(), 1);
    let capabilities = Hello::GATED | Hello::MOVABLE;
    let comes = |name: &str| {
        let (command, socket) = first.tenant(name, &LIMITS);
        let mut client = Client::register_with(&socket, capabilities);
        assert!(matches!(client.open(), Reply::Granted { .. }));
        (client, socket, command)
    };
    let (mut early, early_socket, _early) = comes("early");
    let (mut late, late_socket, _late) = comes("late");
    early.grow(0, 128 * MIB);
    early.charge(128 * MIB);
    late.grow(0, 896 * MIB);
    late.charge(896 * MIB);
    let range = |bytes| Request::HostRange {
        device_index: 0,
        bytes,
    };
    let mut file = None;
    for _ in 0..14 {
        let reply: Reply = late.wire.call(&range(64 * MIB));
        assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
        file = late.wire.descriptors.pop();
    }
    assert_eq!(given(&first), 896);
    drop(first);
    let next = daemon(folder.path(), 1);
    let reply = early.reconnect_with(&early_socket, capabilities);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    claims(&mut early, 0);
    let reply: Reply = early.wire.call(&range(64 * MIB));
    assert_eq!(reply, Reply::Refused(Refusal::NoMemory));
    let reply = late.reconnect_with(&late_socket, capabilities);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    presents(&late, &Request::HostMemory, file.unwrap().as_fd());
    claims(&mut late, 896 * MIB);
    let (early, all) = (RefCell::new(early), Cell::new(0));
    let is_given = || {
        let reply: Reply = early.borrow_mut().wire.call(&range(64 * MIB));
        match reply {
            Reply::HostRange { bytes, .. } => all.set(all.get() + bytes),
            Reply::Refused(Refusal::NoMemory) => return false,
            other => panic!("{other:?}"),
        }
        true
    };
    until("nothing is given once all had time to come", is_given);
    while is_given() {}
    assert_eq!((all.get(), given(&next)), (128 * MIB, 1024));
}

#[test]
fn a_process_is_heard_once_that_it_could_not_share_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (mut one, _command) = mover(&daemon, "one", Hello::MOVABLE);
    let (mut other, _command) = mover(&daemon, "other", Hello::MOVABLE);
    one.says(&Request::Unshared { device_index: 7 });
    for _ in 0..100 {
        one.says(&Request::Unshared { device_index: 0 });
    }
    other.says(&Request::Unshared { device_index: 0 });
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 1000 });
    let mut told = Vec::new();
    // The messages of one come in order, those of the two do not.
    while told.len() < 2 {
        match wire.answer(id) {
            ControlReply::Event(record) if record.kind == "unshared" => {
                told.push((record.tenant.clone().unwrap(), record.number_of("pid")));
            }
            ControlReply::Event(_) => (),
            reply => panic!("{reply:?}"),
        }
    }
    told.sort_unstable();
    let pid = |gated: &Gated| u64::from(gated.client.process.pid());
    let wanted = [("one", &one), ("other", &other)];
    assert_eq!(
        told,
        wanted.map(|(name, gated)| (name.to_owned(), Some(pid(gated))))
    );
}

/// A daemon that stores in files of a folder.
pub(super) fn spilling(folder: &Path) -> Daemon {
    daemon_set(folder, 4, |settings| {
        settings.spill = Some(folder.join("spill"));
        settings.policy.swap.spill = Bytes::gib(8);
    })
}

/// A file of 1 GiB without a name, as the daemon makes them.
fn unnamed(folder: &Path) -> File {
    let file = tempfile::tempfile_in(folder.join("spill")).unwrap();
    let all = i64::try_from(GIB).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, all).unwrap();
    file
}

/// How often this process, which the daemon is in, has a file open.
fn open(file: &File) -> usize {
    let wanted = file.metadata().unwrap().ino();
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let all = all.filter_map(|entry| fs::metadata(entry.path()).ok());
    all.filter(|found| found.ino() == wanted).count()
}

/// Waits until the daemon has so many, beside the test's own.
fn are_open(file: &File, many: usize) {
    until(&format!("it has not {many} files"), || {
        open(file) == many + 1
    });
}

fn presents_many(client: &mut Client, file: &File, many: u64) {
    for number in 0..many {
        presents(client, &Request::HostFile { file: number }, file.as_fd());
        // One after the other, each heard.
        client.free(0);
    }
}

#[test]
fn a_process_of_this_daemon_presents_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = spilling(folder.path());
    let (mut liar, _liars) = mover(&daemon, "liar", Hello::MOVABLE);
    let file = unnamed(folder.path());
    presents_many(&mut liar.client, &file, 3);
    until("its files are open still", || open(&file) == 1);
    assert_eq!(room(&daemon).files_used, 0);
}

#[test]
fn presented_files_take_what_a_limit_allowed_and_few_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = outlives_with(|| spilling(folder.path()));
    let file = unnamed(folder.path());
    presents_many(&mut client, &file, 100);
    are_open(&file, 64);
    let all = 256 + 64 + 64;
    until("not all were looked at", || {
        room(&daemon).files_used / MIB == all
    });
    presents_many(&mut client, &file, 100);
    are_open(&file, 64);
}

/// So many processes of each of these tenants outlive their daemon.
pub(super) fn outlive(folder: &Path, tenants: &[(&str, usize)]) -> (Daemon, Vec<Client>) {
    let capabilities = Hello::GATED | Hello::MOVABLE;
    let first = spilling(folder);
    let (mut commands, mut all) = (Vec::new(), Vec::new());
    for (name, count) in tenants {
        let (command, socket) = first.tenant(name, &LIMITS);
        commands.push(command);
        for _ in 0..*count {
            let client = Client::register_with(&socket, capabilities);
            all.push((client, socket.clone()));
        }
    }
    drop(first);
    let next = spilling(folder);
    let back = all.into_iter().map(|(mut client, socket)| {
        let reply = client.reconnect_with(&socket, capabilities);
        assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
        client
    });
    let back = back.collect();
    (next, back)
}

#[test]
fn a_process_presents_64_files_in_one_burst_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut clients) = outlive(folder.path(), &[("one", 1)]);
    let file = unnamed(folder.path());
    let burst = |client: &mut Client, from: u64, many: u64| {
        for number in from..from + many {
            presents(client, &Request::HostFile { file: number }, file.as_fd());
        }
        // The connection is there still, and all were heard.
        client.free(0);
    };
    let client = &mut clients[0];
    burst(client, 0, 64);
    are_open(&file, 64);
    burst(client, 64, 64);
    are_open(&file, 64);
}

#[test]
fn the_processes_of_a_tenant_present_512_files_together_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (_daemon, mut clients) = outlive(folder.path(), &[("one", 9), ("two", 1)]);
    let file = unnamed(folder.path());
    let mut two = clients.pop().unwrap();
    let (mut last, mut others) = (clients.pop().unwrap(), clients);
    for client in &mut others {
        presents_many(client, &file, 60);
    }
    are_open(&file, 480);
    presents_many(&mut last, &file, 60);
    are_open(&file, 512);
    presents_many(&mut two, &file, 60);
    are_open(&file, 512 + 60);
    // What a process that ends had is free for the others.
    drop(others.pop());
    until("its files are open still", || {
        open(&file) == 512 - 60 + 60 + 1
    });
    presents_many(&mut last, &file, 60);
    are_open(&file, 512 - 60 + 28 + 60);
}
